"""Advice from a run without a filter: what the evidence supports, tried; and why there is none."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from made import made_run, write_run
from tiny import tiny

from grokfast.lab.analysis.advice import Advice, Proposal, advise
from grokfast.lab.commands import cli
from grokfast.lab.report.evidence import load
from grokfast.lab.request import Request, resolve
from grokfast.lab.runs.directory import Run, load_runs
from grokfast.lab.runs.metrics import Crossing, Row, best
from grokfast.lab.runs.writer import create_run
from grokfast.lab.training.train import train


def grok(folder: Path, *, overfit: int, generalise: int | None, steps: int, finish: bool = True, **changes: Any) -> Run:
    """A run evaluated every 10 steps that learns its training data, and generalises, at given steps."""
    rows: list[Row] = []
    for step in range(10, steps + 1, 10):
        val = 0.96 if generalise is not None and step >= generalise else 0.1
        train = 1.0 if step >= overfit else 0.5
        rows.append(Row(step, 1.0, train, 1.0, val, 1.0, 1.0, None, 1e-3, step, 1.0))
    return write_run(folder, tiny(steps=steps, eval_every=10, **changes), rows, finish=finish)


def flags_of(proposal: Proposal) -> dict[str, str]:
    """By name; of betas, which are two, the first."""
    words = shlex.split(proposal.command)
    assert words[:3] == ["grokfast", "train", "modmul"]
    return {word: words[i + 1] for i, word in enumerate(words) if word.startswith("--")}


def refused(advice: Advice) -> str:
    assert advice.proposals == []
    (reason,) = advice.why
    return reason


KNOWN = load().tuned_tasks["modmul"]


def test_decay_and_learning_rate_come_before_a_filter(runs_dir: Path) -> None:
    found = advise(grok(runs_dir, overfit=50, generalise=5_000, steps=6_000), KNOWN)
    assert (found.overfit, found.generalised) == (Crossing(40, 50), Crossing(4_990, 5_000))
    plain, filtered = map(flags_of, found.proposals)
    assert plain["--optimizer"] == filtered["--optimizer"] == "adamw"
    for flags in (plain, filtered):  # what the archived runs agree on
        assert 0.3 < float(flags["--weight-decay"]) < 3
        assert 1e-3 < float(flags["--lr"]) < 1e-2
    assert "--filter" not in plain
    assert filtered["--filter"] in ("ema", "ma")
    why = " ".join(found.why)
    assert f"without a filter, it took {KNOWN.plain.took}" in why
    assert KNOWN.verdict in why
    assert "It generalised at step 5,000, 100 times as many" in why


def test_the_command_is_the_same_problem_with_the_settings_that_were_tuned(runs_dir: Path) -> None:
    changes = {"optimizer": "sgd", "momentum": 0.5, "lr": 2e-3, "seed": 3, "until": 0.9}
    run = grok(runs_dir, overfit=50, generalise=2_000, steps=3_000, **changes)
    for proposal in advise(run, KNOWN).proposals:
        flags = flags_of(proposal)
        assert {"--seed": "3", "--until": "0.9", "--p": "7", "--steps": "3000"}.items() <= flags.items()
        assert "--momentum" not in flags
        assert flags["--lr"] == str(proposal.values["lr"])


def test_a_task_without_evidence_gets_the_papers_filter_and_is_told_so(runs_dir: Path) -> None:
    found = advise(grok(runs_dir, overfit=50, generalise=2_000, steps=3_000, weight_decay=0.0, lr=2e-3), None)
    (ema,) = found.proposals
    flags = flags_of(ema)
    assert (flags["--filter"], flags["--lr"]) == ("ema", "0.002")
    assert "--weight-decay" not in flags  # that of the paper's EMA, not the run's 0
    assert ema.text == "adam, weight decay 0.005, learning rate 0.002, EMA, alpha 0.98, lamb 2"
    assert "`grokfast duel modmul adamw adamw+ema` tunes them" in " ".join(found.why)


def test_a_run_that_is_not_finished_says_so(runs_dir: Path) -> None:
    found = advise(grok(runs_dir, overfit=100, generalise=None, steps=5_000, finish=False), KNOWN)
    assert "It has not generalised after 50 times as many steps" in " ".join(found.why)
    assert "not finished (step 5,000 of 5,000)" in " ".join(found.uncertain)


def test_what_is_proposed_generalises_where_the_run_did_not(runs_dir: Path) -> None:
    problem = Request("modmul", (("p", 23), ("width", 48), ("depth", 1), ("train_fraction", 0.7), ("threads", 1)))
    config = resolve(problem.having(steps=400, eval_every=20))
    run = train(config, runs_dir).run
    before = best(run.rows, "accuracy")
    proposals = advise(run, KNOWN).proposals
    assert before is not None
    assert before.value < 0.2
    for proposal in proposals:
        assert cli.main([*shlex.split(proposal.command)[1:], "--runs-dir", str(runs_dir), "--quiet"]) == 0
    others = [best(found.rows, "accuracy") for found in load_runs(runs_dir) if found.name != run.name]
    assert len(others) == len(proposals) == 2
    assert all(after is not None and after.value > 2 * before.value for after in others)


def test_runs_without_an_answer_say_why(runs_dir: Path) -> None:
    filtered = grok(runs_dir, overfit=50, generalise=5_000, steps=5_000, filter="ema")
    assert "with a filter already (ema)" in refused(advise(filtered, KNOWN))
    assert "training accuracy was at most 0.500" in refused(
        advise(grok(runs_dir, overfit=900, generalise=None, steps=500), KNOWN)
    )
    assert "no delay to shorten" in refused(advise(grok(runs_dir, overfit=100, generalise=150, steps=300), KNOWN))
    assert "too early to see a delay" in refused(advise(grok(runs_dir, overfit=100, generalise=None, steps=110), KNOWN))
    assert "It has 4 evaluations" in refused(advise(grok(runs_dir, overfit=10, generalise=40, steps=40), KNOWN))
    assert "It has 0 evaluations" in refused(advise(create_run(tiny(seed=5), runs_dir, {}), KNOWN))
    assert "no accuracy" in refused(advise(made_run(runs_dir, "Baseline", 0, [9.0] * 20), KNOWN))
