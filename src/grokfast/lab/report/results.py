"""docs/results.md: what came out in words, then every table of the paper, published beside measured, as Markdown."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence
from pathlib import Path

from grokfast.lab.compare.arms import (
    NOT_RUN,
    SUMMARY,
    TABLES,
    ablation_columns,
    ablation_not_run,
    arm_columns,
    arms_of_experiment,
    columns_not_run,
    held_text,
    paper_arms,
    quiet_cost_rows,
    summary_not_run,
    summary_row,
)
from grokfast.lab.compare.claims import findings
from grokfast.lab.compare.controls import FILTERS, Control, controls, fastest
from grokfast.lab.compare.distances import distance_rows
from grokfast.lab.compare.evidence import command_lines, missing, missing_costs
from grokfast.lab.compare.names import enumerate_words, label
from grokfast.lab.compare.seeds import Arm, by_task
from grokfast.lab.compare.verdicts import Finding
from grokfast.lab.paper.evidence import COMPARED_AT
from grokfast.lab.paper.experiments import Experiment
from grokfast.lab.paper.published import arms_of, find_arm, request_key
from grokfast.lab.report.leaderboard import leader_text
from grokfast.lab.report.markdown import as_markdown, grid_text, in_shell, line_up, links, provenance
from grokfast.lab.report.pictures import picture_name
from grokfast.lab.report.when import Outcomes, advice
from grokfast.lab.request import Request, resolve
from grokfast.lab.runs.describe import progress_text
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import best
from grokfast.lab.tasks import TASKS

WIDTH = 120  # of a line of prose
RATE = "learning rate"  # a column that says something only where it varies
HEAD = "# Results\n\nWritten by `make results` from the runs in [results](../results) alone."
READING = """## How to read the tables

Steps are the median over seeds with the range in brackets; "> n" means not reached within n steps. A crossing is the
first evaluated step at the level, "for good" the first step from which every evaluation stays there, to the end of the
run; the true crossing lies between two evaluations. "paper" marks the published numbers. One run of each seed counts; a
run that never crossed and is shorter than half of the longest run of its arm does not. Values are means with standard
deviations over complete runs that did not stop at the level. The budget is the largest number of steps a run was given;
most runs end 500 steps after they first reach the level, and the tables say how much of these they spend at it. Each
seed is a link to its run.
"""
CONTROLS = """## Controls: the baseline's weight decay and learning rate

Steps to {level} on modular multiplication. The paper compares the first cell of the first line with EMA at weight decay
0.005 and MA at 0.01. Filters have the paper's settings: EMA with alpha 0.98 and lambda 2, MA with window 100 and
lambda 5. Adam's weight decay is part of the gradient, AdamW's is not. "then n%" is the part of the evaluations in the
500 steps after the first crossing that are at the level.
"""
STATES = (
    "A: initial weights, B: after 500 steps, C: the end of the run, 500 steps after it first reached the level. The "
    "paper's C of the baseline is at 300,000 steps, so its BC and AC cannot be compared. The published numbers are "
    "called l2 but violate the triangle inequality, which no distance can; mean squares can."
)
PLANES = (
    "One plane for each seed: the axes are the two principal axes of the snapshots of the baseline, as in the paper. "
    "A path may lead out of that plane; the second picture shows how far it gets."
)
TIMES = (
    "One thread, nothing else running, torch {torch} on {processor}; the paper's machine has a GTX 1080 Ti. Seconds to "
    "the level are the median steps of the tables above at this speed."
)


def results_page(
    runs: Sequence[Run], pictures: Sequence[Path] = (), *, costs: Sequence[Run] = (), place: Path | None = None
) -> str:
    """The whole page, with links from the directory `place`; empty without runs of the paper's experiments."""
    tasks, place = in_order(runs), place or Path()
    arms = {task: paper_arms(members) for task, members in tasks.items()}
    if not any(arms.values()):
        return ""
    drawn = {path.stem: f"![{path.stem}]({path.as_posix()})\n" for path in pictures}
    sections = [task_section(task, arms.get(task, []), place, drawn) for task in known_tasks()]
    sections.insert(1, control_section(tasks.get("modmul", []), place, drawn))
    todo, quiet = missing(runs), missing_costs(costs)
    parts = [HEAD, in_words(findings(tasks), len(todo) + len(quiet)), READING, *sections, longer_section(runs, place)]
    parts += [ablation_section(tasks.get("modmul", []), place, drawn), cost_section(costs, tasks)]
    parts += [depth_section(drawn), weight_section(tasks, drawn), todo_section(todo, quiet)]
    page = "\n".join(part for part in parts if part)
    return re.sub(rf"\| {NOT_RUN} (?=\|)", f"| [{NOT_RUN}](#not-run) ", page)


