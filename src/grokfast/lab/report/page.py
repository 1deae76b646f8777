"""The values that the page templates show of runs and duels, as plain data. The text is in templates/."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from grokfast.lab.analysis.inside import read_inside
from grokfast.lab.analysis.weights import products_by_model
from grokfast.lab.report.curves import curves_picture, run_colours
from grokfast.lab.report.depth import (
    gradient_pictures,
    inside_pictures,
    known_filters,
    response_picture,
    weight_pictures,
)
from grokfast.lab.report.duels import duel_picture
from grokfast.lab.report.pictures import CONFIG, GREY, for_page, library, picture_name
from grokfast.lab.report.rows import arm_rows, cost_rows, distance_rows, run_rows, setting_rows
from grokfast.lab.report.sweeps import described, find_families
from grokfast.lab.runs.directory import Run, RunError, readable_runs
from grokfast.lab.runs.metrics import shorten
from grokfast.lab.search.objective import LEVEL
from grokfast.lab.search.outcome import Outcome
from grokfast.lab.settings import command_line
from grokfast.lab.stats import sentence, verdict
from grokfast.lab.tables import Arm, arms, label, setting_text, steps_of
from grokfast.lab.tasks import TASKS

BLANK = ("", "-")
NAME, LONG = 20, 40  # letters; the first column, or another, with longer cells is wrapped


def page(template: str, title: str, values: Mapping[str, Any]) -> str:
    """A page as one file that needs no network."""
    environment = Environment(
        loader=PackageLoader("grokfast.lab.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    functions = {"anchor": anchor, "flags": flags, "for_page": for_page, "prose": prose, "tidy": tidy}
    marks = {"doubtful": is_doubtful, "unusual": is_unusual}
    shared = {"title": title, "config": CONFIG, "library": Markup(library())}
    return environment.get_template(template).render({**functions, **marks, **shared, **values})


def showable_runs(runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """The runs that a page can show, and a line about each other one: each run is tested alone."""
    kept, lost = readable_runs(runs, large=True)
    shown: list[Run] = []
    for run in kept:
        try:
            found = arms([run])
            _ = arm_rows(found), run_rows([run], found), setting_rows([run]), find_families([run]), problem(run)
            shown.append(run)
        except (RunError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            lost.append(f"{run.name} is left out: its settings are damaged: {error or type(error).__name__}")
    return shown, lost


def report_values(
    tasks: Mapping[str, list[Run]], unreadable: Sequence[str] = (), duels: Sequence[Outcome] = ()
) -> dict[str, Any]:
    """Everything that the template of the report shows."""
    runs = [run for members in tasks.values() for run in members]
    weights, filters = products_by_model(runs), known_filters(runs)
    found: dict[str, Any] = {
        "tasks": [task_values(task, members) for task, members in tasks.items()],
        "duels": [duel_values(duel, place) for place, duel in enumerate(duels)],
        "unreadable": unreadable,
        "filters": [response_picture(filters)] if filters else [],
        "gradients": gradient_pictures(runs),
        "weights": weight_pictures(runs, weights),
        "distances": distance_rows(runs, weights),
        "insides": inside_values(runs),
        "repeat": list(dict.fromkeys(map(command, runs))),
        "machine": {name: run.environment.get(name) for run in runs[:1] for name in ("torch", "processor", "cores")},
    }
    sections = {"filters": "The filters", "gradients": "Gradients in frequency", "weights": "Weights in space"}
    sections |= {"insides": "Inside the network", "unreadable": "Not shown", "repeat": "To repeat"}
    titles = [f"Duel: {duel['title']}" for duel in found["duels"]] + list(tasks)
    return {**found, "contents": [*titles, *(title for key, title in sections.items() if found[key])]}


def task_values(task: str, runs: list[Run]) -> dict[str, Any]:
    """The runs of one task: curves, sweeps, numbers, costs, settings that differ."""
    shown = arms(runs)
    best = min(shown, key=lambda arm: arm.steps().order, default=None)
    fewest = None
    if best is not None and best.steps().median.exact:
        fewest = {"name": best.name, "steps": str(best.steps().median), "seeds": len(best.runs)}
    early = [run for run in runs if run.stopped_at_level and run.crossing().step is None]
    levels = ", ".join(f"{level:g}" for level in sorted({run.settings["until"] for run in early}))
    return {
        "name": task,
        "measure": runs[0].measure,
        "level": f"{runs[0].level:g}",
        "evaluated": bool(shown),
        "fewest": fewest,
        "verdict": verdict_on_filters(shown),
        "picture": curves_picture(shown, task),
        "families": [described(family) for family in find_families(runs)],
        "arm_rows": arm_rows(shown),
        "run_rows": run_rows(runs, shown),
        "cost_rows": cost_rows(shown),
        "setting_rows": setting_rows(runs),
        "remark": TASKS[task].remark if task in TASKS else "",
        "early": {"runs": len(early), "levels": levels} if early else None,
    }


def verdict_on_filters(shown: Sequence[Arm]) -> str:
    """The verdict on the best arm with a filter against the best without one on the same problem."""
    filtered = [arm for arm in shown if arm.settings["filter"] is not None]
    if not filtered:
        return ""
    best = min(filtered, key=lambda arm: arm.steps().order)
    same = problem(best.runs[0])
    plain = [arm for arm in shown if arm.settings["filter"] is None and problem(arm.runs[0]) == same]
    if not plain:
        return ""
    other = min(plain, key=lambda arm: arm.steps().order)
    took = [[steps_of(run) for run in arm.runs] for arm in (best, other)]
    return sentence(verdict([took[0]], [took[1]]), best.name, other.name)


def problem(run: Run) -> dict[str, Any]:
    """The problem: the settings of the task, which come before the filter's."""
    names = list(run.settings)
    return {name: run.settings[name] for name in names[: names.index("filter")]}


