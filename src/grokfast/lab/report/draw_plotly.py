"""Plots as interactive charts. Colours of text and grid are left to the page, which knows light from dark."""

from __future__ import annotations

import html
import math
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from grokfast.lab.report.pictures import AXIS, NOT_REACHED, HeatMap, Panel, Parallel, Picture, Plot, Series, blend

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "faint": "solid"}
WIDTHS = {"solid": 2.2, "dashed": 1.2, "dotted": 1.2, "faint": 0.7}
HEIGHT = 440


def chart(plot: Picture) -> str:
    """The plot as a division whose id is its name; the page brings the library."""
    match plot:
        case HeatMap():
            figure = heat_map(plot)
        case Parallel():
            figure = parallel(plot)
        case Plot():
            figure = lines(plot)
    figure.update_layout(
        template="none",
        height=HEIGHT,
        margin={"l": 60, "r": 85 if isinstance(plot, Parallel) else 15, "t": 15, "b": 45},
        showlegend=False,  # the page has a legend of its own, which wraps and takes long names
        hovermode="closest",
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
    )
    options = {"responsive": True, "displayModeBar": False}
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=html.escape(plot.name), config=options)
    return f'<div role="figure" aria-label="{html.escape(plot.title)}">{drawn}</div>'


def lines(plot: Plot) -> go.Figure:
    figure = make_subplots(rows=1, cols=len(plot.panels), horizontal_spacing=0.1)
    for column, panel in enumerate(plot.panels, start=1):
        where: dict[str, Any] = {"row": 1, "col": column}
        for trace in (trace for series in panel.series for trace in traces(series, panel)):
            figure.add_trace(trace, **where)
        figure.update_xaxes(type="log" if panel.log_x else "linear", title=panel.x, **where)
        figure.update_yaxes(type="log" if panel.log_y else "linear", title=panel.y, exponentformat="power", **where)
    return figure


def heat_map(plot: HeatMap) -> go.Figure:
    """Three maps on each other: bright fields with black letters, dark ones with white, grey ones for not reached."""
    figure, (low, high) = go.Figure(), plot.extent
    known = [[t and (plot.ink(t), t.steps is not None) for t in row] for row in plot.tiles]
    for ink, reached in (("black", True), ("white", True), ("white", False)):
        shown = [
            [tile if kind == (ink, reached) else None for tile, kind in zip(*rows, strict=True)]
            for rows in zip(plot.tiles, known, strict=True)
        ]
        tiles = go.Heatmap(
            x=[html.escape(text) for text in plot.columns],
            y=[html.escape(text) for text in plot.rows],
            z=[[None if t is None else math.log10(t.steps or 1.0) for t in row] for row in shown],
            zmin=low,
            zmax=max(high, low + 1e-9),
            text=[["" if t is None else t.text for t in row] for row in shown],
            customdata=[["" if t is None else html.escape(t.more) for t in row] for row in shown],
            texttemplate="%{text}",
            textfont={"color": ink},
            hovertemplate="%{customdata}<extra></extra>",
            colorscale="Viridis_r" if reached else [[0, NOT_REACHED], [1, NOT_REACHED]],
            showscale=False,
            hoverongaps=False,
            xgap=2,
            ygap=2,
        )
        figure.add_trace(tiles)
    for name, update in ((plot.x, figure.update_xaxes), (plot.y, figure.update_yaxes)):
        title = {"text": html.escape(name), "standoff": 12}
        update(type="category", title=title, showgrid=False, automargin=True)
    return figure


def parallel(plot: Parallel) -> go.Figure:
    figure = go.Figure()
    for i, (heights, shade, text) in enumerate(plot.strands):
        width = 4 if i == len(plot.strands) - 1 else 1.2
        line = {"color": blend(shade), "width": width, "dash": "dot" if shade is None else "solid"}
        hover = f"{html.escape(text)}<extra></extra>"
        figure.add_trace(go.Scatter(y=heights, mode="lines", line=line, hovertemplate=hover, showlegend=False))
    for place, ticks in enumerate(plot.beams.values()):
        heights, texts = zip(*ticks, strict=True)
        look: dict[str, Any] = {"mode": "lines+markers+text", "text": texts, "textposition": "middle right"}
        look |= {"line": {"color": AXIS, "width": 1}, "hoverinfo": "skip", "showlegend": False, "cliponaxis": False}
        figure.add_trace(go.Scatter(x=[place] * len(heights), y=heights, **look))
    names = [html.escape(name) for name in plot.beams]
    right, shown = len(names) - 1, {"showgrid": False, "zeroline": False}
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names, range=[-0.1, right], **shown)
    figure.update_yaxes(visible=False, range=[-0.06, 1.06])
    return figure


def traces(series: Series, panel: Panel) -> list[go.Scatter]:
    name = html.escape(series.name)
    common: dict[str, Any] = {"legendgroup": f"{series.number} {name}", "name": name, "showlegend": False}
    hover = f"{name}<br>{panel.y} %{{y:.4g}}<br>{panel.x} %{{x:,.4g}}<extra></extra>"
    if series.style == "marks":
        look = {"color": series.colour, "size": 9, "symbol": "circle-open", "line": {"width": 2}}
        common |= {"text": list(series.texts), "textposition": "top center", "hovertemplate": hover}
        mode = "markers+text" if series.texts else "markers"
        return [go.Scatter(x=list(series.x), y=list(series.y), mode=mode, marker=look, **common)]
    dash = "dashdot" if series.again and series.style == "solid" else DASHES[series.style]
    line = {"color": series.colour, "dash": dash, "width": WIDTHS[series.style]}
    shown = {**common, "showlegend": series.named}
    drawn = go.Scatter(x=light(series.x), y=light(series.y), mode="lines", line=line, hovertemplate=hover, **shown)
    return [*band_trace(series, common), drawn]


def band_trace(series: Series, common: dict[str, Any]) -> list[go.Scatter]:
    """The area between the lowest and the highest; none where there is only one run."""
    if series.low is None or (series.low == series.high).all():
        return []
    red, green, blue = (int(series.colour[i : i + 2], 16) for i in (1, 3, 5))
    x, y = light(np.concatenate([series.x, series.x[::-1]])), np.concatenate([series.high, series.low[::-1]])
    fill = f"rgba({red},{green},{blue},0.18)"
    return [
        go.Scatter(x=x, y=y, fill="toself", fillcolor=fill, mode="lines", line={"width": 0}, hoverinfo="skip", **common)
    ]


def light(values: Any) -> Any:
    """The same in half the bytes: no screen shows more digits."""
    array = np.asarray(values)
    return array.astype(np.float32) if array.dtype == np.float64 else array
