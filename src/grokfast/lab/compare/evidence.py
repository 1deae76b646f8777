"""Which of the planned runs there are, and the commands that train the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from grokfast.lab.analysis.paths import WEIGHTS
from grokfast.lab.analysis.weights import has_weights
from grokfast.lab.config import experiment_key
from grokfast.lab.paper.evidence import COSTS, planned
from grokfast.lab.paper.published import request_key
from grokfast.lab.request import Request, request_line, resolve
from grokfast.lab.runs.archive import read_table
from grokfast.lab.runs.directory import Run

Place = tuple[str, int]  # experiment and seed


def missing(runs: Iterable[Run], wanted: Mapping[Place, Request] | None = None) -> list[Request]:
    """The planned runs that no complete run stands for, the most important first."""
    known: dict[Place, list[Run]] = {}
    for run in runs:
        if run.status == "complete":
            known.setdefault((experiment_key(run.settings), run.loop["seed"]), []).append(run)
    wanted = planned() if wanted is None else wanted
    return [r for place, r in wanted.items() if not any(serves(run, r) for run in known.get(place, ()))]


def missing_costs(runs: Iterable[Run]) -> list[Request]:
    return missing(runs, {(request_key(request), request.get("seed")): request for request in COSTS})


def serves(run: Run, request: Request) -> bool:
    """Whether a run of the same experiment and seed is long enough, and has kept its weights where they are needed."""
    long_enough = run.loop["steps"] >= resolve(request).loop.steps or run.stopped_at_level
    kept = has_weights(run) or read_table(run, WEIGHTS) is not None
    return long_enough and (kept or request.get("snapshots") is None)


def command_lines(requests: Sequence[Request]) -> list[str]:
    """One command for each setting; for several seeds a loop of the shell.

    >>> from grokfast.lab.request import ask
    >>> command_lines([ask("qm9", seed=0), ask("qm9", seed=1), ask("mnist", seed=2)])
    ['for seed in 0 1; do grokfast train qm9 --seed $seed; done', 'grokfast train mnist --seed 2']
    """
    seeds: dict[Request, list[int]] = {}
    for request in requests:
        seeds.setdefault(request.having(seed="SEED"), []).append(request.get("seed"))
    return [seed_loop(request_line(request), known) for request, known in seeds.items()]


def seed_loop(command: str, seeds: Sequence[int]) -> str:
    if len(seeds) == 1:
        return command.replace("SEED", str(seeds[0]))
    return f"for seed in {' '.join(map(str, seeds))}; do {command.replace('SEED', '$seed')}; done"
