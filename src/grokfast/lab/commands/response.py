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
from grokfast.lab.settings import fields_of

PERIODS = (1000, 300, 100, 30, 10, 2)  # of an oscillation, in steps


def add(parser: argparse.ArgumentParser) -> None:
    name = flags.first_word(parser)
    parser.usage = f"grokfast response {name or 'FILTER'} [flags]"
    parser.add_argument("filter", metavar="FILTER", help="name of a filter, or FILE.py:CLASS for one of your own")
    if name is None:
        flags.explain_names(parser, "filter", filters.FILTERS)
        return
    kind = filters.find_filter(name)
    table = fields_of("filter", kind)
    texts = {field: flags.filter_default(field, [name], {}).removesuffix(f" for {name}") for field in table}
    flags.add_group(parser, flags.first_line(kind), table, texts)
    parser.add_argument("-o", "--out", type=read_out, metavar="FILE", help="write a figure: png, svg or pdf")


def read_out(text: str) -> Path:
    try:
        return check_out(text, ".png", ".svg", ".pdf")
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def run(args: argparse.Namespace) -> int:
    filter = filters.make_filter(args.filter, flags.settings_from(args))
    show(response_table(filter))
    if args.out is not None:
        from grokfast.lab.report.depth import response_picture  # not needed for a table
        from grokfast.lab.report.pictures import COLOURS, write_picture

        print(f"written: {write_picture([response_picture({filter: COLOURS[0]})], args.out)}")
    return 0


def response_table(filter: grokfast.Filter) -> Table:
    """The gain for an oscillation of the gradient, by its period in steps."""
    w = [0.0, *(2 * math.pi / period for period in PERIODS)]
    total, slow = (filter.frequency_response(w, of=of).abs().tolist() for of in ("1+h", "h"))
    cutoff = filter.cutoff_frequency()
    caption = "h is flat" if cutoff is None else f"h has fallen by 3 dB at a period of {1 / cutoff:,.0f} steps"
    table = Table("period", "gain of 1 + h", "gain of h", title=filters.describe(filter), caption=caption, box=None)
    for period, *gains in zip(("constant", *map(str, PERIODS)), total, slow, strict=True):
        table.add_row(period, *(f"{gain:.3f}" for gain in gains))
    return table
