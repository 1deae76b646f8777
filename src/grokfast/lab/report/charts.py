"""Plots as interactive charts. Colours of text and grid are left to the page, which knows light from dark."""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from grokfast.lab.report.plots import Panel, Plot, Series

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "marks": "solid"}
HEIGHT = 440


def chart(plot: Plot) -> str:
    """The plot as a division whose id is its name; the page brings the library."""
    figure = make_subplots(rows=1, cols=len(plot.panels), horizontal_spacing=0.1)
    for column, panel in enumerate(plot.panels, start=1):
        add_panel(figure, panel, column)
    figure.update_layout(
        template="none",
        height=HEIGHT,
        margin={"l": 60, "r": 15, "t": 15, "b": 45},
        legend={"orientation": "h", "y": -0.18},
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    options = {"responsive": True, "displayModeBar": False}
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=html.escape(plot.name), config=options)
    return f'<div role="figure" aria-label="{html.escape(plot.title)}">{drawn}</div>'


def add_panel(figure: go.Figure, panel: Panel, column: int) -> None:
    where: dict[str, Any] = {"row": 1, "col": column}
    for series in panel.series:
        for trace in traces(series, panel):
            figure.add_trace(trace, **where)
    figure.update_xaxes(type="log" if panel.log_x else "linear", title=panel.x, **where)
    figure.update_yaxes(type="log" if panel.log_y else "linear", title=panel.y, exponentformat="power", **where)


def traces(series: Series, panel: Panel) -> list[go.Scatter]:
    name = html.escape(series.name)
    common: dict[str, Any] = {"legendgroup": f"{series.number} {name}", "name": name, "showlegend": False}
    hover = f"{name}<br>{panel.y} %{{y:.4g}}<br>{panel.x} %{{x:,.4g}}<extra></extra>"
    if series.style == "marks":
        look = {"color": series.colour, "size": 9, "symbol": "circle-open", "line": {"width": 2}}
        texts: dict[str, Any] = {"text": list(series.texts), "textposition": "top center"} if series.texts else {}
        mode = "markers+text" if texts else "markers"
        marks = go.Scatter(x=list(series.x), y=list(series.y), mode=mode, marker=look, hovertemplate=hover, **common)
        return [marks.update(texts)]
    dash = "dashdot" if series.again and series.style == "solid" else DASHES[series.style]
    line = {"color": series.colour, "dash": dash, "width": 2.2 if series.style == "solid" else 1.2}
    shown = {**common, "showlegend": series.named}
    drawn = go.Scatter(x=series.x, y=series.y, mode="lines", line=line, hovertemplate=hover, **shown)
    return [*band_trace(series, common), drawn]


def band_trace(series: Series, common: dict[str, Any]) -> list[go.Scatter]:
    """The area between the lowest and the highest; none where there is only one run."""
    if series.low is None or (series.low == series.high).all():
        return []
    red, green, blue = (int(series.colour[i : i + 2], 16) for i in (1, 3, 5))
    x, y = np.concatenate([series.x, series.x[::-1]]), np.concatenate([series.high, series.low[::-1]])
    fill = f"rgba({red},{green},{blue},0.18)"
    return [
        go.Scatter(x=x, y=y, fill="toself", fillcolor=fill, mode="lines", line={"width": 0}, hoverinfo="skip", **common)
    ]
