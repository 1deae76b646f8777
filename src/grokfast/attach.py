"""When a filter runs: once per optimizer step, on finished and unscaled gradients, for any torch.optim.Optimizer.

The filter's state lies in `optimizer.state` (see entries.py), so that whatever saves, loads, copies or shards the
optimizer takes it along. It is put there after the optimizer's first step: most of them initialise themselves only
where they find nothing.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from grokfast.batches import Batch, Tuning, collect, is_probe, param_name
from grokfast.entries import COUNT, PREFIX, STEP, STREAK, Entry, fit, is_ours, new_entry, take_out, tensors_of
from grokfast.filters.base import Filter, State, all_finite, check_bool, check_choice, check_count
from grokfast.stages import Trigger

_attached: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def attach(
    optimizer: Optimizer,
    filter: Filter,
    *,
    start: int | Trigger = 0,
    nonfinite: Literal["skip", "raise"] = "skip",
) -> Attachment:
    """Make an optimizer amplify slow gradients. Nothing else in the training script changes.

    Args:
        optimizer: any first-order `torch.optim.Optimizer`.
        filter: what to add to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: the step (from 0) or the trigger (e.g. `grokfast.Saturation`) from which on gradients are changed.
            Before that they pass as they are while the filter's state is kept warm.
        nonfinite: what to do when a gradient holds an inf or a NaN. `"skip"` leaves the filter's state and all
            gradients of this step as they are and warns once; `"raise"` raises `FloatingPointError` before anything
            has changed. Steps that a `GradScaler` discards are always skipped silently.

    Gradients are edited in place, once per backward pass: call `zero_grad()` between steps as usual. A second `step()`
    on the same gradients would amplify them again.

    Returns:
        A handle: `remove()`, `enabled`, `apply()`, `state`, `slow(p)`, `memory_bytes`.

    Param groups override the filter's tunable values for themselves, at any time, by the keys `grokfast_lamb` and
    `grokfast_alpha`; `grokfast=False` switches it off for the group, whose state then stands still.

    To resume, attach first and load then: an optimizer that loads without the filter attached casts the filter's state
    to the dtype of the parameters.

    Example:
        >>> import grokfast
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
        >>> handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"optimizer must be a torch.optim.Optimizer, got {type(optimizer).__name__}")
    if not isinstance(filter, Filter):
        raise TypeError(f"filter must be a grokfast filter such as grokfast.EMA(), got {filter!r}")
    if isinstance(optimizer, LBFGS):
        raise TypeError("optimizer must be of first order: LBFGS runs several backward passes per step")
    if isinstance(optimizer, SparseAdam):
        raise TypeError("optimizer must take dense gradients: SparseAdam takes sparse ones only")
    if optimizer in _attached:
        raise ValueError("optimizer has a filter attached already: call remove() on its handle first")
    if not any(group["params"] for group in optimizer.param_groups):
        raise ValueError("optimizer must have at least one parameter, got none")
    if not (hasattr(start, "fired") and hasattr(start, "streak")):
        check_count("start", start, low=0)
    check_choice("nonfinite", nonfinite, ("skip", "raise"))
    return Attachment(optimizer, filter, start, nonfinite)


