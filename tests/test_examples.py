"""Every example is a script that a person may copy: it runs to its end, in its own process, without a warning."""

from pathlib import Path

import pytest

from forks import Fork, run_script

HARMLESS = ("__array__ implementation doesn't accept a copy",)  # Keras's own, at saving with NumPy 2
EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_there_are_examples() -> None:
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    fork = Fork(run_script, path, HARMLESS, cwd=tmp_path)
    assert fork.wait() == 0, fork.err
    assert fork.out
