"""The compiled runs of `addition` equal the library's, run by run."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch

from grokfast.lab.settings import resolve
from grokfast.lab.training.run import train

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
addition_runs: Any = pytest.importorskip("addition_runs")
addition_experiments: Any = pytest.importorskip("addition_experiments")
pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")

CASES: list[dict[str, Any]] = [
    {},
    {"filter": "ema", "alpha": 0.9, "lamb": 2.0},
    {"filter": "ema", "alpha": 0.96, "lamb": 2.0, "two_stage": 30},
    {"filter": "ma", "window_size": 20, "lamb": 3.0},
    {"average": 0.9},
    {"batch_size": 0},
    {"loss": "cross-entropy", "betas": (0.5, 0.9)},
    {"clip_norm": 0.3, "label_noise": 0.1, "train_fraction": 0.4},
]

DECOUPLED = ("weight_decouple", True)
OPTIMIZERS: list[tuple[dict[str, Any], dict[str, Any]]] = [  # settings of ours that the library calls otherwise
    ({"optimizer": "nadam"}, {"optimizer_option": (("decoupled_weight_decay", True),)}),
    (
        {"optimizer": "ademamix", "slow_beta": 0.9, "slow_gain": 3.0},
        {
            "optimizer": "pytorch_optimizer:AdEMAMix",
            "betas": (0.9, 0.98, 0.9),
            "optimizer_option": (("alpha", 3.0), DECOUPLED),
        },
    ),
    ({"optimizer": "muon"}, {"muon_params": "all"}),
    ({"optimizer": "muon", "filter": "ema", "alpha": 0.9, "lamb": 2.0}, {"muon_params": "all"}),
]


@pytest.mark.parametrize(("given", "theirs"), [*((case, {}) for case in CASES), *OPTIMIZERS])
def test_a_compiled_run_equals_the_library(given: dict[str, Any], theirs: dict[str, Any], tmp_path: Path) -> None:
    values: dict[str, Any] = {"weight_decay": 1.0, "steps": 90, "eval_every": 20, **given}
    fast = addition_runs.train(3, hold=None, **values)
    other = {name: value for name, value in values.items() if not name.startswith("slow_")}
    run = train(resolve("addition", **{**other, **theirs}, seed=3, threads=1, device="cpu"), tmp_path)
    assert fast.steps.tolist() == [row.step for row in run.rows] == [20, 40, 60, 80, 90]
    assert fast.val_loss == pytest.approx([row.val_loss for row in run.rows], rel=2e-3)
    assert fast.train_loss == pytest.approx([row.train_loss for row in run.rows], rel=2e-3)
    assert fast.val_accuracy == pytest.approx([row.val_accuracy for row in run.rows], abs=0.012)
    assert fast.train_accuracy == pytest.approx([row.train_accuracy for row in run.rows], abs=0.012)


def test_a_run_stops_once_the_level_is_held() -> None:
    whole = addition_runs.train(0, weight_decay=3.0, steps=1500, hold=None)
    curve = addition_runs.train(0, weight_decay=3.0, steps=1500, hold=5)
    reached = [bool(value >= 0.95) for value in whole.val_accuracy]
    held = next(i for i in range(len(reached)) if all(reached[i : i + 6]))
    assert len(curve.steps) == held + 6
    assert curve.val_accuracy.tolist() == whole.val_accuracy[: held + 6].tolist()


def test_averaged_weights_are_evaluated_not_trained_on() -> None:
    plain, averaged = (
        addition_runs.train(0, weight_decay=1.0, steps=200, average=decay, hold=None) for decay in (None, 0.95)
    )
    assert plain.train_loss.tolist() == averaged.train_loss.tolist()
    assert plain.val_loss.tolist() != averaged.val_loss.tolist()


def test_one_large_draw_is_the_stream_of_many_small_ones() -> None:
    one, many = torch.Generator().manual_seed(1), torch.Generator().manual_seed(1)
    large = torch.randint(264, (10, 64), generator=one)
    small = torch.stack([torch.randint(264, (64,), generator=many) for _ in range(10)])
    assert torch.equal(large, small)


def test_unknown_settings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"settings must be among p, width.*got windw"):
        addition_runs.train(0, windw=3)


def test_the_cells_of_the_plan() -> None:
    cells = list(addition_experiments.map_cells())
    assert len(cells) == 6 * 7 * 6 + 2 * 7 * 4
    assert len({str(sorted(cell.items())) for cell in cells}) == len(cells)
    surrogates = list(addition_experiments.surrogate_cells())
    assert len(surrogates) == 3 * 2 * (1 + 4 * (1 + 2 * 4))


def test_only_whole_stages_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = addition_experiments
    monkeypatch.setitem(tool.DUELS, "others", tool.DUELS["others"]._replace(together=[{"tuned": {}}], fresh=1))
    for name, value in {"K": 2, "TRIALS": 2, "BUDGET": 20}.items():
        monkeypatch.setattr(tool, name, value)
    tool.run_duels("others", tmp_path)
    kept, file = tmp_path / "kept", tmp_path / "others.jsonl"
    kept.mkdir()
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(lines[:-1]))
    with pytest.raises(SystemExit, match="others is not complete in"):
        tool.write_tables(tmp_path, kept)
    assert not list(kept.iterdir())
    file.write_text("".join(lines))
    tool.write_tables(tmp_path, kept)
    runs = pl.read_parquet(kept / "addition_runs.parquet")
    assert runs.height == len(lines) - 2 == 2 * 3 * (2 + 1)  # tunings x arms x (trials + fresh seeds)
    assert runs.group_by("optimizer").len()["len"].to_list() == [6, 6, 6]
    assert pl.read_parquet(kept / "addition_curves.parquet").height == 6  # of fresh seeds
    tool.write_tables(tmp_path, kept)
    assert pl.read_parquet(kept / "addition_runs.parquet").equals(runs)


def test_one_setting_is_judged_in_all_versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = addition_experiments
    for name, value in {"K": 1, "TRIALS": 2, "BUDGET": 20}.items():
        monkeypatch.setattr(tool, name, value)
    tool.run_duels("several", tmp_path)
    fixed, of_versions = {**tool.SEVERAL, "several-unseen": {}}, ("p", "loss", "batch_size")
    lines = [line for line in tool.read(tmp_path, "several") if line["role"] != "end"]
    assert {line["regime"] for line in lines} == set(fixed)
    assert {line["regime"] for line in lines if line["role"] == "trial"} == set(tool.SEVERAL)  # not the unseen one
    for line in lines:
        assert {name: line["values"][name] for name in of_versions if name in line["values"]} == fixed[line["regime"]]
    fresh = [line for line in lines if (line["role"], line["arm"], line["seed"]) == ("fresh", "adamw", 40_000)]
    settings = [{n: v for n, v in line["values"].items() if n not in of_versions} for line in fresh]
    assert settings == settings[:1] * 5


def test_a_search_prefers_held_to_touched_to_near() -> None:
    value, every = addition_experiments.search_value, 5
    held = {"every": every, "curve": [0.1] * 9 + [0.96] * 40}
    touched = {"every": every, "curve": ([0.96] * 20 + [0.5]) * 19}
    far = {"every": every, "curve": [0.1] * 400}
    assert value(held) == 50
    assert 50 < value(touched) < value(far) <= 4000
