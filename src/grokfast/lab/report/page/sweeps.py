"""The sweeps of a task on the page: what to take, how sure that is, the pictures, the numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from grokfast.lab.compare.names import enumerate_words, words
from grokfast.lab.compare.results import table_of
from grokfast.lab.compare.sensitivity import Family, find_edges, ten_percent_off
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.page.markup import table
from grokfast.lab.report.sweeps import named_families, pictures, steps_text, values_text
from grokfast.lab.runs.directory import Run

SHOWN = 10  # settings in the table
MAP = (
    "Median steps over seeds until the level is reached, yellow for few, purple for many. Grey: too many seeds did not "
    "reach the level to know the median. A star marks the best."
)
STRANDS = (
    "One line for each setting, from blue, the fastest, to orange; the thick one is the best. Dotted grey: not reached."
    " Scales are logarithmic where values allow it; alpha is shown by its memory 1 / (1 - alpha)."
)
RINGS = "Each ring is a run; a cross is one that ended there without having reached the level."
BESIDE = (
    "How many more steps a value 10% off the best takes, the others fixed: estimated log-linearly from the neighbours "
    "of the best on that axis. For alpha, this is 10% of its memory 1 / (1 - alpha). It is not measured where a "
    "neighbour is missing or did not reach the level."
)


def sweep_section(runs: Sequence[Run]) -> str:
    return "".join(section(family, name) for name, family in named_families(runs).items())


def section(family: Family, name: str) -> str:
    """The recommendation, the pictures, the best settings, what lies beside the best."""
    advice = "".join(f"<li>{escape(line)}</li>" for line in recommendation(family))
    captions = (MAP, STRANDS) if len(family.axes) > 1 else (RINGS,)
    drawn = "".join(
        f"<h4>{escape(plot.title)}</h4>{chart(plot)}<p class=soft>{text}</p>"
        for plot, text in zip(pictures(family, name), captions, strict=True)
    )
    axes = enumerate_words([words(axis) for axis in family.axes])
    head = f"""<h3>Sweep over {escape(axes)}: {escape(family.title)}, {family.runs} runs</h3><ul>{advice}</ul>{drawn}"""
    if not family.candidates[0].reached:
        return head  # no setting is the best
    return f"""{head}
<h4>Best settings</h4>{table(best_rows(family))}
<h4>How much worse is 10% off?</h4>{table(beside_rows(family))}<p class=soft>{BESIDE}</p>"""


def recommendation(family: Family) -> list[str]:
    """What to take, and how sure that is, in sentences."""
    best, *others = family.candidates
    if not best.reached:
        tried = [bound.value for c in family.candidates for bound in c.taken if math.isfinite(bound.value)]
        longest = f" in up to {max(tried):,.0f} steps" if tried else ""
        return [f"No setting reached {family.level} in most of its runs{longest}: there is nothing to recommend."]
    fixed = f" (with {values_text(family.fixed)}, not varied)" if family.fixed else ""
    said = [f"Recommended: {values_text(best.values)}{fixed}. It reaches {family.level} after {steps_text(best)}."]
    if len(best.taken) == 1:
        said.append("This is one seed, so the difference may be chance: repeat the best setting with more seeds.")
    for name, end in find_edges(family.candidates).items():
        if end == "lowest" and best.values[name] == 0:
            continue  # there is nothing below
        beyond = "below" if end == "lowest" else "above"
        said.append(f"The best {words(name)} is the {end} that was tried: the optimum may lie {beyond} it.")
    for second in others[:1]:
        if min(best.steps.count, second.steps.count) > 1:
            overlap = second.steps.low.value <= best.steps.high.value
            known = "its seeds overlap with the best, so the two may be equal" if overlap else "no seeds overlap"
            said.append(f"Second best: {values_text(second.values)}, after {steps_text(second)}; {known}.")
    if best.steps.censored:
        said.append(f"{best.steps.censored} of its {best.steps.count} runs did not reach the level.")
    return said


def best_rows(family: Family) -> list[list[str]]:
    rows: list[dict[str, str]] = []
    for place, candidate in enumerate(family.candidates[:SHOWN], start=1):
        values = {words(name): f"{candidate.values[name]:.6g}" for name in family.axes}
        steps = candidate.steps
        seeds = {"seeds": str(steps.count), "median steps": str(steps.median), "lowest to highest": steps.interval}
        rows.append({"place": str(place), **values, **seeds, "not reached": str(steps.censored)})
    return table_of(rows)


def beside_rows(family: Family) -> list[list[str]]:
    lines = [["setting", "best", "10% less", "10% more"]]
    for axis in family.axes:
        beside = ten_percent_off(family.candidates, axis)
        changes = ["not measured" if part is None else f"{part:+.1%}" for part in beside]
        lines.append([words(axis), f"{family.candidates[0].values[axis]:.6g}", *changes])
    return lines
