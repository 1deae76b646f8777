"""The handle of a filter on an optimizer: hooks that run the filter once per step and save and load its state."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.metrics import measure
from grokfast.binding.state import COUNT, Entry, Slot, States, local, tensors_of
from grokfast.binding.step import Outcome, Runner, Schedule
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, State
from grokfast.stages import Trigger

COPIER = "__deepcopy__"  # copy.deepcopy asks the object itself for it


def handle_of(optimizer: Optimizer) -> Attachment | None:
    """The handle of the filter that is attached to an optimizer."""
    handle = getattr(vars(optimizer).get(COPIER), "__self__", None)
    return handle if isinstance(handle, Attachment) else None


class Attachment:
    """The handle of a filter on an optimizer. `attach` makes it.

    Attributes:
        optimizer: the optimizer that it filters for.
        start: as given to `attach`.
        nonfinite: as given to `attach`.

    Examples:
        >>> import grokfast, torch
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))
        >>> model(torch.ones(1, 2)).sum().backward()
        >>> optimizer.step()
        >>> handle.step, handle.active
        (1, True)
        >>> handle.slow(model.weight)
        tensor([[1., 1.]])
        >>> handle.remove()
    """

    def __init__(
        self,
        optimizer: Optimizer,
        filter: Filter,
        start: int | Trigger,
        nonfinite: str,
        params: Iterable[Tensor] | None = None,
        schedules: Mapping[str, Schedule] | None = None,
    ) -> None:
        self.optimizer, self.start, self.nonfinite = optimizer, start, nonfinite
        self._copied = False  # whether it came with a copy of the optimizer
        self._enabled = True
        self._last: Outcome | None = None  # of this step, if the filter has run
        self._done: Outcome | None = None  # the last outcome, also after its step
        self._stepping: list[Slot] = []  # whose entries can be placed after this step
        self._hidden: list[tuple[Tensor, Tensor]] = []  # parameters and gradients, while a step is skipped
        self._warned = self._unobserved = self._hinted = False
        self._waiting = False  # for the optimizer to call its closure
        self._states = States(optimizer, filter, start)
        self._runner = Runner(self._states, nonfinite, params, schedules or {})
        if (previous := handle_of(optimizer)) is not None:  # which came with a copy
            previous.remove(keep_state=True)
        # A compiler gains nothing from bookkeeping: under torch.compile(optimizer.step) it stays plain Python.
        before: Any = torch.compiler.disable(self._before_step)
        after: Any = torch.compiler.disable(self._after_step)
        self._hooks = (
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(after),
            optimizer.register_state_dict_post_hook(self._states.after_state_dict),
            optimizer.register_load_state_dict_pre_hook(self._states.before_load),
            optimizer.register_load_state_dict_post_hook(self._after_load),
        )
        setattr(optimizer, COPIER, self._copy)

    # For the user -------------------------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The filter attached. To change lamb or alpha during training, give `attach` a schedule or set the keys of the
        param groups.
        """
        return self._states.filter

    @property
    def enabled(self) -> bool:
        """Set to False to leave gradients as they are; the filter's state is kept warm."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        check_bool("enabled", value)
        self._enabled = value

    @property
    def step(self) -> int:
        """Number of optimizer steps whose gradients the filter has seen."""
        self._states.notice()
        self._states.stamp()
        return self._states.steps

    @property
    def skipped(self) -> int:
        """Number of steps whose gradients the filter did not take, since `attach`.

        They held an inf or a NaN, or a fused optimizer discarded them for a `GradScaler`. Other optimizers do not call
        their hooks in steps that a `GradScaler` discards.
        """
        return self._states.skipped

    @property
    def resumed(self) -> bool:
        """Whether the filter continues from saved state, found in the optimizer by `attach` or loaded later."""
        return self._states.resumed

    @property
    def active(self) -> bool:
        """Whether the next step changes gradients: enabled, and the start has been reached."""
        started = self.step >= self.start if isinstance(self.start, int) else self.start.fired
        return self._enabled and started

    @property
    def state(self) -> dict[Tensor, State]:
        """The filter's tensors of each parameter, by name. They are live, not copies."""
        self._states.notice()
        return {param: tensors_of(entry) for param, entry in self._states.entries()}

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the filter's state, on this rank if parameters are sharded."""
        tensors = [local(tensor) for state in self.state.values() for tensor in state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def slow(self, param: Tensor) -> Tensor | None:
        """The slow part of a parameter's gradient at the last step, without lamb; None before its first gradient."""
        self._states.notice()
        slot = self._states.slots.get(param)
        entry = None if slot is None else slot.entry
        return None if entry is None or entry[COUNT] == 0 else self.filter.slow(tensors_of(entry), entry[COUNT])

    def metrics(self, *, detail: bool = False) -> dict[str, float]:
        """What the filter does, as a flat dict of numbers for any logger. Asking waits for the device.

        `grokfast/ratio` is |lamb slow| / |g| and `grokfast/cosine` the cosine between g and slow, from the filter's
        state and the current gradients: call it before `zero_grad()`. The same per param group as
        `grokfast/group0/ratio`, and with `detail=True` per parameter by name. Not a number where there is no gradient.
        `grokfast/active`, `grokfast/steps` and `grokfast/skipped` are numbers too. Under FSDP2 each rank measures its
        own shards.
        """
        check_bool("detail", detail)
        counts = {"active": self.active, "steps": self.step, "skipped": self.skipped}
        self._runner.read_groups()
        done = self._done
        edited = done is not None and done.edited and self._runner.is_current(done)
        found = measure(self._runner, used=done.filters if done is not None and edited else {}, detail=detail)
        if self.step and not self._hinted and not self._runner.has_gradients():
            self._hinted = True
            warnings.warn(
                "metrics() found no gradient, so ratio and cosine are NaN: call it before zero_grad()", stacklevel=2
            )
        return {**found, **{f"grokfast/{key}": float(value) for key, value in counts.items()}}

    def apply(self) -> None:
        """Filter the gradients now instead of at the start of the coming `optimizer.step()`.

        Needed only to clip filtered gradients: `backward(); handle.apply(); clip_grad_norm_(...); step()`. A second
        call on the same gradients does nothing. Under a GradScaler call `scaler.unscale_(optimizer)` first. It checks
        the gradients and waits for the device: a GradScaler may discard the step.
        """
        if not self._hooks:
            raise RuntimeError("the filter was detached by remove(): attach it again")
        # No complaint about an inf here: a GradScaler may discard the step. If the step is taken, its hook complains.
        self._run(applied=True)

    def remove(self, *, keep_state: bool = False) -> None:
        """Detach the filter.

        Args:
            keep_state: leave the filter's state in the optimizer, which saves it, and where attaching again finds it
                and continues. By default the optimizer is left as if the filter had never been attached.
        """
        check_bool("keep_state", keep_state)
        if not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        vars(self.optimizer).pop(COPIER, None)
        self._runner.stop()
        self._states.leave(keep_state=keep_state)

    def __repr__(self) -> str:
        kind = type(self.optimizer).__name__
        return f"Attachment({self.filter}, optimizer={kind}, step={self.step}, active={self.active})"

    # The step -----------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> tuple[Any, Entry] | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        self._waiting = callable(closure)
        if not callable(closure):
            self._filter_once(kwargs)
            return None
        # The gradients do not exist yet: the closure makes them inside the step.
        wrapped = self._filtered(closure)
        return ((args[0], wrapped, *args[2:]), kwargs) if len(args) > 1 else (args, {**kwargs, "closure": wrapped})

    def _filtered(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        called = False

        def run() -> Any:
            nonlocal called
            if called:
                raise RuntimeError("the optimizer called its closure twice in one step; grokfast filters once per step")
            called = True
            loss = closure()
            self._waiting = False
            self._filter_once({})
            return loss

        return run

    def _filter_once(self, kwargs: Entry) -> None:
        # A subclass whose step() calls super().step() fires the hooks twice: the inner one must not filter again.
        self._run(kwargs=kwargs)
        # With found_inf set, a GradScaler knows, and the optimizer discards the step by itself.
        if self._last is not None and self._last.bad and getattr(self.optimizer, "found_inf", None) is None:
            self._complain(self._last.bad)
        self._stepping = self._states.waiting()

    def _run(self, *, applied: bool = False, kwargs: Entry | None = None) -> None:
        """Filter the gradients unless they have been filtered."""
        if self._last is not None and self._runner.is_current(self._last):
            return
        self._last = self._runner.run(self._begun, applied=applied, kwargs=kwargs or {}, named=not self._warned)
        self._done = self._last

    def _begun(self) -> bool:
        """Whether to edit gradients now."""
        if not self._enabled:
            return False
        if isinstance(self.start, int):
            return self._states.steps >= self.start
        self._states.stamp()
        if not self.start.fired and self._states.steps >= 1000:
            self._warn_if_unobserved()
        return self.start.fired

    def _warn_if_unobserved(self) -> None:
        if not self._unobserved and getattr(self.start, "observations", None) == 0:
            self._unobserved = True
            advice = "call observe() with a training metric, else the filter never starts"
            warnings.warn(f"{self.start} was not told any value in {self._states.steps} steps: {advice}", stacklevel=2)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> None:
        self._last = None
        for param, grad in self._hidden:
            param.grad = grad
        self._hidden = []
        if self._waiting:
            kind = type(optimizer).__name__
            raise RuntimeError(f"{kind}.step() did not call its closure, so the filter saw no gradient: call step()")
        self._states.after_step(self._stepping)

    def _after_load(self, optimizer: Optimizer) -> None:
        self._last = None
        self._states.after_load(optimizer)

    def _complain(self, where: str) -> None:
        """Raise, skip the step or leave it to the optimizer, since a gradient is not finite; warn the first time."""
        message = f"inf or NaN in the gradient of {where} at step {self._states.steps}"
        if self.nonfinite == "raise":
            raise FloatingPointError(f"gradients must be finite, got {message}")
        if self.nonfinite == "skip":  # an optimizer leaves parameters without a gradient alone
            params = [param for group in self.optimizer.param_groups for param in group["params"]]
            self._hidden = [(param, param.grad) for param in params if param.grad is not None]
            for param, _ in self._hidden:
                param.grad = None
        if not self._warned:
            self._warned = True
            outcome = "the optimizer skips" if self.nonfinite == "skip" else "the filter ignores"
            warnings.warn(f"{message}: {outcome} such steps", stacklevel=2)

    # Copies -------------------------------------------------------------------------------------------------------

    def _copy(self, memo: dict[int, Any]) -> Optimizer:
        """A deep copy of the optimizer, with a filter that continues from a copy of the state."""
        delattr(self.optimizer, COPIER)
        try:
            twin = copy.deepcopy(self.optimizer, memo)
        finally:
            setattr(self.optimizer, COPIER, self._copy)
        start, params = copy.deepcopy((self.start, self._runner.chosen and [*self._runner.chosen]), memo)
        handle = Attachment(twin, self.filter, start, self.nonfinite, params, self._runner.schedules)
        handle._copied, handle.enabled = True, self.enabled
        return twin
