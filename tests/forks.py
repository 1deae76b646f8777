"""Processes that start at once: forks of a server that has imported torch, which alone takes seconds.

A fork is a process of its own, with its own folder, output, warnings and signals. It does not show how the interpreter
starts and ends; tests about that start an interpreter.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import shutil
import signal
import sys
import tempfile
import warnings
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch._dynamo"])  # every optimizer imports the second one


class Fork:
    """A call in a process of its own; what it prints is in two files of a folder that lasts as long as this object."""

    def __init__(self, call: Callable[..., object], *arguments: Any, cwd: Path | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fork"))
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.process = FORKS.Process(target=begin, args=(self.folder, cwd or Path.cwd(), call, arguments))
        self.process.start()

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    def send_signal(self, sent: signal.Signals) -> None:
        os.kill(self.pid, sent)

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def wait(self, seconds: float = 300.0) -> int:
        """Its exit code; a process that takes longer is killed."""
        self.process.join(seconds)
        code = self.process.exitcode
        if code is None:
            self.kill()
            raise TimeoutError(f"still running after {seconds} seconds: {self.err}")
        return code


def begin(folder: Path, cwd: Path, call: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    """Become what a terminal would have started, then call."""
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.chdir(cwd)
    call(*arguments)


def run_cli(words: Sequence[str]) -> None:
    """`grokfast WORDS`."""
    from grokfast.lab.commands.cli import main

    sys.exit(main(words))


def run_alone(words: Sequence[str]) -> None:
    """`grokfast WORDS` in a session of its own: a signal to its group reaches its workers too."""
    os.setsid()
    run_cli(words)


def run_code(script: str, *words: str) -> None:
    """`python -c SCRIPT WORDS`."""
    sys.argv = ["-c", *words]
    exec(compile(script, "<script>", "exec"), {"__name__": "__main__"})


def run_script(path: Path, harmless: Sequence[str] = ()) -> None:
    """`python -W error PATH`, with its temporary files where it runs; some warnings are let pass."""
    warnings.simplefilter("error")
    for message in harmless:
        warnings.filterwarnings("ignore", message)
    os.environ["TMPDIR"] = tempfile.tempdir = str(Path.cwd())
    sys.argv = [str(path)]
    sys.path.insert(0, str(path.parent))
    runpy.run_path(str(path), run_name="__main__")
