"""Runs whose task or filter is not known here are reported from their plain settings."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

import pytest
from made import swept_run

from grokfast.lab.compare.headline import headline
from grokfast.lab.compare.sensitivity import find_families
from grokfast.lab.report import write_figures, write_report
from grokfast.lab.report.results import results_page, summary_table
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import read_json, write_json


def foreign(run: Run, **changes: dict[str, Any]) -> Run:
    """The same run, as if its task or filter were a user's own."""
    path = run.path / "config.json"
    write_json(path, {**read_json(path), **changes})
    return Run(run.path)


TASK = {"name": "tasks/mine.py:Mine", "size": 3, "noise": 0.1}


@pytest.mark.parametrize("filter", [True, False])
def test_a_task_that_is_not_known_here_is_reported(tmp_path: Path, filter: bool) -> None:
    runs = [
        foreign(swept_run(tmp_path / "runs", 100 * i, filter="ema", lamb=float(i), seed=seed), task=TASK)
        for i in (1, 2, 3)
        for seed in (0, 1)
    ]
    if not filter:
        runs = [foreign(run, filter={"name": "mine.py:Low", "gain": i, "soft": True}) for i, run in enumerate(runs)]
    page = html.unescape(write_report(runs, tmp_path / "out/index.html")[0].read_text().split("<body>", 1)[1])
    assert "its task or filter is not known here" in page
    assert "Steps until the validation accuracy is 0.95" in page
    assert 'id="curves-mine_py_Mine"' in page
    assert ('id="response"' in page) == filter
    drawn = [path.stem for path in write_figures(runs, tmp_path / "figures", "svg")]
    assert "curves-mine_py_Mine" in drawn
    assert "reaches 0.95 after 100 steps" in headline(runs)
    assert results_page(runs) == ""
    assert "mine" not in summary_table(runs)


def test_the_numbers_of_an_own_filter_make_a_sweep(tmp_path: Path) -> None:
    made = [swept_run(tmp_path / "runs", 100 * i, filter="ema", lamb=float(i)) for i in (1, 2, 3)]
    runs = [foreign(run, filter={"name": "mine.py:Low", "lr": 0.1 * i}) for i, run in enumerate(made, 1)]
    (family,) = find_families(runs)
    assert family.axes == ["filter_lr"]
    assert family.title == "modmul, mine.py:Low, adam"
    page = html.unescape(write_report(runs, tmp_path / "out/index.html")[0].read_text())
    assert "Sweep over filter lr: modmul, mine.py:Low, adam, 3 runs" in page
    assert "mine.py:Low, lr 0.1, weight decay 0.005 reaches 0.95 after 100 steps" in page


def test_a_run_of_a_machine_with_another_device_is_reported(tmp_path: Path) -> None:
    run = swept_run(tmp_path / "runs", 100, filter="ema")
    loop = read_json(run.path / "config.json")["loop"]
    page = write_report([foreign(run, loop={**loop, "device": "cuda:7"})], tmp_path / "out.html")[0].read_text()
    assert "reaches 0.95 after 100 steps" in page
    assert "--device cuda:7" in page
