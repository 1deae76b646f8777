"""Many runs: settings from grids or a search, each with every seed. Needs `pip install "grokfast[sweep]"`."""

from grokfast.lab.sweep.space import Choices as Choices
from grokfast.lab.sweep.space import Range as Range
from grokfast.lab.sweep.spec import Spec as Spec
from grokfast.lab.sweep.spec import load_spec as load_spec
from grokfast.lab.sweep.spec import save_spec as save_spec
