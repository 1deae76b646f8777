"""`grokfast suggest`: advice in sentences or as JSON. The advice itself is tested in its room."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

from tiny import tiny

from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.writer import create_run, open_for_writing

Call = Callable[..., tuple[int, str, str]]


def delayed_run(folder: Path) -> Run:
    """An unfinished run without a filter that learns its training data after 50 steps and generalises after 5,000."""
    run = create_run(tiny(steps=6_000, eval_every=10), folder, {})
    with open_for_writing(run) as writer:
        for step in range(10, 6_001, 10):
            learnt, known = 1.0 if step >= 50 else 0.5, 0.96 if step >= 5_000 else 0.1
            writer.append(Row(step, 1.0, learnt, 1.0, known, 1.0, 1.0, None, 1e-3, step, 1.0))
    return run


def test_suggest_prints_commands_and_reasons(call: Call, runs_dir: Path) -> None:
    run = delayed_run(runs_dir)
    code, out, _ = call("suggest", run.name[:12], "--runs-dir", runs_dir)
    assert code == 0
    assert out.startswith(f"To try for {run.name}:")
    first, second = re.findall(r"\n  (.+)\n    grokfast train modmul (.+)", out)
    assert first[0].startswith("adamw, weight decay ")
    assert first[0].endswith("no filter")
    assert second[1].startswith("--filter ")
    assert f"--runs-dir {runs_dir}\n" in out
    assert "\nWhy:\n- " in out
    assert "\nUncertain:\n- " in out


def test_suggest_prints_json(call: Call, runs_dir: Path) -> None:
    run = delayed_run(runs_dir)
    data = json.loads(call("suggest", run.name, "--runs-dir", runs_dir, "--json")[1])
    assert data["overfit"] == {"after": 40, "step": 50}
    assert [proposal["values"]["optimizer"] for proposal in data["proposals"]] == ["adamw", "adamw"]
    assert ["filter" in proposal["values"] for proposal in data["proposals"]] == [False, True]


def test_without_a_suggestion_the_reason_is_given(call: Call, runs_dir: Path) -> None:
    run = create_run(tiny(), runs_dir, {})
    code, out, _ = call("suggest", run.name, "--runs-dir", runs_dir)
    assert code == 0
    assert out.startswith(f"No suggestion for {run.name}. It has 0 evaluations")
