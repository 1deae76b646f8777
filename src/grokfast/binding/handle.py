"""The handle of a filter on an optimizer: hooks that run the filter once per step and save and load its state.

The state lies in `optimizer.state` (see state.py), so that whatever saves, loads, copies or shards the optimizer takes
it along. It is put there after the optimizer's first step: most optimizers initialise only if they have no state.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.plan import Bundle, Tuning, find_nonfinite, is_probe, make_plan, unscale_and_check
from grokfast.binding.state import (
    COUNT,
    PREFIX,
    STEP,
    STREAK,
    Entry,
    drop_entries,
    is_sharded,
    local,
    new_entry,
    take_out,
    tensors_of,
    validate_saved,
)
from grokfast.checks import check_bool
from grokfast.filters.base import Filter, State
from grokfast.stages import Trigger

_attached: weakref.WeakSet[Optimizer] = weakref.WeakSet()


def is_attached(optimizer: Optimizer) -> bool:
    return optimizer in _attached


class Outcome(NamedTuple):
    """The last run of the filter: which gradients it saw, known by one of them, and whether they were finite."""

    param: Tensor
    grad: weakref.ref[Tensor]
    bad: str | None  # where an inf or NaN was; the filter then left all gradients as they are

    @property
    def is_current(self) -> bool:
        """Whether the parameter still has this gradient: after a skipped or failed step it gets a new one."""
        return self.param.grad is not None and self.param.grad is self.grad()


class Attachment:
    """The handle of a filter on an optimizer. `attach` makes it.

    Attributes:
        optimizer, start, nonfinite: as given to `attach`.
        step: number of optimizer steps whose gradients the filter has seen.
        resumed: whether the filter continues from saved state, found in the optimizer by `attach` or loaded later.
    """

    def __init__(self, optimizer: Optimizer, filter: Filter, start: int | Trigger, nonfinite: str) -> None:
        self.optimizer, self.start, self.nonfinite = optimizer, start, nonfinite
        self.step, self.resumed = 0, False
        self._filter = filter
        self._enabled = True
        self._last: Outcome | None = None
        self._warned = False
        self._pending: dict[Tensor, Entry] = {}  # states that wait for the optimizer's own initialisation
        self._incoming: dict[Tensor, Entry] = {}  # states that wait for the optimizer to load its own
        self._keys = [(name, PREFIX + name) for name in filter.new_state(torch.empty((), device="meta"))]
        self._tuning = Tuning(filter)
        for index, group in enumerate(optimizer.param_groups):
            self._tuning.filter_for(index, group)
        self._adopt(validate_saved(filter, {p: entry for p, entry in optimizer.state.items() if COUNT in entry}))
        # A compiler gains nothing from bookkeeping: under torch.compile(optimizer.step) it stays plain Python.
        before: Any = torch.compiler.disable(self._before_step)
        self._hooks = (
            optimizer.register_step_pre_hook(before),
            optimizer.register_step_post_hook(self._after_step),
            optimizer.register_state_dict_post_hook(self._after_state_dict),
            optimizer.register_load_state_dict_pre_hook(self._before_load),
            optimizer.register_load_state_dict_post_hook(self._after_load),
        )
        _attached.add(optimizer)

    # For the user -------------------------------------------------------------------------------------------------

    @property
    def filter(self) -> Filter:
        """The filter attached. To change lamb or alpha during training, set the keys of the param groups."""
        return self._filter

    @property
    def enabled(self) -> bool:
        """Set to False to leave gradients as they are; the filter's state is kept warm."""
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
        """The filter's tensors of each parameter, by name. They are live, not copies."""
        return {p: tensors_of(entry) for p, entry in self._entries()}

    @property
    def memory_bytes(self) -> int:
        """Bytes held by the filter's state, on this rank if parameters are sharded."""
        tensors = [local(tensor) for state in self.state.values() for tensor in state.values()]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)

    def slow(self, param: Tensor) -> Tensor | None:
        """The slow part of a parameter's gradient at the last step, without lamb; None before its first gradient."""
        entry = self._entry(param)
        return None if entry is None or entry[COUNT] == 0 else self.filter.slow(tensors_of(entry), entry[COUNT])

    def apply(self) -> None:
        """Filter the gradients now instead of at the start of the coming `optimizer.step()`.

        Needed only to clip filtered gradients: `backward(); handle.apply(); clip_grad_norm_(...); step()`.
        Under a GradScaler call `scaler.unscale_(optimizer)` first.
        """
        if not self._hooks:
            raise RuntimeError("the filter was detached by remove(): attach it again")
        # No complaint about an inf here: a GradScaler may discard the step. If the step is taken, its hook complains.
        self._last = self._filter_gradients()

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
        self._pending.clear()  # also if kept: an optimizer that found them would not set itself up
        if not keep_state:
            drop_entries(self.optimizer)
        for _, entry in self._entries():
            entry.update(self._stamp())

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
        # A subclass whose step() calls super().step() fires the hooks twice: the inner one must not filter again.
        if self._last is None or not self._last.is_current:
            self._last = self._filter_gradients()
        # With found_inf set, a GradScaler knows, and the optimizer discards the step by itself.
        if self._last is not None and self._last.bad and getattr(self.optimizer, "found_inf", None) is None:
            self._complain(self._last.bad)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Entry) -> None:
        self._last = None
        for param, entry in self._pending.items():
            optimizer.state[param].update(entry)
        self._pending.clear()

    @torch.no_grad()
    def _filter_gradients(self) -> Outcome | None:
        """Run the filter on all gradients, unless one is not finite; None if there is nothing to filter."""
        everything = make_plan(self.optimizer, self._tuning, self._entry)
        bundles = [bundle for bundle in everything if bundle.filter is not None]
        if not bundles:
            return None
        if self.step == 0 and is_probe(self.optimizer, bundles):
            for bundle in bundles:
                self._bundle_entries(bundle)
            return None
        seen = bundles[0].params[0], weakref.ref(bundles[0].grads[0])
        if not unscale_and_check(self.optimizer, everything):
            unnamed = self._warned and self.nonfinite == "skip"  # no message will follow: spare the search
            return Outcome(*seen, "a parameter" if unnamed else find_nonfinite(self.optimizer, everything))
        active = self.active
        for bundle in bundles:
            self._filter_bundle(bundle, active)
        self.step += 1
        return Outcome(*seen, None)

    def _filter_bundle(self, bundle: Bundle, active: bool) -> None:
        entries = self._bundle_entries(bundle)
        states = [{name: entry[key] for name, key in self._keys} for entry in entries]
        grads = bundle.grads
        if is_sharded(grads[0]):
            grads = [local(grad) for grad in grads]
            states = [{name: local(tensor) for name, tensor in state.items()} for state in states]
        cast("Filter", bundle.filter).update(grads, states, bundle.count, active=active)
        for entry in entries:
            entry[COUNT], entry[STEP] = bundle.count + 1, self.step + 1

    def _entry(self, param: Tensor) -> Entry | None:
        entry = self.optimizer.state.get(param)
        return entry if entry is not None and COUNT in entry else self._pending.get(param)

    def _bundle_entries(self, bundle: Bundle) -> list[Entry]:
        """The state entries of a bundle; makes those that do not exist yet."""
        entries = [self._entry(param) for param in bundle.params]
        for i, entry in enumerate(entries):
            if entry is None:
                entry = {**new_entry(self.filter, bundle.grads[i]), **self._stamp()}
                entries[i] = self._pending[bundle.params[i]] = entry
        return cast("list[Entry]", entries)

    def _entries(self) -> Iterator[tuple[Tensor, Entry]]:
        yield from ((p, entry) for p, entry in self.optimizer.state.items() if COUNT in entry)
        yield from self._pending.items()

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
            # Saved without a filter: the groups keep the keys that they have for it now.
            kept = [{k: v for k, v in g.items() if k.startswith("grokfast")} for g in optimizer.param_groups]
            rest["param_groups"] = [{**now, **old} for now, old in zip(kept, saved, strict=True)]
        self._incoming = validate_saved(self.filter, ours)
        if not ours and (state_dict["state"] or self.step):
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        return rest

    def _after_load(self, optimizer: Optimizer) -> None:
        self._last = None
        self._pending.clear()
        self._adopt(self._incoming)
        self._incoming = {}

    def _adopt(self, entries: dict[Tensor, Entry]) -> None:
        newest = max(entries.values(), key=lambda entry: entry[STEP], default={STEP: 0})
        self.step, self.resumed = int(newest[STEP]), bool(entries)
        if not isinstance(self.start, int):
            self.start.streak = int(newest.get(STREAK, self.start.streak))
        for param, entry in entries.items():
            entry.pop(STREAK, None)
            self.optimizer.state[param].update({**entry, **self._stamp()})

    def _stamp(self) -> Entry:
        """The trigger's progress. Live entries hold it too: flattened checkpoints restore only keys that exist."""
        return {} if isinstance(self.start, int) else {STREAK: self.start.streak}
