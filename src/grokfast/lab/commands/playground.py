"""`grokfast playground`: two networks race in a browser, with and without a filter."""

from __future__ import annotations

import argparse

from grokfast.lab.commands.common import add_out
from grokfast.playground import write_page


def add(parser: argparse.ArgumentParser) -> None:
    add_out(parser, "playground.html", "the page, one file that needs no network", endings=(".html",))


def run(args: argparse.Namespace) -> int:
    args.out.parent.mkdir(parents=True, exist_ok=True)
    write_page(args.out)
    print(f"Open {args.out} in a browser.")
    return 0
