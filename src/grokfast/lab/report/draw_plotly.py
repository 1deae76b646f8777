"""Plots as interactive charts, described for plotly.js in plain JSON: its Python objects take seconds to make.

Colours of text and grid are left to the page, which knows light from dark; so is the drawing.
"""

from __future__ import annotations

import base64
import html
import json
import math
from typing import Any

import numpy as np

from grokfast.lab.report.pictures import (
    AXIS,
    NOT_REACHED,
    HeatMap,
    Note,
    Panel,
    Parallel,
    Picture,
    Plot,
    Series,
    blend,
)

DASHES = {"solid": "solid", "dashed": "dash", "dotted": "dot", "faint": "solid"}
WIDTHS = {"solid": 2.2, "dashed": 1.2, "dotted": 1.2, "faint": 0.7}
SYMBOLS = {"ring": "circle-open", "square": "square-open", "diamond": "diamond-open"}
HEIGHT, GAP = 440, 0.1
LABELS = {"tickformat": ",~g", "nticks": 5}  # of log axes: plain numbers, few enough to be apart
Json = dict[str, Any]


def chart(plot: Picture) -> str:
    """The plot as a division whose id is its name, with what is drawn in it; the page brings the library."""
    match plot:
        case HeatMap():
            data, layout = heat_map(plot)
        case Parallel():
            data, layout = parallel(plot)
        case Plot():
            data, layout = lines(plot)
    layout |= {
        "height": HEIGHT,
        "margin": {"l": 60, "r": 85 if isinstance(plot, Parallel) else 15, "t": 15, "b": 50},
        "showlegend": False,  # the page has a legend of its own, which wraps and takes long names
        "hovermode": "closest",
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
    }
    # No text may end the element that holds it.
    drawn = json.dumps({"data": data, "layout": layout}, allow_nan=False).replace("<", "\\u003c")
    inner = f'<div id="{html.escape(plot.name)}" class="plotly-graph-div" style="height:{HEIGHT}px"></div>'
    return (
        f'<div role="figure" aria-label="{html.escape(plot.title)}">{inner}'
        f'<script type="application/json">{drawn}</script></div>'
    )


def lines(plot: Plot) -> tuple[list[Json], Json]:
    data: list[Json] = []
    layout: Json = {"annotations": []}
    count = len(plot.panels)
    width = (1 - GAP * (count - 1)) / count
    for i, panel in enumerate(plot.panels):
        number = "" if i == 0 else str(i + 1)
        left = i * (width + GAP)
        shared = {"exponentformat": "power", "automargin": True}
        few = {"nticks": 5} if count > 1 else {}  # or long numbers would touch
        x = {"type": scale(panel.log_x), "title": title(panel.x), "domain": [left, left + width]} | shared
        y = {"type": scale(panel.log_y), "title": title(panel.y)} | shared
        steps = {"tickformat": ",d"} if panel.x == "steps" else LABELS if panel.log_x else {}
        layout[f"xaxis{number}"] = x | {"anchor": f"y{number}"} | few | steps
        labels = {"tickformat": ".0%"} if panel.percent else LABELS if panel.log_y else {}
        rows = {"tickvals": list(range(len(panel.rows))), "ticktext": list(panel.rows)} if panel.rows else {}
        layout[f"yaxis{number}"] = y | {"anchor": f"x{number}"} | labels | rows
        axes = {"xaxis": f"x{number}", "yaxis": f"y{number}"}
        data += [trace | axes for series in panel.series for trace in traces(series, panel)]
        layout["annotations"] += [annotation(note, panel, number) for note in panel.notes]
    return data, layout


def scale(log: bool) -> str:
    return "log" if log else "linear"


def title(text: str) -> Json:
    return {"text": html.escape(text), "standoff": 8}


def annotation(note: Note, panel: Panel, number: str) -> Json:
    arrow: Json = {"showarrow": False}
    if note.shift is not None:
        arrow = {"ax": note.shift[0], "ay": note.shift[1], "arrowhead": 2, "arrowcolor": AXIS}
    return arrow | {
        "x": math.log10(note.x) if panel.log_x else note.x,
        "y": math.log10(note.y) if panel.log_y else note.y,
        "xref": f"x{number}",
        "yref": f"y{number}",
        "text": html.escape(note.text).replace("\n", "<br>"),
        "font": {"size": 13},
    }


