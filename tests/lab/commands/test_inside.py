"""`grokfast inside`: from snapshots to a table, a file in the run's directory and a section of the report."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from made import made_run
from tiny import tiny

from grokfast.lab.analysis.inside import FILE, look_inside, read_inside, save_inside
from grokfast.lab.commands import cli
from grokfast.lab.report import write_report
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.training.run import train


def test_inside_prints_saves_and_is_drawn_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tiny(snapshots=2, steps=40), tmp_path / "runs")
    assert "Inside the network" not in write_report([run], tmp_path / "a.html").read_text()
    assert cli.main(["inside", run.name, "--runs-dir", str(tmp_path / "runs")]) == 0
    assert "restricted loss" in capsys.readouterr().out
    found = read_inside(run)
    assert found is not None
    assert found.symbols == [1, 3, 2, 6, 4, 5]
    assert sorted(found.key) == [1, 2, 3]
    last = found.moments[-1]
    assert last.step == 40
    assert sum(last.embedding) == pytest.approx(1, abs=1e-3)
    assert 0 <= last.zero_loss <= 1
    assert (len(last.points), len(last.excluded_loss)) == (6, 3)
    assert "Inside the network" in write_report([run], tmp_path / "b.html").read_text()


def test_the_losses_inside_are_those_of_the_run_if_every_pair_has_a_place(tmp_path: Path) -> None:
    run = train(tiny(snapshots=2, steps=40, operation="add"), tmp_path)
    last, moment = run.rows[-1], look_inside(run).moments[-1]
    assert moment.val_loss == pytest.approx(last.val_loss, rel=1e-4)


def test_runs_without_such_a_view_are_refused_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="kept no weights: train it with --snapshots"):
        look_inside(train(tiny(), tmp_path))
    with pytest.raises(ValueError, match=r"got x2\+y2: its symbols have no order"):
        look_inside(train(tiny(operation="x2+y2", snapshots=1), tmp_path))
    with pytest.raises(RunError, match="needs a run of modmul, got one of qm9"):
        look_inside(made_run(tmp_path, "Baseline", 0, [1.0]))


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"symbols": [1], "key": [1], "moments": []}', '{"symbols": 3}'])
def test_a_damaged_file_costs_only_its_section(tmp_path: Path, content: str) -> None:
    run = train(tiny(), tmp_path)
    (run.path / FILE).write_text(content)
    assert read_inside(run) is None
    assert "Inside the network" not in write_report([run], tmp_path / "a.html").read_text()


def test_a_changed_file_costs_only_its_section(tmp_path: Path) -> None:
    run = train(tiny(snapshots=2, steps=40), tmp_path)
    save_inside(run, look_inside(run))
    assert "Inside the network" in write_report([run], tmp_path / "a.html").read_text()
    data = json.loads((run.path / FILE).read_text())
    data["moments"][-1]["zero_loss"] = 0.5
    (run.path / FILE).write_text(json.dumps(data))
    assert "Inside the network" not in write_report([run], tmp_path / "b.html").read_text()


@pytest.mark.parametrize("weights", [{"w": torch.zeros(2)}, {}, {"tokens.weight": torch.full((8, 16), torch.nan)}])
def test_weights_of_another_network_are_one_line(
    tmp_path: Path, weights: dict[str, torch.Tensor], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tiny(snapshots=1, steps=10), tmp_path)
    torch.save(weights, run.path / "snapshots" / "000000001.pt")
    (run.path / "summary.json").unlink()  # else its digest of the snapshot would be the reason
    assert cli.main(["inside", run.name, "--runs-dir", str(tmp_path)]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"grokfast: error: {run.name} is damaged: its weights of step 1 are not those of its network")
    assert err.count("\n") == 1
    assert read_inside(Run(run.path)) is None
