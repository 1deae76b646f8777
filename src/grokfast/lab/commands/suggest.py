"""`grokfast suggest RUN`: a filter to try first, in sentences or as JSON."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console

from grokfast.lab.runs.directory import find_run

if TYPE_CHECKING:
    from grokfast.lab.analysis.advice import Advice, Proposal

console = Console(markup=False, highlight=False, soft_wrap=True)


def add_suggest(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="name of a run without a filter, or the beginning of one; it may be unfinished")
    parser.add_argument("--json", action="store_true", help="print JSON")


def command_suggest(args: argparse.Namespace) -> int:
    from grokfast.lab.analysis.advice import advise  # scipy, which no other command should wait for

    advice = advise(find_run(args.name, args.runs_dir))
    elsewhere = "" if str(args.runs_dir) == "runs" else f" --runs-dir {args.runs_dir}"
    proposals = [p._replace(command=p.command + elsewhere) for p in advice.proposals]
    advice = advice._replace(proposals=proposals)
    console.print(json.dumps(plain(advice), indent=1) if args.json else text(advice))
    return 0


def text(advice: Advice) -> str:
    if not advice.proposals:
        return f"No suggestion for {advice.run}. {advice.why[0]}"
    tries = [f"  {described(proposal)}\n    {proposal.command}" for proposal in advice.proposals]
    parts = [
        f"To try for {advice.run}:",
        *tries,
        "Why:",
        *(f"- {line}" for line in advice.why),
        "What is uncertain:",
        *(f"- {line}" for line in advice.uncertain),
    ]
    return "\n".join(parts)


def described(proposal: Proposal) -> str:
    size = f"alpha {proposal.alpha:g}" if proposal.alpha is not None else f"window size {proposal.window_size}"
    return f"{proposal.filter}, {size}, lamb {proposal.lamb:g}"


def plain(advice: Advice) -> dict[str, Any]:
    """The same as plain data; crossings as {after, step}."""
    crossings = {name: getattr(advice, name)._asdict() for name in ("overfit", "generalised")}
    return {**advice._asdict(), **crossings, "proposals": [proposal._asdict() for proposal in advice.proposals]}