def heat_map(plot: HeatMap) -> tuple[list[Json], Json]:
    """Three maps on each other: bright fields with black letters, dark ones with white, grey ones for not reached."""
    data: list[Json] = []
    low, high = plot.extent
    known = [[t and (plot.ink(t), t.steps is not None) for t in row] for row in plot.tiles]
    for ink, reached in (("black", True), ("white", True), ("white", False)):
        shown = [
            [tile if kind == (ink, reached) else None for tile, kind in zip(*rows, strict=True)]
            for rows in zip(plot.tiles, known, strict=True)
        ]
        data.append(
            {
                "type": "heatmap",
                "x": [html.escape(text) for text in plot.columns],
                "y": [html.escape(text) for text in plot.rows],
                "z": [[None if t is None else math.log10(t.steps or 1.0) for t in row] for row in shown],
                "zmin": low,
                "zmax": max(high, low + 1e-9),
                "text": [["" if t is None else t.text for t in row] for row in shown],
                "customdata": [["" if t is None else html.escape(t.more) for t in row] for row in shown],
                "texttemplate": "%{text}",
                "textfont": {"color": ink},
                "hovertemplate": "%{customdata}<extra></extra>",
                "colorscale": "Viridis" if reached else [[0, NOT_REACHED], [1, NOT_REACHED]],
                "reversescale": reached,
                "showscale": False,
                "hoverongaps": False,
                "xgap": 2,
                "ygap": 2,
            }
        )
    look = {"type": "category", "showgrid": False, "automargin": True}
    return data, {"xaxis": look | {"title": title(plot.x)}, "yaxis": look | {"title": title(plot.y)}}


def parallel(plot: Parallel) -> tuple[list[Json], Json]:
    data: list[Json] = []
    plain = {"type": "scatter", "showlegend": False}
    for i, (heights, shade, text) in enumerate(plot.strands):
        width = 4 if i == len(plot.strands) - 1 else 1.2
        line = {"color": blend(shade), "width": width, "dash": "dot" if shade is None else "solid"}
        hover = f"{html.escape(text)}<extra></extra>"
        data.append({"y": heights, "mode": "lines", "line": line, "hovertemplate": hover} | plain)
    written: list[Json] = []  # notes, as these have a ground on which they can be read
    for place, ticks in enumerate(plot.beams.values()):
        heights = [height for height, _ in ticks]
        look: Json = {"mode": "lines+markers", "line": {"color": AXIS, "width": 1}, "hoverinfo": "skip"}
        data.append({"x": [place] * len(heights), "y": heights, "cliponaxis": False} | look | plain)
        where = {"x": place, "xanchor": "left", "xshift": 5, "borderpad": 0, "showarrow": False}
        written += [where | {"y": height, "text": html.escape(text)} for height, text in ticks]
    names = [html.escape(name) for name in plot.beams]
    ticks = {"tickvals": list(range(len(names))), "ticktext": names, "range": [-0.1, len(names) - 1]}
    hidden = {"visible": False, "range": [-0.06, 1.06]}
    return data, {"xaxis": ticks | {"showgrid": False, "zeroline": False}, "yaxis": hidden, "annotations": written}


def traces(series: Series, panel: Panel) -> list[Json]:
    name = html.escape(series.name)
    common: Json = {"type": "scatter", "legendgroup": f"{series.number} {name}", "name": name, "showlegend": False}
    shown = {**common, "showlegend": series.named, "hovertemplate": hover_text(series, panel)}
    if series.strength < 1:
        shown["opacity"] = series.strength
    points = {"x": packed(series.x), "y": packed(series.y)}
    if series.style in ("marks", "crosses"):
        symbols = "x-thin-open" if series.style == "crosses" else [SYMBOLS[text] for text in series.symbols]
        look = {"color": series.colour, "size": 9, "symbol": symbols or SYMBOLS["ring"], "line": {"width": 2}}
        return [shown | points | {"mode": "markers", "marker": look}]
    dash = "dashdot" if series.again and series.style == "solid" else DASHES[series.style]
    line = {"color": series.colour, "dash": dash, "width": WIDTHS[series.style]}
    return [*band_trace(series, common), shown | points | {"mode": "lines", "line": line}]


def hover_text(series: Series, panel: Panel) -> str:
    what = f", {html.escape(series.what)}" if series.what else ""
    x, y = f"%{{x:{number_format(panel.x)}}}", f"%{{y:{'.1%' if panel.percent else number_format(panel.y)}}}"
    return (
        f"{html.escape(series.name)}{what}<br>{html.escape(panel.y)} {y}<br>{html.escape(panel.x)} {x}<extra></extra>"
    )


def number_format(title: str) -> str:
    """How d3 writes a number of the axis of that title: whole steps, and no zeros at the end of others."""
    return ",d" if title.startswith("steps") else ".4~g"


def band_trace(series: Series, common: Json) -> list[Json]:
    """The area between the lowest and the highest; none where there is only one run."""
    if series.low is None or (series.low == series.high).all():
        return []
    red, green, blue = (int(series.colour[i : i + 2], 16) for i in (1, 3, 5))
    x, y = np.concatenate([series.x, series.x[::-1]]), np.concatenate([series.high, series.low[::-1]])
    area = {"fill": "toself", "fillcolor": f"rgba({red},{green},{blue},0.18)", "hoverinfo": "skip"}
    return [common | area | {"x": packed(x), "y": packed(y), "mode": "lines", "line": {"width": 0}}]


def packed(values: Any) -> Json:
    """Numbers as plotly.js takes them in few bytes: single precision has more digits than a screen shows."""
    array = np.asarray(values)
    whole = array.dtype.kind in "iu" and (not array.size or np.abs(array).max() < 2**31)
    little = array.astype("<i4" if whole else "<f4")
    return {"dtype": "i4" if whole else "f4", "bdata": base64.b64encode(little.tobytes()).decode()}
