"""When a filter runs: once per optimizer step, on finished and unscaled gradients, for any torch.optim.Optimizer.

The filter's state lives in `optimizer.state[p]` under `grokfast_*` keys, beside the optimizer's own, so that whatever
saves, loads, copies or shards an optimizer takes it along. It is put there after the optimizer's first step, because
most optimizers initialise themselves only where they find nothing.
"""

from __future__ import annotations

import dataclasses
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import LBFGS, Optimizer, SparseAdam

from grokfast.filters.base import Filter, State, all_finite, check_bool, check_choice, check_count
from grokfast.stages import Trigger

PREFIX = "grokfast_"
COUNT, STEP, STREAK = "grokfast_count", "grokfast_step", "grokfast_streak"
Entry = dict[str, Any]

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

    Returns:
        A handle: `remove()`, `enabled`, `apply()`, `state`, `slow(p)`, `memory_bytes`.

    Param groups override the filter's tunable values for themselves, at any time, by the keys `grokfast_lamb` and
    `grokfast_alpha`; `grokfast=False` switches it off for the group.

    Example:
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


class Item(NamedTuple):
    """One parameter with a gradient, in the current step."""

    param: Tensor
    grad: Tensor
    group: int
    place: int
    filter: Filter


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
        self._tuned: dict[int, tuple[Entry, Filter | None]] = {}
        for index in range(len(optimizer.param_groups)):
            self._group_filter(index)
        self._commit(self._check({p: s for p, s in optimizer.state.items() if COUNT in s}))
        self._hooks = (
            optimizer.register_step_pre_hook(torch.compiler.disable(self._before_step)),
            optimizer.register_step_post_hook(torch.compiler.disable(self._after_step)),
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
        entry = dict(self._entries()).get(param)
        return None if entry is None or entry[COUNT] == 0 else self.filter.slow(tensors_of(entry), entry[COUNT])

    def apply(self) -> None:
        """Filter the gradients now instead of at the start of the coming `optimizer.step()`.

        Needed only to clip what the filter made: `backward(); handle.apply(); clip_grad_norm_(...); step()`.
        Under a GradScaler call `scaler.unscale_(optimizer)` first.
        """
        if self._applied:
            raise RuntimeError("apply() was called already since the last optimizer step")
        self._applied = self._filter_gradients()

    def remove(self) -> None:
        """Detach the filter and drop its state, leaving the optimizer as if it had never been attached."""
        for hook in self._hooks:
            hook.remove()
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
        for param, entry in self._pending.items():
            optimizer.state[param].update(entry)
        self._pending.clear()

    @torch.no_grad()
    def _filter_gradients(self) -> bool:
        """Run the filter on all gradients there are; False if it left them and its state alone."""
        items = list(self._items())
        if not items:
            return False
        if self.step == 0 and is_probe(self.optimizer, items):
            for item in items:
                self._entry(item)
            return False
        if not self._finite(items):
            return False
        active = self.active
        for batch in batches((item, self._entry(item)) for item in items):
            grads = [item.grad for item, _ in batch]
            count = batch[0][1][COUNT]
            batch[0][0].filter.update(grads, [tensors_of(entry) for _, entry in batch], count, active=active)
            for _, entry in batch:
                entry[COUNT], entry[STEP] = count + 1, self.step + 1
        self.step += 1
        return True

    def _items(self) -> Iterator[Item]:
        for index, group in enumerate(self.optimizer.param_groups):
            filter = self._group_filter(index)
            if filter is None:
                continue
            for place, param in enumerate(group["params"]):
                grad = param.grad
                if grad is None:
                    continue
                if grad.layout is not torch.strided:
                    name = param_name(self.optimizer, index, place)
                    remedy = "make its layer with sparse=False or set grokfast=False in its param group"
                    raise TypeError(f"gradients must be dense, got a sparse one in {name}: {remedy}")
                yield Item(param, grad, index, place, filter)

    def _group_filter(self, index: int) -> Filter | None:
        """The filter with the overrides of one param group; None where the group switches it off."""
        group = self.optimizer.param_groups[index]
        overrides = {key: value for key, value in group.items() if key.startswith("grokfast")}
        known = self._tuned.get(index)
        if known is None or known[0] != overrides:
            known = self._tuned[index] = (overrides, tune(self.filter, overrides, index))
        return known[1]

    def _entry(self, item: Item) -> Entry:
        entry = self.optimizer.state.get(item.param)
        if entry is None or COUNT not in entry:
            entry = self._pending.get(item.param)
        if entry is None:
            state = item.filter.new_state(item.grad)
            entry = {**{PREFIX + name: t for name, t in state.items()}, COUNT: 0, STEP: 0}
            self._pending[item.param] = entry
        return entry

    def _entries(self) -> Iterator[tuple[Tensor, Entry]]:
        yield from ((p, entry) for p, entry in self.optimizer.state.items() if COUNT in entry)
        yield from self._pending.items()

    def _finite(self, items: list[Item]) -> bool:
        """Check all gradients, unscaling those that a fused optimizer would have unscaled itself."""
        scale = getattr(self.optimizer, "grad_scale", None)
        if all_finite([item.grad for item in items], scale):
            if scale is not None:
                self.optimizer.grad_scale = None  # type: ignore[attr-defined]
            return True
        scaler_skips = getattr(self.optimizer, "found_inf", None) is not None
        if not scaler_skips and (self.nonfinite == "raise" or not self._warned):
            bad = next(item for item in items if not item.grad.isfinite().all())
            name = param_name(self.optimizer, bad.group, bad.place)
            if self.nonfinite == "raise":
                raise FloatingPointError(f"gradients must be finite, got inf or NaN in {name} at step {self.step}")
            self._warned = True
            warnings.warn(
                f"inf or NaN in the gradient of {name} at step {self.step}: the filter skips such steps", stacklevel=2
            )
        return False

    # Saving and loading -------------------------------------------------------------------------------------------

    def _after_state_dict(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        if isinstance(self.start, int):
            return state_dict
        stamp = {STREAK: self.start.streak}
        state = {key: {**entry, **stamp} if COUNT in entry else entry for key, entry in state_dict["state"].items()}
        return {**state_dict, "state": state}

    def _before_load(self, optimizer: Optimizer, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Take our entries out before the optimizer casts them to the parameters' dtype; refuse them here."""
        saved = [key for group in state_dict["param_groups"] for key in group["params"]]
        current = [param for group in optimizer.param_groups for param in group["params"]]
        entries = {param: state_dict["state"].get(key, {}) for key, param in zip(saved, current, strict=False)}
        self._incoming = self._check({param: entry for param, entry in entries.items() if COUNT in entry})
        if not self._incoming and (state_dict["state"] or self.step):
            warnings.warn("the state dict holds no grokfast state: the filter starts anew", stacklevel=3)
        state = {key: {k: v for k, v in entry.items() if not is_ours(k)} for key, entry in state_dict["state"].items()}
        return {**state_dict, "state": {key: entry for key, entry in state.items() if entry}}

    def _after_load(self, optimizer: Optimizer) -> None:
        self._pending.clear()
        self._commit(self._incoming)
        self._incoming = {}

    def _check(self, entries: Mapping[Tensor, Entry]) -> dict[Tensor, Entry]:
        """Copies of saved entries in the dtypes of this filter; ValueError if they are not its own."""
        checked: dict[Tensor, Entry] = {}
        for param, entry in entries.items():
            wanted = self.filter.new_state(torch.empty_like(param, device="meta"))
            found = tensors_of(entry)
            if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in wanted.items()}:
                raise ValueError(
                    f"the saved filter state must fit {self.filter} on a parameter of shape {tuple(param.shape)}: "
                    f"expected {describe(wanted)}, got {describe(found)}"
                )
            tensors = {PREFIX + k: t.to(param.device, wanted[k].dtype, copy=True) for k, t in found.items()}
            checked[param] = {**tensors, **{k: entry[k] for k in (COUNT, STEP, STREAK) if k in entry}}
        return checked

    def _commit(self, entries: dict[Tensor, Entry]) -> None:
        newest = max(entries.values(), key=lambda entry: entry[STEP], default={STEP: 0})
        self.step = int(newest[STEP])
        if not isinstance(self.start, int):
            self.start.streak = int(newest.get(STREAK, self.start.streak))
        for param, entry in entries.items():
            entry.pop(STREAK, None)
            self.optimizer.state[param].update(entry)


def tensors_of(entry: Entry) -> State:
    return {key[len(PREFIX) :]: value for key, value in entry.items() if is_ours(key) and isinstance(value, Tensor)}


def is_ours(key: object) -> bool:
    return isinstance(key, str) and key.startswith(PREFIX)


def describe(state: State) -> str:
    return ", ".join(f"{name} {tuple(t.shape)}" for name, t in sorted(state.items())) or "nothing"


def param_name(optimizer: Optimizer, index: int, place: int) -> str:
    """What to call a parameter in a message: its name where the optimizer knows it."""
    names = optimizer.param_groups[index].get("param_names")
    return f"parameter {names[place]!r}" if names else f"parameter {place} of group {index}"


def tune(filter: Filter, overrides: Mapping[str, Any], index: int) -> Filter | None:
    """Apply the `grokfast*` keys of param group `index` to a filter."""
    values = {key.removeprefix(PREFIX): value for key, value in overrides.items() if key != "grokfast"}
    unknown = sorted(set(values) - set(filter.tunable))
    if unknown:
        allowed = ", ".join(["grokfast", *(PREFIX + name for name in filter.tunable)])
        raise ValueError(
            f"param group {index} may set {allowed} for {type(filter).__name__}, got {PREFIX + unknown[0]!r}"
        )
    check_bool("grokfast", overrides.get("grokfast", True))
    if not overrides.get("grokfast", True):
        return None
    return dataclasses.replace(filter, **values) if values else filter  # type: ignore[type-var]


def batches(pairs: Iterator[tuple[Item, Entry]]) -> list[list[tuple[Item, Entry]]]:
    """Sort into lists that one filter call can take: same group, count, dtype and device."""
    groups: dict[Any, list[tuple[Item, Entry]]] = {}
    for item, entry in pairs:
        key = (item.group, entry[COUNT], item.grad.dtype, item.grad.device)
        groups.setdefault(key, []).append((item, entry))
    return list(groups.values())


def is_probe(optimizer: Optimizer, items: list[Item]) -> bool:
    """Whether this is the dry step of torch.distributed.checkpoint: learning rates and gradients all zero.

    It wants the state to exist, so that a checkpoint can be loaded into it, and must leave no trace in it.
    """
    if any(float(group.get("lr", 1.0)) != 0 for group in optimizer.param_groups):
        return False
    return not any(bool(item.grad.any()) for item in items)
