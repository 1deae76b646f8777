"""Which planned runs are there: what serves, what does not, and the commands of the rest."""

from __future__ import annotations

import shlex
from pathlib import Path

from made import create_made, made_run, write_run

from grokfast.lab.commands.cli import build_parser
from grokfast.lab.commands.flags import request_from
from grokfast.lab.compare.evidence import command_lines, missing, missing_costs
from grokfast.lab.paper.evidence import COSTS, EVIDENCE, planned
from grokfast.lab.paper.published import BASELINE, request_key
from grokfast.lab.request import Request, ask, request_line, resolve
from grokfast.lab.runs.archive import write_table
from grokfast.lab.runs.names import fingerprint


def lacks(found: list[Request], task: str, **values: object) -> bool:
    return any(r.task == task and all(r.get(name) == value for name, value in values.items()) for r in found)


def test_every_planned_run_is_a_command_that_trains_it() -> None:
    for request in (*EVIDENCE[::9], *COSTS):
        words = shlex.split(request_line(request))[1:]
        typed = resolve(request_from(build_parser(words).parse_args(words), request.task))
        assert fingerprint(typed) == fingerprint(resolve(request))


def test_a_run_is_planned_once_with_its_largest_budget() -> None:
    assert len(planned()) < len(EVIDENCE)
    first = [r.get("steps") for (key, seed), r in planned().items() if (key, seed) == (request_key(ask("imdb")), 0)]
    assert first == [10_000]


def test_a_run_serves_if_it_is_complete_and_long_enough_or_reached_its_level(tmp_path: Path) -> None:
    asked = {"optimizer": "adamw", "weight_decay": 1.0, "lr": 3e-3, "until": 0.95, "eval_every": 10}
    reached = create_made(tmp_path, resolve(BASELINE.having(**asked, seed=0, steps=50)), [0.9, 0.01])
    short = create_made(tmp_path, resolve(BASELINE.having(**asked, seed=1, steps=20)), [0.9, 0.9])
    begun = create_made(tmp_path, resolve(BASELINE.having(**asked, seed=2, steps=5_000)), [0.9], finish=False)
    found = [r for r in missing([reached, short, begun]) if r.get("lr") == 3e-3 and r.get("filter") is None]
    assert {r.get("seed") for r in found if r.get("weight_decay") == 1.0} == {1, 2}


def test_where_weights_are_needed_a_run_without_them_does_not_serve(tmp_path: Path) -> None:
    run = made_run(tmp_path, "Baseline", 0, [0.9, 0.01], task="modmul", until=0.95)
    assert lacks(missing([run]), "modmul", steps=150_000, seed=0)
    write_table(run.path / "weights.json", {"moved": [0.0]})
    assert not lacks(missing([run]), "modmul", steps=150_000, seed=0)
    assert lacks(missing([run]), "modmul", steps=150_000, seed=1)


def test_costs_are_planned_apart(tmp_path: Path) -> None:
    config = resolve(COSTS[0])
    run = write_run(tmp_path, config, [create_made(tmp_path / "x", config, [0.9]).rows[0]])
    assert len(missing_costs([])) == len(COSTS) == len(missing_costs([run])) + 1


def test_seeds_of_one_setting_are_a_loop_of_the_shell() -> None:
    lines = command_lines([BASELINE.having(seed=seed, two_stage=None) for seed in (0, 2)])
    assert lines == ["for seed in 0 2; do grokfast train modmul --seed $seed; done"]
