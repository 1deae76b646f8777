"""The command line: `grokfast train modmul --filter ema --until 0.95`."""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
from collections.abc import Callable, Sequence
from functools import partial
from types import ModuleType
from typing import NoReturn

import grokfast
from grokfast.lab.commands.common import INTERRUPTED, complain, under_torchrun
from grokfast.lab.own_code import closest
from grokfast.lab.runs.directory import RunError
from grokfast.lab.training.interrupt import stop_on_interrupt
from grokfast.lab.training.messages import one_line

# A new command is a file in this folder and a line in this list.
COMMANDS = {
    "train": "train one run of a task",
    "resume": "continue a run that was interrupted",
    "runs": "list all runs",
    "show": "show the configuration and the results of a run",
    "compare": "show how runs differ, in settings and in results",
    "inside": "show what a network has learnt of modular arithmetic, frequency by frequency",
    "report": "write a page about runs, and their curves as a picture",
    "figures": "write every figure of the page to a file of its own, for papers",
    "archive": "keep slim copies of complete runs: settings, metrics and results, no weights",
    "results": "compare your runs with the paper's numbers",
    "suggest": "suggest what to try next, from a run without a filter",
    "response": "show what a filter does to each frequency of the gradients",
    "leaderboard": "write the leaderboard of modular arithmetic from archived runs",
    "sweep": "train many settings of a task, by grid or by search",
    "duel": "tune several optimizers and filters alike, then say which is better",
    "verdicts": "write a page about all duels, from their outcomes",
    "playground": "write a page in which two networks race in your browser, with and without the filter",
    "demo": "see grokking, with and without the filter, in about two minutes",
    "reproduce": "run the experiments of the paper's figures and tables",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Under torchrun rank 0 does, and the other ranks train along with it."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if not under_torchrun():
        return guarded(partial(run_command, words))
    from grokfast.lab.training import parallel

    with parallel.joined() as rank:
        if rank == 0:
            code = guarded(partial(run_command, words))
        else:
            code = guarded(follow_leader, RuntimeError, who=f"rank {rank}: ")  # the connection to rank 0 may break
    parallel.end(code)


def guarded(action: Callable[[], int], *expected: type[Exception], who: str = "") -> int:
    """The exit code of an action; a mistake of the user gives one line on stderr and a non-zero exit code."""
    try:
        return action()
    except (RunError, ValueError, TypeError, OSError, NotImplementedError, *expected) as error:
        complain(f"{who}error: {one_line(error)}")
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED


def run_command(words: list[str]) -> int:
    asked = first_word(words)
    if asked is not None and asked not in COMMANDS:
        raise SystemExit(refuse(f"there is no command {asked}{closest(asked, COMMANDS)}"))
    args, unknown = build_parser(words).parse_known_args(words)
    if unknown:
        flags = [flag for action in args.parser._actions for flag in action.option_strings]
        raise SystemExit(refuse(f"{unknown[0]} is not known to {args.parser.prog}{closest(unknown[0], flags)}"))
    return args.run(args)


def first_word(words: list[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def refuse(message: str) -> int:
    """Say in one line what cannot be read on the command line; gives argparse's exit code."""
    complain(f"error: {message}")
    return 2


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the usage is long, and `--help` shows it."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(refuse(f"{message} (see {self.prog} --help)"))


def build_parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser for these words. Only the command among them is imported.

    Commands find all words in `parser.get_default("words")` and in `args.words`: the flags of some depend on them.
    """
    parser = Parser(prog="grokfast", description="Reproduce, measure, explain accelerated grokking.")
    parser.usage = "grokfast [-h] [--version] COMMAND ..."
    parser.add_argument("--version", action="version", version=f"grokfast {grokfast.__version__}")
    added = parser.add_subparsers(title="commands", required=True, metavar="COMMAND ...", prog="grokfast")
    asked = first_word(words)
    for name, help in COMMANDS.items():
        # Abbreviated flags would change their meaning whenever a flag is added.
        made = added.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.", allow_abbrev=False)
        if name == asked:
            command = import_command(f"grokfast.lab.commands.{name}")
            made.set_defaults(run=command.run, words=words, parser=made)
            command.add(made)
    return parser


def import_command(name: str) -> ModuleType:
    """The module of a command; what it imports stays until the end, so the garbage collector need not search it.

    Torch alone is hundreds of thousands of objects: without this they are searched while they are made, and once more
    at the exit, which is a third of the time of a short command.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()


def follow_leader() -> int:
    """Train along with rank 0 until it is done."""
    from grokfast.lab.training.loop import Watcher
    from grokfast.lab.training.train import follow

    with stop_on_interrupt() as interrupted:
        follow(Watcher(interrupted=interrupted))
    return 0


if __name__ == "__main__":
    sys.exit(main())
