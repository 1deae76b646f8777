"""Tables over seeds: arms beside the paper, ablations, costs, the short summary."""

from __future__ import annotations

from pathlib import Path

from made import create_made, made_run, write_run
from tiny import tiny

from grokfast.lab.compare.arms import (
    ABLATIONS,
    ablation_columns,
    ablation_not_run,
    arm_rows,
    arms_of_experiment,
    columns_not_run,
    cost_rows,
    held_text,
    paper_arms,
    summary_not_run,
    summary_row,
)
from grokfast.lab.compare.seeds import make_arms
from grokfast.lab.paper.experiments import configuration
from grokfast.lab.paper.published import LATE_MA, arms_of
from grokfast.lab.request import resolve
from grokfast.lab.runs.metrics import Row


def table_of(lines: list[list[str]]) -> dict[str, dict[str, str]]:
    head, *rows = lines
    assert len(set(head)) == len(head)
    return {row[0]: dict(zip(head, row, strict=True)) for row in rows}


def test_arms_are_summed_up_over_seeds_beside_the_baseline_s_best(tmp_path: Path) -> None:
    runs = [made_run(tmp_path, "Baseline", seed, [9.0, 6.0, 4.0]) for seed in (0, 1)]
    runs += [
        made_run(tmp_path, "Grokfast", 0, [9.0, 4.5, 3.0, 2.0]),
        made_run(tmp_path, "Grokfast", 1, [9.0, 3.5, 3.0, 2.5]),
    ]
    found = table_of(arm_rows(paper_arms(runs[::-1])))
    assert list(found) == ["Baseline", "Grokfast"]  # in the paper's order
    assert found["Baseline"]["steps to 5"] == "30"
    fast = found["Grokfast"]
    assert (fast["runs"], fast["steps to 5"], fast["best loss"]) == ("2", "20", "2.25 ± 0.35")
    assert fast["steps to the baseline's best loss"] == "25 (20 to 30)"


def test_the_paper_s_number_stands_beside_what_it_can_be_compared_with(tmp_path: Path) -> None:
    (arm,) = (arm for arm in arms_of("imdb") if arm.name == "Grokfast")
    more = {"batch_accuracy_best": 0.9, "batch_loss_best": 0.4, "batch_loss": 0.5}
    rows = [
        Row(10, 0.5, 0.8, 0.6, 0.7, 1.0, 1.0, None, 0.1, 10, 1.0, {**more, "batch_accuracy_best": x})
        for x in (0.9, 0.8)
    ]
    run = write_run(tmp_path, resolve(arm.request.having(steps=10)), rows)
    line = table_of(arm_rows(paper_arms([run])))["Grokfast"]
    assert line["best accuracy of a batch"] == "0.9"
    assert line["paper: best accuracy of a batch"] == "0.9"
    assert (line["lowest loss of a batch"], line["paper: lowest loss of a batch"]) == ("0.4", "0.412")
    assert "paper: accuracy" not in line
    assert not any("best best" in name or name.endswith("best") for name in line)


def test_a_run_that_never_crosses_counts_as_longer_than_its_budget(tmp_path: Path) -> None:
    losses = ([9.0, 9.0], [9.0, 9.0], [9.0, 1.0])
    runs = [made_run(tmp_path, "Baseline", seed, each) for seed, each in enumerate(losses)]
    assert table_of(arm_rows(paper_arms(runs)))["Baseline"]["steps to 5"] == "> 20 (20 to > 20)"


def test_values_are_of_complete_runs_that_did_not_stop_at_a_level(tmp_path: Path) -> None:
    stopped = made_run(tmp_path, "Baseline", 0, [0.9, 0.1], task="mnist", until=0.85)
    open = made_run(tmp_path, "Baseline", 1, [0.9, 0.1, 0.1], task="mnist", finish=False)
    line = table_of(arm_rows(paper_arms([stopped, open])))["Baseline"]
    assert (line["runs"], line["steps to 0.85"]) == ("2 (1 unfinished)", "20")
    assert "final accuracy" not in line
    assert "for good" not in line
    # Judged elsewhere it still stopped where it was told to.
    assert "final accuracy" not in table_of(arm_rows(paper_arms([stopped.judged_at(0.95)])))["Baseline"]


def test_other_experiments_are_not_arms(tmp_path: Path) -> None:
    assert paper_arms([create_made(tmp_path, tiny(steps=20), [0.5, 0.1])]) == []
    assert arm_rows([]) == []


