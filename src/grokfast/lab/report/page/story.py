"""The head of the demo's page: what is learnt, by an example; how long it takes with and without the filter; why."""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

from grokfast.lab.compare.names import enumerate_words
from grokfast.lab.report.colours import PAPER, number_arms
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.pictures import Series
from grokfast.lab.report.story import Story, story_plot
from grokfast.lab.runs.directory import Run

DOCS = Path(__file__).parents[5] / "docs" / "results.md"  # in a checkout


def story_head(story: Story, run: Run, out: Path) -> str:
    """The page above its fold, where `out` is the page and `run` any of the demo's."""
    old, p = story.archived, run.settings["task"]["p"]
    plot = chart(story_plot(story))
    colour = Series(
        number_arms(story.arms)[story.arms[0].key] if story.arms else PAPER["Grokfast-EMA"], "", (), ()
    ).colour
    return f"""<h1>{title(story)}</h1>
<p class="lead">A network often learns its examples <b>by heart</b> first and <b>understands</b> the rule behind them much
later. This is called <i>grokking</i>. Grokfast is a small change to the training that shortens the wait.</p>
<div class="story" style="--fast: {colour}"><div class="numbers">
{tile(f"{old.by_heart:,}", "steps", f"until it knows the half it was shown <b>by heart</b> ({old.level:.0%} right)", "")}
{tile(f"{old.reached:,}", "steps", "until it <b>understands</b> without Grokfast: as good on the half it has never seen", "no filter")}
{fast_tile(story)}
</div>
{bars(story)}</div>
{plot}
<p class="soft">Dashed: the half it was shown. Solid: the half it has never seen. Shaded: it knows the answers but not the
rule. From left to right the steps grow by factors. The two lines without Grokfast are not from today: they are from the
archived run <code>{escape(old.run)}</code>. {trained_here(story)}</p>
{example(p, run.settings["task"]["train_fraction"])}
<p><b>How does it work?</b> A network learns in small steps, each along a <i>gradient</i>. Most of a gradient is jitter that
changes from step to step; a small part points the same way for a long time. Grokfast keeps a running mean of the
gradients, the slow part, and adds it to each of them. One line of code attaches it to any optimizer.</p>
<p><b>To be fair:</b> the slow network has the paper's settings. With better ones, {escape(old.tuned)}, it gets there in
{escape(old.tuned_steps)} without any filter, so tune those first: {link(out)}.</p>"""


def title(story: Story) -> str:
    if story.steps is None:
        return "A network learns by heart long before it understands"
    times = story.archived.reached / story.steps
    return f"With Grokfast, this network understands {times:.0f} times sooner"


def example(p: int, fraction: float) -> str:
    a, b = 5, p * 4 // 9  # 5 x 43 on a clock of 97 hours
    rounds, rest = divmod(a * b, p)
    return f"""<p><b>What does it learn?</b> To multiply on a clock. With 12 hours, 10 + 5 is 3. With {p} hours:
<b class="sum"><span>{a} × {b} = {a * b}</span> <span>= {rounds} × {p} + {rest}</span> <span>→ {rest}</span></b>
It is shown {"half" if fraction == 0.5 else f"{fraction:.0%}"} of the multiplication table and has to work out the rest.</p>"""


def tile(number: str, unit: str, text: str, arm: str) -> str:
    kind = {"": "", "no filter": " slow", "Grokfast": " fast"}[arm]
    return f'<div class="number{kind}"><b>{number}</b> {unit}<br>{text}</div>'


def fast_tile(story: Story) -> str:
    if story.steps is None:
        return tile("?", "steps", "with <b>Grokfast</b>: it has not got there in these short runs", "Grokfast")
    return tile(
        f"{story.steps:,}", "steps", f"until it <b>understands</b> with {escape(story.arms[0].name)}", "Grokfast"
    )


def bars(story: Story) -> str:
    """Two lengths that say the same without a number."""
    if story.steps is None:
        return ""
    part = 100 * story.steps / story.archived.reached
    return f"""<div class="bars" role="img" aria-label="{story.archived.reached:,} steps against {story.steps:,}">
<div class="slow"><b>without Grokfast</b><i><span style="width:100%"></span></i></div>
<div class="fast"><b>with Grokfast</b><i><span style="width:{max(part, 0.5):.2f}%"></span></i></div></div>"""


def trained_here(story: Story) -> str:
    if not story.arms:
        return "The runs made just now are too short to show anything: leave out <code>--quick</code>."
    names = [escape(arm.name) for arm in story.arms]
    return f"{enumerate_words(names)} {'was' if len(names) == 1 else 'were'} trained just now, on this machine."


def link(out: Path) -> str:
    """To the results in words, where the package is in a checkout."""
    if not DOCS.exists():
        return "see docs/results.md of the project"
    where = Path(os.path.relpath(DOCS, out.resolve().parent)).as_posix()
    return f'<a href="{escape(where)}">all results</a>'
