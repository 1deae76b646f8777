"""Pictures of duels: the share of the runs that has reached the level after n steps, and all verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grokfast.lab.report.curves import name_colours
from grokfast.lab.report.pictures import COLOURS, INK, Picture, axis, line, make_view
from grokfast.lab.stats import Steps, Verdict

CAP = 4.0  # times as fast, and as slow: where the picture of all duels ends
EDGE = 1.03  # how far a stair extends before its first rise and after its last
BESIDE = {"as tuned": COLOURS[0], "at the same settings": COLOURS[1]}


def duel_picture(name: str, title: str, took: Mapping[str, Sequence[Steps]], by: str = "steps") -> Picture:
    """A step curve for each arm: it rises when a run first reaches the level."""
    known = [steps.value for arm in took.values() for steps in arm if math.isfinite(steps.value)]
    first, last = min(known, default=1.0) / EDGE, max(known, default=1.0) * EDGE
    colours = name_colours(list(took))
    lines: list[dict[str, Any]] = []
    for arm, steps in took.items():
        reached = sorted(found.value for found in steps if found.exact)
        x = [first, *(value for value in reached for _ in range(2)), last]
        y = [0.0, *((i + rise) / len(steps) for i in range(len(reached)) for rise in (0, 1))]
        lines.append(line(arm, x, [*y, y[-1]], colours[arm]))
    drawn = make_view(lines, axis(by, log=True), axis("share of the runs", percent=True, domain=[0, 1]))
    return Picture(name, f"{title}: share of the runs that have reached the level", [drawn], colours)


def overview_picture(verdicts: Sequence[tuple[str, Verdict, Verdict | None]], name: str = "duel-overview") -> Picture:
    """All verdicts, one below the other: ratio and interval of each arm against its reference and against its control.

    Right of 1 the arm needs fewer steps. An interval that has no end, or ends beyond 4 times, is cut there.
    """
    rows: list[dict[str, Any]] = []
    for label, found, control in verdicts:
        for kind, one in zip(BESIDE, (found, control), strict=True):
            if one is not None and (one.low > 0 or one.high < math.inf):
                low, high = (min(max(end, 1 / CAP), CAP) for end in (one.low, one.high))
                ratio = one.ratio if one.ratio is not None and 1 / CAP <= one.ratio <= CAP else None
                rows.append({"arm": label, "colour": BESIDE[kind], "low": low, "high": high, "ratio": ratio})
    order = [label for label, _, _ in verdicts]
    x = axis("times as fast, 95% interval", log=True, values=[0.25, 0.5, 1, 2, 4], domain=[1 / CAP, CAP])
    room = {"labelLimit": 330, "minExtent": 7 * max(map(len, order), default=0)}  # fonts differ in width
    y = {"field": "arm", "type": "nominal", "sort": order, "title": None, "axis": room}
    beside: dict[str, Any] = {"field": "colour", "type": "nominal", "scale": None}
    apart = {
        "yOffset": {"field": "colour", "sort": list(BESIDE.values()), "type": "nominal", "scale": {"paddingInner": 0.6}}
    }
    shared = {"y": y, **apart, "color": beside}
    layers = [
        {
            "mark": {"type": "rule", "strokeWidth": 2.4},
            "encoding": {**shared, "x": {"field": "low", **x}, "x2": {"field": "high"}},
        },
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {**shared, "x": {"field": "ratio", **x}},
            "transform": [{"filter": "isValid(datum.ratio)"}],
        },
    ]
    equal = {"data": {"values": [{"x": 1}]}, "mark": {"type": "rule", "color": INK, "strokeDash": [4, 4]}}
    data = {"data": {"values": rows}, "layer": layers}
    drawn = {"layer": [data, {**equal, "encoding": {"x": {"field": "x", **x}}}], "height": 26 * max(4, len(order))}
    return Picture(name, "Does the arm need fewer steps with the filter? Right of 1 it does.", [drawn], BESIDE)
