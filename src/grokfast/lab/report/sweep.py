"""Runs that vary in a number over three values or more: which is best, over which pairs, how sharply, how sure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from grokfast.lab.analysis import sensitivity
from grokfast.lab.compare.sensitivity import Setting, Trial
from grokfast.lab.config import RunConfig, to_json
from grokfast.lab.report.pictures import Beam, HeatMap, Panel, Parallel, Picture, Plot, Series, Strand, Tile
from grokfast.lab.compare.results import crossing, flatten
from grokfast.lab.runs.directory import Run

# What a filter is made of; the other fields of its configuration change nothing.
PARTS = {
    None: (),
    "ema": ("alpha", "lamb"),
    "ma": ("window_size", "lamb"),
    "fir": ("lamb",),
    "iir": ("lamb",),
    "butterworth": ("order", "cutoff", "lamb"),
}
OTHER_PARTS = {"alpha", "lamb", "window_size", "order", "cutoff"}
# Of a task, what is a way to learn it; the rest makes another problem, whose steps are no rival's.
LEARNING = ("width", "depth", "heads", "batch_size", "init_scale", "out_width", "embedding")
ALWAYS = ("lamb", "alpha", "window_size", "weight_decay")  # said of every recommendation
WORDS = {"lr": "learning rate"}


class Sweep(NamedTuple):
    """Runs of one task and one kind of filter, by what was varied in them."""

    name: str  # of its pictures
    title: str
    level: str
    settings: list[Setting]  # ranked
    fixed: Mapping[str, float]  # what was not varied and is worth saying
    runs: int

    @property
    def axes(self) -> list[str]:
        return sensitivity.by_importance(self.settings)


def find_sweeps(runs: Sequence[Run]) -> list[Sweep]:
    """The sweeps among runs: those that differ in numbers only, one of them at three values or more."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        if run.rows:
            alike.setdefault(everything_else(run.config), []).append(run)
    found = [[(run, trial(run)) for run in members] for members in alike.values()]
    kept = [members for members in found if sensitivity.is_sweep([each for _, each in members])]
    return [make_sweep(members, i) for i, members in enumerate(kept)]


def make_sweep(members: Sequence[tuple[Run, Trial]], number: int) -> Sweep:
    config, trials = members[0][0].config, [each for _, each in members]
    axes, defaults = sensitivity.varied(trials), config.task.defaults()
    fixed = {name: value for name, value in trials[0].values.items() if name in ALWAYS and name not in axes}
    kind = config.filter.filter or "no filter"
    level = f"validation {defaults.measure} {defaults.level:g}"
    name = f"{config.task_name}-{config.filter.filter or 'baseline'}-{number}"
    return Sweep(name, f"{config.task_name}, {kind}", level, sensitivity.rank(trials), fixed, len(members))


def trial(run: Run) -> Trial:
    return Trial(numbers(run.config), run.config.loop.seed, crossing(run))


def numbers(config: RunConfig) -> dict[str, float]:
    """What may be varied in a run, and counts."""
    parts = {"filter": (*PARTS[config.filter.filter], "two_stage"), "task": LEARNING}
    found: dict[str, float] = {}
    for key, value in settings_of(config).items():
        part, _, name = key.partition(".")
        if type(value) in (int, float) and (part == "optim" or name in parts.get(part, ())):
            found[name] = value
    return found


def everything_else(config: RunConfig) -> str:
    """What runs of one sweep have in common, as text."""
    mine = numbers(config)
    rest = {key: value for key, value in settings_of(config).items() if key.partition(".")[2] not in mine}
    return repr(rest | {"numbers": sorted(mine)})


def settings_of(config: RunConfig) -> dict[str, Any]:
    """The settings that shape the result: not how long to train, and not the numbers of another kind of filter."""
    unused = {f"filter.{name}" for name in OTHER_PARTS - set(PARTS[config.filter.filter])}
    return {k: v for k, v in flatten(to_json(config)).items() if not k.startswith("loop.") and k not in unused}


# Pictures ---------------------------------------------------------------------------------------------------------


def sweep_plots(runs: Sequence[Run]) -> list[Picture]:
    return [plot for sweep in find_sweeps(runs) for plot in pictures(sweep)]


def pictures(sweep: Sweep) -> list[Picture]:
    """The steps over the one number that was varied, or over the two that matter most; and all of them side by side."""
    if len(sweep.axes) == 1:
        return [profile(sweep)]
    return [heat_map(sweep), parallel(sweep)]


def profile(sweep: Sweep) -> Plot:
    (axis,) = sweep.axes
    line = sorted((s for s in sweep.settings if s.reached), key=lambda s: s.values[axis])
    points = [(s.values[axis], c.step) for s in sweep.settings for c in s.crossings if c.step is not None]
    lost = [(s.values[axis], c.after) for s in sweep.settings for c in s.crossings if c.step is None]
    series = [Series(0, "median over seeds", [s.values[axis] for s in line], [s.steps for s in line])] if line else []
    for number, name, found in ((0, "each run", points), (1, "not reached by then", lost)):
        if found:
            x, y = zip(*found, strict=True)
            series.append(Series(number, name, x, y, "marks"))
    panel = Panel(words(axis), f"steps to {sweep.level}", series, log_x=positive(sweep.settings, axis), log_y=True)
    return Plot(f"sweep-{sweep.name}", f"{sweep.title}: steps over {words(axis)}", [panel])


