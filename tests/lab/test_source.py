"""The hash of what a function of the user's own does: `grokfast.lab.ab` knows its runs by it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FILES = {
    "script.py": """
import functools
import math

import helper
from deep import layers
from grokfast.lab.own_code import source_of

WIDTH = 3
CONFIG = {"lr": 0.1, "kinds": {"a", "b", "c"}}
results = []


def twice(x):
    return 2 * x


@functools.cache
def cached(x):
    return x + 100


class Net:
    depth = 4

    @property
    def size(self):
        return 50 * self.depth

    @staticmethod
    def scale():
        return 60


def unrelated():
    return 70


def make(gain):
    def train_fn(settings, seed, report, extra=8):
        import lazy
        from deep.more import last

        inner = lambda x: twice(x) in ("p", "q") or x in {"r", "s"}
        results.append(seed)
        net = Net()
        return math.pi, gain, WIDTH, CONFIG, cached(1), net.size, net.scale(), helper.build(1), layers.stack(), inner

    return train_fn


if __name__ == "__main__":
    SEEDS = 9
    print(source_of(make(7)), source_of(functools.partial(make(7), extra=1)))
""",
    "helper.py": "from other import base\n\ndef build(x):\n    return base(x) + 10\n",
    "other.py": "def base(x):\n    return x + 20\n",
    "lazy.py": "VALUE = 30\n",
    "deep/__init__.py": "",
    "deep/layers.py": "from . import more\n\ndef stack():\n    return more.last() + 40\n",
    "deep/more.py": "def last():\n    return 90\n",
}


def write_files(folder: Path) -> Path:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def hashes_in(folder: Path, seed: int = 0) -> list[str]:
    """What a fresh interpreter says, whose sets have another order with each seed."""
    environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return hashes_in(write_files(tmp_path_factory.mktemp("before")))


def test_without_a_change_every_process_has_the_same_hash(before: list[str], tmp_path: Path) -> None:
    folder = write_files(tmp_path)
    first, partial = before
    assert first != partial
    assert [hashes_in(folder, seed) for seed in (1, 2)] == [before, before]  # the second reads compiled helpers


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("script.py", "2 * x", "3 * x"),
        ("script.py", "WIDTH = 3", "WIDTH = 4"),
        ("script.py", '"lr": 0.1', '"lr": 0.2'),
        ("script.py", '"c"}', '"d"}'),
        ("script.py", "x + 100", "x + 101"),
        ("script.py", "depth = 4", "depth = 5"),
        ("script.py", "50 * ", "51 * "),
        ("script.py", "return 60", "return 61"),
        ("script.py", "extra=8", "extra=9"),
        ("script.py", "make(7)", "make(6)"),
        ("script.py", "cached(1)", "cached(2)"),
        ("helper.py", "+ 10", "+ 11"),
        ("other.py", "+ 20", "+ 21"),
        ("lazy.py", "30", "31"),
        ("deep/layers.py", "+ 40", "+ 41"),
        ("deep/more.py", "90", "91"),
    ],
)
def test_a_change_of_anything_that_it_refers_to_changes_the_hash(
    file: str, old: str, new: str, before: list[str], tmp_path: Path
) -> None:
    path = write_files(tmp_path) / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = hashes_in(tmp_path)
    assert after[0] != before[0]
    assert after[1] != before[1]


def test_a_change_of_what_it_does_not_refer_to_changes_nothing(before: list[str], tmp_path: Path) -> None:
    path = write_files(tmp_path) / "script.py"
    path.write_text(path.read_text().replace("return 70", "return 71").replace("SEEDS = 9", "SEEDS = 10"))
    assert hashes_in(tmp_path) == before
