"""Runs the filter on the gradients of one step, and knows whether gradients have been filtered already."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from grokfast.binding.gradients import find_nonfinite, is_probe
from grokfast.binding.keeper import Keeper
from grokfast.binding.plan import Bundle, Plan, make_plan
from grokfast.binding.state import Entry
from grokfast.binding.tuning import Tuning
from grokfast.filters.base import Filter, Gate, all_finite, nonfinite_flags


class Outcome(NamedTuple):
    """The last run of the filter: which gradients it saw, known by one of them, and whether they were finite."""

    param: Tensor
    grad: weakref.ref[Tensor]
    active: bool | Tensor
    bad: str | None = None  # where an inf or NaN was; the filter then left all gradients as they are
    discard: Tensor | None = None  # whether the filter did so, where only the device knows
    applied: bool = False  # whether this was before the optimizer's step

    @property
    def edited(self) -> bool:
        """Whether the gradients were changed. Asking may wait for the device."""
        return not self.bad and bool(self.active) and not (self.discard is not None and bool(self.discard))


class Runner:
    """Filters all gradients of an optimizer."""

    def __init__(
        self, optimizer: Optimizer, filter: Filter, keeper: Keeper, nonfinite: str, params: Iterable[Tensor] | None
    ) -> None:
        self.optimizer, self.filter, self.keeper, self.nonfinite = optimizer, filter, keeper, nonfinite
        self.tuning = Tuning(filter, params)
        for index, group in enumerate(optimizer.param_groups):
            self.tuning.filter_for(index, group)
        self._plan: Plan | None = None
        self._edition = 0  # the keeper's when the plan was made
        self._watch = Watch()

    @property
    def filtered(self) -> list[Tensor]:
        """The parameters that the last run filtered."""
        return [] if self._plan is None else self._plan.filtered

    @property
    def used(self) -> dict[Tensor, Filter]:
        """The filter of each parameter in the last run."""
        bundles = [] if self._plan is None else self._plan.active
        return {param: bundle.filter for bundle in bundles for param in bundle.params if bundle.filter is not None}

    def is_current(self, outcome: Outcome) -> bool:
        """Whether a parameter still has the gradient of that run: no new one, and nothing was added to it."""
        grad = outcome.param.grad
        return grad is not None and grad is outcome.grad() and not self._watch.fresh

    def stop(self) -> None:
        self._plan = None
        self._watch.remove()

    def run(self, active: bool | Tensor, *, applied: bool, kwargs: Entry, named: bool) -> Outcome | None:
        """Run the filter on all gradients, unless one is not finite; None if there is nothing to filter."""
        tracking = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)  # what no_grad() calls, without the time that a context manager takes
        plan = None
        try:
            plan = self._current_plan()
            return self._run(plan, active, applied=applied, kwargs=kwargs, named=named)
        finally:
            torch._C._set_grad_enabled(tracking)
            if plan is not None:
                plan.drop_gradients()

    def _current_plan(self) -> Plan:
        plan = self._plan
        if plan is None or self._edition != self.keeper.edition or not plan.take_gradients(self.optimizer):
            self._plan = None
            self.keeper.notice_load()
            plan = self._plan = make_plan(self.optimizer, self.tuning, self.keeper.entry_or_new)
            self._edition = self.keeper.edition
        return plan

    def _run(self, plan: Plan, active: bool | Tensor, *, applied: bool, kwargs: Entry, named: bool) -> Outcome | None:
        bundles, keeper = plan.active, self.keeper
        if not bundles or (keeper.steps == 0 and is_probe(self.optimizer, kwargs)):
            return None
        param = self._watch.follow(bundles)
        outcome = Outcome(param, weakref.ref(bundles[0].grads[0]), active)
        discard = self._find_discard(plan, applied)
        if isinstance(discard, bool):
            if discard:
                keeper.skipped += 1
                return outcome._replace(bad=find_nonfinite(self.optimizer) if named else "a parameter")
            self._filter(bundles, bool(active))
        else:
            self._filter_gated(bundles, discard, active)
            outcome = outcome._replace(discard=discard, applied=applied)
        keeper.steps += 1
        for bundle in bundles:
            bundle.advance(keeper.steps)
        return outcome

    def _find_discard(self, plan: Plan, applied: bool) -> bool | Tensor:
        """Whether to leave this step alone: a tensor where only the device knows. Unscales what a fused step would."""
        optimizer = self.optimizer
        scale, found = getattr(optimizer, "grad_scale", None), getattr(optimizer, "found_inf", None)
        if scale is not None:
            optimizer.grad_scale = None  # type: ignore[attr-defined]
        if self.nonfinite != "scaler":
            # A GradScaler discards the step also if clipping by value has made its gradients finite since.
            return not all_finite(plan.gradients(), scale) or (found is not None and bool(found != 0))
        if scale is not None or (applied and found is None):  # after apply() a GradScaler may discard the step
            flags = nonfinite_flags(plan.gradients(), scale)
            found = any_flag([*flags.values()]) if found is None else found
        if found is not None:
            return found.view(()) != 0 if self.filter.gated else bool(found != 0)
        # Counts that only the device knows can be continued only there.
        return torch.zeros((), dtype=torch.bool, device=plan.device) if self.keeper.ledger.open else False

    def _filter(self, bundles: list[Bundle], active: bool) -> None:
        for bundle in bundles:
            filter: Any = bundle.filter
            update = filter.update_uniform if bundle.uniform else filter.update
            update(bundle.local_grads(), bundle.states, bundle.count, active=active)

    def _filter_gated(self, bundles: list[Bundle], discard: Tensor, active: bool | Tensor) -> None:
        for bundle in bundles:
            filter, grads = bundle.filter, bundle.local_grads()
            assert filter is not None
            device = grads[0].device
            here = discard.to(device)
            if bundle.missed is None:
                bundle.count_missed_in(torch.zeros((), dtype=torch.int64, device=device))
            assert bundle.missed is not None
            edit = active.to(device) if isinstance(active, Tensor) else active
            filter.update_gated(grads, bundle.states, Gate(here, bundle.count, bundle.missed, bundle.seeded, edit))
            bundle.missed.add_(here)
        self.keeper.ledger.add(discard)


def any_flag(flags: list[Tensor]) -> Tensor:
    """Flags of several devices in one, not 0 if one of them is not 0."""
    return flags[0] if len(flags) == 1 else torch.stack([flag.to(flags[0].device) for flag in flags]).sum()


class Watch:
    """Notices when backward adds to a gradient, by a hook on one parameter.

    A gradient that is zeroed in place and computed anew is the same tensor as before.
    """

    def __init__(self) -> None:
        self.fresh = False
        self._param: Tensor | None = None
        self._hook: Any = None

    def follow(self, bundles: list[Bundle]) -> Any:
        """The parameter watched: the first to be filtered. Its gradient is not fresh any more."""
        param = bundles[0].params[0]
        if param is not self._param:
            self.remove()
            self._param = param
            if param.is_leaf and param.requires_grad:
                self._hook = param.register_post_accumulate_grad_hook(hook_for(weakref.ref(self)))
        self.fresh = False
        return param

    def remove(self) -> None:
        if self._hook is not None:
            self._hook.remove()
        self._hook = self._param = None


def hook_for(watch: weakref.ref[Watch]) -> Callable[[Tensor], None]:
    """A hook that does not keep its watch, and so the optimizer, alive."""

    def hook(param: Tensor) -> None:
        current = watch()
        if current is not None:
            current.fresh = True

    return hook
