"""The outcome of a duel as a section of Markdown and as a picture: which share of the seeds is there after n steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from grokfast.lab.duel.arms import REGIMES
from grokfast.lab.duel.outcome import CAVEAT, By, Result, arm_rows, verdicts
from grokfast.lab.report.pictures import Panel, Plot, Series, picture_name


def duel_section(duel: dict[str, Any], results: Sequence[Result]) -> str:
    """The verdicts in words, the table of arms, and the command of each best setting."""
    values = duel["base"]["values"]
    head = [
        f"## {duel['base']['task']}: {REGIMES[duel['regime']][1]}",
        "",
        *(f"- {verdict.text}" for verdict in verdicts(results)),
        "",
        f"Steps until the validation measure reaches {values['until']:g}; runs of at most {values['steps']:,} steps.",
        f"{trials_text(duel)} {CAVEAT}",
        "",
    ]
    table = arm_rows(results)
    lines = [f"| {' | '.join(row)} |" for row in table]
    lines.insert(1, "|" + "---|" * len(table[0]))
    commands = ["", "```sh", *(result.command for result in results), "```", ""]
    return "\n".join([*head, *lines, *commands])


def trials_text(duel: dict[str, Any]) -> str:
    if duel["regime"] == "paper":
        return "Nothing was tuned."
    seeds = duel["tuning_seeds"]
    return f"Each arm was tuned with {duel['trials']} trials of {seeds} seed{'s' if seeds > 1 else ''}."


def duel_plot(duel: dict[str, Any], results: Sequence[Result]) -> Plot:
    """How many of an arm's runs have reached the level, over steps and over seconds."""
    title = f"{duel['base']['task']}, {REGIMES[duel['regime']][1]}: share of the seeds that have reached the level"
    panels = [panel(results, by) for by in ("steps", "seconds")]
    return Plot(picture_name("duel", duel["base"]["task"], duel["regime"]), title, panels)


def panel(results: Sequence[Result], by: By) -> Panel:
    series: list[Series] = []
    for number, result in enumerate(results):
        reached = sorted(bound.value for bound in result.numbers(by).values() if bound.exact)
        # A stair: it rises where a run gets there.
        x = [value for value in reached for _ in range(2)]
        y = [(i + rise) / len(result.steps) for i in range(len(reached)) for rise in (0, 1)]
        series.append(Series(number, result.name, x, y, named=by == "steps"))
    return Panel(by, "share of the seeds", series)
