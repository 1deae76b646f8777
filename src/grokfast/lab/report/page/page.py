"""One self-contained HTML page: what happened, the curves, the numbers beside the paper's, how to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from plotly.offline import get_plotlyjs

from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.compare.arms import arm_rows, cost_rows, paper_arms
from grokfast.lab.compare.distances import distance_rows
from grokfast.lab.compare.headline import headline
from grokfast.lab.compare.names import label
from grokfast.lab.compare.results import result, table_of
from grokfast.lab.compare.seeds import Arm, make_arms, stopped_before
from grokfast.lab.config import flatten
from grokfast.lab.report.curves import curves_plot
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.duels import duel_title
from grokfast.lab.report.page.assets import asset
from grokfast.lab.report.page.duels import duel_section, verdict_items
from grokfast.lab.report.page.inside import inside_section
from grokfast.lab.report.page.markup import bullets, commands, prose, table, titled_table
from grokfast.lab.report.page.sweeps import sweep_section
from grokfast.lab.report.pictures import Picture, picture_name
from grokfast.lab.report.plots import filter_plots, gradient_plots, weight_plots
from grokfast.lab.report.when import Outcome
from grokfast.lab.request import command_line
from grokfast.lab.runs.describe import cell
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.tasks import TASKS

FIRST = 3  # pictures of a section that are not folded away
HEAD = "<h1>Grokking, with and without Grokfast</h1>"
WHAT = (
    "<p>A network that groks learns its training data within a few hundred steps and generalises to the rest much later. "
    "Grokfast adds the slow part of each gradient to it, ĝ = g + h ∗ g, to shorten the delay.</p>"
)
STEPS = (
    "Solid: validation, the median over seeds, with a band from the lowest to the highest; a run that stopped at its "
    "level keeps its last value. Dashed: training. Rings: the level is reached."
)
FILTERS = (
    "Left: the gain at each frequency, 1 + h solid, h alone dashed, a ring at the cutoff. Right: how much of a gradient "
    "is added to later ones."
)
GRADIENTS = (
    "Left: the power of the gradients of sampled scalars by phase of training, each scalar scaled to the same total; "
    "solid before the filter, dashed after it, the earlier the fainter. Right: the measured gain and the theoretical one. The measured gain is too "
    "high at the lowest frequencies and near zeros of the filter, because gradients shrink over training and power leaks "
    "in from neighbouring frequencies."
)
WEIGHTS = (
    "Differences from the initial weights, a plane for each seed; its axes are the principal axes of the run without a "
    "filter, or of all runs where there is none. A, a ring: initial; B, a square: after 500 steps; C, a diamond: the end. "
    "The published distances are called l2 but violate the triangle inequality, which no distance can; mean squares fit "
    "the published AB."
)


def page(
    tasks: Mapping[str, list[Run]],
    unreadable: Sequence[str] = (),
    *,
    duels: Sequence[Outcome] = (),
    story: str = "",
) -> str:
    """The page on duels and the runs of each task; `unreadable` names the runs that cannot be shown, and why.

    Where there is a story, the page begins with it and everything else is folded away.
    """
    runs = [run for members in tasks.values() for run in members]
    weights = products_by_model(runs)
    distances = titled_table("Distances between the states", distance_rows(runs, weights))
    parts = [Part(f"Duel: {duel_title(duel[0])}", duel_section(duel, i)) for i, duel in enumerate(duels)]
    parts += [Part(task, section(task, group)) for task, group in tasks.items()]
    parts += [
        extra("The filters", FILTERS, filter_plots(runs)),
        extra("Gradients in frequency", GRADIENTS, gradient_plots(runs)),
        extra("Weights in space", WEIGHTS, weight_plots(runs, weights), distances),
        Part("Inside the network", inside_section(runs)),
        Part("Not shown", bullets(unreadable)),
        Part("To repeat", repeat(runs)),
    ]
    shown = [part for part in parts if part.html]
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Grokfast: {len(runs)} runs</title><style>{asset("page.css")}</style>
<script>{get_plotlyjs()}</script></head><body><main>
{f"{story}<details><summary>All curves, numbers and settings</summary>" if story else HEAD}
{damaged(unreadable)}
<ul class="lead">{"".join(map(verdict_items, duels))}{"".join(f"<li><b>{escape(task)}</b>: {escape(headline(group))}</li>" for task, group in tasks.items())}</ul>
{"" if story else WHAT}
{contents(shown)}
{"".join(f'<section id="{part.id}"><h2>{escape(part.title)}</h2>{part.html}</section>' for part in shown)}
{"</details>" if story else ""}
</main><script>{asset("page.js")}</script><script>{asset("inside.js")}</script></body></html>
"""


class Part(NamedTuple):
    """A section of the page; one without content is left out."""

    title: str
    html: str

    @property
    def id(self) -> str:
        return picture_name("part", self.title)


def contents(parts: Sequence[Part]) -> str:
    items = "".join(f'<li><a href="#{part.id}">{escape(part.title)}</a></li>' for part in parts)
    return f'<nav aria-label="Contents"><ul>{items}</ul></nav>'


