"""One self-contained HTML page: what happened, the curves, the numbers beside the paper's, how to repeat it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from grokfast.lab.analysis.weights import Products
from grokfast.lab.config import to_json
from grokfast.lab.commands.flags import command_line
from grokfast.lab.compare.headline import headline
from grokfast.lab.paper.published import REMARKS
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.groups import group_runs
from grokfast.lab.report.page.markup import SCROLL, escape, table
from grokfast.lab.compare.costs import cost_rows, distance_rows
from grokfast.lab.report.pictures import Picture
from grokfast.lab.report.plots import curves_plot, filter_plots, gradient_plots, kept_weights, weight_plots
from grokfast.lab.report.page.sweeps import sweep_section
from grokfast.lab.compare.results import HEADINGS, by_task, cell, flatten, label, result
from grokfast.lab.runs.directory import Run, write_atomically
from grokfast.lab.compare.arms import arm_rows

ASSETS = Path(__file__).parent
STEPS = (
    "Solid: validation, the median over seeds, with a band from the lowest to the highest; a run that stopped at its "
    "level keeps its last value. Dashed: training. Rings: the level is reached."
)
FILTERS = (
    "First: the gain of each frequency, 1 + h solid, h alone dashed, a ring at the cutoff. Then: how much of a gradient "
    "is added to later ones. Below: what the theorem for linear optimizers says of the updates of SGD with momentum, "
    "and what they do on white noise."
)
GRADIENTS = (
    "Power of the gradients of sampled scalars, each scaled to the same total, by the phase of training: before the "
    "filter solid, after it dashed. Then the measured gain and that of theory: at the lowest frequencies and near zeros "
    "of the filter it is measured too high, because gradients shrink over training and power leaks in from neighbours."
)
WEIGHTS = (
    "Differences from the initial weights in the plane of most variance. A: initial, B: after 500 steps, C: the end. "
    "The published distances are headed as l2 but break the triangle inequality; mean squares fit those of AB."
)


def write_page(runs: list[Run], out: Path, *, unreadable: Sequence[str] = ()) -> Path:
    """Write the page; `unreadable` says of which runs nothing can be shown."""
    if not runs:
        raise ValueError("a report needs at least one run, got none")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(runs, unreadable).encode())
    return out


def page(runs: list[Run], unreadable: Sequence[str] = ()) -> str:
    tasks, weights = by_task(runs), kept_weights(runs)
    summary = "".join(f"<li><b>{escape(task)}</b>: {escape(headline(group))}</li>" for task, group in tasks.items())
    sections = "".join(section(task, group) for task, group in tasks.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Grokfast: {len(runs)} runs</title><style>{asset("page.css")}</style>
<script>{get_plotlyjs()}</script></head><body><main>
<h1>Grokking, with and without Grokfast</h1>
<ul class="lead">{summary}</ul>
<p>A network that groks learns its training data within a few hundred steps and generalises to the rest much later. Grokfast
adds the slow part of each gradient to it, ĝ = g + h ∗ g, to shorten the delay.</p>
{sections}
{extra("The filters", FILTERS, filter_plots(runs))}
{extra("Gradients in frequency", GRADIENTS, gradient_plots(runs))}
{extra("Weights in space", WEIGHTS, weight_plots(weights), distances(weights))}
{not_shown(unreadable)}
<section><h2>To repeat</h2>
<pre>{commands(runs)}</pre>
<p class="soft">{escape(machine(runs[0]))}</p></section>
</main><script>{asset("page.js")}</script></body></html>
"""


def section(task: str, runs: list[Run]) -> str:
    """The runs of one task: the curves, the numbers, what they cost, what differs between them."""
    groups = group_runs(runs)
    plot = curves_plot(groups, task)
    defaults = runs[0].config.task.defaults()  # runs are compared at one level, wherever they stopped
    level, measure = defaults.level, defaults.measure
    return f"""<section><h2>{escape(task)}</h2>
{chart(plot) if plot.panels else "<p>No evaluation yet.</p>"}
<p class="soft">{STEPS} Click a name to hide it, drag to zoom, double-click to reset.
<button type="button" data-chart="{plot.name}" aria-pressed="false">Linear steps</button></p>
{sweep_section(runs)}
{over_seeds(runs, task)}
<h3>Steps until the validation {measure} is {level:g}</h3>
{table([list(HEADINGS), *(list(result(run)) for run in runs)])}
<p class="soft">The crossing is known up to the evaluation grid ("lies in"). "&gt;" means not reached within the run. "Paper" is the
published number of the same setting.</p>
<h3>Cost</h3>
{table(cost_rows(groups))}
<details><summary>Settings that differ</summary>{settings(runs)}</details>
</section>"""


def extra(title: str, text: str, plots: Sequence[Picture], more: str = "") -> str:
    """A section that is there only where there is something to show."""
    if not plots:
        return ""
    drawn = "".join(f"<h3>{escape(plot.title)}</h3>{chart(plot)}" for plot in plots)
    return f"<section><h2>{title}</h2><p class=soft>{text}</p>{drawn}{more}</section>"


def distances(weights: Sequence[Products]) -> str:
    lines = distance_rows(weights)
    return f"<h3>Distances between the states</h3>{table(lines)}" if lines else ""


def over_seeds(runs: list[Run], task: str) -> str:
    lines = arm_rows(runs, task)
    remark = f"<p class=soft>{escape(REMARKS[task])} Values are of runs that did not stop at the level.</p>"
    return f"<h3>Over seeds, beside the paper</h3>{table(lines)}{remark}" if lines else ""


def settings(runs: list[Run]) -> str:
    """A line for each run, a column for each setting in which they differ; what most do not have is marked."""
    flat = [flatten(to_json(run.config)) for run in runs]
    keys = [key for key in dict.fromkeys(key for f in flat for key in f) if len({repr(f.get(key)) for f in flat}) > 1]
    usual = {key: Counter(repr(f.get(key)) for f in flat).most_common(1)[0][0] for key in keys}
    head = "".join(f"<th scope=col>{escape(key)}</th>" for key in ("run", *keys))
    body = "".join(
        f"<tr><th scope=row>{escape(label(run))}</th>{''.join(marked(f.get(key), usual[key]) for key in keys)}</tr>"
        for run, f in zip(runs, flat, strict=True)
    )
    return f"<div {SCROLL}><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def marked(value: Any, usual: str) -> str:
    text = escape(cell(value))
    return f"<td>{text}</td>" if repr(value) == usual else f"<td><mark>{text}</mark></td>"


def not_shown(unreadable: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in unreadable)
    return f"<section><h2>Not shown</h2><ul>{items}</ul></section>" if items else ""


def commands(runs: list[Run]) -> str:
    """The shortest command that repeats each run."""
    return escape("\n".join(dict.fromkeys(command_line(run.config) for run in runs)))


def machine(run: Run) -> str:
    found = run.environment
    if not found:
        return "On which machine this was measured is not known."
    return f"Measured with torch {found['torch']}, {found['processor']}, {found['cores']} cores."


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
