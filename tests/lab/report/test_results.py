"""docs/results.md and the README's answer: what they say of some runs, and that the committed ones are up to date."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from made import create_made, made_run
from tiny import tiny

from grokfast.lab.commands.cli import main
from grokfast.lab.commands.results import load_costs, load_judged, load_kept, page_with
from grokfast.lab.paper.published import BASELINE
from grokfast.lab.report.markdown import put_between
from grokfast.lab.report.results import in_order, results_page, summary_block, summary_table
from grokfast.lab.report.results_pictures import results_plots
from grokfast.lab.request import resolve

ROOT = Path(__file__).parents[3]
EVIDENCE = ROOT / "results"


def section(page: str, title: str) -> str:
    return page.split(f"\n## {title}\n")[1].split("\n## ")[0]


# The committed pages --------------------------------------------------------------------------------------------------


def test_results_md_is_what_the_archived_runs_say() -> None:
    runs = load_judged([EVIDENCE], None)
    plots, page = results_plots(runs), (ROOT / "docs" / "results.md").read_text()
    assert page_with(plots, runs, load_costs([EVIDENCE]), ROOT / "docs") == page, "make results"
    drawn = {path.stem for path in (ROOT / "docs" / "figures").iterdir() if not path.stem.startswith("duel-")}
    assert drawn == {plot.name for plot in plots}, "make results; remove the others"


def test_the_verdicts_are_what_the_kept_duels_say(tmp_path: Path) -> None:
    written = tmp_path / "verdicts.md"
    assert main(["verdicts", "--results", str(EVIDENCE / "verdicts"), "-o", str(written)]) == 0
    assert written.read_text() == (ROOT / "docs" / "verdicts.md").read_text(), "grokfast verdicts"
    pictures = {path.name for path in (tmp_path / "figures").iterdir()}
    assert pictures == {path.name for path in (ROOT / "docs" / "figures").glob("duel-*")}, "remove the others"


def test_the_leaderboard_is_what_the_archived_runs_say(tmp_path: Path) -> None:
    written = tmp_path / "leaderboard.md"
    assert main(["leaderboard", "--results", str(EVIDENCE), "-o", str(written)]) == 0
    assert written.read_text() == (ROOT / "docs" / "leaderboard.md").read_text(), "grokfast leaderboard"


def test_the_readme_says_what_the_archived_runs_say() -> None:
    page = (ROOT / "README.md").read_text()
    assert put_between(page, summary_block(load_judged([EVIDENCE], None), load_kept([EVIDENCE]))) == page, (
        "make results"
    )


def test_the_evidence_is_small_and_knows_no_directory_of_a_machine() -> None:
    files = [path for path in EVIDENCE.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 25e6
    assert not [path for path in files if path.suffix == ".json" and re.search(r'"(/|[A-Z]:)', path.read_text())]


# Made runs ------------------------------------------------------------------------------------------------------------


def test_runs_that_are_not_finished_are_named(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")]
    runs.append(made_run(tmp_path, "Grokfast", 0, [0.5, 0.3], task="mnist", finish=False))
    page = section(results_page(runs, place=tmp_path / "docs"), "mnist")
    (line,) = (line for line in page.splitlines() if line.startswith("| Grokfast | 2 | > 20 | 2,001 |"))
    assert line.endswith(f"| [0](../{runs[1].name}) (unfinished) | 20 | every 10 steps |")
    assert "- Not finished: Grokfast, seed 0, step 20 of 20, best accuracy 0.7, best loss 0.3" in page


def test_what_is_not_run_is_a_row_and_a_command(tmp_path: Path) -> None:
    page = results_page([made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")])
    assert "| Grokfast | 2 | [not run](#not-run) | 2,001 |" in section(page, "mnist")
    assert "| Grokfast-EMA | 0.005 | [not run](#not-run) | 910 |" in section(page, "modmul")
    commands = section(page, "Not run").splitlines()
    assert "for seed in 0 1 2; do grokfast train mnist --filter ema --seed $seed --threads 1; done" in commands
    assert "| |" not in page
    assert "|  |" not in page


def test_without_an_arm_there_is_no_page(tmp_path: Path) -> None:
    assert results_page([create_made(tmp_path, tiny(steps=20), [0.5, 0.1])]) == ""


def test_the_summary_has_few_arms_and_names_those_not_run(tmp_path: Path) -> None:
    table = summary_table([made_run(tmp_path, "Grokfast", 0, [0.5, 0.1], task="mnist")])
    assert "| mnist | Grokfast | 2 | 1 | steps to 0.85 | 20 | 2,001 |" in table
    assert "| modmul | Grokfast-MA | 0.01 | 0 | steps to 0.95 | not run | 790 |" in table
    assert "slow only" not in table


def test_the_fastest_baseline_stands_first_in_the_summary(tmp_path: Path) -> None:
    settings = {"optimizer": "adamw", "weight_decay": 1.0, "lr": 3e-3, "steps": 30, "eval_every": 10}
    tuned = create_made(tmp_path, resolve(BASELINE.having(**settings)), [0.9, 0.01, 0.9])
    runs = [tuned, made_run(tmp_path, "Grokfast-EMA", 0, [0.9] * 4 + [0.01], task="modmul")]
    first = summary_table(runs).splitlines()[2]
    assert first == "| modmul | AdamW, no filter, learning rate 0.003 | 1 | 1 | steps to 0.95 | 20 | - |"
    assert "**A tuned baseline without a filter is faster than Grokfast.**" in summary_block(runs, {})


def test_imdb_is_compared_at_one_length(tmp_path: Path) -> None:
    late = [0.5] * 3 + [0.01]  # 0.99 at the end only
    long = made_run(tmp_path, "Baseline", 0, late, task="imdb", steps=10_000)
    (cut,) = in_order([long])["imdb"]
    assert (cut.end, len(cut.rows), len(long.rows)) == (3_000, 4, 4)
    assert [row.step for row in cut.up_to(20).rows] == [10, 20]
    assert cut.up_to(20).crossing().step is None
    page = results_page([long])
    assert "| 3,000 |" in section(page, "imdb").splitlines()[3]
    assert "### imdb, to the end" in page
    assert "| 10,000 |" in page.split("### imdb, to the end")[1]


def test_spectra_are_of_the_first_seed_that_recorded_gradients(tmp_path: Path) -> None:
    losses = [0.5, 0.1]
    lost = made_run(tmp_path, "Baseline", 0, losses, task="mnist", gradients=5)  # its gradients are not there
    kept = made_run(tmp_path, "Baseline", 1, losses, task="mnist", gradients=5)
    (kept.path / "gradients.json").write_text('{"names": ["a", "b"]}')
    np.random.default_rng(0).normal(size=(64, 2, 2)).astype(np.float32).tofile(kept.path / "gradients.f32")
    titles = [plot.title for plot in results_plots([lost, kept]) if plot.name.startswith("spectrum")]
    assert titles == ["Spectrum of the gradients of Baseline, seed 1"]


@pytest.mark.parametrize("name", ["trajectories", "deviation"])
def test_what_was_not_recorded_has_no_picture(tmp_path: Path, name: str) -> None:
    plots = results_plots([made_run(tmp_path, "Baseline", 0, [0.5, 0.1], task="mnist")])
    assert name not in [plot.name for plot in plots]
    assert plots[0].name == "curves-mnist"
