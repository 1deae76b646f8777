"""`grokfast report`, `figures`, `results`, `demo`, `response`: the files they leave and the lines they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made import made_run
from tiny import TINY_FLAGS

from grokfast.lab.report.markdown import MARKS

Call = Callable[..., tuple[int, str, str]]


# Report and figures -------------------------------------------------------------------------------------------------


def test_report_writes_a_page_and_a_picture(call: Call, runs_dir: Path, tmp_path: Path) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.1], task="mnist")
    out = tmp_path / "page.html"
    assert call("report", "--runs-dir", runs_dir, "-o", out)[:2] == (
        0,
        f"written: {out} and {out.with_suffix('.png')}\n",
    )
    assert "<html" in out.read_text()


def test_the_level_decides_the_crossing(call: Call, runs_dir: Path, tmp_path: Path) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.3, 0.1], task="mnist")
    assert "| Baseline | 0.01 | 30 | 44,022 |" in call("results", runs_dir)[1]
    assert "| Baseline | 0.01 | 20 | 44,022 |" in call("results", runs_dir, "--level", "0.6")[1]


@pytest.mark.parametrize("command", ["report", "figures", "results"])
@pytest.mark.parametrize("level", ["0", "-1", "1.5", "nan"])
def test_a_level_that_no_run_can_have_is_refused(call: Call, runs_dir: Path, command: str, level: str) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5], task="mnist")
    code, _, err = call(command, "--runs-dir", runs_dir, "--level", level)
    assert (code, err) == (1, f"grokfast: error: level must be in (0, 1], got {float(level):g}\n")


def test_figures_of_everything_a_run_recorded(tmp_path: Path, call: Call) -> None:
    where = ["--runs-dir", tmp_path / "runs"]
    record = ["--steps", "300", "--snapshots", "3", "--gradients", "20", "--eval-every", "50"]
    assert call("train", "modmul", "--filter", "ema", *TINY_FLAGS, *record, *where, "--quiet")[0] == 0
    code, out, _ = call("figures", *where, "-o", tmp_path / "out")
    assert code == 0
    paths = sorted((tmp_path / "out").iterdir())
    assert sorted(out.splitlines()) == [f"written: {path}" for path in paths]
    names = [path.name.split("-")[0].split(".")[0] for path in paths]
    assert names == ["curves", "deviation", "response", "spectrum", "theorem", "trajectories"]


@pytest.mark.parametrize(("ending", "beginning"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_figures_have_the_format_asked_for(
    ending: str, beginning: bytes, tmp_path: Path, runs_dir: Path, call: Call
) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.1], task="mnist")
    assert call("figures", "--runs-dir", runs_dir, "-o", tmp_path / "out", "--format", ending)[0] == 0
    paths = list((tmp_path / "out").iterdir())
    assert paths
    assert all(path.suffix == f".{ending}" and path.read_bytes().startswith(beginning) for path in paths)


# Results ------------------------------------------------------------------------------------------------------------


def test_results_are_a_table_for_each_task_with_arms(tmp_path: Path, call: Call) -> None:
    (tmp_path / "runs").mkdir()
    assert "there is no complete run of the paper's experiments" in call("results", tmp_path / "runs")[2]
    train = ["train", "modmul", "--filter", "ema", "--steps", "10", "--quiet", "--threads", "1"]
    for seed in (0, 1):
        assert call(*train, "--seed", seed, "--runs-dir", tmp_path / "runs")[0] == 0
    assert call("results", "--runs-dir", tmp_path / "runs", "-o", tmp_path / "r.md")[0] == 0
    text = (tmp_path / "r.md").read_text()
    assert "| Grokfast-EMA | 0.005 | > 10 | 910 | > 10 |" in text
    assert "| 10 | every epoch (10 steps) |" in text
    assert (tmp_path / "figures" / "curves-modmul.png").exists()
    (tmp_path / "figures" / "sweep-old.png").touch()
    (tmp_path / "figures" / "duel-mine.png").touch()
    code, _, err = call("results", "--runs-dir", tmp_path / "runs", "-o", tmp_path / "r.md")
    assert (code, err.count("remove it"), "sweep-old.png is on the page no longer" in err) == (0, 1, True)


def test_results_go_into_a_page_between_its_marks(tmp_path: Path, runs_dir: Path, call: Call) -> None:
    made_run(runs_dir, "Grokfast", 0, [0.5, 0.1], task="mnist")
    page = tmp_path / "page.md"
    page.write_text(f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n")
    assert call("results", runs_dir, "--summary", page)[:2] == (0, f"written: {page}\n")
    assert "| mnist | Grokfast | 2 | 1 | steps to 0.85 | 20 | 2,001 |" in page.read_text()
    assert "old" not in page.read_text()


def test_what_is_missing_is_one_command_for_each_run(runs_dir: Path, call: Call) -> None:
    made_run(runs_dir, "Grokfast", 0, [0.5, 0.1], task="mnist", steps=100_000)
    lines = call("results", runs_dir, "--missing")[1].splitlines()
    assert "grokfast train mnist --filter ema --seed 1 --threads 1" in lines
    assert "grokfast train mnist --filter ema --seed 0 --threads 1" not in lines
    assert lines[-1] == "grokfast train imdb --filter ema --seed 0 --threads 1 --steps 200"


def test_costs_are_those_of_runs_made_for_them(runs_dir: Path, call: Call) -> None:
    made_run(runs_dir, "Grokfast", 0, [0.5, 0.1], task="mnist")
    assert "## Costs (Tables 3 to 6, Appendix D)\n\nNot run." in call("results", runs_dir)[1]
    made_run(runs_dir / "costs", "Grokfast", 0, [0.5], task="mnist")
    # A second per step, 20 steps to the level.
    assert "| mnist | Grokfast | 1,000 | 43.9 | 20 | 87.8 |" in call("results", runs_dir)[1]


def test_results_of_a_missing_directory_give_one_line(tmp_path: Path, call: Call) -> None:
    assert "a directory of runs must exist, got" in call("results", tmp_path / "nowhere")[2]


# Demo ---------------------------------------------------------------------------------------------------------------


def test_demo_leaves_a_page_and_a_picture_and_resumes_by_itself(call: Call, tmp_path: Path) -> None:
    out = tmp_path / "page" / "index.html"
    words = ["demo", "--quick", "--quiet", "-o", out, "--runs-dir", tmp_path / "runs"]
    code, text, _ = call(*words)
    assert code == 0
    assert "39,890" in text
    page = out.read_text()
    assert "Grokfast-EMA, seed 0" in page
    assert "http://" not in page.split("<script")[0]
    assert (out.parent / "curves.png").read_bytes().startswith(b"\x89PNG")
    stamps = [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/summary.json"))]
    assert call(*words)[0] == 0
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/summary.json"))] == stamps


# Response -----------------------------------------------------------------------------------------------------------


def test_response_draws_a_filter(tmp_path: Path, call: Call) -> None:
    assert call("response", "ema", "--alpha", "0.98", "-o", tmp_path / "r.svg")[0] == 0
    assert (tmp_path / "r.svg").read_text().startswith("<?xml")
