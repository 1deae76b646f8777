"""One self-contained HTML page: what happened, the curves, the numbers beside the paper's, how to repeat it."""

from __future__ import annotations

import html
import os
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from grokfast.lab.flags import command_line
from grokfast.lab.report.figures import COLOURS, draw_curves
from grokfast.lab.results import HEADINGS, by_task, headline, label, result
from grokfast.lab.runs import Run, read_json, write_atomically

STYLE = """
:root { color-scheme: light; --line: #d8dde3; --soft: #5a6572; }
body { font: 16px/1.55 system-ui, sans-serif; margin: 0 auto; max-width: 70rem; padding: 1.2rem; color: #16202a; background: #fff; }
h1 { font-size: 1.7rem; margin: 0.3rem 0; } h2 { font-size: 1.3rem; margin: 2rem 0 0.5rem; } h3 { font-size: 1.05rem; margin: 1.2rem 0 0.4rem; }
.lead { font-size: 1.15rem; } .soft { color: var(--soft); font-size: 0.92rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 0.92rem; }
th, td { border-bottom: 1px solid var(--line); padding: 0.35rem 0.7rem; text-align: right; }
td { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } code { background: #f2f4f6; padding: 0.1rem 0.3rem; border-radius: 4px; }
pre { background: #f2f4f6; padding: 0.7rem; border-radius: 6px; overflow-x: auto; }
"""


def write_report(runs: list[Run], out: Path) -> tuple[Path, Path]:
    """Write the page to `out` and the curves to a PNG beside it."""
    if not runs:
        raise ValueError("a report needs at least one run, got none")
    out.parent.mkdir(parents=True, exist_ok=True)
    picture = out.with_name("curves.png" if out.stem == "index" else f"{out.stem}.png")
    draft = picture.with_name(f".{picture.name}.new.png")
    draw_curves(runs, draft)
    os.replace(draft, picture)
    write_atomically(out, page(runs).encode())
    return out, picture


def page(runs: list[Run]) -> str:
    environment = read_json(runs[0].path / "environment.json")
    machine = f"torch {environment['torch']}, {environment['processor']}, {environment['cores']} cores"
    sections = [section(task, group, first=i == 0) for i, (task, group) in enumerate(by_task(runs).items())]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Grokfast: {len(runs)} runs</title><style>{STYLE}</style></head><body>
<h1>Grokking, accelerated</h1>
<p>A network learns its training data within a few hundred steps and generalises to the rest much later. Grokfast adds
the slow part of each gradient to it, ĝ = g + h ∗ g, and the delay shrinks.</p>
{"".join(sections)}
<p class="soft">The crossing is known up to the evaluation grid ("lies in"). "&gt;" means not reached within the run. "Paper" is the
published number of the same setting. Measured with {html.escape(machine)}.</p>
<h2>To repeat</h2>
<pre>{commands(runs)}</pre>
</body></html>
"""


def section(task: str, runs: list[Run], *, first: bool) -> str:
    """The runs of one task: a sentence, the curves, the numbers. The first section brings the plotting library."""
    level, measure = runs[0].config.level, runs[0].config.task.defaults().measure
    return f"""
<h2>{html.escape(task)}</h2>
<p class="lead">{html.escape(headline(runs))}</p>
<div role="img" aria-label="Accuracy and loss of the runs of {html.escape(task)} over training steps">{curves(runs, library=first)}</div>
<p class="soft">Solid: validation, dashed: training. Click a name in the legend to hide a run, drag to zoom, double-click to reset.</p>
<h3>Steps until the validation {measure} is {level:g}</h3>
<div class="scroll">{table(runs)}</div>
"""


def curves(runs: list[Run], *, library: bool) -> str:
    """Accuracy and loss side by side, interactive; the loss alone where there is no accuracy."""
    measured = any(row.val_accuracy is not None for run in runs for row in run.rows[:1])
    shown = ("accuracy", "loss") if measured else ("loss",)
    figure = make_subplots(rows=1, cols=len(shown), subplot_titles=shown)
    for run, colour in zip(runs, COLOURS * len(runs), strict=False):
        rows = run.rows
        name = label(run)
        for column, what in enumerate(shown, start=1):
            for split, dash in (("val", "solid"), ("train", "dash")):
                values = [getattr(row, f"{split}_{what}") for row in rows]
                trace = go.Scatter(
                    x=[row.step for row in rows],
                    y=values,
                    name=html.escape(name),
                    legendgroup=run.name,
                    showlegend=column == 1 and split == "val",
                    line={"color": colour, "dash": dash, "width": 2 if split == "val" else 1.2},
                    hovertemplate=f"{html.escape(name)}<br>{split} {what} %{{y:.4g}}<br>step %{{x:,}}<extra></extra>",
                )
                figure.add_trace(trace, row=1, col=column)
    axis: dict[str, Any] = {"type": "log", "title": "steps", "gridcolor": "#e6e9ec", "dtick": 1}
    figure.update_xaxes(**axis)
    figure.update_yaxes(gridcolor="#e6e9ec")
    figure.update_yaxes(type="log", dtick=1, row=1, col=len(shown))
    figure.update_layout(
        template="plotly_white",
        height=470,
        margin={"l": 50, "r": 20, "t": 50, "b": 50},
        legend={"orientation": "h", "y": -0.2},
        hovermode="closest",
    )
    return figure.to_html(full_html=False, include_plotlyjs=library, config={"responsive": True, "displaylogo": False})


def table(runs: list[Run]) -> str:
    head = "".join(f"<th scope=col>{html.escape(text)}</th>" for text in HEADINGS)
    body = "".join(f"<tr>{''.join(f'<td>{html.escape(text)}</td>' for text in result(run))}</tr>" for run in runs)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def commands(runs: list[Run]) -> str:
    """The shortest command that repeats each run."""
    return html.escape("\n".join(dict.fromkeys(command_line(run.config) for run in runs)))
