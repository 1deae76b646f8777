"""What the import of a command costs: torch is looked through by the garbage collector at no time."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import gc, json, sys
from grokfast.lab.commands.cli import main
{before}
try: main(["train", "--help"])
except SystemExit: pass
known = {{id(each) for each in gc.get_objects()}}
print(json.dumps([gc.isenabled(), gc.get_freeze_count(), id(sys.modules["torch"].__dict__) in known]))
"""


def after_help(before: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(before=before)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_the_collector_leaves_out_what_a_command_imports_and_works_on() -> None:
    enabled, frozen, torch_is_searched = after_help("pass")
    assert enabled
    assert frozen > 10_000
    assert not torch_is_searched


def test_a_collector_that_somebody_turned_off_stays_off() -> None:
    assert after_help("gc.disable()")[:2] == [False, 0]


def test_a_command_that_is_known_already_freezes_nothing_again() -> None:
    assert after_help("import grokfast.lab.commands.train")[:2] == [True, 0]
