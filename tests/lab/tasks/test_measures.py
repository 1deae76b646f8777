"""`--measures`: what is inside a network as recorded numbers, those of `grokfast inside`; sweeps can rank by them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny import TINY_FLAGS, comparable, tiny

from grokfast.lab.analysis.inside_run import look_inside
from grokfast.lab.commands.cli import main
from grokfast.lab.settings import experiment_key, to_json
from grokfast.lab.sweep.objective import bound_of
from grokfast.lab.tasks.modular.measures import RECORDED
from grokfast.lab.training.run import train


def test_what_is_recorded_is_what_inside_finds(runs_dir: Path) -> None:
    run = train(tiny(measures=True, snapshots=2, eval_every=10), runs_dir)
    last, moment = run.rows[-1], look_inside(run).moments[-1]
    assert last.more is not None
    assert last.more.keys() == RECORDED.keys()
    for name in ("embedding_gini", "logits_gini", "restricted_loss", "zero_loss"):
        assert last.more[name] == pytest.approx(getattr(moment, name), rel=1e-5)
    assert last.more["excluded_loss"] == pytest.approx(sum(moment.excluded_loss) / len(moment.excluded_loss), rel=1e-5)
    assert last.more["effective_rank"] == pytest.approx(sum(moment.ranks.values()) / len(moment.ranks), rel=1e-5)


def test_measuring_changes_nothing_else(tmp_path: Path) -> None:
    plain, measured = (train(tiny(measures=yes), tmp_path) for yes in (False, True))
    assert [row._replace(more=None) for row in comparable(measured.rows)] == comparable(plain.rows)
    assert experiment_key(to_json(tiny(measures=True))) == experiment_key(to_json(tiny()))


def test_an_operation_without_such_a_view_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"operation must be one of add, subtract, multiply, divide .* got s5"):
        tiny(operation="s5", measures=True)


def test_more_counts_as_better_where_it_is(runs_dir: Path) -> None:
    run = train(tiny(measures=True), runs_dir)
    more = run.rows[-1].more
    assert more is not None
    assert bound_of(run, "logits_gini").value == -more["logits_gini"]
    assert bound_of(run, "restricted_loss").value == more["restricted_loss"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["logits_gini"], "objective logits_gini needs --measures"),
        (["beauty", "--measures"], "objective must be one of stable, first, .*effective_rank, got beauty"),
    ],
)
def test_an_objective_that_is_not_recorded_is_refused(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--grid", "lr=0.001,0.01", "--sweep-dir", str(tmp_path / "sweep"), "--objective", *words]
    assert main(["sweep", "modmul", *TINY_FLAGS, *flags]) != 0
    assert re.search(message, capsys.readouterr().err)
    assert not (tmp_path / "sweep").exists()


def test_a_sweep_ranks_by_a_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--grid", "lr=0.001,0.03", "--sweep-dir", str(tmp_path / "sweep"), "--steps", "20", "--workers", "1"]
    words = ["--measures", "--objective", "logits_gini", "--json", "--quiet"]
    assert main(["sweep", "modmul", *TINY_FLAGS, *flags, *words]) == 0
    found = [setting["median"] for setting in json.loads(capsys.readouterr().out)["settings"]]
    assert len(found) == 2
    assert found[0] > found[1] > 0
