"""`grokfast report`, `demo`, `response -o`: the files they leave and the lines they print."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made import made_run
from tiny import TINY_FLAGS

from grokfast.lab.commands.cli import main

Call = Callable[..., tuple[int, str, str]]


# Report and figures -------------------------------------------------------------------------------------------------


def test_report_writes_a_page(call: Call, runs_dir: Path, tmp_path: Path) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.1], task="mnist")
    out = tmp_path / "new" / "page.html"
    assert call("report", "--runs-dir", runs_dir, "-o", out) == (0, f"written: {out}\n", "")
    assert "<html" in out.read_text()


def test_runs_can_be_named_by_name_hash_and_folder(call: Call, runs_dir: Path, tmp_path: Path) -> None:
    runs = [made_run(runs_dir, "Baseline", seed, [0.5, 0.1], task="mnist") for seed in (0, 1, 2)]
    other = made_run(tmp_path / "other", "Grokfast", 0, [0.5, 0.1], task="mnist")
    out = tmp_path / "page.html"
    words = [runs[0].name, runs[1].name.rpartition("-")[2], tmp_path / "other"]
    assert call("report", *words, "--runs-dir", runs_dir, "-o", out)[0] == 0
    page = out.read_text()
    assert "Grokfast: 3 runs" in page
    assert "Grokfast, seed 0" in page
    assert other.seed == 0


def test_the_level_decides_the_crossing(call: Call, runs_dir: Path, tmp_path: Path) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.3, 0.1], task="mnist")
    for words, steps in ((["--level", "0.6"], 20), ([], 30)):
        call("report", "--runs-dir", runs_dir, "-o", tmp_path / "p.html", *words)
        assert f"lowest median: {steps} steps" in " ".join((tmp_path / "p.html").read_text().split())


@pytest.mark.parametrize("level", ["0", "-1", "1.5", "nan"])
def test_a_level_that_no_run_can_have_is_refused(call: Call, runs_dir: Path, tmp_path: Path, level: str) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5], task="mnist")
    code, _, err = call("report", "--runs-dir", runs_dir, "--level", level, "-o", tmp_path / "p.html")
    assert (code, err) == (1, f"grokfast: error: level must be in (0, 1], got {float(level):g}\n")
    assert not (tmp_path / "p.html").exists()


def test_figures_of_everything_a_run_recorded(tmp_path: Path, call: Call) -> None:
    where = ["--runs-dir", tmp_path / "runs"]
    record = ["--steps", "300", "--snapshots", "3", "--gradients", "20", "--eval-every", "50"]
    assert call("train", "modmul", "--filter", "ema", *TINY_FLAGS, *record, *where, "--quiet")[0] == 0
    code, out, _ = call("report", *where, "--figures", tmp_path / "out", "--format", "svg")
    assert code == 0
    paths = sorted((tmp_path / "out").iterdir())
    assert sorted(out.splitlines()) == [f"written: {path}" for path in paths]
    names = [path.name.split("-")[0].split(".")[0] for path in paths]
    assert names == ["curves", "deviation", "response", "spectrum", "theorem", "trajectories"]
    assert all(path.read_bytes().startswith(b"<svg") for path in paths)


@pytest.mark.parametrize("words", [["-o", "x.pdf"], ["-o", ""], ["-o", "/dev/null"], ["--figures", ""]])
def test_what_cannot_be_written_is_refused_before_anything_is_done(
    words: list[str], capsys: pytest.CaptureFixture[str], runs_dir: Path
) -> None:
    for command in ("report", "demo")[: 1 if words[0] == "--figures" else 2]:
        with pytest.raises(SystemExit):
            main([command, *words, "--runs-dir", str(runs_dir)])
        assert capsys.readouterr().err.count("\n") == 1
    assert not runs_dir.exists()


def test_a_format_without_figures_is_refused(call: Call, runs_dir: Path) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5], task="mnist")
    assert call("report", "--runs-dir", runs_dir, "--format", "svg") == (
        1,
        "",
        "grokfast: error: --format needs --figures, got svg without it\n",
    )


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
    assert '<a href="playground.html">' in page
    assert "<html" in (out.parent / "playground.html").read_text()
    stamps = [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/summary.json"))]
    assert call(*words)[0] == 0
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "runs").glob("*/summary.json"))] == stamps


# Response -----------------------------------------------------------------------------------------------------------


def test_response_draws_a_filter(tmp_path: Path, call: Call) -> None:
    assert call("response", "ema", "--alpha", "0.98", "-o", tmp_path / "r.svg")[0] == 0
    drawn = (tmp_path / "r.svg").read_text()
    assert ">cycles per step<" in drawn
    assert "role-legend" not in drawn  # one filter needs none
