"""A duel on the page: the verdict first, the picture, the arms, the commands; nothing in it is run."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import swept_run

from grokfast.lab.commands.cli import main
from grokfast.lab.search.outcome import FILE, TABLES, Outcome, write_outcome
from grokfast.lab.stats import Steps, sentence, verdict

HOSTILE = "<script>document.title='owned'</script>"
Visit = Callable[..., Any]


def made_outcome() -> Outcome:
    """Eight tunings of two arms, the second twice as fast; one run does not reach the level."""
    numbers = random.Random(0)
    took = {
        arm: [[Steps(round(speed * numbers.uniform(0.9, 1.1))) for _ in range(3)] for _ in range(8)]
        for arm, speed in (("adamw", 800), ("adamw+ema", 400))
    }
    took["adamw"][0][0] = Steps(3000, False)
    runs = [
        {
            "arm": arm,
            "settings_of": None,
            "tuning": k,
            "seed": seed,
            **dict.fromkeys(("held", "first", "seconds", "steps"), found.value),
            **dict.fromkeys(("held_exact", "first_exact", "reached"), found.exact),
            "samples": 100,
            "run": "",
            "error": None,
        }
        for arm, tunings in took.items()
        for k, tuning in enumerate(tunings)
        for seed, found in enumerate(tuning)
    ]
    settings = [
        {
            "arm": arm,
            "settings_of": None,
            "tuning": k,
            "setting": {"lr": 0.003},
            "edges": {"lr": "upper"} if arm == "adamw" else {},
            "command": f"grokfast train {arm} {HOSTILE}",
        }
        for arm in took
        for k in range(8)
    ]
    found = verdict(took["adamw+ema"], took["adamw"])
    assert math.isfinite(found.high)
    sides = {"arm": "adamw+ema", "settings_of": None, "reference": "adamw", "reference_settings_of": None}
    said = {"by": "held", "word": found.word, "text": sentence(found, "adamw+ema", "adamw")}
    ends = {"ratio": found.ratio, "low": found.low, "high": found.high, "seeds": found.seeds}
    given = {"task": "modmul", "steps": 3000, "until": 0.95}
    sizes = {"tunings": 8, "trials": 15, "seeds": 3, "tuning_seeds": 1, "seed": 0}
    duel = {"given": given, "regime": "tuned", "objective": "held", **sizes, "arms": list(took)}
    rows = [{**sides, **said, **ends, "tunings": found.tunings, "more": None}]
    return Outcome(duel, [{"arm": "adamw", "tuning": 0}], runs, settings, rows)


@pytest.fixture(scope="module")
def duel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a duel: runs on fresh seeds of two arms, one of its searches, the outcome."""
    folder = tmp_path_factory.mktemp("duel")
    for step, filter in ((800, None), (400, "ema")):
        for seed in (100, 101):
            swept_run(folder / "runs", step, filter=filter, optimizer="adamw", seed=seed)
    swept_run(folder / "tuning", 900, optimizer="adamw", seed=0)
    write_outcome(made_outcome(), folder)
    return folder


@pytest.fixture(scope="module")
def page_path(duel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page on the duel and a run beside it."""
    folder = tmp_path_factory.mktemp("report")
    swept_run(folder / "runs", 300, filter="ma", seed=7)
    assert main(["report", str(duel), str(folder / "runs"), "-o", str(folder / "index.html")]) == 0
    return folder / "index.html"


def test_the_verdict_comes_first_in_words(visit: Visit, page_path: Path) -> None:
    page = visit(page_path)
    lead = page.inner_text("ul.lead li >> nth=0")
    assert lead.startswith("modmul with everything tuned: adamw+ema against adamw: faster (")
    assert page.inner_text("section h2 >> nth=0") == "Duel: modmul with everything tuned"
    assert page.inner_text("section li >> nth=0").startswith("adamw+ema is faster than adamw: ")
    assert page.evaluate("document.querySelector('section .picture').id").startswith("duel-modmul")
    assert page.complaints == []


def test_arms_settings_and_commands_are_shown_and_not_run(visit: Visit, page_path: Path) -> None:
    page = visit(page_path)
    page.click("section details summary >> nth=0")
    section = page.inner_text("section >> nth=0")
    assert "23 of 24" in section
    assert "learning rate 0.003" in section
    assert "best lr near the upper end of its range: adamw in 8 of 8 tunings" in section
    assert f"grokfast train adamw+ema {HOSTILE}" in section
    assert page.title() == "Grokfast: modmul with everything tuned"
    assert page.locator("section h2").all_inner_texts().count("modmul") == 1  # the run beside it


def test_a_duel_fits_a_phone(visit: Visit, page_path: Path) -> None:
    assert visit(page_path, width=390).evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_duel_is_shown_without_its_runs(duel: Path, tmp_path: Path) -> None:
    for name in (FILE, *TABLES, "SHA256SUMS"):
        (tmp_path / name).write_bytes((duel / name).read_bytes())
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 0
    assert "adamw+ema is faster than adamw: " in (tmp_path / "p.html").read_text()


@pytest.mark.parametrize("flags", [["--level", "0.5"], ["--figures", "f"]])
def test_a_flag_that_changes_nothing_of_a_duel_is_refused(
    duel: Path, tmp_path: Path, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(duel), *flags, "-o", str(tmp_path / "p.html")]) == 1
    assert f"{flags[0]} is for runs, got the duel {duel}" in capsys.readouterr().err


@pytest.mark.parametrize("file", [FILE, *TABLES])
def test_an_outcome_that_was_changed_is_refused_in_one_line(
    duel: Path, tmp_path: Path, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in duel.iterdir():
        if path.is_file():
            (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "runs").symlink_to(duel / "runs")
    (tmp_path / file).write_text((tmp_path / file).read_text().replace("adamw+ema", "adamw+new"))
    if file == TABLES[0]:
        (tmp_path / file).write_text("x\n")
    assert main(["report", str(tmp_path), "-o", str(tmp_path / "p.html")]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "p.html").exists()
