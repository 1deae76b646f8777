"""Write a notebook from a script: `python tools/notebook.py SCRIPT.py NOTEBOOK.ipynb`.

A line `# %%` begins a cell of code, `# %% [markdown]` one of text. The cells are run here, one after another.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
from pathlib import Path
from typing import Any

CELL = re.compile(r"^# %%(.*)$", re.MULTILINE)


def read_cells(text: str) -> list[dict[str, Any]]:
    """The cells of a script, not run yet."""
    _, *parts = CELL.split(text)
    pairs = zip(parts[::2], parts[1::2], strict=True)
    return [make_cell(number, kind.strip() == "[markdown]", body.strip()) for number, (kind, body) in enumerate(pairs)]


def make_cell(number: int, is_text: bool, body: str) -> dict[str, Any]:
    cell: dict[str, Any] = {"id": f"cell-{number}", "metadata": {}}
    if is_text:
        return {**cell, "cell_type": "markdown", "source": re.sub(r"^# ?", "", body, flags=re.MULTILINE)}
    return {**cell, "cell_type": "code", "execution_count": None, "outputs": [], "source": body}


def run_cells(cells: list[dict[str, Any]]) -> None:
    """Run the cells of code in one namespace and keep what they print and draw."""
    names: dict[str, Any] = {"__name__": "__main__"}
    for count, cell in enumerate((cell for cell in cells if cell["cell_type"] == "code"), start=1):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(cell["source"], cell["id"], "exec"), names)
        cell["execution_count"] = count
        if text := printed.getvalue():
            cell["outputs"].append({"output_type": "stream", "name": "stdout", "text": text})
        cell["outputs"] += take_figures()


def take_figures() -> list[dict[str, Any]]:
    """The open figures as outputs of a cell; they are closed."""
    import matplotlib.pyplot as plt

    found: list[dict[str, Any]] = []
    for number in plt.get_fignums():
        plt.figure(number).savefig(file := io.BytesIO(), format="png", dpi=90)
        data = {"image/png": base64.b64encode(file.getvalue()).decode(), "text/plain": "a figure"}
        found.append({"output_type": "display_data", "metadata": {}, "data": data})
    plt.close("all")
    return found


def main(script: str, notebook: str) -> None:
    cells = read_cells(Path(script).read_text())
    run_cells(cells)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    written = {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": cells}
    Path(notebook).write_text(json.dumps(written, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