def heat_map(sweep: Sweep) -> HeatMap:
    first, second = sweep.axes[:2]
    grid = sensitivity.make_grid(sweep.settings, first, second)
    best = sweep.settings[0]
    tiles = [[None if cell is None else tile(cell, best) for cell in row] for row in grid.cells]
    title = f"{sweep.title}: steps to {sweep.level} over {words(first)} and {words(second)}"
    title += f", the best over {listed(sweep.axes[2:])}" if len(sweep.axes) > 2 else ""
    return HeatMap(f"sweep-{sweep.name}", title, words(first), words(second), grid.x.labels, grid.y.labels, tiles)


def tile(setting: Setting, best: Setting) -> Tile:
    star = "★ " if setting is best and setting.reached else ""
    text = f"{star}{'' if setting.reached else '> '}{short(setting.steps)}"
    return Tile(setting.steps if setting.reached else None, text, f"{described(setting.values)}: {spread(setting)}")


def parallel(sweep: Sweep) -> Parallel:
    """The steps stand on the last beam; what never arrived ends at its top."""
    scales = {name: scale(sweep.settings, name) for name in sweep.axes}
    reached = [math.log(s.steps) for s in sweep.settings if s.reached]
    low, high = (min(reached), max(reached)) if reached else (0.0, 0.0)
    strands: list[Strand] = []
    for setting in reversed(sweep.settings):
        shade = unit(math.log(setting.steps), low, high) if setting.reached else None
        heights = [scales[name][setting.values[name]] for name in sweep.axes]
        end = 1.0 if shade is None else 0.9 * shade
        strands.append(Strand([*heights, end], shade, f"{described(setting.values)}: {spread(setting)}"))
    beams = [Beam(words(name), ticks(scales[name])) for name in sweep.axes]
    marks = [(0.0, short(math.exp(low))), (0.45, short(math.exp((low + high) / 2))), (0.9, short(math.exp(high)))]
    marks = marks if high > low else marks[:1] if reached else []
    beams.append(Beam("steps", [*marks, (1.0, "not reached")]))
    return Parallel(f"strands-{sweep.name}", f"{sweep.title}: every setting", beams, strands)


def scale(settings: Sequence[Setting], name: str) -> dict[float, float]:
    """Heights of the values of an axis, on a log scale where all are positive."""
    places = {s.values[name]: sensitivity.coordinate(name, s.values[name]) for s in settings}
    if min(places.values()) > 0:
        places = {value: math.log(place) for value, place in places.items()}
    low, high = min(places.values()), max(places.values())
    return {value: unit(place, low, high) for value, place in sorted(places.items())}


def ticks(heights: Mapping[float, float]) -> list[tuple[float, str]]:
    """Values to write on an axis: all that keep a distance, with the first and the last."""
    many = len(heights) > sensitivity.MOST
    apart = 0.15 if many else 0.06
    *found, last = [
        (height, f"{value:{'.2g' if many and value < 0.9 else '.4g'}}") for value, height in heights.items()
    ]
    kept: list[tuple[float, str]] = []
    for tick in found:
        if (not kept or tick[0] - kept[-1][0] > apart) and last[0] - tick[0] > apart:
            kept.append(tick)
    return [*kept, last]


def unit(value: float, low: float, high: float) -> float:
    return (value - low) / (high - low) if high > low else 0.0


def positive(settings: Sequence[Setting], name: str) -> bool:
    return min(setting.values[name] for setting in settings) > 0


# Words -----------------------------------------------------------------------------------------------------------


def spread(setting: Setting) -> str:
    """A setting's steps over its seeds, in words."""
    seeds = "1 seed" if len(setting.crossings) == 1 else f"{len(setting.crossings)} seeds, {extent(setting)}"
    return f"{'' if setting.reached else 'more than '}{setting.steps:,.0f} steps ({seeds})"


def extent(setting: Setting) -> str:
    low, high = (f"{end:,.0f}" if math.isfinite(end) else "never" for end in (setting.low, setting.high))
    return low if low == high else f"{low} to {high}"


def described(values: Mapping[str, float]) -> str:
    return ", ".join(f"{words(name)} {value:.6g}" for name, value in values.items())


def words(name: str) -> str:
    return WORDS.get(name, name.replace("_", " "))


def listed(names: Sequence[str]) -> str:
    *most, last = [words(name) for name in names]
    return f"{', '.join(most)} and {last}" if most else last


def short(steps: float) -> str:
    """Steps in a small space.

    >>> short(1310.0), short(12345.0)
    ('1,310', '12.3k')
    """
    return f"{steps:,.0f}" if steps < 10_000 else f"{steps / 1000:.3g}k"
