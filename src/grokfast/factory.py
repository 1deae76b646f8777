"""Create an optimizer with a filter from names, for configuration files that name one class and its arguments."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch

from grokfast.binding.attach import Nonfinite, attach
from grokfast.filters import EMA, FIR, IIR, MA, Butterworth, Filter

FILTERS: dict[str, type[Filter]] = {"ema": EMA, "ma": MA, "fir": FIR, "iir": IIR, "butterworth": Butterworth}


class Optimizer(torch.optim.Optimizer):
    """Create an optimizer with a filter attached, for configurations that name an optimizer class such as `AdamW`.

    A call returns an optimizer of the named class, not an instance of this one. This is a class because many
    configuration tools accept only classes.

    Examples:
        >>> import grokfast, torch
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = grokfast.Optimizer(model.parameters(), "AdamW", lr=1e-3, filter="ema", alpha=0.98, lamb=2.0)
        >>> type(optimizer).__name__
        'AdamW'
    """

    def __new__(  # type: ignore[misc]
        cls,
        params: Iterable[Any],
        optimizer: str | Callable[[Iterable[Any]], torch.optim.Optimizer] = "AdamW",
        *,
        filter: str | Filter = "ema",
        start: int = 0,
        nonfinite: Nonfinite = "scaler",
        **values: Any,
    ) -> torch.optim.Optimizer:
        """Create the optimizer and attach the filter.

        Args:
            params: parameters or param groups, as for any optimizer.
            optimizer: the name of a class in `torch.optim`, or a callable that creates an optimizer from `params`.
            filter: `"ema"`, `"ma"`, `"fir"`, `"iir"` or `"butterworth"`, or a filter such as `grokfast.EMA()`.
            start: when to begin changing gradients, as in `grokfast.attach`.
            nonfinite: what to do when a gradient holds an inf or a NaN, as in `grokfast.attach`.
            values: arguments of the filter, if `filter` is a name, and of the optimizer.
        """
        make = find_optimizer(optimizer)
        chosen, rest = make_filter(filter, values, make)
        made = make(params, **rest)
        attach(made, chosen, start=start, nonfinite=nonfinite)
        return made


def find_optimizer(name: str | Callable[..., torch.optim.Optimizer]) -> Callable[..., torch.optim.Optimizer]:
    if not isinstance(name, str):
        if not callable(name):
            raise TypeError(f"optimizer must be a name in torch.optim or a callable, got {name!r}")
        return name
    base = torch.optim.Optimizer
    kinds = {key: kind for key, kind in vars(torch.optim).items() if isinstance(kind, type) and kind is not base}
    known = {key: kind for key, kind in kinds.items() if issubclass(kind, base)}
    if name not in known:
        raise ValueError(f"optimizer must be a name in torch.optim{suggest(name, known)}, got {name!r}")
    return known[name]


def make_filter(
    filter: str | Filter, values: dict[str, Any], make: Callable[..., torch.optim.Optimizer]
) -> tuple[Filter, dict[str, Any]]:
    """The filter, and the values that it does not take."""
    if not isinstance(filter, str):
        return filter, values
    if filter not in FILTERS:
        raise ValueError(f"filter must be one of {', '.join(map(repr, FILTERS))} or a filter, got {filter!r}")
    fields = set(inspect.signature(FILTERS[filter]).parameters)
    own = {key: value for key, value in values.items() if key in fields}
    check_values(make, FILTERS[filter], set(values), set(own), fields)
    return FILTERS[filter](**own), {key: value for key, value in values.items() if key not in own}


def check_values(
    make: Callable[..., Any], kind: type[Filter], given: set[str], own: set[str], fields: set[str]
) -> None:
    """Refuse a value that both the optimizer and the filter take, or neither. `**kwargs` take everything."""
    title = getattr(make, "__name__", repr(make))
    try:
        parameters = inspect.signature(make).parameters
    except ValueError:  # a builtin may have no signature
        return
    if both := sorted(own & set(parameters)):
        remedy = f"write filter=grokfast.{kind.__name__}({both[0]}=...)"
        raise ValueError(f"{both[0]} must belong to the filter or to the optimizer: {title} takes it too, {remedy}")
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = sorted(given - fields - set(parameters))
    if unknown and not open_ended:
        known = {*fields, *parameters} - {"params"}
        raise TypeError(
            f"{unknown[0]} is an argument of neither {title} nor {kind.__name__}{suggest(unknown[0], known)}"
        )


def suggest(name: str, known: Iterable[str]) -> str:
    """A question such as " (did you mean AdamW?)"; nothing if no known name is similar."""
    names = {key.lower(): key for key in known}
    close = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.5)
    return f" (did you mean {', '.join(names[key] for key in close)}?)" if close else ""
