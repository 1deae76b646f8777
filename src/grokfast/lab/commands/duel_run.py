"""A duel carried out: its budget, its sweeps one after the other, its verdict."""

from __future__ import annotations

import argparse
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from grokfast.lab.commands.common import complain, make_table, show
from grokfast.lab.commands.flags import request_from
from grokfast.lab.commands.sweep_run import train_sweep, usual_workers
from grokfast.lab.duel.arms import Contender, adds_to, control_name, controlled, read_arm, reference_of
from grokfast.lab.duel.outcome import (
    CAVEAT,
    FILE,
    Result,
    arm_rows,
    load_outcome,
    make_result,
    save_outcome,
    verdicts,
)
from grokfast.lab.duel.plan import (
    Duel,
    Setting,
    arm_folder,
    best_setting,
    control_setting,
    directory_name,
    is_same,
    make_duel,
    prepare,
    save_duel,
    to_json,
    tuning_spec,
    verdict_spec,
)
from grokfast.lab.report.draw_matplotlib import draw
from grokfast.lab.report.duels import duel_plot, duel_section
from grokfast.lab.request import command_line, resolve
from grokfast.lab.runs.directory import load_runs
from grokfast.lab.runs.files import write_atomically
from grokfast.lab.sweep.space import read_dimensions
from grokfast.lab.sweep.study import Sweep
from grokfast.lab.training.plan import duration
from grokfast.lab.training.train import make_task, rehearse
from grokfast.lab.values import tuples


class Tuned(NamedTuple):
    """The best setting of an arm, and how many trials became what in the search for it."""

    setting: Setting
    trials: Mapping[str, int]


class Plan(NamedTuple):
    """A duel, its arms, and where it is."""

    duel: Duel
    arms: list[Contender]
    seeds: int
    folder: Path
    kept: Mapping[str, Tuned]  # of arms that need no tuning, because an earlier duel did it

    @property
    def searched(self) -> list[Contender]:
        return [arm for arm in self.arms if arm.knobs and arm.name not in self.kept]

    @property
    def total(self) -> int:
        """The number of runs: those of every search, and the fresh seeds of every arm."""
        return len(self.searched) * self.duel.trials * len(self.duel.tuning) + len(self.arms) * self.seeds


def run_duel(args: argparse.Namespace) -> int:
    """Tune and compare what is left of a duel; gives the exit code."""
    plan = make_plan(args)
    quiet = args.quiet or args.json
    if not quiet:
        print(budget_text(plan, args), flush=True)
    found = {arm.name: plan.kept.get(arm.name) or tune(plan, arm, args) for arm in plan.arms}
    results = [run_fresh(plan, arm, found[arm.name], args) for arm in plan.arms]
    settings = {name: tuned.setting for name, tuned in found.items()}
    controls = [run_fresh(plan, arm, Tuned(best, {}), args) for arm, best in controls_of(plan, settings, results)]
    return report(plan, [*results, *controls], args)


def make_plan(args: argparse.Namespace) -> Plan:
    asked = request_from(args, args.task)
    sizes = {"trials": args.trials, "tuning_seeds": args.tuning_seeds, "seed": asked.get("seed") or 0}
    duel = make_duel(asked.without("seed"), args.regime, **sizes, objective=args.objective)
    if len(set(args.arms)) < max(2, len(args.arms)):
        raise ValueError(f"a duel needs at least two different arms, got {' '.join(args.arms)}")
    if args.seeds < 1:
        raise ValueError(f"seeds must be >= 1, got {args.seeds}")
    arms = read_arms(args, duel)
    for arm in arms:  # before anything is written: a duel that cannot be run leaves no trace
        config = resolve(arm.request)
        rehearse(config, make_task(config))
        tuning_spec(duel, arm)
    kept = load_settings(args.settings, duel, arms) if args.settings else {}
    folder = args.duel_dir or Path("duels") / directory_name(duel)
    save_duel(duel, folder)
    return Plan(duel, arms, args.seeds, folder, kept)