def damaged(unreadable: Sequence[str]) -> str:
    """The first thing to know, where runs are missing from what follows."""
    if not unreadable:
        return ""
    count = "1 run cannot be shown" if len(unreadable) == 1 else f"{len(unreadable)} runs cannot be shown"
    return f'<p class="warning" role="note">{count} and {"is" if len(unreadable) == 1 else "are"} missing below: <a href="#part-Not_shown">why</a>.</p>'


def repeat(runs: Sequence[Run]) -> str:
    return f'{commands(dict.fromkeys(map(command, runs)))}<p class="soft">{escape(machine(runs[0]))}</p>'


def section(task: str, runs: list[Run]) -> str:
    """The runs of one task: the curves, the numbers, what they cost, what differs between them."""
    arms = make_arms(runs)
    plot = curves_plot(arms, task)
    return f"""{chart(plot) if plot.panels else "<p>No evaluation yet.</p>"}
<p class="soft">{STEPS} Click a name to hide it, drag to zoom, double-click to reset.
<button type="button" data-chart="{plot.name}" aria-pressed="false">Linear steps</button></p>
{sweep_section(runs)}
{over_seeds(runs)}
<h3>Steps until the validation {runs[0].measure} is {runs[0].level:g}</h3>
{table(run_rows(runs, arms), mark=lambda column, text: text.startswith("no: "))}
<p class="soft">The crossing lies between two evaluations ("lies in"). "&gt;" means not reached within the run. "Paper" is the
published number of the same setting, where there is one. One run of each seed counts in medians and curves; a run that never crossed and is
shorter than half of the longest of its setting does not count.{prose(level_note(runs))}</p>
{titled_table("Cost", cost_rows(arms))}
<details><summary>Settings that differ</summary>{settings(runs)}</details>"""


def run_rows(runs: Sequence[Run], arms: Sequence[Arm]) -> list[list[str]]:
    """The headings and a line for each run, the steps first; the last column says whether it counts over seeds."""
    known = {run.path: "yes" for arm in arms for run in arm.runs}
    known |= {run.path: reason for arm in arms for run, reason in arm.left_out}
    rows: list[dict[str, str]] = []
    for run in runs:
        found, counts = result(run), known.get(run.path, "no: not evaluated yet")
        status = found.pop("status")
        rows.append({**found, "status": status, "counts": counts})
    return table_of(rows)


def level_note(runs: Sequence[Run]) -> str:
    """Says so where runs stopped at an easier level than the one they are judged at."""
    early = [run for run in runs if stopped_before(run)]
    if not early:
        return ""
    levels = ", ".join(f"{level:g}" for level in sorted({run.loop["until"] for run in early}))
    count = "1 run stopped" if len(early) == 1 else f"{len(early)} runs stopped"
    return (
        f" {count} earlier, at {levels}, and count{'s' if len(early) == 1 else ''} as not having reached "
        f"{runs[0].level:g}; `--level` judges all runs at another level."
    )


def extra(title: str, text: str, plots: Sequence[Picture], more: str = "") -> Part:
    """A section that is there only where there is something to show; many pictures are folded away."""
    drawn = [f"<h3>{escape(plot.title)}</h3>{chart(plot)}" for plot in plots]
    rest = f"<details><summary>{len(drawn) - FIRST} more</summary>{''.join(drawn[FIRST:])}</details>"
    shown = "".join(drawn[:FIRST]) + (rest if len(drawn) > FIRST else "")
    return Part(title, f"<p class=soft>{text}</p>{shown}{more}" if plots else "")


def over_seeds(runs: Sequence[Run]) -> str:
    arms = paper_arms(runs)
    if not arms:
        return ""
    remark = f"{TASKS[runs[0].task].remark} Values are of complete runs that did not stop at the level."
    return f"{titled_table('Over seeds, beside the paper', arm_rows(arms))}<p class=soft>{prose(remark)}</p>"


def settings(runs: Sequence[Run]) -> str:
    """A line for each run, a column for each setting in which they differ; unusual values are marked."""
    flat = [flatten(run.settings) for run in runs]
    keys = [key for key in dict.fromkeys(key for f in flat for key in f) if len({repr(f.get(key)) for f in flat}) > 1]
    lines = [[label(run), *(cell(f.get(key)) for key in keys)] for run, f in zip(runs, flat, strict=True)]
    usual = [Counter(column).most_common(1)[0][0] for column in zip(*lines, strict=True)]
    return table([["run", *keys], *lines], mark=lambda column, text: column > 0 and text != usual[column])


def command(run: Run) -> str:
    """The shortest command that repeats a run, where its code is known here."""
    try:
        return command_line(run.config)
    except RunError:
        return f"# {run.name}: its task or filter is not known here; its settings are in its config.json"


def machine(run: Run) -> str:
    found = run.environment
    if not found:
        return "It is not known on which machine this was measured."
    return f"Measured with torch {found.get('torch')}, {found.get('processor')}, {found.get('cores')} cores."
