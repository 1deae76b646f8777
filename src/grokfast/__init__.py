"""Grokfast: amplify the slow part of each gradient, in any first-order PyTorch optimizer.

`import grokfast` imports nothing else. The first use of a name imports torch. `grokfast.optax` works without torch.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would take ten times as long as the rest of this file

if TYPE_CHECKING:
    from grokfast.binding.attach import attach
    from grokfast.binding.handle import Attachment
    from grokfast.factory import Optimizer
    from grokfast.filters import EMA, FIR, IIR, MA, Butterworth, Filter, Slow
    from grokfast.functional import gradfilter_ema, gradfilter_ma
    from grokfast.stages import Ramp, Saturation, Trigger

__version__ = "0.1.0"

__all__ = [
    "EMA",
    "FIR",
    "IIR",
    "MA",
    "Attachment",
    "Butterworth",
    "Filter",
    "Optimizer",
    "Ramp",
    "Saturation",
    "Slow",
    "Trigger",
    "attach",
    "gradfilter_ema",
    "gradfilter_ma",
]

_HOMES = {
    "Attachment": "binding.handle",
    "Ramp": "stages",
    "Saturation": "stages",
    "Trigger": "stages",
    "attach": "binding.attach",
    "gradfilter_ema": "functional",
    "gradfilter_ma": "functional",
    "Optimizer": "factory",
}


if not TYPE_CHECKING:  # hidden from type checkers, or every misspelt name would have a type

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        import importlib

        home = importlib.import_module(f"{__name__}.{_HOMES.get(name, 'filters')}")
        globals()[name] = value = getattr(home, name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
