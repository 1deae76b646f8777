"""Our pages: they say what results/ says, and a sentence that is no longer true cannot be published."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import pages  # noqa: E402
from pages import ClaimError, Evidence, functions_of, render, wrap, write_pages  # noqa: E402

CLAIM = re.compile(r"\b(faster|slower|sooner|later|better|worse|helps|hurts)\b")


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return Evidence(ROOT / "results")


@pytest.fixture
def template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a template of the results page, in a repository of its own."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("as before\n")
    monkeypatch.setattr(pages, "TEMPLATES", tmp_path)
    return tmp_path / "results.md.j2"


# What is committed ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", pages.PAGES)
def test_a_page_is_what_the_results_say(page: str, evidence: Evidence) -> None:
    written, text = (ROOT / pages.PAGES[page]).read_text(), render(page, functions_of(evidence))
    assert text == written, "make results"


def test_every_picture_that_a_page_shows_is_drawn_and_no_other(evidence: Evidence) -> None:
    for page in pages.PAGES:
        render(page, functions_of(evidence))
    drawn = {path.stem for path in (ROOT / pages.FIGURES).iterdir()}
    assert {*evidence.drawn, "answer"} <= drawn, "make results"
    text = "".join(path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")))
    assert drawn == {name for name in drawn if f"figures/{name}." in text}, "remove the others"


def test_what_the_demo_shows_is_what_the_results_say(evidence: Evidence) -> None:
    from page_pictures import demo_evidence

    assert (ROOT / pages.DEMO).read_text() == demo_evidence(evidence), "make results"


def test_the_evidence_is_few_small_files_that_know_no_directory_of_a_machine() -> None:
    files = [path for path in (ROOT / "results").rglob("*") if path.is_file()]
    assert len(files) <= 30
    assert sum(path.stat().st_size for path in files) < 25e6
    assert not [path for path in files if path.suffix == ".csv" and re.search(r'"/|[=,]/\w', path.read_text())]


# Claims ---------------------------------------------------------------------------------------------------------------


def items(text: str) -> list[str]:
    """The paragraphs and list items of a template, each with the lines of Jinja above it."""
    found: list[list[str]] = [[]]
    before: list[str] = []
    for line in text.splitlines():
        if line.startswith("{%"):
            before.append(line)
        elif not line.strip() or line.startswith(("- ", "#", "|")):
            found.append([*before, line] if line.strip() else [])
            before = []
        else:
            found[-1] += [*before, line]
            before = []
    return ["\n".join(lines) for lines in found if lines]


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "templates").glob("*.j2")), ids=lambda path: path.name)
def test_a_sentence_that_claims_a_difference_has_its_condition(path: Path) -> None:
    """In its section: the conditions of a list or a table stand together above it."""
    for section in re.split(r"^(?=#)", path.read_text(), flags=re.MULTILINE):
        for item in items(section):
            prose = re.sub(r"\{[{%].*?[%}]\}", "", item)
            explains = "rule" in prose or "compared" in prose  # what the words mean, not who is faster
            if CLAIM.search(prose) and not explains:
                assert "{% require" in section, f"{path.name}: no condition beside: {prose.strip()[:120]}"


def test_a_claim_that_is_not_true_names_its_line_and_nothing_is_written(template: Path, tmp_path: Path) -> None:
    template.write_text("# Results\n\nMA is fast.\n{% require 1 + 1 == 3 %}\n")
    message = r"docs/templates/results.md.j2:4: this is not true any more: \{% require 1 \+ 1 == 3 %\}"
    with pytest.raises(ClaimError, match=message):
        write_pages(["results"], tmp_path)
    assert (tmp_path / "docs" / "results.md").read_text() == "as before\n"


def test_a_claim_that_is_true_leaves_no_trace(template: Path, tmp_path: Path) -> None:
    template.write_text("# Results\n\n{% require 1 + 1 == 2 %}\nMA is fast.\n")
    write_pages(["results"], tmp_path)
    assert (tmp_path / "docs" / "results.md").read_text() == "# Results\n\nMA is fast.\n"


def test_a_name_that_is_not_known_is_an_error(template: Path, tmp_path: Path) -> None:
    template.write_text("{{ stepps }}\n")
    with pytest.raises(Exception, match="stepps"):
        write_pages(["results"], tmp_path)


def test_an_arm_without_runs_is_named(evidence: Evidence) -> None:
    with pytest.raises(ClaimError, match=r"results/ has no run of modmul with \{'lr': 0.5\}"):
        evidence.arm("modmul", lr=0.5)


def test_three_seeds_decide_nothing(evidence: Evidence) -> None:
    baseline, fast = evidence.arm("modmul"), evidence.arm("modmul", filter="ma")
    assert len(baseline.runs) == 3
    assert pages.verdict(fast, baseline) == "undecided"  # although all are 40 times as fast


# Text -----------------------------------------------------------------------------------------------------------------


def test_long_paragraphs_are_wrapped_and_tables_and_code_are_not() -> None:
    long = "word " * 40
    text = f"# {long}\n\n{long}\n\n- {long}\n- b\n\n| {long} |\n\n```sh\n{long}\n```\n"
    lines = wrap(text).splitlines()
    assert max(len(line) for line in lines if line.startswith(("word", "-", "  "))) >= len(long)  # code
    prose = [line for line in lines[2:] if not line.startswith("|")]
    assert [line for line in prose if line.startswith("- ")][1] == "- b"
    assert sum(len(line) > 120 for line in prose) == 1
    assert wrap(wrap(text)) == wrap(text)


# keep.py --------------------------------------------------------------------------------------------------------------


def test_runs_are_added_once_and_other_results_are_refused(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "lab"))
    from keep import keep
    from made import row, write_run
    from tiny import tiny

    from grokfast.lab.runs.archive import read_tables
    from grokfast.lab.runs.directory import RunError

    first = write_run(tmp_path / "a", tiny(), [row(10, 1.0, 0.5)])
    second = write_run(tmp_path / "a", tiny(seed=1), [row(10, 1.0, 0.5)])
    assert [run.name for run in keep([first], tmp_path / "kept")] == [first.name]
    assert [run.name for run in keep([first, second], tmp_path / "kept")] == [second.name]
    assert len(read_tables(tmp_path / "kept")) == 2
    slower = write_run(tmp_path / "b", tiny(), [row(10, 1.0, 0.5)._replace(seconds=99.0)])
    assert keep([slower], tmp_path / "kept") == []  # only the time differs
    other = write_run(tmp_path / "c", tiny(), [row(10, 2.0, 0.5)])
    with pytest.raises(RunError, match=r"is kept in .* with other results"):
        keep([other], tmp_path / "kept")


# count.py -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "decides"),
    [
        ("return 'faster' if a < b else 'slower'", True),
        ('"""Which is faster."""\n    return a < b', False),
        ("return 'faster'", False),
    ],
)
def test_a_place_that_decides_compares_and_has_a_word_for_it(body: str, decides: bool) -> None:
    import ast

    import count

    (function,) = ast.parse(f"def f(a, b):\n    {body}\n").body
    found: Any = count.decides(function)  # type: ignore[arg-type]
    assert found is decides


def test_a_duel_with_many_tunings_is_kept_and_shown(tmp_path: Path) -> None:
    import page_duels
    from keep import keep_duel

    from grokfast.lab.runs.archive import read_parquet

    arms: list[dict[str, Any]] = []
    runs: list[dict[str, Any]] = []
    for arm, settings_of, steps in (("adamw", None, 200), ("adamw+ema", None, 100), ("adamw", "adamw+ema", 101)):
        for k in range(8):
            side = {"arm": arm, "settings_of": settings_of, "tuning": k}
            arms.append({**side, "setting": {"lr": 0.1 * (k + 1)}, "command": f"grokfast train addition --lr {k}"})
            runs += [{**side, "seed": seed, "steps": steps + k + seed, "reached": True} for seed in range(3)]
    about = {"task": "addition", "regime": "tuned", "steps": 500, "until": 0.95, "trials": 30, "tuning_seeds": 1}
    tables = {
        "duel_arms.csv": [{**about, "objective": "held", **arm} for arm in arms],
        "duels.csv": runs,
        "duel_trials.parquet": [{"arm": "adamw", "trial": 0}],
    }
    for _ in range(2):  # the second time it is replaced
        keep_duel("addition-tuned", tables, tmp_path)
    (duel,) = page_duels.load_duels(tmp_path)
    judged, share = duel.judge("adamw+ema"), duel.share("adamw+ema")
    assert judged is not None
    assert share is not None
    assert (judged.word, judged.tunings, judged.seeds, share.word) == ("faster", 8, 24, "no difference")
    (row,) = page_duels.tuned_rows([duel], ["adamw+ema", "adamw+ma"])
    assert list(row) == ["task", "tunings", "AdamW", "EMA"]  # what was not run has no column
    assert (row["task"], row["tunings"]) == ("modular addition", "8 x 30 trials")
    assert read_parquet(tmp_path / "duel_trials.parquet").rows() == [("addition-tuned", "adamw", 0)]


def test_a_duel_that_was_tuned_once_gets_no_verdict_on_our_pages(evidence: Evidence) -> None:
    table = evidence.once_table()
    assert "faster" in table  # the interval
    assert not re.search(r"\*\*|undecided", table)  # the word


def test_json_lines_are_kept_as_a_table(tmp_path: Path) -> None:
    from keep import keep_lines

    from grokfast.lab.runs.archive import read_parquet

    path = tmp_path / "map.jsonl"
    path.write_text(
        '{"seed": 1, "values": {"lr": 0.1}, "curve": [0.5, 1.0]}\n{"seed": 2, "values": {"lr": 1}, "curve": []}\n'
    )
    frame = read_parquet(keep_lines(path, tmp_path))
    assert frame.to_dicts() == [{"seed": 1, "curve": [0.5, 1.0], "lr": 0.1}, {"seed": 2, "curve": [], "lr": 1.0}]


def test_the_outcome_of_a_duel_is_kept_as_it_is(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "lab"))
    from keep import keep_outcome
    from made import row, write_run
    from tiny import tiny

    from grokfast.lab.runs.archive import read_csv, read_parquet
    from grokfast.lab.search.outcome import Outcome, write_outcome

    side = {"arm": "adamw", "settings_of": None, "tuning": 0}
    duel = {"given": {"task": "addition", "steps": 500, "until": 0.95}, "regime": "tuned", "trials": 30}
    duel |= {"tuning_seeds": 1, "objective": "held", "seed": 7, "tunings": 1, "seeds": 1, "arms": ["adamw"]}
    setting = {**side, "setting": {"lr": 0.1}, "edges": {}, "command": "grokfast train addition"}
    fresh = {**side, "seed": 100, "held": 90, "held_exact": True, "steps": 90, "reached": True, "error": None}
    trial = {"arm": "adamw", "tuning": 0, "trial": 0, "seed": 7, "setting": {"lr": 0.1}}
    (tmp_path / "mine").mkdir()
    write_outcome(Outcome(duel, [trial], [fresh], [setting], []), tmp_path / "mine")
    (tmp_path / "kept").mkdir()
    for part in ("tuning", "runs"):
        write_run(tmp_path / "mine" / part, tiny(seed=len(part)), [row(10, 1.0, 0.5)])
    keep_outcome(tmp_path / "mine", tmp_path / "kept")
    assert read_csv(tmp_path / "kept" / "duels.csv") == [{"duel": "mine", **fresh}]
    (arm,) = read_csv(tmp_path / "kept" / "duel_arms.csv")
    assert (arm["duel"], arm["task"], arm["regime"], arm["sampler_seed"], arm["setting"]) == (
        *("mine", "addition", "tuned", 7),
        {"lr": 0.1},
    )
    (kept,) = read_parquet(tmp_path / "kept" / "duel_trials.parquet").rows(named=True)
    assert kept == {"duel": "mine", **trial, "setting": '{"lr": 0.1}'}
    curves = read_parquet(tmp_path / "kept" / "duel_curves.parquet").rows(named=True)
    assert [(curve["steps"], curve["value"]) for curve in curves] == [([10], [0.5])] * 2
