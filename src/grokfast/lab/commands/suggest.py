"""`grokfast suggest RUN`: what to try next, in sentences or as JSON."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from grokfast.lab.analysis.advice import Advice, advise
from grokfast.lab.commands.common import add_json, add_runs_dir, show
from grokfast.lab.report.evidence import load
from grokfast.lab.runs.directory import find_run


def add(parser: argparse.ArgumentParser) -> None:
    help = "name of a run without a filter, or the beginning of its name; the run may be unfinished"
    parser.add_argument("name", help=help)
    add_runs_dir(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    advice = advise(run, load().tuned_tasks.get(run.task))
    elsewhere = "" if args.runs_dir == Path("runs") else f" --runs-dir {args.runs_dir}"
    proposals = [proposal._replace(command=proposal.command + elsewhere) for proposal in advice.proposals]
    advice = advice._replace(proposals=proposals)
    show(json.dumps(as_json(advice), indent=1) if args.json else as_text(advice))
    return 0


def as_text(advice: Advice) -> str:
    if not advice.proposals:
        return f"No suggestion for {advice.run}. {advice.why[0]}"
    tries = [f"  {proposal.text}\n    {proposal.command}" for proposal in advice.proposals]
    why, uncertain = ([f"- {line}" for line in lines] for lines in (advice.why, advice.uncertain))
    return "\n".join([f"To try for {advice.run}:", *tries, "Why:", *why, "Uncertain:", *uncertain])


def as_json(advice: Advice) -> dict[str, Any]:
    """The same as plain data; crossings as {after, step}."""
    crossings = {name: getattr(advice, name)._asdict() for name in ("overfit", "generalised")}
    return {**advice._asdict(), **crossings, "proposals": [proposal._asdict() for proposal in advice.proposals]}
