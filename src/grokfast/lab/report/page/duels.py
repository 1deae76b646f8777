"""A duel on the page: the verdict in words, the picture, the arms with their best settings, their commands."""

from __future__ import annotations

from html import escape

from grokfast.lab.duel.outcome import CAVEAT, arm_rows, verdicts
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.duels import budget_text, duel_plot, duel_title
from grokfast.lab.report.page.markup import bullets, commands, table
from grokfast.lab.report.when import Outcome

STAIRS = (
    "Each line rises where a run of that arm first reaches the level. A line that ends below 100% has runs that did not "
    "get there."
)


def duel_section(outcome: Outcome, place: int) -> str:
    """One of the duels of a page; its place tells its picture from those of others."""
    duel, results = outcome
    plot = duel_plot(duel, results)
    return f"""{bullets([verdict.text for verdict in verdicts(results)])}<p class="soft">{escape(f"{budget_text(duel)} {CAVEAT}")}</p>
<h3>{escape(plot.title)}</h3>{chart(plot._replace(name=f"{plot.name}-{place}"))}<p class="soft">{STAIRS}</p>
<h3>The arms on fresh seeds</h3>{table(arm_rows(results))}
<h3>To train the best setting of each arm</h3>{commands(result.command for result in results)}"""


def verdict_items(outcome: Outcome) -> str:
    """The verdicts by steps, for the head of the page."""
    duel, results = outcome
    texts = [verdict.text for verdict in verdicts(results) if verdict.by == "steps"]
    return "".join(f"<li><b>{escape(duel_title(duel))}</b>: {escape(text)}</li>" for text in texts)
