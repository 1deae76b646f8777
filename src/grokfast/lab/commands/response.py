"""`grokfast response ema --alpha 0.98 --lamb 2`: what a filter does to each frequency, without any run."""

from __future__ import annotations

import argparse
import math
from pathlib import Path

from rich.table import Table

import grokfast
from grokfast.lab import filters
from grokfast.lab.commands import flags
from grokfast.lab.commands.common import check_out, show
from grokfast.lab.request import options
from grokfast.lab.tasks.base import TaskConfig

PERIODS = (1000, 300, 100, 30, 10, 2)  # of an oscillation, in steps


def add(parser: argparse.ArgumentParser) -> None:
    name = flags.first_word(parser)
    parser.usage = f"grokfast response {name or 'FILTER'} [flags]"
    parser.add_argument("filter", metavar="FILTER", help="name of a filter, or FILE.py:CLASS for one of your own")
    if name is None:
        flags.explain_names(parser, "filter", filters.FILTERS)
        return
    # One flag for each field of the filter.
    asked = [option for option in options(TaskConfig, [name]).values() if option.part == "filter"]
    known = {option.field: option._replace(help=option.help.removesuffix(f" [{name}]")) for option in asked}
    texts = {field: flags.filter_default(field, [name], {}).removesuffix(f" for {name}") for field in known}
    flags.add_options(parser, flags.first_line(filters.find_filter(name)), known, texts)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="write a figure: png, svg or pdf")


def run(args: argparse.Namespace) -> int:
    if args.out is not None:
        check_out(args.out, ".png", ".svg", ".pdf")
    filter = filters.make_filter(args.filter, flags.settings_from(args))
    show(response_table(filter))
    if args.out is not None:
        from grokfast.lab.report.draw_matplotlib import draw  # slow to import, and not needed for a table
        from grokfast.lab.report.plots import response_plot

        print(f"written: {draw([response_plot({filter: 0})], args.out)}")
    return 0


def response_table(filter: grokfast.Filter) -> Table:
    """How much of an oscillation of the gradient reaches the optimizer, by its period in steps."""
    w = [0.0, *(2 * math.pi / period for period in PERIODS)]
    total, slow = (filter.frequency_response(w, of=of).abs().tolist() for of in ("1+h", "h"))
    cutoff = filter.cutoff_frequency()
    caption = "h is flat" if cutoff is None else f"h has fallen by 3 dB at a period of {1 / cutoff:,.0f} steps"
    table = Table("period", "gain of 1 + h", "gain of h", title=filters.describe(filter), caption=caption, box=None)
    for period, *gains in zip(("constant", *map(str, PERIODS)), total, slow, strict=True):
        table.add_row(period, *(f"{gain:.3f}" for gain in gains))
    return table
