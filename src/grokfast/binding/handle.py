"""The bond between a filter and an optimizer: hooks that run the filter once per step and carry its state along.

The state lies in `optimizer.state` (see state.py), so that whatever saves, loads, copies or shards the optimizer
takes it along. It is put there after the optimizer's first step: most set themselves up only where they find nothing.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.plan import Batch, Tuning, collect, is_probe, param_name
from grokfast.binding.state import (
    COUNT,
    PREFIX,
    STEP,
    STREAK,
    Entry,
    fit,
    is_ours,
    is_sharded,
    local,
    new_entry,
    take_out,
    tensors_of,
)
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, State, all_finite
from grokfast.stages import Trigger

_attached: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def is_attached(optimizer: Optimizer) -> bool:
    return optimizer in _attached


class Work(NamedTuple):
    """What was done since the last step, and to which gradients: they are known by one of them."""

    param: Tensor
    grad: weakref.ref[Tensor]
    bad: str | None  # where an inf or NaN was; the gradients were left alone then

    @property
    def holds(self) -> bool:
        """Whether the gradients are still those: after a step that was skipped or has failed there are others."""
        return self.param.grad is not None and self.param.grad is self.grad()


class Attachment:
    """The bond between a filter and an optimizer. Made by `attach`, not by hand."""

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger, nonfinite: str) -> None:
        self.optimizer, self.start, self.nonfinite = optimizer, start, nonfinite
        self._filter = filter
        self.step = 0  # optimizer steps whose gradients the filter has seen
        self._enabled = True
        self._work: Work | None = None
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
    def filter(self) -> Filter:
        """The filter attached. To change lamb or alpha during training, set the keys of the param groups."""
        return self._filter

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
        """Bytes held by the filter's state; of sharded parameters, on this rank."""
        tensors = [local(tensor) for state in self.state.values() for tensor in state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

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
        # Not finite: a GradScaler may be about to discard the step. If it is taken, its hook will complain.
        self._work = self._filter_gradients()

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
        if not callable(closure):
            self._filter_once()
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
            self._filter_once()
            return loss

        return run

    def _filter_once(self) -> None:
        # A subclass whose step() calls super().step() fires the hooks twice: the inner one must find the work done.
        if self._work is None or not self._work.holds:
            self._work = self._filter_gradients()
        # With found_inf set, a GradScaler knows and the optimizer discards the step by itself.
        if self._work is not None and self._work.bad and getattr(self.optimizer, "found_inf", None) is None:
            self._complain(self._work.bad)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> None:
        self._work = None
        if self._pending:
            for param, entry in self._pending.items():
                optimizer.state[param].update(entry)
            self._pending.clear()

    @torch.no_grad()
    def _filter_gradients(self) -> Work | None:
        """Run the filter on all gradients there are, unless one is not finite; None where there is nothing to do."""
        everything = collect(self.optimizer, self._tuning, self._entry)
        batches = [batch for batch in everything if batch.filter is not None]
        if not batches:
            return None
        if self.step == 0 and is_probe(self.optimizer, batches):
            for batch in batches:
                self._batch_entries(batch)
            return None
        known = batches[0].params[0], weakref.ref(batches[0].grads[0])
        if not self._finite(everything):
            return Work(*known, self._find_bad(everything))
        active = self.active
        for batch in batches:
            entries = self._batch_entries(batch)
            states = [{name: entry[key] for name, key in self._keys} for entry in entries]
            grads = batch.grads
            if is_sharded(grads[0]):
                grads = [local(grad) for grad in grads]
                states = [{name: local(tensor) for name, tensor in state.items()} for state in states]
            cast("Filter", batch.filter).update(grads, states, batch.count, active=active)
            for entry in entries:
                entry[COUNT], entry[STEP] = batch.count + 1, self.step + 1
        self.step += 1
        return Work(*known, None)

    def _entry(self, param: Tensor) -> Entry | None:
        entry = self.optimizer.state.get(param)
        return entry if entry is not None and COUNT in entry else self._pending.get(param)

    def _batch_entries(self, batch: Batch) -> list[Entry]:
        """The state entries of a batch, made where there are none yet."""
        entries = [self._entry(param) for param in batch.params]
        for i, entry in enumerate(entries):
            if entry is None:
                entry = {**new_entry(self.filter, batch.grads[i]), **self._stamp()}
                entries[i] = self._pending[batch.params[i]] = entry
        return cast("list[Entry]", entries)

    def _entries(self) -> Iterator[tuple[Tensor, Entry]]:
        yield from ((p, entry) for p, entry in self.optimizer.state.items() if COUNT in entry)
        yield from self._pending.items()

    def _finite(self, batches: list[Batch]) -> bool:
        """Whether all gradients are finite; unscales what a fused optimizer would have unscaled itself."""
        scale = getattr(self.optimizer, "grad_scale", None)
        if scale is not None:
            self.optimizer.grad_scale = None  # type: ignore[attr-defined]
        return all_finite([batch.grads for batch in batches], scale)

    def _find_bad(self, batches: list[Batch]) -> str:
        """The name of a parameter whose gradient is not finite, looked for only while it may still be said."""
        if self._warned and self.nonfinite == "skip":
            return "a parameter"
        pairs = (pair for batch in batches for pair in zip(batch.places, batch.grads, strict=True))
        place = next((p for p, grad in pairs if not local(grad).isfinite().all()), None)
        return param_name(self.optimizer, *place) if place else "another rank's shard"

    def _complain(self, where: str) -> None:
        """Raise or, the first time, warn that a gradient is not finite."""
        message = f"inf or NaN in the gradient of {where} at step {self.step}"
        if self.nonfinite == "raise":
            raise FloatingPointError(f"gradients must be finite, got {message}")
        if not self._warned:
            self._warned = True
            warnings.warn(f"{message}: the filter skips such steps", stacklevel=2)

    # Saving and loading -------------------------------------------------------------------------------------------

    def _after_state_dict(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        stamp = self._stamp()
        state = {key: {**entry, **stamp} if COUNT in entry else entry for key, entry in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Take our entries out before the optimizer casts them to the parameters' dtype; refuse bad ones here."""
        ours, rest = take_out(optimizer, state_dict)
        saved = rest["param_groups"]
        if not ours and len(saved) == len(optimizer.param_groups):
            # Saved before the filter was there: what the groups say about it now still holds.
            said = [{k: v for k, v in g.items() if k.startswith("grokfast")} for g in optimizer.param_groups]
            rest["param_groups"] = [{**now, **old} for now, old in zip(said, saved, strict=True)]
        self._incoming = fit(self.filter, ours)
        if not ours and (state_dict["state"] or self.step):
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return rest

    def _after_load(self, optimizer: Optimizer) -> None:
        self._work = None
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
            self.optimizer.state[param].update({**entry, **self._stamp()})

    def _stamp(self) -> Entry:
        """The trigger's progress. Entries in use have it too: flattened checkpoints restore no key but those."""
        return {} if isinstance(self.start, int) else {STREAK: self.start.streak}