def test_an_ablation_has_a_line_for_each_value_run_or_not(tmp_path: Path) -> None:
    gain = next(e for e in ABLATIONS if e.name == "fig-ma-gain")
    asked = {"steps": 30, "eval_every": 10}
    runs = [create_made(tmp_path, configuration(gain, r, 0, asked), [0.5, 0.01, 0.2]) for r in gain.requests[:3]]
    none, *others = [ablation_columns(arm) for arm in arms_of_experiment(runs, gain)]
    assert (none["filter"], none["weight decay"], none["runs"]) == ("no filter", "0", "1")
    assert [line["filter"] for line in others] == [f"MA, window size 100, lamb {lamb:g}" for lamb in (1, 2)]
    assert {line["steps to the level"] for line in others} == {"20"}
    assert ablation_not_run(gain.requests[3]) == {
        "filter": "MA, window size 100, lamb 5",
        "weight decay": "0",
        "learning rate": "0.001",
        "steps to the level": "not run",
    }


def test_a_filter_that_starts_late_says_when() -> None:
    late = (LATE_MA, LATE_MA.having(two_stage="auto"))
    words = [ablation_not_run(request)["filter"].rpartition(", ")[2] for request in late]
    assert words == ["from step 500", "once saturated"]


def test_a_run_that_falls_back_says_how_often(tmp_path: Path) -> None:
    falls = made_run(tmp_path, "Grokfast-EMA", 0, [0.9, 0.01, 0.9, 0.9, 0.01], task="modmul")
    stays = made_run(tmp_path, "Grokfast-EMA", 1, [0.9, 0.9, 0.01, 0.01, 0.01], task="modmul")
    never = made_run(tmp_path, "Grokfast-EMA", 2, [0.9] * 5, task="modmul")
    assert [held_text([run]) for run in (falls, stays, never)] == ["33%", "100%", ""]
    assert held_text([falls, stays, never]) == "67%"
    (line,) = table_of(arm_rows(paper_arms([falls]))).values()
    assert (line["steps to 0.95"], line["there in the next 500 steps"]) == ("20", "33%")


def test_final_values_are_not_those_of_runs_that_ended_some_steps_after_the_level(tmp_path: Path) -> None:
    losses = [0.9, 0.01, 0.9, 0.01]
    run = made_run(tmp_path, "Baseline", 0, losses, task="modmul", until=0.95, extra_steps=20, steps=100)
    line = table_of(arm_rows(paper_arms([run])))["Baseline"]
    assert (line["steps to 0.95"], line["for good"]) == ("20", "40")
    assert "final accuracy" not in line


def test_an_arm_that_was_not_run_shows_what_the_paper_says() -> None:
    base, fast, *_ = arms_of("imdb")
    line = columns_not_run(fast, 0.8)
    assert (line["arm"], line["weight decay"], line["steps to 0.8"]) == ("Grokfast", "10", "not run")
    assert (line["paper: best accuracy of a batch"], line["paper: accuracy"]) == ("0.9", "")
    assert summary_not_run(base)[-2:] == ["not run", "0.84"]


def test_costs_are_means_over_seeds_beside_the_paper_s(tmp_path: Path) -> None:
    runs = [
        made_run(tmp_path, "Baseline", seed, losses, task="mnist") for seed, losses in enumerate(([0.1], [0.5, 0.1]))
    ]
    line = table_of(cost_rows(make_arms(runs)))["Baseline, 2 seeds"]
    assert (line["steps to the level"], line["seconds to it"]) == ("15 (10 to 20)", "15.0 ± 7.1")
    assert line["ms per step, evaluations included"] == "1,000"
    assert (line["paper: seconds"], line["paper: memory, MB"]) == ("1,928", "196")


def test_the_summary_states_the_number_that_the_paper_gives(tmp_path: Path) -> None:
    names = ("Grokfast", "Baseline, decay of Grokfast")
    runs = [made_run(tmp_path, name, 0, [0.5, 0.1], task="mnist") for name in names]
    assert [summary_row(arm) for arm in paper_arms(runs)] == [
        ["mnist", "Grokfast", "2", "1", "steps to 0.85", "20", "2,001"],
        ["mnist", "Baseline, decay of Grokfast", "2", "1", "steps to 0.85", "20", ""],
    ]
