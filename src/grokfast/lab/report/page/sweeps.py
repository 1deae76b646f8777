"""The sweeps of a task on the page: what to take, how sure that is, the pictures, the numbers."""

from __future__ import annotations

from collections.abc import Sequence

from grokfast.lab.analysis import sensitivity
from grokfast.lab.compare.sensitivity import Sensitivity
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.page.markup import escape, table
from grokfast.lab.report.sweep import Sweep, described, extent, find_sweeps, listed, pictures, spread, words
from grokfast.lab.runs.directory import Run

SHOWN = 10  # settings in the table
MAP = (
    "Median steps over seeds until the level is reached, yellow for few, purple for many. Grey: not reached by half of "
    "the seeds within the steps shown. A star marks the best."
)
STRANDS = (
    "One line for each setting, from blue, the fastest, to orange; the thick one is the best. Dotted grey: not reached."
    " Scales are logarithmic where values allow it; that of alpha is of its memory 1 / (1 - alpha)."
)
RINGS = "Rings: runs. Orange ones ended there without having reached the level."
BESIDE = (
    "How many more steps it takes with a value 10% off the best, the others as they are: estimated log-linearly from "
    "the neighbours of the best on that axis. Of alpha, 10% are of its memory 1 / (1 - alpha). Not measured where "
    "a neighbour is missing or did not reach the level."
)


def sweep_section(runs: Sequence[Run]) -> str:
    return "".join(section(sweep) for sweep in find_sweeps(runs))


def section(sweep: Sweep) -> str:
    """The recommendation, the pictures, the best settings, what lies beside the best."""
    advice = "".join(f"<li>{escape(line)}</li>" for line in recommendation(sweep))
    captions = (MAP, STRANDS) if len(sweep.axes) > 1 else (RINGS,)
    drawn = "".join(
        f"<h4>{escape(plot.title)}</h4>{chart(plot)}<p class=soft>{text}</p>"
        for plot, text in zip(pictures(sweep), captions, strict=True)
    )
    beside = [sensitivity.sensitivity(sweep.settings, name) for name in sweep.axes]
    return f"""<h3>Sweep over {escape(listed(sweep.axes))}: {escape(sweep.title)}, {sweep.runs} runs</h3>
<ul>{advice}</ul>{drawn}
<h4>Best settings</h4>{table(best_rows(sweep))}
<h4>How much worse is 10% off?</h4>{table(beside_rows(beside))}<p class=soft>{BESIDE}</p>"""


def recommendation(sweep: Sweep) -> list[str]:
    """What to take, and how sure that is, in sentences."""
    verdict = sensitivity.judge(sweep.settings)
    if verdict is None:
        longest = max(c.after for s in sweep.settings for c in s.crossings)
        return [f"No setting reached {sweep.level} in most of its runs, up to {longest:,} steps: nothing to recommend."]
    best, second, edges, overlap = verdict
    fixed = f" (with {described(sweep.fixed)}, not varied)" if sweep.fixed else ""
    said = [f"Recommended: {described(best.values)}{fixed}. It reaches {sweep.level} after {spread(best)}."]
    if len(best.crossings) == 1:
        said.append("Only one seed: what is chance and what is the setting cannot be told. Repeat the best with more.")
    for name, end in edges.items():
        if end == "lowest" and best.values[name] == 0:
            continue  # there is nothing below
        beyond = "below" if end == "lowest" else "above"
        said.append(f"The best {words(name)} is the {end} that was tried: the optimum may lie {beyond} it.")
    if second is not None and overlap is not None:
        known = "its seeds overlap with the best's, so the two cannot be told apart" if overlap else "no seeds overlap"
        said.append(f"Second best: {described(second.values)}, after {spread(second)}; {known}.")
    if best.censored:
        said.append(f"{best.censored} of its {len(best.crossings)} runs did not reach the level.")
    return said


def best_rows(sweep: Sweep) -> list[list[str]]:
    head = ["place", *(words(name) for name in sweep.axes), "seeds", "median steps", "lowest to highest", "not reached"]
    rows = [
        [
            str(place),
            *(f"{setting.values[name]:.6g}" for name in sweep.axes),
            str(len(setting.crossings)),
            f"{'' if setting.reached else '> '}{setting.steps:,.0f}",
            extent(setting),
            str(setting.censored),
        ]
        for place, setting in enumerate(sweep.settings[:SHOWN], start=1)
    ]
    return [head, *rows]


def beside_rows(found: Sequence[Sensitivity]) -> list[list[str]]:
    rows = [[words(s.axis), f"{s.best:.6g}", change(s.less), change(s.more)] for s in found]
    return [["setting", "best", "10% less", "10% more"], *rows]


def change(part: float | None) -> str:
    return "not measured" if part is None else f"{part:+.1%}"
