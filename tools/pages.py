"""Write our pages from results/: `python tools/pages.py [PAGE ...]`.

People write the sentences in docs/templates/. Numbers come in by slots, `{{ taken(ma) }}`, and a claim has the
condition that it rests on beside it, `{% require verdict(ma, baseline) == "faster" %}`. If a condition is no longer
true, nothing is written and the line of the template is named: then a person rewrites the sentence.
"""

from __future__ import annotations

import argparse
import functools
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
import modular_hypotheses
import page_duels
import page_tables as tables
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from page_addition import Addition, answer_row
from page_tables import markdown

from grokfast.lab import paper, stats
from grokfast.lab.runs.archive import read_tables
from grokfast.lab.runs.metrics import Kind
from grokfast.lab.settings import experiment_of, flag_words, resolve, unusual
from grokfast.lab.tables import Arm, arms, by_task, steps_of

ROOT = Path(__file__).parents[1]
TEMPLATES, FIGURES = ROOT / "docs" / "templates", "docs/figures"
PAGES = {  # by template
    "readme": "README.md",
    **{name: f"docs/{name}.md" for name in ("use", "results", "verdicts", "tables", "leaderboard", "paper")},
}
DEMO = "src/grokfast/lab/report/evidence.json"  # what the demo shows of our runs
WIDTH = 120  # of a line of prose
HELD_RATE = 0.003  # learning rate of the runs of docs/plan.md, A


# Templates ----------------------------------------------------------------------------------------------------------


class ClaimError(Exception):
    """A sentence of a page is no longer true."""


