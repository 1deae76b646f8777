"""One self-contained HTML page: what happened, the curves, the numbers beside the paper's, how to repeat it."""

from __future__ import annotations

import html
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from plotly.offline import get_plotlyjs

from grokfast.lab.config import to_json
from grokfast.lab.flags import command_line
from grokfast.lab.report import charts
from grokfast.lab.report.groups import Group, group_runs
from grokfast.lab.results import HEADINGS, by_task, cell, crossing, flatten, headline, label, result
from grokfast.lab.runs import Run, read_json, write_atomically
from grokfast.lab.tables import arm_rows

ASSETS = Path(__file__).parent
STEPS = "Solid: validation, the median over seeds, with a band from the lowest to the highest. Dashed: training. Rings: the level is reached."


def write_page(runs: list[Run], out: Path, *, unreadable: Sequence[str] = ()) -> Path:
    """Write the page; `unreadable` says of which runs nothing can be shown."""
    if not runs:
        raise ValueError("a report needs at least one run, got none")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(out, page(runs, unreadable).encode())
    return out


def page(runs: list[Run], unreadable: Sequence[str] = ()) -> str:
    tasks = by_task(runs)
    summary = "".join(f"<li><b>{escape(task)}</b>: {escape(headline(group))}</li>" for task, group in tasks.items())
    sections = "".join(section(task, group) for task, group in tasks.items())
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Grokfast: {len(runs)} runs</title><style>{asset("page.css")}</style>
<script>{get_plotlyjs()}</script></head><body><main>
<h1>Grokking, accelerated</h1>
<ul class="lead">{summary}</ul>
<p>A network learns its training data within a few hundred steps and generalises to the rest much later. Grokfast adds
the slow part of each gradient to it, ĝ = g + h ∗ g, and the delay shrinks.</p>
{sections}
{not_shown(unreadable)}
<section><h2>To repeat</h2>
<pre>{commands(runs)}</pre>
<p class="soft">{escape(machine(runs[0]))}</p></section>
</main><script>{asset("page.js")}</script></body></html>
"""


def section(task: str, runs: list[Run]) -> str:
    """The runs of one task: the curves, the numbers, what they cost, what differs between them."""
    groups, name = group_runs(runs), f"curves-{task}"
    level, measure = runs[0].config.level, runs[0].config.task.defaults().measure
    return f"""<section><h2>{escape(task)}</h2>
<div role="img" aria-label="Accuracy and loss of the runs of {escape(task)} over training steps">{charts.curves(groups, name=name)}</div>
<p class="soft">{STEPS} Click a name to hide it, drag to zoom, double-click to reset.
<button type="button" data-chart="{name}" aria-pressed="false">Linear steps</button></p>
{over_seeds(runs, task)}
<h3>Steps until the validation {measure} is {level:g}</h3>
{table([list(HEADINGS), *(list(result(run)) for run in runs)])}
<p class="soft">The crossing is known up to the evaluation grid ("lies in"). "&gt;" means not reached within the run. "Paper" is the
published number of the same setting.</p>
<h3>Cost</h3>
{table(cost_rows(groups))}
<details><summary>Settings that differ</summary>{settings(runs)}</details>
</section>"""


def over_seeds(runs: list[Run], task: str) -> str:
    lines = arm_rows(runs, task)
    return f"<h3>Over seeds, beside the paper</h3>{table(lines)}" if lines else ""


def cost_rows(groups: Sequence[Group]) -> list[list[str]]:
    """What each configuration took on this machine: the mean over seeds."""
    head = ["run", "steps to the level", "seconds to it", "ms per step", "peak memory, MB", "filter's state, MB"]
    return [head, *([group.name, *map(cell_of_mean, zip(*map(costs, group.runs), strict=True))] for group in groups)]


def costs(run: Run) -> tuple[float | None, ...]:
    rows, summary = run.rows, run.summary or {}
    step = crossing(summary, "first").step if summary else None
    seconds = next((row.seconds for row in rows if row.step == step), None)
    latency = 1e3 * rows[-1].seconds / rows[-1].step if rows else None
    memory = [value / 2**20 if (value := summary.get(key)) else None for key in ("peak_memory_bytes", "filter_bytes")]
    return step, seconds, latency, *memory


def cell_of_mean(values: Sequence[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):,.4g}" if known else "-"


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
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def marked(value: Any, usual: str) -> str:
    text = escape(cell(value))
    return f"<td>{text}</td>" if repr(value) == usual else f"<td><mark>{text}</mark></td>"


def not_shown(unreadable: Sequence[str]) -> str:
    items = "".join(f"<li>{escape(text)}</li>" for text in unreadable)
    return f"<section><h2>Not shown</h2><ul>{items}</ul></section>" if items else ""


def table(lines: Sequence[Sequence[str]]) -> str:
    """A table whose first line is its head and whose first column names the others; wide ones scroll by themselves."""
    head = "".join(f"<th scope=col>{escape(text)}</th>" for text in lines[0])
    rows = ((escape(line[0]), "".join(f"<td>{escape(text)}</td>" for text in line[1:])) for line in lines[1:])
    body = "".join(f"<tr><th scope=row>{name}</th>{cells}</tr>" for name, cells in rows)
    return f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def commands(runs: list[Run]) -> str:
    """The shortest command that repeats each run."""
    return escape("\n".join(dict.fromkeys(command_line(run.config) for run in runs)))


def machine(run: Run) -> str:
    found = read_json(run.path / "environment.json")
    return f"Measured with torch {found['torch']}, {found['processor']}, {found['cores']} cores."


def escape(text: str) -> str:
    return html.escape(text)


def asset(name: str) -> str:
    return (ASSETS / name).read_text(encoding="utf-8")
