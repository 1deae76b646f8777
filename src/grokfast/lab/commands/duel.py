"""`grokfast duel TASK ARM ARM ...`: tune each arm alike, run its best setting on fresh seeds, say which is better."""

from __future__ import annotations

import argparse
from pathlib import Path

from grokfast.lab.commands.flags import add_task, add_task_options
from grokfast.lab.commands.sweep import add_engine_flags, check_engine
from grokfast.lab.duel.arms import REGIMES


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "grokfast duel TASK ARM ARM ... [flags]"
    task = add_task(parser)
    parser.add_argument("arms", nargs="+", metavar="ARM", help="adamw, adamw+ema, muon, lion+rowclip, ...")
    if task is None:
        return
    add_duel_flags(parser)
    add_engine_flags(parser)
    add_task_options(parser, task)


def add_duel_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("How to compare")
    regimes = "; ".join(f"{name}: {words}" for name, (_, words) in REGIMES.items()).replace("%", "%%")
    group.add_argument("--regime", choices=tuple(REGIMES), default="tuned", help=f"{regimes} (default: tuned)")
    group.add_argument("--trials", type=int, default=40, metavar="N", help="settings tried for each arm (default: 40)")
    group.add_argument("--seeds", type=int, default=10, metavar="N", help="fresh seeds of the verdict (default: 10)")
    help = "seeds that each trial is run with, from --seed on (default: 1)"
    group.add_argument("--tuning-seeds", type=int, default=1, metavar="N", help=help)
    help = "first: steps until the level is reached; stable: until it holds, which needs --extra-steps (default: first)"
    group.add_argument("--objective", choices=("first", "stable"), default="first", help=help)
    group.add_argument("--grid", action="append", default=[], metavar="NAME=V,V", help="tune over these values instead")
    help = "tune over this range instead; both flags are repeatable"
    group.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH[:log]", help=help)
    help = "do not tune the arms of an earlier duel again: its outcome, such as results/verdicts/NAME.json"
    group.add_argument("--settings", type=Path, metavar="FILE", help=help)
    group.add_argument("--duel-dir", type=Path, metavar="DIR", help="directory of the duel (default: duels/...)")


def run(args: argparse.Namespace) -> int:
    check_engine(args)
    from grokfast.lab.commands.duel_run import run_duel

    return run_duel(args)