class Require(Extension):
    """`{% require CONDITION %}`: the text around it is true only if the condition is."""

    tags = {"require"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        place = [nodes.Const(parser.name or "a template"), nodes.Const(line)]
        return nodes.Output([self.call_method("check", [parser.parse_expression(), *place])], lineno=line)

    def check(self, holds: Any, name: str, line: int) -> str:
        if not holds:
            text = (TEMPLATES / name).read_text(encoding="utf-8").splitlines()[line - 1].strip()
            raise ClaimError(f"docs/templates/{name}:{line}: this is not true any more: {text}")
        return ""


def render(page: str, functions: dict[str, Any]) -> str:
    """A page from its template."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        extensions=[Require],
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # Markdown of ours, not HTML of others
    )
    environment.globals |= functions
    return wrap(environment.get_template(f"{page}.md.j2").render())


def wrap(text: str) -> str:
    """A page with its paragraphs and list items in lines of at most 120 letters: slots make them uneven."""
    found: list[str] = []
    for block in re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL):
        if block.startswith("```"):
            found.append(block)
            continue
        for part in re.split(r"(\n(?=- )|\n{2,})", block):
            prose = part.strip() and not part.lstrip().startswith(("|", "#", "!", "<"))
            indent = "  " if part.startswith("- ") else ""
            found.append(fill(part, indent) if prose else part)
    return "".join(found)


def fill(text: str, indent: str) -> str:
    """A paragraph in lines that an editor can show."""
    words = " ".join(text.split())
    lines = textwrap.fill(words, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return lines + ("\n" if text.endswith("\n") else "")


# What templates can say ---------------------------------------------------------------------------------------------


def taken(arm: Arm, kind: Kind = "first") -> str:
    """How many steps an arm takes to its level, with range and seeds."""
    found = arm.steps(kind)
    seeds = tables.count_text(found.count, "seed")
    if found.count == 1 or found.low == found.high:
        return f"{more_than(found.median)} steps ({seeds})"
    return f"{more_than(found.median)} steps ({more_than(found.low)} to {more_than(found.high)}, {seeds})"


def more_than(steps: stats.Steps) -> str:
    return str(steps).replace("> ", "more than ")


def steps(arm: Arm, kind: Kind = "first") -> str:
    """The median steps of an arm to its level."""
    return more_than(arm.steps(kind).median)


def times(slow: Arm, fast: Arm) -> str:
    """How many times as many steps one arm takes as another, by their medians."""
    ratio = slow.steps().median.value / fast.steps().median.value
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


def verdict(challenger: Arm, reference: Arm, kind: Kind = "first") -> str:
    """The word of the one rule on two arms, by their steps to the level."""
    sides = ([[steps_of(run, kind) for run in arm.runs]] for arm in (challenger, reference))
    return stats.verdict(*sides).word


def held(arm: Arm) -> str:
    """In which part of the evaluations of the 500 steps after the first crossing its runs are at the level."""
    return tables.held_text(arm.runs)


def holding(arm: Arm) -> int:
    """How many of its runs reach the target and hold it."""
    found = arm.steps("held")
    return found.count - found.censored


def best(arm: Arm, measure: str) -> str:
    """The best validation accuracy or loss of its runs, over seeds."""
    values = tables.best_values(arm.runs, measure)
    return f"{tables.short_mean(values)} ({tables.count_text(len(values), 'seed')})"


def distance(arm: Arm) -> str:
    """The l2 distance from the initial weights to the end, over seeds."""
    return tables.short_mean(tables.distances_of(run).ac for run in arm.runs)


def delay(arm: Arm) -> str:
    """How many times as late as the training accuracy the validation accuracy first reaches the target, over seeds."""
    pairs = [(run.crossing().step, run.crossing("train").step) for run in arm.runs]
    ratios = sorted(late / early for late, early in pairs if late and early)
    return f"{ratios[0]:.0f} to {ratios[-1]:.0f}"


def peak(arm: Arm) -> str:
    """The largest validation loss of each run, over seeds."""
    peaks = sorted(max(row.val_loss for row in run.rows) for run in arm.runs)
    return f"{peaks[0]:.1f} to {peaks[-1]:.1f}"


def steps_of_seed(arm: Arm, seed: int) -> float:
    return next(steps_of(run).value for run in arm.runs if run.seed == seed)


def without_filter(kind: str) -> dict[str, Any]:
    """The settings that replace one of the paper's filters by a larger learning rate."""
    given = paper.without_filter({"task": "modmul", "filter": kind})
    return {name: value for name, value in given.items() if name != "task"}


def entry_command(entry: tables.Entry) -> str:
    """The command that trains an entry with the first fresh seed."""
    given = unusual({**entry.settings, "seed": tables.TUNING_SEED + 1})
    # The usual device and number of threads depend on the machine, and the page must not.
    given = {name: value for name, value in given.items() if name != "device"} | {"threads": entry.settings["threads"]}
    return shlex.join(["grokfast", "train", "modmul", *flag_words(given)])


class Evidence:
    """The runs of results/, and what templates can ask of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.drawn: set[str] = set()  # pictures that a page shows

    @functools.cached_property
    def runs(self) -> list[Any]:
        return read_tables(self.folder)

    @functools.cached_property
    def tasks(self) -> dict[str, list[Any]]:
        return by_task(map(tables.cut, self.runs))

    @functools.cached_property
    def arms(self) -> dict[str, Arm]:
        return {arm.key: arm for runs in self.tasks.values() for arm in arms(runs)}

    @functools.cached_property
    def _entries(self) -> list[tables.Entry]:
        return tables.find_entries(self.runs)

    def arm(self, task: str, **given: Any) -> Arm:
        """The arm with these settings, the others as usual: `arm("modmul", filter="ema")` is the paper's."""
        key = experiment_of(resolve(task, **given))
        if key not in self.arms:
            raise ClaimError(f"results/ has no run of {task} with {given or 'the usual settings'}")
        return self.arms[key]

    def best_without(self) -> Arm:
        """AdamW that holds the target without a filter: weight decay 1, clipped gradients, averaged weights."""
        return self.held_arm(weight_decay=1.0, clip_norm=1.0, average=0.95)

    def picture(self, name: str, words: str | None = None) -> str:
        """A picture by name; it is drawn when the page is written. `words` are for those who cannot see it."""
        self.drawn.add(name)
        return f"![{words or name}](figures/{name}.svg)"

    @functools.cached_property
    def _addition(self) -> Addition:
        return Addition(self.folder)

    def small_task(self) -> Addition:
        return self._addition

    def answer_rows(self) -> list[list[str]]:
        """The README's table."""
        small = self._addition
        multiplication, addition = "modular multiplication", "modular addition, squared error"
        share = self.share_of("modmul-paper", "adam+ema")
        late = "EMA from step 150"
        usual: dict[str, Any] = {"weight_decay": 0.3, "clip_norm": 1.0}
        arms = [self.held_arm(**usual, filter="ema", alpha=0.96, lamb=2.0, two_stage=150), self.held_arm(**usual)]
        transformer = [[[steps_of(run, "first") for run in arm.runs]] for arm in arms]
        return [
            answer_row(multiplication, "the paper's EMA, with its weight decay on both sides", share),
            answer_row(multiplication, f"{late}, weight decay 0.3 (too small)", stats.verdict(*transformer)),
            answer_row(addition, f"{late}, weight decay 0.1 (too small)", small.compare("late EMA", 0.1)),
            answer_row(addition, f"{late}, weight decay 3 (best without)", small.compare("late EMA", 3.0)),
            answer_row(addition, "EMA, everything tuned 20 times", self.judged("addition-tuned", "adamw+ema")),
            answer_row(addition, "MA, everything tuned 20 times", self.judged("addition-tuned", "adamw+ma")),
        ]

    # Tables -----------------------------------------------------------------------------------------------------------

    def arm_table(self, task: str) -> str:
        return markdown(tables.arm_rows(tables.paper_arms(self.tasks[task], task)))

    def long_table(self, task: str) -> str:
        """Runs that are longer than what their task is compared at, to their end."""
        long = [run for run in self.runs if run.task == task and run.settings["steps"] > tables.COMPARED_AT[task]]
        return markdown(tables.arm_rows([arm for arm in arms(long) if arm.paper is not None]))

    def left_out(self, task: str) -> list[str]:
        """Runs of the paper's arms that do not count, and why."""
        found = tables.paper_arms(self.tasks[task], task)
        return [f"{arm.name}, seed {run.seed}: {why}" for arm in found for run, why in arm.left_out]

    def control_table(self) -> str:
        filters = {"no filter": paper.BASELINE, "EMA": paper.EMA, "MA": paper.MA}
        rows = [
            tables.control_row(o, {name: self.arm(**given, **o) for name, given in filters.items()})
            for o in paper.OPTIMIZERS
        ]
        return markdown(rows)

    @functools.cached_property
    def _held(self) -> dict[str, Arm]:
        return {arm.key: arm for arm in arms(read_tables(self.folder / "held"))}

    def held_arm(self, **given: Any) -> Arm:
        """An arm of the planned runs until the target is held: AdamW at learning rate 0.003 on multiplication."""
        asked: dict[str, Any] = {"optimizer": "adamw", "lr": HELD_RATE, **given}
        return self._held[experiment_of(resolve("modmul", **asked))]

    def held_in_four(self, **given: Any) -> int:
        """How many of an arm's runs on the four operations hold the target."""
        return sum(holding(self.held_arm(operation=operation, **given)) for operation in tables.OPERATIONS)

    def held_table(self, *operations: str) -> str:
        """The planned runs with five seeds: steps until 0.95 is held, and first reached."""
        whole = [arm for arm in self._held.values() if len(arm.runs) >= 5 and arm.settings["lr"] == HELD_RATE]
        chosen = [arm for arm in whole if arm.settings["operation"] in operations]
        chosen.sort(key=lambda arm: [arm.settings[name] for name in ("operation", "weight_decay", "clip_norm")])
        rows = [tables.held_row(arm) for arm in chosen]
        return markdown(rows if len(operations) > 1 else [{**row, "operation": ""} for row in rows])

    def hypothesis_table(self) -> str:
        """The verdicts that were chosen before the runs of docs/plan.md, A."""
        rows: list[tables.Columns] = []
        for hypothesis, *cells in sorted(modular_hypotheses.VERDICTS, key=lambda verdict: verdict[0]):
            keys = [experiment_of(modular_hypotheses.settings_of(cell, 0)) for cell in cells]
            if all(key in self._held for key in keys):
                pair = [self._held[key] for key in keys]
                names = [modular_hypotheses.label(cell) for cell in cells]
                about = {"hypothesis": hypothesis, "operation": cells[0][0]}
                rows.append({**about, **dict(zip(("arm", "against"), names, strict=True)), **tables.judged_row(*pair)})
        return markdown(rows)

    def experiments(self, *names: str) -> list[paper.Experiment]:
        return [experiment for name in names for experiment in paper.find_experiments([name])]

    def experiment_table(self, name: str) -> str:
        (experiment,) = paper.find_experiments([name])
        found = {arm.key: arm for given in experiment.runs for arm in [self.arm(**given)]}
        return markdown(tables.ablation_rows(list(found.values())))

    def cost_table(self) -> str:
        return markdown([tables.cost_row(arm, self.arms[arm.key]) for arm in self._costs])

    def slowdown(self, kind: str) -> str:
        """How much longer a step of modular multiplication takes with a filter."""
        paces = {a.settings["filter"]: a.runs[0].rows[-1].seconds / a.runs[0].rows[-1].step for a in self._costs[:3]}
        return f"{paces[kind] / paces[None] - 1:.0%}"

    def machine(self, name: str) -> str:
        """What the runs that measure costs were run on."""
        return self._costs[0].runs[0].environment[name]

    @functools.cached_property
    def _costs(self) -> list[Arm]:
        found = by_task(read_tables(self.folder / "costs"))
        return [arm for task in ("modmul", "mnist", "qm9", "imdb") for arm in arms(found[task])]

    def distance_table(self) -> str:
        recorded = [arm for arm in arms(self.tasks["modmul"]) if "weights" in arm.runs[0].tables]
        return markdown([tables.distance_row(arm) for arm in recorded])

    # Duels ------------------------------------------------------------------------------------------------------------

    @functools.cached_property
    def _duels(self) -> list[page_duels.Duel]:
        return page_duels.load_duels(self.folder)

    def replicated(self, group: str = "held") -> list[page_duels.Duel]:
        """The duels of a group whose arms were tuned many times."""
        return [duel for duel in self._duels if duel.tunings > 1 and duel.group == group]

    def duel_names(self, group: str = "held") -> list[str]:
        """For sentences that count these duels."""
        return [duel.name for duel in self.replicated(group)]

    def judged(self, name: str, arm: str, settings_of: str | None = None) -> stats.Verdict:
        """The verdict on an arm of a duel, as tuned, or on a control."""
        (duel,) = [duel for duel in self._duels if duel.name == name]
        found = duel.judge(arm, settings_of)
        if found is None:
            raise ClaimError(f"results/ has no {arm} in the duel {name}")
        return found

    def share_of(self, name: str, arm: str) -> stats.Verdict:
        """The verdict on what an addition itself does in a duel."""
        (found,) = [duel.share(arm) for duel in self._duels if duel.name == name]
        if found is None:
            raise ClaimError(f"results/ has no control of {arm} in the duel {name}")
        return found

    def fighter(self, name: str, arm: str) -> page_duels.Fighter:
        """An arm of a duel as tuned: how many of its runs fail, how many best values are near the end of a range."""
        (found,) = [duel.find(arm) for duel in self._duels if duel.name == name]
        if found is None:
            raise ClaimError(f"results/ has no {arm} in the duel {name}")
        return found

    def words(self, arm: str, settings_of: str | None = None, group: str = "held") -> list[str]:
        """The words on an arm in all replicated duels that have it."""
        found = [duel.judge(arm, settings_of) for duel in self.replicated(group)]
        return [each.word for each in found if each is not None]

    def shares(self, arm: str, group: str = "held") -> list[str]:
        """The words on what an addition itself does, in all replicated duels that have it."""
        found = [duel.share(arm) for duel in self.replicated(group)]
        return [each.word for each in found if each is not None]

    def tuned_table(self, arms: Sequence[str], group: str = "held", by: str = "steps") -> str:
        return markdown(page_duels.tuned_rows(self.replicated(group), arms, by))

    def share_table(self, group: str = "held") -> str:
        return markdown(page_duels.share_rows(self.replicated(group), page_duels.FILTERS))

    def line_table(self, group: str = "held") -> str:
        return markdown(page_duels.line_rows(self.replicated(group)))

    def once_table(self) -> str:
        return markdown(page_duels.once_rows([duel for duel in self._duels if duel.tunings == 1]))

    def of_four(self, operation: str, setting: str) -> Arm:
        """One of the three settings that were run on four operations, until the target is held."""
        return self._held[experiment_of(resolve("modmul", operation=operation, **tables.FOUR[setting]))]

    def four_words(self, setting: str) -> list[str]:
        """The verdicts on EMA against another setting in each operation, by the steps to the first touch."""
        return [verdict(*(self.of_four(o, name) for name in ("EMA", setting))) for o in tables.OPERATIONS]

    def four_holding(self) -> int:
        """How many of these runs hold the target."""
        return sum(holding(self.of_four(o, name)) for o in tables.OPERATIONS for name in tables.FOUR)

    def four_table(self) -> str:
        return markdown(
            [tables.four_row(o, {name: self.of_four(o, name) for name in tables.FOUR}) for o in tables.OPERATIONS]
        )

    # Leaderboard ------------------------------------------------------------------------------------------------------

    def complete_entries(self) -> list[tables.Entry]:
        return [entry for entry in self._entries if entry.complete]

    def begun_entries(self) -> list[tables.Entry]:
        """Settings that are meant as entries and lack seeds or operations."""
        return [entry for entry in self._entries if entry.begun and not entry.complete]

    def entry_held(self, entry: tables.Entry) -> Arm:
        """The runs of an entry on multiply that continue until they hold the target."""
        return self._held[entry.arms["multiply"].key]

    def leaderboard_table(self) -> str:
        entries = self.complete_entries()
        held = [self._held.get(entry.arms["multiply"].key) for entry in entries]
        return markdown([tables.entry_row(i, *pair) for i, pair in enumerate(zip(entries, held, strict=True), 1)])


def functions_of(evidence: Evidence) -> dict[str, Any]:
    """Everything that a template can call."""
    methods = [name for name in dir(Evidence) if not name.startswith("_") and callable(getattr(Evidence, name))]
    texts = [
        taken,
        steps,
        times,
        delay,
        peak,
        verdict,
        held,
        holding,
        best,
        distance,
        steps_of_seed,
        without_filter,
    ]
    texts += [tables.missing_text, entry_command]
    found: dict[str, Any] = {name: getattr(evidence, name) for name in methods}
    return (
        found
        | {text.__name__: text for text in texts}
        | {"interval": stats.interval_text, "FILTERS": page_duels.FILTERS, "OTHERS": page_duels.OTHERS}
        | {"reported_table": lambda: markdown(tables.reported_rows()), "table": markdown}
    )


# Command --------------------------------------------------------------------------------------------------------------


def write_pages(pages: Sequence[str], root: Path) -> list[Path]:
    """Write pages, and the pictures that they show; if a sentence is not true, nothing is written."""
    evidence = Evidence(root / "results")
    texts = {page: render(page, functions_of(evidence)) for page in pages}
    written: list[Path] = []
    for page, text in texts.items():
        path = root / PAGES[page]
        path.write_text(text, encoding="utf-8")
        written.append(path)
    if evidence.drawn or "readme" in pages:
        written += write_pictures(evidence, root, answer="readme" in pages)
    return written


def write_pictures(evidence: Evidence, root: Path, *, answer: bool) -> list[Path]:
    from page_pictures import demo_evidence, picture  # slow to import, and not needed for a check of the text

    from grokfast.lab.report.pictures import write_picture

    names = sorted({*evidence.drawn, *(["answer"] if answer else [])})
    written = [write_picture([picture(name, evidence)], root / FIGURES / f"{name}.svg") for name in names]
    if answer:
        (root / DEMO).write_text(demo_evidence(evidence))
        written.append(root / DEMO)
    return written


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", metavar="PAGE", help=f"one of {', '.join(PAGES)} (default: all)")
    args = parser.parse_args()
    if unknown := [page for page in args.pages if page not in PAGES]:
        parser.error(f"a page must be one of {', '.join(PAGES)}, got {unknown[0]}")
    try:
        for path in write_pages(args.pages or list(PAGES), ROOT):
            print(f"written: {path.relative_to(ROOT)}")
    except ClaimError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
