"""When does the filter help? The planned duels and their verdicts: a table, and advice that follows from it by rule."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from grokfast.lab.duel.arms import REGIMES, control_name, controlled
from grokfast.lab.duel.outcome import Result, Verdict, verdicts, word_for
from grokfast.lab.duel.planned import PLANNED, TUNED, Planned
from grokfast.lab.duel.verdict import interval_text, known, ratio_text, times
from grokfast.lab.report.markdown import as_markdown, in_shell

NOT_RUN = "not run"
ALIKE = "at the same settings"  # what stands in this column compares an arm with its control
HEADINGS = ["task", "regime", "arm", "compared with", "by steps", "ratio", "95% interval", ALIKE, "by seconds", "seeds"]
NAMES = {"luck": "luck of tuning", "unclear": "helps, cause unclear"}
READING = f"""A ratio is the median steps of what an arm is compared with, divided by the median steps of the arm. The
column "{ALIKE}" repeats it for an arm that is faster, against the same optimizer at the settings of the arm, without
the filter."""
RULES = {
    "helps": "**Use the filter** for",
    "hurts": "**Leave it out** for",
    "no difference": "**It makes no difference that matters** for",
    "not decided": "**Not decided**:",
    "luck": "**Luck of tuning, not the filter** (the same settings do as much without it):",
    "unclear": "**Faster, but not shown to be the filter** (the same settings without it are not clearly slower):",
}
BOTH_TUNED = {
    "helps": "the filter still helps",
    "hurts": "the filter hurts",
    "no difference": "the filter makes no difference that matters",
    "not decided": "it is not decided whether the filter helps",
    "luck": "a gain comes from luck of tuning, not from the filter",
    "unclear": "a gain is not shown to come from the filter",
}

Outcome = tuple[dict[str, Any], list[Result]]
Outcomes = Mapping[str, Outcome]  # by the name of the duel


def verdict_of(planned: Planned, outcomes: Outcomes) -> Verdict | None:
    """What came out by steps; None where that duel was not run."""
    found = verdicts(outcomes[planned.name][1]) if planned.name in outcomes else ()
    return next((v for v in found if (v.reference, v.arm, v.by) == (*planned.arms, "steps")), None)


def when_section(outcomes: Outcomes) -> str:
    """The table, the advice, and the commands of what is not run."""
    missing = [planned for planned in PLANNED if verdict_of(planned, outcomes) is None]
    rows = [
        [p.task, REGIMES[p.regime][1], p.arms[1], p.arms[0], f"**{NOT_RUN}**", "", "", "", "", "0"] for p in missing
    ]
    lines = [line for name in in_order(outcomes) for line in verdict_lines(*outcomes[name])]
    parts = ["## When does it help?", "", *(f"- {text}" for text in advice(outcomes)), ""]
    parts += [as_markdown([HEADINGS, *lines, *rows]), "", READING, ""]
    commands = in_shell([planned.command for planned in missing])
    return "\n".join([*parts, *(["To run what is missing, in this order:", "", commands, ""] if missing else [])])


def in_order(outcomes: Outcomes) -> list[str]:
    """The names of the duels: the planned ones as they are planned, then the others."""
    planned = [planned.name for planned in PLANNED if planned.name in outcomes]
    return [*planned, *(name for name in outcomes if name not in planned)]


def verdict_lines(duel: dict[str, Any], results: Sequence[Result]) -> list[list[str]]:
    """One line for each arm beside its reference."""
    found = list(verdicts(results))
    known = {(v.arm, v.reference, v.by): v for v in found}
    lines: list[list[str]] = []
    for v, beside in with_controls(found):
        word = word_for(v, found)
        line = [v.arm, v.reference, f"**{NAMES.get(word, word)}**", ratio_text(v.found.ratio), interval_text(v.found)]
        line += ["-" if beside is None else f"{ratio_text(beside.found.ratio)}, {interval_text(beside.found)}"]
        line += [known[v.arm, v.reference, "seconds"].word, str(v.found.seeds)]
        lines.append([duel["base"]["task"], REGIMES[duel["regime"]][1], *line])
    return lines


def with_controls(found: Sequence[Verdict]) -> list[tuple[Verdict, Verdict | None]]:
    """Each arm beside its reference, by steps, and beside its control where it has one."""
    known = {(v.arm, v.reference): v for v in found if v.by == "steps"}
    pairs = [pair for pair in known if not any(map(controlled, pair))]
    return [(known[pair], known.get((pair[0], control_name(pair[1], pair[0])))) for pair in pairs]


# Advice --------------------------------------------------------------------------------------------------------------


def advice(outcomes: Outcomes) -> list[str]:
    """What to do first, then where the filter helps, where it does not, and what is not known."""
    found = {planned: verdict_of(planned, outcomes) for planned in PLANNED}
    said: list[str] = []
    groups: dict[str, list[str]] = {}
    for planned, verdict in found.items():
        if verdict is None:
            continue
        word = word_for(verdict, list(verdicts(outcomes[planned.name][1])))
        if planned == TUNED:
            said.append(first_advice(verdict, word))
        else:
            groups.setdefault(word, []).append(f"{planned.title} ({in_short(verdict)})")
    said += [f"{rule} {'; '.join(groups[word])}." for word, rule in RULES.items() if word in groups]
    left = sum(verdict is None for verdict in found.values())
    return [*said, *([f"{left} of the {len(PLANNED)} planned duels are not run yet."] if left else [])]


def first_advice(verdict: Verdict, word: str) -> str:
    """Tune first, or at the same time where the filter helps even then."""
    found = verdict.found
    rule = "Tune learning rate, weight decay and betas " + ("with it" if word == "helps" else "first")
    numbers = f"{ratio_text(found.ratio)}, 95% interval {interval_text(found)}, {found.seeds} seeds"
    return f"**{rule}.** On {TUNED.title} {BOTH_TUNED[word]}: {numbers}."


def in_short(verdict: Verdict) -> str:
    """The ratio, or for what is not decided the largest gain that is likely."""
    found = verdict.found
    if not known(found.ratio):
        return "too few runs got there"
    if found.word != "not decided":
        return ratio_text(found.ratio)
    if found.interval.low == 0 or math.isinf(found.interval.high):
        return ratio_text(found.interval)
    return f"between {times(found.interval.low)} and {times(found.interval.high)}"