class Attachment:
    """The bond between a filter and an optimizer. Made by `attach`, not by hand."""

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger, nonfinite: str) -> None:
        self.optimizer, self.filter, self.start, self.nonfinite = optimizer, filter, start, nonfinite
        self.step = 0  # optimizer steps whose gradients the filter has seen
        self._enabled = True
        self._applied = False
        self._warned = False
        self._pending: dict[Tensor, Entry] = {}  # states that wait for the optimizer's own initialisation
        self._incoming: dict[Tensor, Entry] = {}  # states that wait for the optimizer to load its own
        wanted = filter.new_state(torch.empty((), device="meta"))
        self._keys = [(name, PREFIX + name) for name in wanted]
        self._tuning = Tuning(filter)
        for index, group in enumerate(optimizer.param_groups):
            self._tuning.filter_for(index, group)
        self._commit(fit(filter, {p: entry for p, entry in optimizer.state.items() if COUNT in entry}))
        # Bookkeeping is no work for a compiler: under torch.compile(optimizer.step) it stays plain Python.
        before: Any = torch.compiler.disable(self._before_step)
        self._hooks = (
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._after_state_dict),
            optimizer.register_load_state_dict_pre_hook(self._before_load),
            optimizer.register_load_state_dict_post_hook(self._after_load),
        )
        _attached.add(optimizer)

    # What a user sees ---------------------------------------------------------------------------------------------

    @property
    def enabled(self) -> bool:
        """Set to False to let gradients pass as they are; the filter's state is kept warm."""
        return self._enabled

    @enabled.setter
    def enabled(self, value: bool) -> None:
        check_bool("enabled", value)
        self._enabled = value

    @property
    def active(self) -> bool:
        """Whether the next step changes gradients: enabled, and the start has been reached."""
        started = self.step >= self.start if isinstance(self.start, int) else self.start.fired
        return self._enabled and started

    @property
    def state(self) -> dict[Tensor, State]:
        """The filter's tensors of each parameter, by name. They are the live ones."""
        return {p: tensors_of(entry) for p, entry in self._entries()}

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the filter's state."""
        return sum(t.numel() * t.element_size() for state in self.state.values() for t in state.values())

    def slow(self, param: Tensor) -> Tensor | None:
        """The slow part of a parameter's gradient as of the last step, without lamb; None before its first one."""
        entry = self._entry(param)
        return None if entry is None or entry[COUNT] == 0 else self.filter.slow(tensors_of(entry), entry[COUNT])

    def apply(self) -> None:
        """Filter the gradients now instead of at the start of the coming `optimizer.step()`.

        Needed only to clip what the filter made: `backward(); handle.apply(); clip_grad_norm_(...); step()`.
        Under a GradScaler call `scaler.unscale_(optimizer)` first.
        """
        if not self._hooks:
            raise RuntimeError("the filter was detached by remove(): attach it again")
        if self._applied:
            raise RuntimeError("apply() was called already since the last optimizer step")
        # Not finite: a GradScaler may be about to discard the step. If it is taken, its hook will complain.
        self._applied = self._filter_gradients(complain=False)

    def remove(self) -> None:
        """Detach the filter and drop its state, leaving the optimizer as if it had never been attached."""
        if not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks = ()
        _attached.discard(self.optimizer)
        self._pending.clear()
        for param, entry in list(self.optimizer.state.items()):
            for key in [key for key in entry if is_ours(key)]:
                del entry[key]
            if not entry:
                del self.optimizer.state[param]

    def __repr__(self) -> str:
        kind = type(self.optimizer).__name__
        return f"Attachment({self.filter}, optimizer={kind}, step={self.step}, active={self.active})"

    # The step -----------------------------------------------------------------------------------------------------

    def _before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> tuple[Any, Entry] | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            if not self._applied:
                self._filter_gradients()
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
            if not self._applied:
                self._filter_gradients()
            return loss

        return run

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> None:
        self._applied = False
        if self._pending:
            for param, entry in self._pending.items():
                optimizer.state[param].update(entry)
            self._pending.clear()

    @torch.no_grad()
    def _filter_gradients(self, *, complain: bool = True) -> bool:
        """Run the filter on all gradients there are; False if it left them and its state alone."""
        everything = collect(self.optimizer, self._tuning, self._entry)
        batches = [batch for batch in everything if batch.filter is not None]
        if not batches:
            return False
        if self.step == 0 and is_probe(self.optimizer, batches):
            for batch in batches:
                self._batch_entries(batch)
            return False
        bad = self._not_finite(everything)
        if bad is not None:
            # With found_inf set, a GradScaler knows and the optimizer discards the step by itself.
            if complain and getattr(self.optimizer, "found_inf", None) is None:
                self._complain(bad)
            return False
        active = self.active
        for batch in batches:
            entries = self._batch_entries(batch)
            states = [{name: entry[key] for name, key in self._keys} for entry in entries]
            cast("Filter", batch.filter).update(batch.grads, states, batch.count, active=active)
            for entry in entries:
                entry[COUNT], entry[STEP] = batch.count + 1, self.step + 1
        self.step += 1
        return True

    def _entry(self, param: Tensor) -> Entry | None:
        entry = self.optimizer.state.get(param)
        return entry if entry is not None and COUNT in entry else self._pending.get(param)

    def _batch_entries(self, batch: Batch) -> list[Entry]:
        """The state entries of a batch, made where there are none yet."""
        entries = [self._entry(param) for param in batch.params]
        for i, entry in enumerate(entries):
            if entry is None:
                entries[i] = self._pending[batch.params[i]] = new_entry(self.filter, batch.grads[i])
        return cast("list[Entry]", entries)

    def _entries(self) -> Iterator[tuple[Tensor, Entry]]:
        yield from ((p, entry) for p, entry in self.optimizer.state.items() if COUNT in entry)
        yield from self._pending.items()

    def _not_finite(self, batches: list[Batch]) -> Batch | None:
        """The first batch with an inf or a NaN; unscales what a fused optimizer would have unscaled itself."""
        scale = getattr(self.optimizer, "grad_scale", None)
        bad = next((batch for batch in batches if not all_finite(batch.grads, scale)), None)
        if bad is None and scale is not None:
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
        return bad

    def _complain(self, batch: Batch) -> None:
        """Raise or, the first time, warn that a gradient in `batch` is not finite."""
        if self.nonfinite == "skip" and self._warned:
            return
        place = next(p for p, grad in zip(batch.places, batch.grads, strict=True) if not grad.isfinite().all())
        message = f"inf or NaN in the gradient of {param_name(self.optimizer, *place)} at step {self.step}"
        if self.nonfinite == "raise":
            raise FloatingPointError(f"gradients must be finite, got {message}")
        self._warned = True
        warnings.warn(f"{message}: the filter skips such steps", stacklevel=2)

    # Saving and loading -------------------------------------------------------------------------------------------

    def _after_state_dict(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.start, int):
            return state_dict
        stamp = {STREAK: self.start.streak}
        state = {key: {**entry, **stamp} if COUNT in entry else entry for key, entry in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Take our entries out before the optimizer casts them to the parameters' dtype; refuse bad ones here."""
        ours, rest = take_out(optimizer, state_dict)
        self._incoming = fit(self.filter, ours)
        if not ours and (state_dict["state"] or self.step):
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return rest

    def _after_load(self, optimizer: Optimizer) -> None:
        self._applied = False
        self._pending.clear()
        self._commit(self._incoming)
        self._incoming = {}

    def _commit(self, entries: dict[Tensor, Entry]) -> None:
        newest = max(entries.values(), key=lambda entry: entry[STEP], default={STEP: 0})
        self.step = int(newest[STEP])
        if not isinstance(self.start, int):
            self.start.streak = int(newest.get(STREAK, self.start.streak))
        for param, entry in entries.items():
            entry.pop(STREAK, None)
            self.optimizer.state[param].update(entry)
