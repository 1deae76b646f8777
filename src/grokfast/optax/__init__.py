"""The filters as Optax transformations: g <- g + lamb lowpass(g), anywhere in a chain.

One `update` is one step and runs inside `jit`. If any gradient is inf or NaN, the step leaves the state and the
gradients as they are, like `grokfast.attach` with `nonfinite="skip"`. torch is not imported.
"""

try:
    import optax
except ImportError as error:
    raise ImportError('grokfast.optax needs jax and optax: pip install "grokfast[optax]"') from error
if not hasattr(optax, "safe_increment"):
    raise ImportError(
        f'grokfast.optax needs optax 0.2.4 or newer, got {optax.__version__}: pip install -U "grokfast[optax]"'
    )

from grokfast.optax.ema import EMAState as EMAState
from grokfast.optax.ema import ema as ema
from grokfast.optax.ma import MAState as MAState
from grokfast.optax.ma import ma as ma
