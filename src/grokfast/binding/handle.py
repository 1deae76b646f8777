"""The handle of a filter on an optimizer: hooks that run the filter once per step and save and load its state.

The state lies in `optimizer.state` (see state.py), so that whatever saves, loads, copies or shards the optimizer takes
it along. It is put there after the optimizer's first step: most optimizers initialise only if they have no state.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.keeper import Keeper
from grokfast.binding.metrics import measure
from grokfast.binding.runner import Outcome, Runner
from grokfast.binding.state import COUNT, Entry, local, tensors_of
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, State
from grokfast.stages import Trigger

_attached: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def is_attached(optimizer: Optimizer) -> bool:
    return optimizer in _attached


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
    ) -> None:
        self.optimizer, self.start, self.nonfinite = optimizer, start, nonfinite
        self._enabled = True
        self._last: Outcome | None = None
        self._done: Outcome | None = None  # the last outcome, also after its step
        self._warned = self._unobserved = False
        self._waiting = False  # for the optimizer to call its closure
        self._keeper = Keeper(optimizer, filter, start)
        self._runner = Runner(optimizer, filter, self._keeper, nonfinite, params)
        self._keeper.adopt_found()
        # A compiler gains nothing from bookkeeping: under torch.compile(optimizer.step) it stays plain Python.
        before: Any = torch.compiler.disable(self._before_step)
        self._hooks = (
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._keeper.after_state_dict),
            optimizer.register_load_state_dict_pre_hook(self._keeper.before_load),
            optimizer.register_load_state_dict_post_hook(self._after_load),
        )
        _attached.add(optimizer)

    # For the user -------------------------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The filter attached. To change lamb or alpha during training, set the keys of the param groups."""
        return self._keeper.filter

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
        """Number of optimizer steps whose gradients the filter has seen. Asking may wait for the device."""
        self._keeper.settle()
        return self._keeper.steps

    @property
    def skipped(self) -> int:
        """Number of steps whose gradients the filter did not take, since `attach`. Asking may wait for the device.

        They held an inf or a NaN, or a fused optimizer discarded them for a `GradScaler`. Other optimizers do not call
        their hooks in steps that a `GradScaler` discards.
        """
        self._keeper.settle()
        return self._keeper.skipped

    @property
    def resumed(self) -> bool:
        """Whether the filter continues from saved state, found in the optimizer by `attach` or loaded later."""
        return self._keeper.resumed

    @property
    def active(self) -> bool:
        """Whether the next step changes gradients: enabled, and the start has been reached."""
        started = self.step >= self.start if isinstance(self.start, int) else self.start.fired
        return self._enabled and started

    @property
    def state(self) -> dict[Tensor, State]:
        """The filter's tensors of each parameter, by name. They are live, not copies."""
        return {param: tensors_of(entry) for param, entry in self._keeper.entries()}

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the filter's state, on this rank if parameters are sharded."""
        tensors = [local(tensor) for state in self.state.values() for tensor in state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def slow(self, param: Tensor) -> Tensor | None:
        """The slow part of a parameter's gradient at the last step, without lamb; None before its first gradient."""
        self._keeper.settle()
        entry = self._keeper.entry(param)
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
        done = self._done
        edited = done is not None and done.edited and self._runner.is_current(done)
        counts = {"active": self.active, "steps": self.step, "skipped": self.skipped}
        used = self._runner.used if edited else {}
        found = measure(self.optimizer, self._keeper, self._runner.tuning, used=used, detail=detail)
        return {**found, **{f"grokfast/{key}": float(value) for key, value in counts.items()}}

    def apply(self) -> None:
        """Filter the gradients now instead of at the start of the coming `optimizer.step()`.

        Needed only to clip filtered gradients: `backward(); handle.apply(); clip_grad_norm_(...); step()`. A second
        call on the same gradients does nothing. Under a GradScaler call `scaler.unscale_(optimizer)` first.
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
        _attached.discard(self.optimizer)
        self._runner.stop()
        self._keeper.leave(keep_state=keep_state)

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
        if self._last is None or getattr(self.optimizer, "found_inf", None) is not None:
            return
        if self._last.bad:
            self._complain(self._last.bad)
        if self._last.applied and self._last.discard is not None:
            self._keeper.ledger.add_taken(self._last.discard)
            self._last = self._last._replace(applied=False)

    def _run(self, *, applied: bool = False, kwargs: Entry | None = None) -> None:
        """Filter the gradients unless they have been filtered."""
        if self._last is not None and self._runner.is_current(self._last):
            return
        self._last = self._runner.run(self._begun(), applied=applied, kwargs=kwargs or {}, named=not self._warned)
        self._done = self._last

    def _begun(self) -> bool | Tensor:
        """Whether to edit gradients now; a tensor where only the device knows how many steps were discarded."""
        if not self._enabled:
            return False
        if isinstance(self.start, int):
            return self._keeper.ledger.reached(self._keeper.steps, self.start)
        self._keeper.stamp()
        if not self.start.fired and self._keeper.steps >= 1000:
            self._warn_if_unobserved()
        return self.start.fired

    def _warn_if_unobserved(self) -> None:
        if not self._unobserved and getattr(self.start, "observations", None) == 0:
            self._unobserved = True
            advice = "call observe() with a training metric, else the filter never starts"
            warnings.warn(f"{self.start} was not told any value in {self._keeper.steps} steps: {advice}", stacklevel=2)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> None:
        self._last = None
        if self._waiting:
            kind = type(optimizer).__name__
            raise RuntimeError(f"{kind}.step() did not call its closure, so the filter saw no gradient: call step()")
        self._keeper.place_pending(self._runner.filtered)

    def _after_load(self, optimizer: Optimizer) -> None:
        self._last = None
        self._keeper.after_load(optimizer)

    def _complain(self, where: str) -> None:
        """Raise or, the first time, warn that a gradient is not finite."""
        message = f"inf or NaN in the gradient of {where} at step {self._keeper.steps}"
        if self.nonfinite == "raise":
            raise FloatingPointError(f"gradients must be finite, got {message}")
        if not self._warned:
            self._warned = True
            warnings.warn(f"{message}: the filter skips such steps", stacklevel=2)
