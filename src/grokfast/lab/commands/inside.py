"""`grokfast inside RUN`: measure each frequency in the network at each snapshot."""

from __future__ import annotations

import argparse

from grokfast.lab.analysis.inside import Inside, look_inside, save_inside
from grokfast.lab.commands.common import add_runs_dir, make_table, show
from grokfast.lab.runs.directory import find_run

COLUMNS = (
    "step",
    "training loss",
    "validation loss",
    "restricted loss",
    "excluded loss",
    "zero loss",
    "Gini, embedding",
    "Gini, logits",
)


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="RUN", help="name or hash of a run, or the beginning of one")
    add_runs_dir(parser)


def run(args: argparse.Namespace) -> int:
    run = find_run(args.name, args.runs_dir)
    found = look_inside(run)
    save_inside(run, found)
    key = ", ".join(map(str, found.key))
    show(
        make_table(COLUMNS, snapshot_lines(found), right=COLUMNS),
        f"Key frequencies: {key}. `grokfast report {run.name}` draws what was found.",
    )
    return 0


def snapshot_lines(found: Inside) -> list[list[str]]:
    """A line for each snapshot."""
    lines: list[list[str]] = []
    for moment in found.moments:
        excluded = sum(moment.excluded_loss) / len(moment.excluded_loss)
        losses = [moment.train_loss, moment.val_loss, moment.restricted_loss, excluded]
        shares = [moment.embedding_gini, moment.logits_gini]
        cells = [f"{moment.step:,}", *(f"{loss:.4g}" for loss in losses), f"{moment.zero_loss:.1%}"]
        lines.append([*cells, *(f"{share:.2f}" for share in shares)])
    return lines