def duel_values(duel: Outcome, place: int) -> dict[str, Any]:
    """One of the duels of a page; its place tells its picture from those of others."""
    title, took = duel.title, {arm.name: arm.steps for arm in duel.arms if arm.name in duel.duel["arms"]}
    name = f"{picture_name('duel', title)}-{place}"
    tuned = [row for row in duel.settings if row["settings_of"] is None]
    best = [[row["arm"], str(row["tuning"] + 1), values_of(row["setting"])] for row in tuned]
    return {
        "title": title,
        "budget": duel.budget,
        "answer": duel.answer,
        "verdicts": duel.sentences,
        "comparisons": duel.comparisons(),
        "edges": duel.edges(),
        "picture": duel_picture(name, title, took) if duel.duel["objective"] in LEVEL else None,
        "rows": duel.table(),
        "setting_rows": [["arm", "tuning", "best setting"], *best],
        "commands": list(dict.fromkeys(row["command"] for row in tuned)),
    }


def values_of(setting: Mapping[str, Any]) -> str:
    return ", ".join(setting_text(name, shorten(value, 3)) for name, value in setting.items())


def inside_values(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The results of `grokfast inside` for these runs, if there are any."""
    colours, known = run_colours(runs), [(run, found) for run in runs if (found := read_inside(run)) is not None]
    return [
        {
            "label": label(run),
            "symbols": found.symbols,
            "key": found.key,
            "moments": [
                {"step": m.step, "points": m.points, "embedding": m.embedding, "logits": m.logits}
                for m in found.moments
            ],
            "pictures": inside_pictures(found, colours.get(run.experiment, GREY), place),
        }
        for place, (run, found) in enumerate(known)
    ]


def command(run: Run) -> str:
    """The shortest command that repeats a run, if its code is known here."""
    try:
        return command_line(run.settings)
    except (RunError, ValueError, KeyError, TypeError):
        return f"# {run.name}: its task, filter or optimizer is not known here; its settings are in its settings.json"


# Used by the templates ------------------------------------------------------------------------------------------------


def tidy(lines: Sequence[Sequence[str]], marked: Callable[[int, str, str], bool] | None) -> dict[str, Any]:
    """A table for the template: columns without any value are left out, long ones wrap, some cells are marked.

    `marked` says which, by column, text, and the most common text of the column.
    """
    head, *rows = lines
    kept = [i for i in range(len(head)) if i == 0 or any(row[i] not in BLANK for row in rows)]
    long = {i for i in kept if any(len(row[i]) > (LONG if i else NAME) for row in rows)}
    usual = [Counter(column).most_common(1)[0][0] for column in zip(*rows, strict=True)] if rows else [""] * len(head)

    def cell(i: int, text: str, mark: bool) -> dict[str, Any]:
        return {"text": text, "long": i in long, "blank": text in BLANK, "marked": mark}

    return {
        "head": [cell(i, head[i], False) for i in kept],
        "rows": [[cell(i, row[i], marked is not None and marked(i, row[i], usual[i])) for i in kept] for row in rows],
    }


def is_doubtful(column: int, text: str, usual: str) -> bool:
    """Whether a cell says that a run does not count."""
    return text.startswith("no: ")


def is_unusual(column: int, text: str, usual: str) -> bool:
    """Whether a setting of a run is not that of most runs."""
    return column > 0 and text != usual


def anchor(title: str) -> str:
    return "part-" + re.sub(r"\W+", "_", title)


def flags(line: str) -> list[str]:
    """A command in pieces between which it may wrap."""
    return re.split(" (?=--)", line)


def prose(text: str) -> Markup:
    """Escaped text in which `words` between backticks are code.

    >>> print(prose("a < b by `--level`"))
    a &lt; b by <code>--level</code>
    """
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", str(escape(text))))
