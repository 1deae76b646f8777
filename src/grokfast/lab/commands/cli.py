"""The command line: `grokfast train modmul --filter ema --until 0.95`."""

from __future__ import annotations

import argparse
import gc
import importlib
import signal
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import NoReturn

import grokfast
from grokfast.lab.commands.common import INTERRUPTED, complain
from grokfast.lab.own_code import closest, one_line, place_of
from grokfast.lab.runs.directory import RunError

# A new command is a file in this folder and a line in this list.
COMMANDS = {
    "demo": "see grokking, with and without the filter, in about two minutes",
    "playground": "write a page in which two networks race in your browser, with and without the filter",
    "train": "train one run of a task, or continue it",
    "sweep": "train many settings of a task, by grid or by search",
    "duel": "tune several optimizers and filters alike and compare them",
    "runs": "list all runs, show one, or compare several",
    "report": "write a page about runs, and their figures",
    "inside": "show what a network has learnt of modular arithmetic, frequency by frequency",
    "response": "show what a filter does to each frequency of the gradients",
    "reproduce": "run the experiments of the paper's figures and tables",
}
EXPECTED = (RunError, ValueError, TypeError, OSError, NotImplementedError)  # mistakes of the user: one line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; a mistake of the user prints one line on stderr and returns a non-zero exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    traceback = "--traceback" in words
    try:
        return run_command([word for word in words if word != "--traceback"])
    except KeyboardInterrupt:
        return INTERRUPTED
    except (Exception, SystemExit) as error:
        place = place_of(error)  # in the user's own task, filter or optimizer
        if isinstance(error, SystemExit) and place is None:
            raise
        if traceback or (place is None and not isinstance(error, EXPECTED)):
            raise
        complain(f"error: {one_line(error)}")
        if place is not None:
            print(f"    {place[1]}\n(--traceback shows the whole traceback)", file=sys.stderr)
        return 1


def run_command(words: list[str]) -> int:
    asked = first_word(words)
    if asked is not None and asked not in COMMANDS:
        raise SystemExit(refuse(f"there is no command {asked}{closest(asked, COMMANDS)}"))
    args, unknown = build_parser(words).parse_known_args(words)
    if unknown:
        flags = [flag for action in args.parser._actions for flag in action.option_strings]
        raise SystemExit(refuse(f"{unknown[0]} is not known to {args.parser.prog}{closest(unknown[0], flags)}"))
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see __main__.py
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return args.run(args)


def first_word(words: list[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def refuse(message: str) -> int:
    """Print one line about a command line that cannot be read; returns argparse's exit code."""
    complain(f"error: {message}")
    return 2


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: the usage is long, and `--help` shows it."""

    def error(self, message: str) -> NoReturn:
        raise SystemExit(refuse(f"{message} (see {self.prog} --help)"))


def build_parser(words: list[str]) -> argparse.ArgumentParser:
    """The parser for these words. Only the command among them is imported.

    Commands find all words in `parser.get_default("words")` and in `args.words`: the flags of some depend on them.
    """
    parser = _Parser(prog="grokfast", description="Reproduce, measure, explain accelerated grokking.")
    parser.usage = "grokfast [-h] [--version] [--traceback] COMMAND ..."
    parser.add_argument("--version", action="version", version=f"grokfast {grokfast.__version__}")
    help = "show the whole traceback of an error"
    parser.add_argument("--traceback", action="store_true", help=help)  # `main` takes it, wherever it is
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
    """Import the module of a command without the garbage collector.

    Torch alone makes hundreds of thousands of objects. The collector would search them during the import and again at
    the exit, which takes a third of the time of a short command.
    """
    if name in sys.modules or not gc.isenabled():
        return importlib.import_module(name)
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.freeze()
        gc.enable()
