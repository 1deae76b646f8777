"""The filter of each param group: with values of its own, or switched off."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from grokfast.binding.state import PREFIX, Entry
from grokfast.checks import check_bool
from grokfast.filters.base import Filter


class Tuning:
    """The filter of each parameter, as its param group says, or none."""

    def __init__(self, filter: Filter, chosen: Iterable[Tensor] | None = None) -> None:
        self.filter = filter
        self._chosen = None if chosen is None else {*chosen}  # by identity
        self._known: dict[int, tuple[Entry, Filter | None]] = {}

    def filter_for(self, index: int, group: Mapping[str, Any]) -> Filter | None:
        """The filter of param group `index`; None if the group switches it off."""
        overrides = overrides_of(group)
        if not overrides:
            return self.filter
        known = self._known.get(index)
        if known is None or known[0] != overrides:
            known = self._known[index] = (overrides, tune(self.filter, overrides, index))
        return known[1]

    def includes(self, param: Tensor) -> bool:
        """Whether the parameter is among those that the user chose."""
        return self._chosen is None or param in self._chosen


def overrides_of(group: Mapping[str, Any]) -> Entry:
    return {key: value for key, value in group.items() if key.startswith("grokfast")}


def tune(filter: Filter, overrides: Mapping[str, Any], index: int) -> Filter | None:
    """Apply the `grokfast*` keys of param group `index` to a filter."""
    allowed = ["grokfast", *(PREFIX + name for name in filter.tunable)]
    unknown = sorted(set(overrides) - set(allowed))
    if unknown:
        kind = type(filter).__name__
        raise ValueError(f"param group {index} may set {', '.join(allowed)} for {kind}, got {unknown[0]!r}")
    values = {key.removeprefix(PREFIX): value for key, value in overrides.items() if key != "grokfast"}
    enabled = overrides.get("grokfast", True)
    check_bool("grokfast", enabled)
    if not enabled:
        return None
    return dataclasses.replace(filter, **values) if values else filter  # type: ignore[type-var]
