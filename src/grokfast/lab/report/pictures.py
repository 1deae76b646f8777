"""A picture: Vega-Lite views side by side, described once as plain JSON.

The page draws a description in the browser (`for_page`); vl-convert draws a file (`write_picture`), from the same data.
Text and axes have the colour `currentColor`: black in a file, in a page the colour of its text, so dark pages work.

The pictures themselves are made in curves, depth, sweeps, duels and demo; page.py lists them.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grokfast.lab.runs.files import write_atomically

# After Okabe and Ito, safe for colour-blind readers. Some are darker, and yellow and black are left out, so that all
# can be seen on white and on dark.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C05A8E", "#B8860B", "#3D9BD4", "#8A6D3B")
GREY = "#7F7F7F"
WIDTH, HEIGHT = 900, 340  # of a picture in a file, and of each of its views
LETTERS = 150  # of a legend in a file that fit beside each other
DASHES = {"solid": [1, 0], "dashed": [6, 4], "dotted": [2, 3], "faint": [1, 0]}
WIDTHS = {"solid": 2.4, "dashed": 1.2, "dotted": 1.6, "faint": 0.7}
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
INK = "currentColor"
HOVER = "hover"
NUMBERS = {**dict.fromkeys(("k", "i", "x", "y", "low", "high"), "number"), "shape": "string"}
CONFIG: dict[str, Any] = {
    "font": "sans-serif",
    "background": None,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "gridOpacity": 0.13,
        "labelFontSize": 12,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelOverlap": "greedy",
    },
    "text": {"color": INK, "fontSize": 13, "lineBreak": "\n"},
    "title": {"color": INK, "fontSize": 15, "anchor": "start", "offset": 12, "fontWeight": 600},
}


class Picture(NamedTuple):
    """Views side by side with one legend."""

    name: str  # of its file and of its element
    title: str
    views: list[dict[str, Any]]  # Vega-Lite, without a size
    names: Mapping[str, str] = {}  # the legend: what is drawn in which colour


# Parts of a view ----------------------------------------------------------------------------------------------------


def line(
    name: str,
    x: Any,
    y: Any,
    colour: str,
    style: str = "solid",
    *,
    low: Any = None,
    high: Any = None,
    what: str = "",
    strength: float = 1.0,
    shapes: Sequence[str] = (),
) -> dict[str, Any]:
    """One line or set of marks, with a band from `low` to `high`; lines of one name are shown and hidden together.

    Args:
        style: solid, dashed, dotted, faint (one of many), rings or crosses.
        what: training or validation, in the tooltip.
        strength: how opaque, so that phases of one run can be shades of one colour.
        shapes: the shape of each mark; rings by default.
    """
    found = {"name": name, "colour": colour, "style": style, "what": what, "strength": strength}
    return {**found, "x": x, "y": y, "low": low, "high": high, "shapes": list(shapes)}


def note(
    x: float,
    y: float,
    text: str,
    align: str = "center",
    *,
    to: tuple[float, float] | None = None,
    colour: str = INK,
) -> dict[str, Any]:
    """A few words at a point; a thin line leads from there to a dot at the point `to`."""
    return {"x": x, "y": y, "text": text, "align": align, "to": to, "colour": colour}


def axis(
    title: str, *, log: bool = False, percent: bool = False, values: Sequence[float] = (), **scale: Any
) -> dict[str, Any]:
    """The channel of an axis. Log axes have plain numbers; `scale` goes to Vega-Lite."""
    form = {"format": ".0%"} if percent else {"format": ",~g"} if log else {"format": ",d"} if "steps" in title else {}
    ticks = {"values": list(values)} if values else {"tickCount": 6}
    kind = {"type": "log", "nice": False} if log else {"zero": percent}
    return {"type": "quantitative", "title": title or None, "scale": {**kind, **scale}, "axis": {**form, **ticks}}


def make_view(
    lines: Iterable[dict[str, Any]],
    x: dict[str, Any],
    y: dict[str, Any],
    *,
    notes: Iterable[dict[str, Any]] = (),
    rules: Iterable[float] = (),
) -> dict[str, Any]:
    """Lines and marks on a pair of axes, thin horizontal `rules`, and notes above all."""
    drawn = list(lines)
    channels = {
        letter: {"field": letter, **with_ticks(channel, [value for one in drawn for value in one[letter]])}
        for letter, channel in (("x", x), ("y", y))
    }
    layers = [rule_layer(height, channels) for height in rules]
    layers += [data_layers(drawn, channels)] if drawn else []
    layers += [layer for each in notes for layer in note_layers(each, channels)]
    return {"layer": layers, "height": HEIGHT}


def with_ticks(channel: dict[str, Any], shown: Sequence[float]) -> dict[str, Any]:
    """A log axis with few ticks: powers of ten, with 2 and 5 between them where these are few."""
    known = [value for value in shown if math.isfinite(value) and value > 0]
    if channel["scale"].get("type") != "log" or "values" in channel["axis"] or not known:
        return channel
    low, high = channel["scale"].get("domain", (min(known), max(known)))
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = range(first, last + 1, math.ceil((last - first) / 7) or 1)
    between = (
        (1,) if math.log10(high / low) > 2.5 else (1, 2, 5) if high > 5 * low else (1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9)
    )
    values = [n * 10.0**d for d in decades for n in between]
    # Without a count, Vega drops no label of a log axis but those that overlap.
    return {**channel, "axis": {"format": channel["axis"]["format"], "values": values}}


def data_layers(drawn: Sequence[dict[str, Any]], channels: dict[str, Any]) -> dict[str, Any]:
    """Bands, lines, marks, and what a pointer finds. Vega-Lite wants one table, so `k` says which line a row is of."""
    kept = ("name", "colour", "what", "style", "strength")
    table = [{"k": k, **{key: one[key] for key in kept}} for k, one in enumerate(drawn)]
    colour = {"field": "colour", "type": "nominal", "scale": None}
    shared = {
        "data": {"values": as_csv(drawn), "format": {"type": "csv", "parse": NUMBERS}},
        "transform": [
            {"lookup": "k", "from": {"data": {"values": table}, "key": "k", "fields": [*table[0]][1:]}},
            {"filter": "indexof(hidden, datum.name) < 0"},
        ],
    }
    detail, plain = {"field": "k", "type": "nominal"}, {"type": "quantitative", "legend": None, "scale": None}
    shown = {**channels, "color": colour, "detail": detail, "order": {"field": "i", "type": "quantitative"}}
    styles = [style for style in DASHES if any(one["style"] == style for one in drawn)]
    layers: list[dict[str, Any]] = []
    if any(has_band(one) for one in drawn):
        ends = {"y": {**channels["y"], "field": "low"}, "y2": {"field": "high"}}
        band = {k: v for k, v in shown.items() if k != "order"} | ends
        layers.append(only("isValid(datum.low)") | {"mark": mark("area", opacity=0.16), "encoding": band})
    for style in styles:
        look = mark("line", strokeDash=DASHES[style], strokeWidth=WIDTHS[style], strokeJoin="round")
        opacity = {"opacity": {"field": "strength", **plain}}
        layers.append(only(f"datum.style == '{style}'") | {"mark": look, "encoding": shown | opacity})
    tips = [
        {"field": "name", "type": "nominal", "title": "curve"},
        *([{"field": "what", "type": "nominal", "title": "of"}] if any(one["what"] for one in drawn) else []),
        *(tip(letter, channels[letter]) for letter in "xy"),
    ]
    if any(one["style"] in ("rings", "crosses") for one in drawn):
        shape = {"shape": {"field": "shape", "type": "nominal", "scale": None, "legend": None}}
        look = mark("point", size=70, filled=False, strokeWidth=2, opacity=1)
        layers.append(only("isValid(datum.shape)") | {"mark": look, "encoding": {**shown, **shape, "tooltip": tips}})
    if styles:  # lines are thin: what a pointer finds is a few large marks that cannot be seen
        few = only("datum.i % 4 == 0 && !isValid(datum.shape) && datum.style != 'faint'")
        unseen = {"name": HOVER, "mark": mark("point", size=120, filled=True, opacity=0)}
        layers.append({**few, **unseen, "encoding": {**shown, "tooltip": tips}})
    return {**shared, "layer": layers}


def mark(kind: str, **look: Any) -> dict[str, Any]:
    return {"type": kind, **look}


def only(test: str) -> dict[str, Any]:
    return {"transform": [{"filter": test}]}


def has_band(one: dict[str, Any]) -> bool:
    """Whether there is a width to draw: one run has none."""
    return one["low"] is not None and not np.array_equal(one["low"], one["high"])


def as_csv(drawn: Sequence[dict[str, Any]]) -> str:
    """All points as text, to five digits, which is more than a screen shows."""
    rows = ["k,i,x,y,low,high,shape"]
    for k, one in enumerate(drawn):
        xs, ys = np.asarray(one["x"], float), np.asarray(one["y"], float)
        band = has_band(one)
        for i in np.flatnonzero(np.isfinite(xs) & np.isfinite(ys)).tolist():
            ends = f"{one['low'][i]:.5g},{one['high'][i]:.5g}" if band else ","
            rows.append(f"{k},{i},{xs[i]:.7g},{ys[i]:.5g},{ends},{shape_of(one, i)}")
    return "\n".join(rows)


def shape_of(one: dict[str, Any], i: int) -> str:
    if one["shapes"]:
        return one["shapes"][i]
    return {"rings": "circle", "crosses": "cross"}.get(one["style"], "")


def tip(letter: str, channel: dict[str, Any]) -> dict[str, Any]:
    form = channel["axis"].get("format")
    words = {".0%": ".1%", None: ".4~g"}.get(form, form)
    return {"field": letter, "type": "quantitative", "title": channel["title"] or letter, "format": words}


def rule_layer(height: float, channels: dict[str, Any]) -> dict[str, Any]:
    look = mark("rule", color=INK, strokeDash=[2, 4], opacity=0.5)
    return {"data": {"values": [{"y": height}]}, "mark": look, "encoding": {"y": channels["y"]}}


def note_layers(found: dict[str, Any], channels: dict[str, Any]) -> list[dict[str, Any]]:
    here = {"x": found["x"], "y": found["y"], "text": found["text"]}
    layers: list[dict[str, Any]] = []
    if found["to"] is not None:
        x2, y2 = found["to"]
        ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}}
        data = {"values": [{**here, "x2": x2, "y2": y2}]}
        layers.append({"data": data, "mark": {"type": "rule", "color": GREY}, "encoding": channels | ends})
        dot = {"type": "point", "filled": True, "color": INK, "opacity": 1, "size": 45}
        layers.append({"data": {"values": [{"x": x2, "y": y2}]}, "mark": dot, "encoding": channels})
    # A note that leads somewhere is below its line.
    base = "middle" if found["to"] is None else "top" if found["to"][1] > found["y"] else "bottom"
    look = {"type": "text", "align": found["align"], "baseline": base, "dy": {"top": 3, "bottom": -3}.get(base, 0)}
    look |= {"color": found["colour"], "fontWeight": "normal" if found["colour"] == INK else "bold"}
    text = {"text": {"field": "text", "type": "nominal"}}
    return [*layers, {"data": {"values": [here]}, "mark": look, "encoding": channels | text}]


# The two readers ----------------------------------------------------------------------------------------------------


def for_page(picture: Picture) -> list[dict[str, Any]]:
    """The views as the page draws them: as wide as their place, without a legend, which the page has as buttons."""
    fit = {"width": "container", "autosize": {"type": "fit-x", "contains": "padding"}}
    return [{"$schema": SCHEMA, "params": [HIDDEN], **fit, **one} for one in picture.views]


HIDDEN = {"name": "hidden", "value": []}  # the names that the reader of a page has switched off


def for_file(pictures: Sequence[Picture]) -> dict[str, Any]:
    """Pictures below each other with their titles and legends, as one description."""
    shown: list[dict[str, Any]] = []
    for picture in pictures:
        width = WIDTH // len(picture.views)
        views = [{**without_hover(one), "width": width} for one in picture.views]
        shown.append({"title": picture.title, "hconcat": views})
        if len(picture.names) > 1:
            shown.append(legend(picture.names))
    config = {**CONFIG, "background": "white"}
    return {"$schema": SCHEMA, "params": [HIDDEN], "config": config, "padding": 12, "vconcat": shown}


def legend(names: Mapping[str, str]) -> dict[str, Any]:
    """The names of a picture with their colours, in columns: a page has buttons instead."""
    columns = max(1, min(4, LETTERS // (max(map(len, names)) + 8)))
    rows = math.ceil(len(names) / columns)
    cells = [{"x": i % columns, "y": i // columns, "n": n, "c": c} for i, (n, c) in enumerate(names.items())]
    x = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, columns]}}
    y = {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [rows - 0.5, -0.5]}}
    colour = {"field": "c", "type": "nominal", "scale": None}
    text = {"field": "n", "type": "nominal"}
    layers = [
        {"mark": {"type": "square", "size": 110, "opacity": 1}, "encoding": {"color": colour}},
        {"mark": {"type": "text", "align": "left", "dx": 12}, "encoding": {"text": text}},
    ]
    shared = {"data": {"values": cells}, "encoding": {"x": x, "y": y}, "layer": layers}
    return {**shared, "width": WIDTH, "height": 22 * rows}


def without_hover(one: dict[str, Any]) -> dict[str, Any]:
    """A view without the marks for a pointer: a file has none, and they take seconds to draw."""
    if "layer" not in one:
        return one
    return {**one, "layer": [without_hover(layer) for layer in one["layer"] if layer.get("name") != HOVER]}


def write_picture(pictures: Sequence[Picture], path: Path) -> Path:
    """Write pictures below each other into one file, by its ending png, svg or pdf."""
    import vl_convert

    described = for_file(pictures)
    match path.suffix:
        case ".png":
            data = vl_convert.vegalite_to_png(described, scale=2)
        case ".svg":
            data = vl_convert.vegalite_to_svg(described).encode()
        case ".pdf":
            data = vl_convert.vegalite_to_pdf(described)
        case ending:
            raise ValueError(f"a picture must end with .png, .svg or .pdf, got {ending or path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, data)
    return path


@functools.cache
def library() -> str:
    """The JavaScript that draws descriptions in a page, whole, so that the page needs no network."""
    import vl_convert

    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


# Names and colours --------------------------------------------------------------------------------------------------


def picture_name(*parts: str) -> str:
    """A name that can be a file's and an element's, whatever a task or a filter is called.

    >>> picture_name("curves", "tasks/mine.py:Mine")
    'curves-mine_py_Mine'
    """
    return "-".join(re.sub(r"\W+", "_", part.rpartition("/")[2]) for part in parts)


def shade(place: int, count: int) -> float:
    """The strength of a line among several in one colour: the later the stronger; the first can be seen on dark too.

    >>> shade(0, 2), shade(1, 2)
    (0.6, 1.0)
    """
    return 1 - 0.8 * (count - 1 - place) / count
