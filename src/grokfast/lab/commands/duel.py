"""`grokfast duel TASK ARM ARM ...`: tune each arm alike, run its best settings on fresh seeds, compare."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any

from grokfast.lab.commands.common import INTERRUPTED, complain, make_table, read_folder, show
from grokfast.lab.commands.flags import add_settings, add_task, settings_from
from grokfast.lab.commands.sweep import add_engine_flags, add_ranges, bar_of, engine_of
from grokfast.lab.commands.terminal import show_progress
from grokfast.lab.search.contest import Duel
from grokfast.lab.search.duel import budget_lines, duel_folder, make_duel, run_duel
from grokfast.lab.search.outcome import FILE, TABLES, Outcome
from grokfast.lab.search.space import REGIMES, read_dimensions
from grokfast.lab.search.workers import check_engine, count_workers

SIZES = {  # flags with a number: default, help
    "tunings": (8, "independent tunings of each arm"),
    "trials": (15, "settings that each tuning tries"),
    "seeds": (5, "fresh seeds of each tuning"),
    "tuning_seeds": (1, "seeds of each trial"),
    "at_once": (1, "simultaneous trials of one tuning"),
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "grokfast duel TASK ARM ARM ... [flags]"
    task = add_task(parser)
    parser.add_argument("arms", nargs="+", metavar="ARM", help="adamw, adamw+ema, muon, lion+rowclip, ...")
    if task is None:
        return
    group = parser.add_argument_group("How to compare")
    regimes = "; ".join(f"{name}: {words}" for name, (_, words) in REGIMES.items()).replace("%", "%%")
    group.add_argument("--regime", choices=tuple(REGIMES), default="tuned", help=f"{regimes} (default: tuned)")
    for name, (default, words) in SIZES.items():
        flag, help = f"--{name.replace('_', '-')}", f"{words} (default: {default})"
        group.add_argument(flag, type=int, default=default, metavar="N", help=help)
    help = "held: steps until the target is reached and held; first: until it is reached; accuracy, loss or best_loss: "
    help += "at a fixed budget (default: held)"
    group.add_argument("--objective", default="held", metavar="NAME", help=help)
    add_ranges(group)
    help = "directory of the duel (default: duels/...)"
    group.add_argument("--duel-dir", type=read_folder, metavar="DIR", help=help)
    add_engine_flags(parser)
    add_settings(parser, task)


def run(args: argparse.Namespace) -> int:
    check_engine(args.engine, args.workers, args.address)
    duel = duel_from(args)
    folder = args.duel_dir or duel_folder(duel)
    quiet = args.quiet or args.json
    if not quiet:
        print(f"{folder}: ", end="")
        print("\n".join(budget_lines(duel, count_workers(duel.given, args.workers))), flush=True)
    try:
        with show_progress("duel", quiet=quiet) as progress:
            outcome = run_duel(duel, folder, **engine_of(args), watch=bar_of(progress))
    except KeyboardInterrupt:
        complain("stopped: the same command continues from here")
        return INTERRUPTED
    return show_outcome(outcome, folder, args)


def duel_from(args: argparse.Namespace) -> Duel:
    """The duel that the flags describe."""
    given = settings_from(args)
    sizes = {"seed": given.pop("seed", 0), **{name: getattr(args, name) for name in SIZES}}
    kinds = [word for arm in args.arms for word in arm.split("+")[1:] if ":" in word or word in ("ema", "ma")]
    typed = read_dimensions(args.task, kinds, args.grid, args.range)
    return make_duel(
        args.task, args.arms, regime=args.regime, objective=args.objective, typed=typed, given=given, **sizes
    )


def show_outcome(outcome: Outcome, folder: Path, args: argparse.Namespace) -> int:
    """Print the outcome; 1 if a run on a fresh seed failed."""
    if args.json:
        print(json.dumps({"path": str(folder), "arms": outcome.settings, "verdicts": outcome.verdicts}))
    elif not args.quiet:
        tables = [make_table(head, rows) for head, *rows in (outcome.table(), outcome.comparisons())]
        show(*tables, *outcome.sentences, *outcome.edges())
        if more := more_command(outcome, args):
            print(more)
        print(f"written: {', '.join(str(folder / name) for name in (FILE, *TABLES))}")
        print(f"as a page: grokfast report {shlex.quote(str(folder))}", flush=True)
    for line in outcome.failed:
        complain(f"failed: {line}")
    return 1 if outcome.failed else 0


def more_command(outcome: Outcome, args: argparse.Namespace) -> str | None:
    """The command that adds as many tunings, or seeds, as would probably decide all undecided verdicts, if any does."""
    rows = [row for row in outcome.verdicts if row["by"] == outcome.duel["objective"]]
    wanted: list[Any] = [row["more"] for row in rows if row["word"] == "undecided"]
    if not wanted or None in wanted:
        return None
    name = "tunings" if outcome.duel["tunings"] > 1 else "seeds"
    count, more = outcome.duel[name], max(wanted)
    words = [word for i, word in enumerate(args.words) if f"--{name}" not in args.words[max(0, i - 1) : i + 1]]
    command = shlex.join(["grokfast", *words, f"--{name}", str(count + more)])
    note = "the interval will be too narrow, because you have looked already"
    return f"about {more} more {name} would probably decide ({note}): {command}"