def in_order(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Runs by task, judged at one level and cut to a length where they have several, in the order of the tasks."""
    found, order = by_task(runs), list(TASKS)
    cut = {task: [at_length(run) for run in members] for task, members in found.items()}
    return dict(sorted(cut.items(), key=lambda pair: order.index(pair[0]) if pair[0] in order else len(order)))


def at_length(run: Run) -> Run:
    end = COMPARED_AT.get(run.task)
    return run if end is None or run.loop["steps"] <= end else run.up_to(end)


def known_tasks() -> list[str]:
    """The tasks that the paper has arms of."""
    return [task for task in TASKS if arms_of(task)]


# In words -----------------------------------------------------------------------------------------------------------


def in_words(found: Sequence[Finding], todo: int) -> str:
    lines = [fill(f"- **{finding.verdict}.** {finding.text}", "  ") for finding in found]
    open = f"\n{todo} planned runs [are not done](#not-run); the text above says nothing about them.\n" if todo else ""
    return "\n".join(["\n## What came out\n", *lines, open])


def fill(text: str, indent: str = "") -> str:
    """A paragraph in lines that an editor can show."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def summary_block(runs: Sequence[Run], outcomes: Outcomes) -> str:
    """The answer of the README to "Does it help?": what came out in short, advice from the duels, and the table."""
    found = [finding for finding in findings(in_order(runs)) if finding.in_short]
    texts = [f"**{finding.verdict}.** {finding.text}" for finding in found[:1]]
    texts += [f"{finding.verdict}." for finding in found[1:]]
    lines = [fill(f"- {text}", "  ") for text in (*advice(outcomes), leader_text(runs)) if text]
    return "\n\n".join([*([fill(" ".join(texts))] if texts else []), "\n".join(lines), summary_table(runs)])


def summary_table(runs: Sequence[Run]) -> str:
    """The few arms that tell the story, each by the number that the paper gives of its task."""
    tasks = in_order(runs)
    lines = [tuned_row(tasks["modmul"])] if "modmul" in tasks else []
    for task in known_tasks():
        found = {arm.name: arm for arm in paper_arms(tasks.get(task, []))}
        shown = [arm for arm in arms_of(task) if arm.in_summary]
        lines += [summary_row(found[arm.name]) if arm.name in found else summary_not_run(arm) for arm in shown]
    return as_markdown([SUMMARY, *filter(None, lines)])


def tuned_row(runs: Sequence[Run]) -> list[str]:
    """The fastest baseline; [] where none has reached the level or it is the paper's."""
    best = fastest(controls(runs), "no filter")
    if best is None or best[1].paper is not None:
        return []
    name = f"AdamW, no filter, learning rate {best[0].lr:g}"
    return ["modmul", name, *summary_row(best[1])[2:]]


# Sections -----------------------------------------------------------------------------------------------------------


def task_section(task: str, arms: Sequence[Arm], place: Path, drawn: dict[str, str]) -> str:
    """All arms of a task, those that were not run too."""
    known = {arm.name: arm for arm in arms}
    level = arms[0].runs[0].level if arms else resolve(arms_of(task)[0].request).level
    rows = [
        {**without_count(arm_columns(known[arm.name], arms)), **provenance(known[arm.name], place)}
        if arm.name in known
        else columns_not_run(arm, level)
        for arm in arms_of(task)
    ]
    end = f" Runs are compared at {COMPARED_AT[task]:,} steps." if task in COMPARED_AT and arms else ""
    picture = drawn.pop(picture_name("curves", task), "")
    parts = [f"## {task}\n", as_markdown(line_up(rows)), f"\n{TASKS[task].remark}{end}\n", notes(arms), picture]
    return "\n".join(part for part in parts if part)


def without_count(columns: dict[str, str]) -> dict[str, str]:
    """The seeds are listed: no need to count them."""
    return {name: text for name, text in columns.items() if name != "runs"}


def notes(arms: Sequence[Arm]) -> str:
    """Which runs do not count or are still to be finished."""
    out = [f"- {label(run)} does not count ({why.removeprefix('no: ')})" for arm in arms for run, why in arm.left_out]
    open = [run for arm in arms for run in arm.runs if run.status != "complete"]
    lines = [*out, *(f"- Not finished: {label(run)}, {so_far(run)}" for run in open)]
    return "\n".join([*lines, ""]) if lines else ""


def so_far(run: Run) -> str:
    found = {measure: best(run.rows, measure) for measure in ("accuracy", "loss")}
    values = [f"best {measure} {value.value:.4g}" for measure, value in found.items() if value is not None]
    return ", ".join([progress_text(run), *values])


def longer_section(runs: Sequence[Run], place: Path) -> str:
    """Runs that are longer than what their task is compared at, to their end."""
    long = [run for run in runs if run.loop["steps"] > COMPARED_AT.get(run.task, run.loop["steps"])]
    arms = {task: paper_arms(members) for task, members in by_task(long).items()}
    parts = [
        f"### {task}, to the end\n\n"
        + as_markdown(line_up([{**without_count(arm_columns(arm, found)), **provenance(arm, place)} for arm in found]))
        for task, found in arms.items()
        if found
    ]
    return "\n\n".join(parts) + "\n" if parts else ""


def control_section(runs: Sequence[Run], place: Path, drawn: dict[str, str]) -> str:
    """A line for each setting of the optimizer, a column for each filter."""
    found = controls(runs)
    known = [arm for control in found for arm in control.arms.values() if arm is not None]
    if not known:
        return ""
    rows = [control_row(control, place) for control in found]
    text = CONTROLS.format(level=f"{known[0].runs[0].level:g}")
    maps = [drawn.pop(name) for name in list(drawn) if name.startswith("sweep-modmul-baseline")]
    return "\n".join([text, as_markdown(line_up(rows)), "", *maps])


def control_row(control: Control, place: Path) -> dict[str, str]:
    arms = [arm for arm in control.arms.values() if arm is not None]
    budgets = sorted({run.loop["steps"] for arm in arms for run in arm.runs})
    cells = {name: NOT_RUN if arm is None else control_cell(arm, place) for name, arm in control.arms.items()}
    return {
        "optimizer": {"adam": "Adam", "adamw": "AdamW"}[control.optimizer],
        "weight decay": f"{control.weight_decay:g}",
        "learning rate": f"{control.lr:g}",
        **{name: cells[name] for name in FILTERS},
        "budget": enumerate_words([f"{steps:,}" for steps in budgets]) if budgets else "",
        "evaluated": enumerate_words(sorted({grid_text(run) for arm in arms for run in arm.runs})) if arms else "",
    }


def control_cell(arm: Arm, place: Path) -> str:
    stays = held_text(arm.runs)
    then = f", then {stays}" if stays else ""
    return f"{arm.steps()}{then}; seeds {links(arm, place)}"


def ablation_section(runs: Sequence[Run], place: Path, drawn: dict[str, str]) -> str:
    """The paper's figures over one setting each, and two stages."""
    parts = [f"### {e.title} ({e.where})\n\n{ablation_table(runs, e, place)}\n" for e in TABLES]
    maps = [drawn.pop(name) for name in list(drawn) if name.startswith("sweep")]
    return "\n".join(["## Ablations on modmul\n", *parts, *maps])


def ablation_table(runs: Sequence[Run], experiment: Experiment, place: Path) -> str:
    known = {arm.key: arm for arm in arms_of_experiment(runs, experiment)}
    wanted = {request_key(request): request for request in experiment.requests}
    rows = [
        {**without_count(ablation_columns(known[key])), **provenance(known[key], place)}
        if key in known
        else ablation_not_run(request)
        for key, request in wanted.items()
    ]
    if len({row[RATE] for row in rows}) == 1:
        rows = [{name: cell for name, cell in row.items() if name != RATE} for row in rows]
    return as_markdown(line_up(rows))


def cost_section(costs: Sequence[Run], tasks: dict[str, list[Run]]) -> str:
    head = "## Costs (Tables 3 to 6, Appendix D)\n\n"
    if not costs:
        return f"{head}Not run.\n"
    machine = costs[0].environment
    note = TIMES.format(torch=machine.get("torch"), processor=machine.get("processor"))
    return f"{head}{as_markdown(quiet_cost_rows(in_order(costs), tasks))}\n\n{note}\n"


def depth_section(drawn: dict[str, str]) -> str:
    shown = [drawn.pop(name) for name in list(drawn) if name not in ("trajectories", "deviation")]
    return "\n".join(["## Filters and gradients\n", *shown]) if shown else ""


def weight_section(tasks: dict[str, list[Run]], drawn: dict[str, str]) -> str:
    """Table 2 and Figures 12 and 13."""
    runs = [run for members in tasks.values() for run in members if find_arm(run.settings) is not None]
    lines, pictures = distance_rows(runs), list(drawn.values())
    if not lines:
        return "## Paths of the weights, distances between the states (Table 2)\n\nNot run.\n"
    parts = [as_markdown(lines), f"\n{STATES}\n", *([PLANES + "\n"] if pictures else []), *pictures]
    return "\n".join(["## Paths of the weights, distances between the states (Table 2)\n", *parts])


def todo_section(todo: Sequence[Request], quiet: Sequence[Request]) -> str:
    """The commands of all that is not run."""
    parts = [in_shell(command_lines(todo))] if todo else []
    alone = "For the costs, one after the other with nothing else running, into a directory of their own:"
    parts += [alone, in_shell(command_lines(quiet))] if quiet else []
    return "\n\n".join(["## Not run", *parts]) + "\n" if parts else ""
