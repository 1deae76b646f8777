"""`--measures`: what is inside a network as recorded numbers, those of `grokfast inside`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny import comparable, tiny

from grokfast.lab.analysis.inside import look_inside
from grokfast.lab.settings import experiment_of
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
    assert experiment_of(tiny(measures=True)) == experiment_of(tiny())


def test_an_operation_without_such_a_view_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match=r"operation must be one of add, subtract, multiply, divide .* got s5"):
        tiny(operation="s5", measures=True)
