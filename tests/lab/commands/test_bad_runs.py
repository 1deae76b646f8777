"""One bad run never breaks the commands that look at all runs."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.training.run import train

Call = Callable[..., tuple[int, str, str]]


def edit_settings(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        data = json.loads((path / "settings.json").read_text())
        change(data["settings"])
        (path / "settings.json").write_text(json.dumps(data))

    return edit


def edit_rows(change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        file = path / "metrics.jsonl"
        file.write_text(change(file.read_text()))

    return edit


def cut(name: str, size: int) -> Callable[[Path], None]:
    def edit(path: Path) -> None:
        (found,) = list(path.glob(name))[:1]
        found.write_bytes(found.read_bytes()[:size])

    return edit


def flip(name: str) -> Callable[[Path], None]:
    """Change a bit in the middle."""

    def edit(path: Path) -> None:
        content = bytearray((path / name).read_bytes())
        content[len(content) // 2] ^= 1
        (path / name).write_bytes(content)

    return edit


DAMAGE: dict[str, Callable[[Path], object]] = {
    "steps-abc": edit_settings(lambda data: data.update(steps="abc")),
    "seed-none": edit_settings(lambda data: data.update(seed=None)),
    "lr-text": edit_settings(lambda data: data.update(lr="fast")),
    "alpha-2": edit_settings(lambda data: data.update(alpha=2.0)),
    "filter-unknown": edit_settings(lambda data: data.update(filter="xyz")),
    "filter-number": edit_settings(lambda data: data.update(filter=7)),
    "no-steps": edit_settings(lambda data: data.pop("steps")),
    "config-empty": cut("settings.json", 0),
    "config-cut": cut("settings.json", 40),
    "step-1e30": edit_rows(lambda text: text.replace('"step": 30', '"step": 1e30')),
    "step-huge": edit_rows(lambda text: text.replace('"step": 30', '"step": 1' + 30 * "0")),
    "step-text": edit_rows(lambda text: text.replace('"step": 30', '"step": "30"')),
    "loss-text": edit_rows(lambda text: text.replace('"val_loss": ', '"val_loss": "x", "seconds": ')),
    "metrics-noise": edit_rows(lambda text: "noise\n" + text),
    "metrics-empty": edit_rows(lambda text: ""),
    "summary-empty": cut("summary.json", 0),
    "summary-list": lambda path: (path / "summary.json").write_text("[]") and None,
    "summary-bare": lambda path: (path / "summary.json").write_text("{}") and None,
    "environment-cut": cut("environment.json", 30),
    "snapshot-cut": cut("snapshots/000000010.pt", 100),
    "snapshot-empty": cut("snapshots/000000010.pt", 0),
    "snapshot-bit": flip("snapshots/000000010.pt"),
    "snapshot-gone": lambda path: (path / "snapshots/000000010.pt").unlink(),
    "snapshot-added": lambda path: shutil.copy(path / "snapshots/000000010.pt", path / "snapshots/000000020.pt"),
    "model-cut": cut("model.pt", 50),
    "model-bit": flip("model.pt"),
    "gradients-list-empty": cut("gradients.json", 0),
    "gradients-names-gone": lambda path: (path / "gradients.json").write_text("{}") and None,
    "gradients-cut": cut("gradients.f32", 7),
    "gradients-bit": flip("gradients.f32"),
    "gradients-doubled": lambda path: (path / "gradients.f32").write_bytes(2 * (path / "gradients.f32").read_bytes()),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """A run that stays whole, and one to damage."""
    folder = tmp_path_factory.mktemp("made")
    whole = train(tiny(filter="ema", snapshots=2, gradients=30), folder)
    return whole, train(tiny(filter="ema", seed=1, snapshots=2, gradients=30), folder)


@pytest.mark.parametrize("kind", DAMAGE)
def test_one_damaged_run_leaves_the_others_to_be_listed(
    kind: str, made: tuple[Run, Run], tmp_path: Path, call: Call
) -> None:
    whole, other = made
    for run in made:
        shutil.copytree(run.path, tmp_path / run.name)
    DAMAGE[kind](tmp_path / other.name)
    code, out, err = call("runs", "--runs-dir", tmp_path)
    assert whole.name in out
    assert "Traceback" not in err
    if kind.startswith(LARGE):
        assert (code, err) == (0, "")
    else:
        assert (code, other.name in out) == (1, False)
        assert err.startswith(f"grokfast: {other.name} is left out: ")
        assert err.count("\n") == 1


LARGE = ("snapshot", "model", "gradients")  # a list does not read these; who names a run, or reports it, does


@pytest.mark.parametrize(
    "kind", [kind for kind in DAMAGE if kind.startswith(("config", "step", "summary", "metrics", *LARGE))]
)
def test_a_damaged_run_alone_gives_one_line(kind: str, made: tuple[Run, Run], tmp_path: Path, call: Call) -> None:
    shutil.copytree(made[1].path, tmp_path / made[1].name)
    DAMAGE[kind](tmp_path / made[1].name)
    code, out, err = call("runs", made[1].name, "--runs-dir", tmp_path)
    assert (code, out) == (1, "")
    assert err.startswith(f"grokfast: {made[1].name} is left out: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize("kind", DAMAGE)
def test_to_train_a_damaged_run_again_is_refused(kind: str, made: tuple[Run, Run], tmp_path: Path, call: Call) -> None:
    shutil.copytree(made[1].path, tmp_path / made[1].name)
    DAMAGE[kind](tmp_path / made[1].name)
    with pytest.raises((RunError, ValueError)):
        train(tiny(filter="ema", seed=1, snapshots=2, gradients=30), tmp_path)
    code, out, err = call("train", "--resume", made[1].name, "--quiet", "--runs-dir", tmp_path)
    assert (code, out, err.count("\n")) == (1, "", 1)


def test_runs_with_every_kind_of_damage_leave_the_others_to_be_reported(
    made: tuple[Run, Run], tmp_path: Path, call: Call
) -> None:
    whole, other = made
    shutil.copytree(whole.path, tmp_path / "runs" / whole.name)
    for kind, damage in DAMAGE.items():
        shutil.copytree(other.path, tmp_path / "runs" / f"bad-{kind}")
        damage(tmp_path / "runs" / f"bad-{kind}")
    code, _, err = call("report", "--runs-dir", tmp_path / "runs", "-o", tmp_path / "page.html")
    left_out = [line.split()[1] for line in err.splitlines()]
    assert code == 1
    assert sorted(left_out) == sorted(f"bad-{kind}" for kind in DAMAGE)  # a line for each
    page = (tmp_path / "page.html").read_text()
    assert "bad-config-cut is left out" in page
    assert whole.name in page


@pytest.mark.parametrize("kind", DAMAGE)
def test_inside_says_in_one_line_what_is_damaged(kind: str, made: tuple[Run, Run], tmp_path: Path, call: Call) -> None:
    shutil.copytree(made[1].path, tmp_path / made[1].name)
    DAMAGE[kind](tmp_path / made[1].name)
    code, _, err = call("inside", made[1].name, "--runs-dir", tmp_path)
    if kind.startswith(("gradients", "environment", "model")):  # it does not read these
        assert (code, err) == (0, "")
    else:
        assert (code, err.count("\n")) == (1, 1)
        assert made[1].name in err