def read_arms(args: argparse.Namespace, duel: Duel) -> list[Contender]:
    """The arms by their names, with the ranges that a person typed."""
    arms = [read_arm(name, duel.base, tuned=args.regime != "paper") for name in args.arms]
    ranges = " ".join(args.grid + args.range)
    if ranges and args.regime == "paper":
        raise ValueError(f"regime paper tunes nothing: no range must be given, got {ranges}")
    if ranges and args.settings:
        raise ValueError(f"settings were found in the usual ranges: no range must be given, got {ranges}")
    if not ranges:
        return arms
    typed = [read_dimensions(arm.request, args.grid, args.range) for arm in arms]
    found = [read_arm(arm.name, duel.base, own) for arm, own in zip(arms, typed, strict=True)]
    used = {knob.name for arm in found for knob in arm.knobs}
    if unused := [dimension.name for dimension in typed[0] if dimension.name not in used]:
        raise ValueError(f"{unused[0]} must be a setting of one of the arms, got {' '.join(args.arms)}")
    return found


def load_settings(path: Path, duel: Duel, arms: Sequence[Contender]) -> dict[str, Tuned]:
    """What an earlier duel of the same kind found for some of these arms, from its outcome."""
    other, results = load_outcome(path)
    if not is_same(duel, other):
        raise ValueError(f"settings must be of a duel with the same task, regime, trials and flags, got {path}")
    tuned = {arm.name for arm in arms if arm.knobs}
    found = [result for result in results if result.name in tuned]
    if not found:
        raise ValueError(f"settings has no effect: {path} has none of the arms that are tuned, got {' '.join(tuned)}")
    return {each.name: Tuned(tuple(tuples(dict(each.setting)).items()), each.tuning) for each in found}


# The budget ---------------------------------------------------------------------------------------------------------


def budget_text(plan: Plan, args: argparse.Namespace) -> str:
    """What is going to happen and how long it may take, in a few lines."""
    duel, names = plan.duel, " ".join(arm.name for arm in plan.arms)
    searched = f"{len(plan.searched)} arms x {duel.trials} trials x {len(duel.tuning)} tuning seeds"
    trials = searched if plan.searched else "no tuning"
    if plan.kept:
        trials = f"{' '.join(plan.kept)} as in {args.settings}, {trials}"
    steps = duel.base.get("steps")
    lines = [
        f"{plan.folder}: {duel.base.task}, regime {duel.regime}: {names}",
        f"{trials}, then {len(plan.arms)} arms x {plan.seeds} fresh seeds: {plan.total} runs of at most "
        f"{steps:,} steps, {plan.total * steps:,} in all",
        f"this may take {time_left(plan, args)}; runs that reach their level or are hopeless stop earlier",
    ]
    if added_arms(plan):
        lines.insert(2, f"an arm that beats what it adds to is checked by {plan.seeds} runs without what it adds")
    return "\n".join(lines)


def time_left(plan: Plan, args: argparse.Namespace) -> str:
    """As long as the runs so far took, else as long as runs of the whole budget take."""
    begun = [r for arm in plan.arms for p in arm_folder(plan.folder, arm.name).glob("*/runs") for r in load_runs(p)]
    took = [run.rows[-1].seconds for run in begun if run.status == "complete"]
    config = resolve(plan.arms[0].request)
    each = sum(took) / len(took) if took else config.loop.steps * config.task.step_seconds
    workers = args.workers or usual_workers(verdict_spec(plan.duel, plan.arms[0], (), plan.seeds))
    words = "about" if took else "up to"
    return f"{words} {duration(max(plan.total - len(begun), 0) * each / workers)} more"


# The sweeps ---------------------------------------------------------------------------------------------------------


def tune(plan: Plan, arm: Contender, args: argparse.Namespace) -> Tuned:
    """The best setting of an arm."""
    spec = tuning_spec(plan.duel, arm)
    if spec is None:
        return Tuned((), {})
    with Sweep(prepare(spec, arm_folder(plan.folder, arm.name) / "tuning")) as sweep:
        train_all(plan, sweep, f"{arm.name}: tuning", args)
        tally = sweep.tally()
        trials = {"complete": tally.complete, "pruned": len(tally.pruned), "failed": len(tally.failed)}
        return Tuned(best_setting(sweep), trials)


