"""Interactive charts for the page. Colours of text and grid are left to the page, which knows light from dark."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from grokfast.lab.report.groups import Band, Group, band
from grokfast.lab.results import crossing

# Okabe-Ito without yellow and black, which vanish on white and on dark: safe for all eyes.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C")
DASHES = ("solid", "dashdot", "dot")  # what tells groups apart when the colours have come round


def colour_of(index: int) -> str:
    return COLOURS[index % len(COLOURS)]


def curves(groups: Sequence[Group], *, name: str) -> str:
    """Accuracy and loss over steps; the loss alone where there is no accuracy."""
    measured = any(band(group, "val_accuracy") for group in groups)
    shown = ("accuracy", "loss") if measured else ("loss",)
    figure = make_subplots(rows=1, cols=len(shown), horizontal_spacing=0.1)
    for index, group in enumerate(groups):
        for column, what in enumerate(shown, start=1):
            add_group(figure, group, index, column, what)
            figure.update_yaxes(title=what, row=1, col=column)
    figure.update_xaxes(type="log", title="steps")
    figure.update_yaxes(type="log", exponentformat="power", row=1, col=len(shown))
    return finish(figure, name)


def add_group(figure: go.Figure, group: Group, index: int, column: int, what: str) -> None:
    """Validation with its band, training dashed, and a mark at each crossing."""
    colour, text = colour_of(index), html.escape(group.name)
    common: dict[str, Any] = {"legendgroup": str(index), "name": text}
    where: dict[str, Any] = {"row": 1, "col": column}
    train, val = band(group, f"train_{what}"), band(group, f"val_{what}")
    if val is not None and len(group.runs) > 1:
        figure.add_trace(band_trace(val, colour, common), **where)
    for curve, split in ((val, "validation"), (train, "training")):
        if curve is not None:
            dash = DASHES[index // len(COLOURS) % len(DASHES)] if split == "validation" else "dash"
            line = {"color": colour, "dash": dash, "width": 2.2 if split == "validation" else 1.1}
            hover = f"{text}<br>{split} {what} %{{y:.4g}}<br>step %{{x:,}}<extra></extra>"
            shown = column == 1 and split == "validation"
            figure.add_trace(
                go.Scatter(
                    x=curve.steps,
                    y=curve.middle,
                    mode="lines",
                    line=line,
                    hovertemplate=hover,
                    showlegend=shown,
                    **common,
                ),
                **where,
            )
    marks = crossing_marks(group, what)
    if marks:
        steps, values = zip(*marks, strict=True)
        look = {"color": colour, "size": 9, "symbol": "circle-open", "line": {"width": 2}}
        trace = go.Scatter(x=steps, y=values, mode="markers", marker=look, showlegend=False, **common)
        figure.add_trace(trace.update(hovertemplate=f"{text}<br>reached at %{{x:,}}<extra></extra>"), **where)


def band_trace(curve: Band, colour: str, common: dict[str, Any]) -> go.Scatter:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    x = [*curve.steps.tolist(), *curve.steps[::-1].tolist()]
    y = [*curve.high.tolist(), *curve.low[::-1].tolist()]
    fill = f"rgba({red},{green},{blue},0.18)"
    return go.Scatter(
        x=x,
        y=y,
        fill="toself",
        fillcolor=fill,
        mode="lines",
        line={"width": 0},
        hoverinfo="skip",
        showlegend=False,
        **common,
    )


def crossing_marks(group: Group, what: str) -> list[tuple[int, float]]:
    """Where each run first reached its level, on the curve of `what`."""
    found: list[tuple[int, float]] = []
    for run in group.runs:
        step = crossing(run.summary, "first").step if run.summary else None
        row = next((row for row in run.rows if row.step == step), None)
        value = getattr(row, f"val_{what}") if row is not None else None
        if step is not None and value is not None:
            found.append((step, value))
    return found


def finish(figure: go.Figure, name: str, *, height: int = 440) -> str:
    """The chart as a division of that id; the page brings the library."""
    figure.update_layout(
        template="none",
        height=height,
        margin={"l": 60, "r": 15, "t": 15, "b": 45},
        legend={"orientation": "h", "y": -0.18},
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    return figure.to_html(
        full_html=False, include_plotlyjs=False, div_id=name, config={"responsive": True, "displayModeBar": False}
    )
