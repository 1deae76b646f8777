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

COPIER = "__deepcopy__"  # copy.deepcopy calls it if the object has it


def handle_of(optimizer: Optimizer) -> Attachment | None:
    """The handle of the filter on an optimizer, if it has one."""
    handle = getattr(vars(optimizer).get(COPIER), "__self__", None)
    return handle if isinstance(handle, Attachment) else None


class Attachment:
    """The handle of a filter on an optimizer, which `attach` returns.

    Attributes:
        optimizer: the optimizer.
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
        self._copied = False  # whether it was created by copying an optimizer
        self._enabled = True
        self._last: Outcome | None = None  # of this step, if the filter has run in it
        self._done: Outcome | None = None  # the last outcome, kept after its step
        self._stepping: list[Slot] = []  # their entries can be placed after this step
        self._hidden: list[tuple[Tensor, Tensor]] = []  # parameters and gradients, while a step is skipped
        self._warned = self._unobserved = self._hinted = False
        self._waiting = False  # whether the optimizer has not called its closure yet
        self._states = States(optimizer, filter, start)
        self._runner = Runner(self._states, nonfinite, params, schedules or {})
        if (previous := handle_of(optimizer)) is not None:  # created by copying the optimizer
            previous.remove(keep_state=True)
        # Compiling the bookkeeping gains nothing: under torch.compile(optimizer.step) it stays plain Python.
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
        """The filter. To change lamb or alpha during training, use a schedule or the keys of the param groups."""
        return self._states.filter

    @property
    def enabled(self) -> bool:
        """Set to False to leave gradients unchanged. The filter still updates its state."""
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
        """Number of steps since `attach` that the filter ignored.

        Their gradients held an inf or a NaN, or a fused optimizer discarded them for a `GradScaler`. Steps of other
        optimizers that a `GradScaler` discards are not counted, because they run no hooks.
        """
        return self._states.skipped

    @property
    def resumed(self) -> bool:
        """Whether the filter continues from saved state, found in the optimizer by `attach` or loaded later."""
        return self._states.resumed

    @property
    def active(self) -> bool:
        """Whether the filter is enabled and has started. An `MA` still changes nothing until its window is full."""
        started = self.step >= self.start if isinstance(self.start, int) else self.start.fired
        return self._enabled and started

    @property
    def state(self) -> dict[Tensor, State]:
        """The filter's tensors of each parameter, by name. They are not copies."""
        self._states.notice()
        return {param: tensors_of(entry) for param, entry in self._states.entries()}

    @property
    def memory_bytes(self) -> int:
        """Size of the filter's state in bytes; of this rank if parameters are sharded."""
        tensors = [local(tensor) for state in self.state.values() for tensor in state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def slow(self, param: Tensor) -> Tensor | None:
        """The slow part of a parameter's gradient at the last step, without lamb; None before its first gradient."""
        self._states.notice()
        slot = self._states.slots.get(param)
        entry = None if slot is None else slot.entry
        return None if entry is None or entry[COUNT] == 0 else self.filter.slow(tensors_of(entry), entry[COUNT])

    def metrics(self, *, detail: bool = False) -> dict[str, float]:
        """Measure the filter: a flat dict of numbers for any logger. It waits for the device.

        `grokfast/ratio` is |lamb slow| / |g| and `grokfast/cosine` the cosine between g and slow. Both need the
        current gradients, so call it before `zero_grad()`; without gradients they are NaN. `grokfast/group0/ratio` is
        that of a param group. `detail=True` adds each parameter by name. `grokfast/active`, `grokfast/steps` and
        `grokfast/skipped` are numbers too. Under FSDP2 each rank measures its own shards.
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
        """Filter the gradients now instead of at the start of the next `optimizer.step()`.

        Needed only to clip filtered gradients: `backward(); handle.apply(); clip_grad_norm_(...); step()`. A second
        call on the same gradients does nothing. With a GradScaler call `scaler.unscale_(optimizer)` first. It checks
        the gradients, because a GradScaler may discard the step, and so waits for the device.
        """
        if not self._hooks:
            raise RuntimeError("the filter was detached by remove(): attach it again")
        # Do not warn of an inf here: a GradScaler may discard the step. If it does not, the hook of the step warns.
        self._run(applied=True)

    def remove(self, *, keep_state: bool = False) -> None:
        """Detach the filter.

        Args:
            keep_state: leave the filter's state in the optimizer, which saves it, so that attaching again continues
                from it. By default the state is deleted.
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
        # The gradients do not exist yet: the closure computes them during the step.
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
        # A subclass whose step() calls super().step() runs the hooks twice. The inner call must not filter again.
        self._run(kwargs=kwargs)
        # If found_inf is set, a GradScaler knows of the inf, and the optimizer discards the step itself.
        if self._last is not None and self._last.bad and getattr(self.optimizer, "found_inf", None) is None:
            self._complain(self._last.bad)
        self._stepping = self._states.waiting()

    def _run(self, *, applied: bool = False, kwargs: Entry | None = None) -> None:
        """Filter the gradients unless that has happened already."""
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
            advice = "call observe() with a training metric, or the filter never starts"
            warnings.warn(f"{self.start} has observed no value in {self._states.steps} steps: {advice}", stacklevel=2)

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
        """React to an inf or a NaN as `nonfinite` says: raise, or warn once and perhaps skip the step."""
        message = f"inf or NaN in the gradient of {where} at step {self._states.steps}"
        if self.nonfinite == "raise":
            raise FloatingPointError(f"gradients must be finite, got {message}")
        if self.nonfinite == "skip":  # an optimizer does not change parameters without a gradient
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
        """A deep copy of the optimizer, with the filter and a copy of its state."""
        delattr(self.optimizer, COPIER)
        try:
            twin = copy.deepcopy(self.optimizer, memo)
        finally:
            setattr(self.optimizer, COPIER, self._copy)
        start, params = copy.deepcopy((self.start, self._runner.chosen and [*self._runner.chosen]), memo)
        handle = Attachment(twin, self.filter, start, self.nonfinite, params, self._runner.schedules)
        handle._copied, handle.enabled = True, self.enabled
        return twin
