"""`grokfast response ema --alpha 0.98 --lamb 2`: what a filter does to each frequency, without any run."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING

from grokfast.lab.commands.common import show
from grokfast.lab.commands.flags import add_options, filter_default, first_line, first_word, list_names, settings_from

if TYPE_CHECKING:
    from rich.table import Table

    import grokfast

HELP = "show what a filter does to each frequency of the gradients"
PERIODS = (1000, 300, 100, 30, 10, 2)  # of an oscillation, in steps


def add(parser: argparse.ArgumentParser) -> None:
    from grokfast.lab import filters

    name = first_word(parser)
    parser.usage = f"grokfast response {name or 'FILTER'} [flags]"
    parser.add_argument("filter", metavar="FILTER", help="name of a filter, or FILE.py:CLASS for one of your own")
    if name is None:
        parser.formatter_class = argparse.RawDescriptionHelpFormatter
        known = list_names("filters", {name: first_line(kind) for name, kind in filters.FILTERS.items()})
        parser.epilog = f"{known}\n\nThe flags of a filter: grokfast response FILTER --help"
        return
    add_filter_options(parser, name)
    parser.add_argument("-o", "--out", type=Path, metavar="FILE", help="write a figure: png, svg or pdf")


def add_filter_options(parser: argparse.ArgumentParser, name: str) -> None:
    """One flag for each field of a filter."""
    from grokfast.lab import filters
    from grokfast.lab.request import options
    from grokfast.lab.tasks.base import TaskConfig

    kind = filters.find_filter(name)
    known = {
        o.field: o._replace(help=o.help.removesuffix(f" [{name}]"))
        for o in options(TaskConfig, [name]).values()
        if o.part == "filter"
    }
    texts = {field: filter_default(field, [name], {}).removesuffix(f" for {name}") for field in known}
    add_options(parser, first_line(kind), known, texts)


def run(args: argparse.Namespace) -> int:
    from grokfast.lab.filters import make_filter

    filter = make_filter(args.filter, settings_from(args))
    show(response_table(filter))
    if args.out is not None:
        from grokfast.lab.report.draw_matplotlib import draw
        from grokfast.lab.report.plots import response_plot

        print(f"written: {draw([response_plot([filter])], args.out)}")
    return 0


def response_table(filter: grokfast.Filter) -> Table:
    """How much of an oscillation of the gradient reaches the optimizer, by its period in steps."""
    from rich.table import Table

    from grokfast.lab.filters import describe

    w = [0.0, *(2 * math.pi / period for period in PERIODS)]
    total, slow = (filter.frequency_response(w, of=of).abs().tolist() for of in ("1+h", "h"))
    cutoff = filter.cutoff_frequency()
    caption = "h is flat" if cutoff is None else f"h has fallen by 3 dB at a period of {1 / cutoff:,.0f} steps"
    table = Table("period", "gain of 1 + h", "gain of h", title=describe(filter), caption=caption, box=None)
    for period, *gains in zip(("constant", *map(str, PERIODS)), total, slow, strict=True):
        table.add_row(period, *(f"{gain:.3f}" for gain in gains))
    return table
