"""What a picture is made of, as data: draw_plotly.py draws it for the page, draw_matplotlib.py for papers."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

# After Okabe and Ito, safe for colour-blind readers; some are darker, and yellow and black are left out, to be visible
# on white and on dark.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#C05A8E", "#B8860B", "#3D9BD4", "#7F7F7F")
NOT_REACHED = "#6b7280"  # grey, which is in no scale of ours; white letters on it can be read
AXIS = "#7F7F7F"
FAST, SLOW = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)
Style = Literal["solid", "dashed", "dotted", "marks", "crosses", "faint"]  # faint: one of many, in grey
Symbol = Literal["ring", "square", "diamond"]
NO_ARM = -1  # the number of a line that belongs to no arm: grey


class Series(NamedTuple):
    """One line, or marks, in the colour of its number, which is that of its arm; those of one number and name are shown
    and hidden together.
    """

    number: int
    name: str
    x: Any
    y: Any
    style: Style = "solid"
    low: Any = None  # a band around the line
    high: Any = None
    symbols: Sequence[Symbol] = ()  # of marks; rings where there are none
    named: bool = True  # in the legend
    what: str = ""  # training or validation, where both are drawn
    strength: float = 1.0  # how opaque: phases of one run are shades of one colour

    @property
    def colour(self) -> str:
        return AXIS if self.style == "faint" or self.number < 0 else COLOURS[self.number % len(COLOURS)]

    @property
    def again(self) -> bool:
        """Whether the colours are used a second time: such a line is drawn in another style."""
        return self.number >= 0 and self.number // len(COLOURS) % 2 == 1


class Note(NamedTuple):
    """A few words in a panel, at a point or with an arrow to it."""

    x: float
    y: float
    text: str
    shift: tuple[int, int] | None = None  # of the words from the point, in pixels to the right and down


class Panel(NamedTuple):
    """One pair of axes."""

    x: str
    y: str
    series: list[Series]
    log_x: bool = True
    log_y: bool = False
    percent: bool = False  # y is a share of 1
    rows: Sequence[str] = ()  # names at the heights 0, 1, ... instead of numbers
    notes: Sequence[Note] = ()


class Plot(NamedTuple):
    """One or two panels side by side with one legend."""

    name: str
    title: str
    panels: list[Panel]


class Tile(NamedTuple):
    """A field of a heat map: its steps, None where the level was not reached, and what stands on it and behind it."""

    steps: float | None
    text: str
    more: str


class HeatMap(NamedTuple):
    """Steps over two numbers; None where a pair was not tried."""

    name: str
    title: str
    x: str
    y: str
    columns: list[str]
    rows: list[str]
    tiles: list[list[Tile | None]]  # [row][column]

    @property
    def extent(self) -> tuple[float, float]:
        """The logarithms of the fewest and the most steps."""
        logs = [math.log10(t.steps) for row in self.tiles for t in row if t is not None and t.steps is not None]
        return min(logs, default=0.0), max(logs, default=0.0)

    def ink(self, tile: Tile) -> Literal["black", "white"]:
        """The colour of letters that can be read on a field: the scale falls from yellow to dark purple."""
        low, high = self.extent
        return "white" if tile.steps is None or math.log10(tile.steps) - low > 0.55 * (high - low) else "black"


class Strand(NamedTuple):
    """One setting across all beams; its shade goes from 0, the fastest, to 1, and is None for not reached."""

    heights: list[float]
    shade: float | None
    text: str


class Parallel(NamedTuple):
    """Parallel coordinates: one line for each setting, the best last."""

    name: str
    title: str
    beams: dict[str, list[tuple[float, str]]]  # the vertical axes by name, with texts at heights in [0, 1]
    strands: list[Strand]


Picture = Plot | HeatMap | Parallel


def picture_name(*parts: str) -> str:
    """A name that can be a file's and an element's, whatever a task or a filter is called.

    >>> picture_name("curves", "tasks/mine.py:Mine")
    'curves-mine_py_Mine'
    """
    return "-".join(re.sub(r"\W+", "_", part.rpartition("/")[2]) for part in parts)


def shade(place: int, count: int) -> float:
    """The strength of a line among several in one colour: the later the stronger, the first can be seen on dark too.

    >>> shade(0, 2), shade(1, 2)
    (0.6, 1.0)
    """
    return 1 - 0.8 * (count - 1 - place) / count


def blend(shade: float | None) -> str:
    """From blue, fast, to vermilion, slow: all eyes can tell them apart, on white and on dark. Grey: not reached."""
    if shade is None:
        return AXIS
    parts = (round((1 - shade) * a + shade * b) for a, b in zip(FAST, SLOW, strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)
