"""The command line: `grokfast train modmul --filter ema --until 0.95`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

import grokfast
from grokfast.lab.commands.terminal import INTERRUPTED, complain
from grokfast.lab.runs.directory import RunError
from grokfast.lab.training.interrupt import stop_on_interrupt
from grokfast.lab.training.messages import one_line

# A new command is a file in this folder and a name in this list.
COMMANDS = (
    "train",
    "resume",
    "runs",
    "show",
    "compare",
    "report",
    "figures",
    "results",
    "suggest",
    "response",
    "sweep",
    "demo",
    "reproduce",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Under torchrun rank 0 does, and the other ranks train along with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ:
        return run_under_torchrun(words)
    return run_command(words)


def run_command(words: list[str]) -> int:
    """Run one command; a mistake of the user gives one line on stderr and a non-zero exit code."""
    try:
        args = build_parser(words).parse_args(words)
        return args.run(args)
    except (RunError, ValueError, TypeError, OSError, NotImplementedError) as error:
        complain(f"error: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def build_parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser for these words. Only the command among them is imported, or all of them to list them.

    Commands find all words in `parser.get_default("words")` and in `args.words`: the flags of some depend on them.
    """
    parser = argparse.ArgumentParser(prog="grokfast", description="Reproduce, measure, explain accelerated grokking.")
    parser.usage = "grokfast [-h] [--version] COMMAND ..."
    parser.add_argument("--version", action="version", version=f"grokfast {grokfast.__version__}")
    added = parser.add_subparsers(title="commands", required=True, metavar="COMMAND ...")
    asked = next((word for word in words if not word.startswith("-")), None)
    for name in [asked] if asked in COMMANDS else COMMANDS:
        command = importlib.import_module(f"grokfast.lab.commands.{name}")
        description = command.HELP[0].upper() + command.HELP[1:] + "."
        # Abbreviated flags would change their meaning whenever a flag is added.
        made = added.add_parser(name, help=command.HELP, description=description, allow_abbrev=False)
        made.set_defaults(run=command.run, words=words)
        if name == asked:
            command.add(made)
    return parser


def run_under_torchrun(words: list[str]) -> int:
    from grokfast.lab.training import parallel

    with parallel.joined() as rank:
        code = run_command(words) if rank == 0 else follow_leader(rank)
    return parallel.end(code)


def follow_leader(rank: int) -> int:
    """Train along with rank 0 until it is done."""
    from grokfast.lab.training.loop import Watcher
    from grokfast.lab.training.train import follow

    try:
        with stop_on_interrupt() as interrupted:
            follow(Watcher(should_stop=interrupted))
        return 0
    except (RunError, ValueError, OSError, RuntimeError) as error:
        complain(f"rank {rank}: error: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
