"""`grokfast sweep`: from flags to a specification. What needs Optuna is in `sweep_run`."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from typing import get_args

from grokfast.lab.commands.common import under_torchrun
from grokfast.lab.commands.flags import add_task, add_task_options, request_from
from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.space import PRESETS, apply_preset, read_dimensions
from grokfast.lab.sweep.spec import OBJECTIVES, Search, Spec


def add(parser: argparse.ArgumentParser) -> None:
    parser.usage = "grokfast sweep TASK [flags] | grokfast sweep --resume DIR [flags]"
    task = add_task(parser, "?", "--resume")
    if task is None:
        add_resume_flags(parser)
        add_engine_flags(parser)
    else:
        parser.set_defaults(resume=None)
        add_spec_flags(parser)
        add_engine_flags(parser)
        add_task_options(parser, task)


def add_resume_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("Resume or join")
    group.add_argument("--resume", type=Path, metavar="DIR", help="join the sweep in DIR, or continue it")
    for flag in ("task", "filter", "optimizer"):
        help = f"the {flag} of your own that the sweep uses: code is loaded only if you name it"
        dest = f"own_{flag}s"
        group.add_argument(f"--{flag}", dest=dest, action="append", default=[], metavar="FILE.py:CLASS", help=help)


def add_spec_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("What to vary, and what to optimise")
    group.add_argument("--grid", action="append", default=[], metavar="NAME=V,V", help="values of a flag; repeatable")
    group.add_argument("--range", action="append", default=[], metavar="NAME=LOW:HIGH[:log]", help="range of a search")
    group.add_argument("--preset", choices=tuple(PRESETS), help="the paper's values as grids")
    group.add_argument("--search", choices=get_args(Search), default="grid", help="default: grid")
    group.add_argument("--trials", type=int, metavar="N", help="settings that a search tries")
    group.add_argument(
        "--seeds", type=int, default=1, metavar="N", help="seeds per setting, from --seed on (default: 1)"
    )
    help = f"one of {', '.join(OBJECTIVES)}, or the last value of a number that --measures records (default: stable)"
    group.add_argument("--objective", default="stable", metavar="NAME", help=help)
    group.add_argument("--prune", action="store_true", help="stop runs that fall behind the median of complete ones")
    group.add_argument("--sweep-dir", type=Path, metavar="DIR", help="directory of the sweep (default: sweeps/...)")


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    """How to carry a sweep out; these may differ each time it is resumed or joined."""
    group = parser.add_argument_group("Engine and output")
    group.add_argument("--workers", type=int, metavar="N", help="number of runs at once (default: cores / threads)")
    group.add_argument("--engine", choices=("local", "ray"), default="local", help="this machine, or a Ray cluster")
    group.add_argument("--address", metavar="HOST:PORT", help="address of the Ray cluster (default: start one here)")
    group.add_argument("--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("--json", action="store_true", help="print the result as JSON and nothing else")


def run(args: argparse.Namespace) -> int:
    check_engine(args)
    if (args.task is None) == (args.resume is None):
        raise ValueError("a sweep needs a task or --resume DIR, got " + ("neither" if args.task is None else "both"))
    from grokfast.lab.commands.sweep_run import begin, run_sweep

    return run_sweep(args.resume or begin(spec_from(args), args), args)


def check_engine(args: argparse.Namespace) -> None:
    """Refuse an engine that cannot be used here, before anything is imported or written."""
    if under_torchrun():
        raise RunError("a sweep has workers of its own: start it without torchrun")
    if args.workers is not None and args.workers < 1:
        raise ValueError(f"workers must be >= 1, got {args.workers}")
    if args.address is not None and args.engine != "ray":
        raise ValueError(f"address needs --engine ray, got {args.address} without it")
    for package, extra in (("optuna", "sweep"), *([("ray", "ray")] if args.engine == "ray" else [])):
        if importlib.util.find_spec(package) is None:
            raise RunError(f'this sweep needs {package}: pip install "grokfast[{extra}]"')


def spec_from(args: argparse.Namespace) -> Spec:
    asked = request_from(args, args.task)
    seed, base = asked.get("seed") or 0, asked.without("seed")
    base, preset = apply_preset(base, args.preset) if args.preset else (base, ())
    typed = read_dimensions(base, args.grid, args.range)
    kept = [d for d in preset if d.name not in [other.name for other in typed]]
    seeds = tuple(range(seed, seed + args.seeds))
    return Spec(base, (*kept, *typed), seeds, args.objective, args.search, args.trials, args.prune)
