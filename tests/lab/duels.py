"""What the tests of duels share: sweeps carried out in this process, as workers take seconds to start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grokfast.lab.commands.cli import main
from grokfast.lab.sweep import local
from grokfast.lab.sweep.study import Sweep
from grokfast.lab.sweep.trial import carry_out


def run_here(sweep: Sweep, workers: int, *rest: Any) -> bool:
    """Train everything that is left."""
    with sweep.joined():
        while (claim := sweep.claim()) is not None:
            sweep.finish(claim, carry_out(sweep.spec, claim.point, sweep.runs))
    return True


def main_here(words: Sequence[str]) -> int:
    """A command without workers."""
    local.run_local = run_here
    return main(words)
