"""The command line as a whole: its commands, its errors, and how little it imports."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import TINY_FLAGS, tiny

import grokfast
from forks import Fork, run_code
from grokfast.lab.commands import cli
from grokfast.lab.training.run import train

Call = Callable[..., tuple[int, str, str]]


def run_python(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)


def test_every_file_of_a_command_is_in_the_list() -> None:
    shared = {"__init__", "cli", "common", "flags", "terminal"}
    files = {path.stem for path in Path(cli.__file__).parent.glob("*.py")} - shared
    assert set(cli.COMMANDS) == {name for name in files if "_" not in name}


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_says_what_it_does_in_one_line(name: str) -> None:
    assert "\n" not in cli.COMMANDS[name]
    assert not cli.COMMANDS[name].endswith(".")
    command = importlib.import_module(f"grokfast.lab.commands.{name}")
    assert callable(command.add)
    assert callable(command.run)


@pytest.mark.parametrize(
    "words", [["--help"], ["--version"], ["runs"], ["runs", "modmul"], ["runs", "--json"], ["runs", "--csv"]]
)
def test_looking_imports_no_torch(tmp_path: Path, words: list[str]) -> None:
    train(tiny(), tmp_path)
    script = (
        "import sys\nfrom grokfast.lab.commands.cli import main\n"
        "try: code = main(sys.argv[1:])\nexcept SystemExit as stop: code = stop.code\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules; sys.exit(code)"
    )
    done = run_python(script, *words, *([] if words[0].startswith("-") else ["--runs-dir", str(tmp_path)]))
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"grokfast {grokfast.__version__}\n"


def test_the_usage_of_a_command_is_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["runs", "--help"])
    assert capsys.readouterr().out.startswith("usage: grokfast runs [-h] [--runs-dir DIR]")


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert [word for word in listed if word in cli.COMMANDS] == list(cli.COMMANDS)


WITH_A_NAME = ["train modmul", "sweep modmul", "duel modmul adamw adamw+ema", "response ema"]


@pytest.mark.parametrize("words", [*cli.COMMANDS, *WITH_A_NAME])
def test_every_command_prints_its_help(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*words.split(), "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: grokfast {words.split()[0]}")


@pytest.mark.parametrize(
    "words",
    [
        ["dance"],
        [],
        ["train"],
        ["train", "--resume"],
        ["train", "modmul", "--steps", "many"],
        ["train", "modmul", "--colour", "red"],
    ],
)
def test_words_that_argparse_cannot_read_give_exit_code_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(words)
    assert stopped.value.code == 2
    assert "error: " in capsys.readouterr().err


def test_flags_cannot_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["train", "modmul", "--step", "3"])
    assert "--step" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["runs", "x"], ["train", "--resume", "x"], ["runs", "x", "y"]])
def test_unknown_runs_give_one_line(call: Call, runs_dir: Path, words: list[str]) -> None:
    code, out, err = call(*words, "--runs-dir", runs_dir)
    assert (code, out) == (1, "")
    assert err.startswith("grokfast: error: ")
    assert err.count("\n") == 1


def test_ctrl_c_gives_exit_code_130(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("grokfast.lab.commands.runs.load_runs", interrupted)
    assert call("runs") == (130, "", "")


# The process ----------------------------------------------------------------------------------------------------------


def start_process(script: str, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_", "KMP_"))}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**kept, **environment}, check=True
    )
    return done.stdout.split()


def test_ctrl_c_before_a_command_runs_ends_the_process_without_a_traceback() -> None:
    script = (
        "import sys, grokfast.__main__\n"
        "print('typing' in sys.modules, 'signal' in sys.modules)\n"  # these take long to import
        "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_DFL)\n"
        "from grokfast.lab.commands import cli, runs\n"
        "runs.run = lambda args: print(signal.getsignal(signal.SIGINT) is signal.default_int_handler) or 0\n"
        "cli.main(['runs'])\n"
    )
    assert start_process(script) == ["False", "False", "True", "True"]


WAITING = "[os.environ.get(name) for name in ('GOMP_SPINCOUNT', 'OMP_WAIT_POLICY', 'KMP_BLOCKTIME')]"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, ["1000", "passive", "None"]),
        ({"OMP_WAIT_POLICY": "active"}, ["None", "active", "None"]),
        ({"GOMP_SPINCOUNT": "9"}, ["9", "None", "None"]),
        ({"KMP_BLOCKTIME": "1"}, ["None", "None", "1"]),
    ],
)
def test_threads_of_the_command_line_spin_a_little_then_sleep_unless_the_user_says_otherwise(
    environment: dict[str, str], expected: list[str]
) -> None:
    script = (
        "import os, sys; from grokfast.lab.commands import cli; from grokfast.__main__ import main\n"
        f"cli.main = lambda: print(*{WAITING}, 'torch' in sys.modules) or 0\nmain()\n"
    )
    assert start_process(script, **environment) == [*expected, "False"]


def test_the_library_leaves_signals_and_threads_alone() -> None:
    script = (
        "import os, signal, grokfast; from grokfast import lab; lab.train; grokfast.EMA\n"
        f"print(*{WAITING}, signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
    )
    assert start_process(script) == ["None", "None", "None", "True"]


def test_a_full_disk_gives_one_line_and_leaves_earlier_files(tmp_path: Path, call: Call) -> None:
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        "from grokfast.lab.commands.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [
        *TINY_FLAGS,
        "--steps",
        "12",
        "--eval-every",
        "1",
        "--checkpoint-seconds",
        "0",
        "--quiet",
        "--runs-dir",
        str(tmp_path),
    ]
    done = Fork(run_code, script, "train", "modmul", *words)
    assert done.wait() == 1
    assert done.err.count("\n") == 1
    assert "file too large" in done.err
    assert str(tmp_path) in done.err
    (folder,) = tmp_path.iterdir()
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 1
    assert list((folder / "checkpoints").iterdir()) == []
    assert call("train", "--resume", folder.name, "--quiet", "--runs-dir", tmp_path)[0] == 0