def run_fresh(plan: Plan, arm: Contender, tuned: Tuned, args: argparse.Namespace) -> Result:
    """The best setting of an arm on the fresh seeds."""
    spec, best = verdict_spec(plan.duel, arm, tuned.setting, plan.seeds), dict(tuned.setting)
    with Sweep(prepare(spec, arm_folder(plan.folder, arm.name) / "verdict")) as sweep:
        train_all(plan, sweep, f"{arm.name}: fresh seeds", args)
        runs = load_runs(sweep.runs)  # those of an earlier call with more seeds too
        for point, reason in sweep.tally().failed.items():
            complain(f"failed: {sweep.run(point).name}: {reason}")
    command = command_line(resolve(arm.request.having(**best)))
    return make_result(arm.name, best, command, tuned.trials, runs, plan.duel.objective)


def added_arms(plan: Plan) -> list[tuple[Contender, Contender]]:
    """The arms that add something to another, each with that other."""
    known = {arm.name: arm for arm in plan.arms}
    references = [(arm, known[name]) for arm in plan.arms if (name := reference_of(arm.name, list(known))) is not None]
    return [(arm, reference) for arm, reference in references if adds_to(arm.name, reference.name)]


def controls_of(
    plan: Plan, settings: Mapping[str, Setting], results: Sequence[Result]
) -> Iterator[tuple[Contender, Setting]]:
    """For each arm that beats what it adds to: that at the same settings, unless these are its own anyway."""
    better = {(v.arm, v.reference) for v in verdicts(results) if v.by == "steps" and v.word == "helps"}
    for arm, reference in added_arms(plan):
        setting = control_setting(arm, settings[arm.name], reference)
        if (arm.name, reference.name) in better and dict(setting) != dict(settings[reference.name]):
            yield reference._replace(name=control_name(reference.name, arm.name)), setting


def train_all(plan: Plan, sweep: Sweep, label: str, args: argparse.Namespace) -> None:
    if not (args.quiet or args.json) and sweep.tally().left:
        print(f"{label}, {time_left(plan, args)} for all arms", flush=True)
    if not train_sweep(sweep, args, label):
        complain("stopped: the same command continues from here")
        raise KeyboardInterrupt


# The verdict --------------------------------------------------------------------------------------------------------


def report(plan: Plan, results: Sequence[Result], args: argparse.Namespace) -> int:
    """Write the outcome, and print it; 1 if a run of the verdict failed."""
    duel, out = to_json(plan.duel), plan.folder / FILE
    everyone = [*results, *earlier(out, results)]
    data = save_outcome(out, duel, everyone)
    section, picture = out.with_suffix(".md"), out.with_suffix(".png")
    write_atomically(section, duel_section(duel, everyone).encode())
    draw([duel_plot(duel, everyone)], picture)
    if args.json:
        print(json.dumps({"path": str(plan.folder), **data}))
    elif not args.quiet:
        head, *rows = arm_rows(results)
        show(make_table(head, rows), *(verdict.text for verdict in verdicts(results)), CAVEAT)
        for result in results:
            print(f"train {result.name}: {result.command}")
        print(f"written: {out}, {section} and {picture}; all runs: {runs_command(plan, results)}", flush=True)
    return 1 if any(len(result.steps) < plan.seeds for result in results) else 0


def earlier(path: Path, results: Sequence[Result]) -> list[Result]:
    """The arms of this duel that were run before and are not run now."""
    now = {result.name for result in results}
    known = load_outcome(path)[1] if path.exists() else []
    return [result for result in known if not {result.name, controlled(result.name)} & now]


def runs_command(plan: Plan, results: Sequence[Result]) -> str:
    folders = [str(arm_folder(plan.folder, result.name) / "verdict" / "runs") for result in results]
    return shlex.join(["grokfast", "report", *folders])
