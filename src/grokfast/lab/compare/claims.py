"""What came out, in plain words: which of the paper's claims hold here. One finding for each claim that has runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from grokfast.lab.compare.arms import held_text, paper_arms
from grokfast.lab.compare.controls import Control, controls, fastest
from grokfast.lab.compare.distances import nearer
from grokfast.lab.compare.equal_decay import Tasks, matched_steps, matched_values
from grokfast.lab.compare.names import enumerate_words
from grokfast.lab.compare.seeds import Arm, make_arms
from grokfast.lab.compare.verdicts import Finding, Verdict, judge, taken
from grokfast.lab.paper.evidence import without_filter
from grokfast.lab.paper.published import EMA, MA, arms_of, published_of, request_key

LARGE = 10  # times as fast: what counts as confirming a published factor of 40 to 50


def findings(tasks: Tasks) -> list[Finding]:
    """All findings on these runs, the most important first."""
    modmul = controls(tasks.get("modmul", ()))
    found = [
        tuned(modmul),
        on_top(modmul),
        by_filter(modmul),
        range_of_baselines(modmul),
        speed_up(modmul),
        share_of_decay(modmul),
        instead(tasks),
        decay_alone(modmul),
        no_decay(modmul),
        staged(tasks),
    ]
    found += [
        matched_steps(tasks),
        matched_values(tasks, "qm9"),
        matched_values(tasks, "imdb"),
        nearer(tasks.get("modmul", ())),
    ]
    return [finding for finding in found if finding is not None]


# Modular multiplication -----------------------------------------------------------------------------------------------


def tuned(found: Sequence[Control]) -> Finding | None:
    """The fastest baseline against Grokfast at the paper's settings, as measured or else as published."""
    best = fastest(found, "no filter")
    if best is None:
        return None
    control, arm = best
    level, stays = f"{arm.runs[0].level:g}", held_text(arm.runs)
    took = f"{control.words}, without a filter, reaches a validation accuracy of {level} after {taken(arm)}"
    took += f" and stays there in {stays} of the evaluations of the next 500 steps" if stays else ""
    ours = grokfast_arms(found)
    if ours:
        verdict = judge(arm.steps(), min((a.steps() for a in ours), key=lambda steps: steps.order))
        rest = f"With the paper's settings {enumerate_words([f'{a.name} takes {taken(a)}' for a in ours])}"
    else:
        paper = {a.name: a.published.steps for a in arms_of("modmul") if a.published is not None and a.published.steps}
        verdict = "better" if arm.steps().median.value < paper["Grokfast-MA"] else "worse"
        texts = [f"{paper[name]:,} for {name}" for name in ("Grokfast-MA", "Grokfast-EMA")]
        rest = f"The steps in the paper are {enumerate_words(texts)}, which are not run here yet"
    words = {
        "better": "A tuned baseline without a filter is faster than Grokfast",
        "alike": "A tuned baseline without a filter is as fast as Grokfast",
        "worse": "Grokfast is faster than every baseline we tried",
    }
    return Finding(words[verdict], f"{took}. {rest}.", in_short=True)


def on_top(found: Sequence[Control]) -> Finding | None:
    """Whether a filter still helps once weight decay and learning rate are tuned for it and without it."""
    adamw = [control for control in found if control.optimizer == "adamw"]
    plain, filtered = fastest(adamw, "no filter"), fastest(adamw, "EMA", "MA")
    if plain is None or filtered is None:
        return None
    control, arm = filtered
    name = next(name for name, known in control.arms.items() if known is arm)
    beside = [f"{n} takes {taken(a)}" for n, a in plain[0].arms.items() if a is not None and n != "no filter"]
    same = f" At {plain[0].setting}, the best without a filter, {enumerate_words(beside)}." if beside else ""
    words = {
        "better": "A filter with the values of the paper still helps a tuned AdamW",
        "alike": "A filter with the values of the paper makes no clear difference to a tuned AdamW",
        "worse": "A filter with the values of the paper slows a tuned AdamW down",
    }
    best = f"The best setting with a filter is {name} at {control.setting}: {taken(arm)}. The best without one takes"
    verdict = words[judge(arm.steps(), plain[1].steps())]
    return Finding(verdict, f"{best} {taken(plain[1])}.{same}", in_short=True)


def by_filter(found: Sequence[Control]) -> Finding | None:
    """How often each filter of the paper makes AdamW faster or slower, setting by setting."""
    adamw = [control for control in found if control.optimizer == "adamw"]
    counts = {name: compare_all(adamw, name) for name in ("EMA", "MA")}
    if not all(sum(count.values()) > 1 for count in counts.values()):
        return None
    texts = [
        f"{name} is faster than no filter at {n['better']} of {sum(n.values())} settings and slower at {n['worse']}"
        for name, n in counts.items()
    ]
    good = [name for name, count in counts.items() if count["better"] > count["worse"]]
    words = {0: "Neither filter suits AdamW", 1: f"Only {''.join(good)} suits AdamW", 2: "Both filters suit AdamW"}
    text = f"With the values of the paper, on AdamW, {enumerate_words(texts)}; elsewhere the seeds overlap."
    return Finding(words[len(good)], text)


def compare_all(found: Sequence[Control], name: str) -> Counter[Verdict]:
    pairs = [(control.arms[name], control.arms["no filter"]) for control in found]
    return Counter(judge(arm.steps(), plain.steps()) for arm, plain in pairs if arm is not None and plain is not None)


def range_of_baselines(found: Sequence[Control]) -> Finding | None:
    """How much the baseline depends on its own settings."""
    arms = [(c, arm) for c in found if c.optimizer == "adamw" and (arm := c.arms["no filter"]) is not None]
    if len(arms) < 2:
        return None
    ordered = sorted(arms, key=lambda pair: pair[1].steps().order)
    (best, fast), (worst, slow) = ordered[0], ordered[-1]
    span = f"from {fast.steps().median.in_words} steps at {best.setting} to {slow.steps().median.in_words} at"
    text = f"Over {len(arms)} settings AdamW without a filter ranges {span} {worst.setting}."
    return Finding("How fast the baseline is depends on its weight decay and learning rate", text)


def speed_up(found: Sequence[Control]) -> Finding | None:
    """Table 3: against the baseline of the paper."""
    base = found[0].arms["no filter"]
    if base is None:
        return None
    paper = published_of(base.runs[0].settings).steps or 0
    took = f"Adam without weight decay takes {taken(base)}, in the paper {paper:,}"
    ours = grokfast_arms(found)
    if not ours:
        return Finding(
            "The paper's baseline is slow here too", f"{took}. Grokfast at the paper's settings is not run yet."
        )
    measured = [arm for arm in ours if arm.steps().median.exact]
    factors = {arm.name: base.steps().median.value / arm.steps().median.value for arm in measured}
    words = "Against the paper's own baseline the published gain does not hold"
    if not measured:
        words = "Whether the published gain holds is not known yet"
    elif min(factors.values()) >= LARGE:
        words = "Against the paper's own baseline the published gain holds"
    more = "" if base.steps().median.exact else "more than "
    texts = [
        f"{a.name} is {more}{factors[a.name]:.0f} times as fast (the paper: {factor_of(a, paper):.0f})"
        for a in measured
    ]
    texts += [f"{arm.name} takes {taken(arm)}" for arm in ours if arm not in measured]
    return Finding(words, f"{took}; {enumerate_words(texts)}.", in_short=True)


def share_of_decay(found: Sequence[Control]) -> Finding | None:
    """How much of the paper's gain over its baseline a little weight decay gives without a filter."""
    base, ours = found[0].arms["no filter"], grokfast_arms(found)
    decayed = fastest([c for c in found if c.optimizer == "adam" and c.weight_decay], "no filter")
    if base is None or decayed is None or not ours:
        return None
    (control, plain), fast = decayed, min(ours, key=lambda arm: arm.steps().order)
    slow, middle, quick = (arm.steps().median.value for arm in (base, plain, fast))
    words = "Weight decay alone gives most of that gain"
    if math.log(slow / middle) <= math.log(middle / quick):
        words = "The filter gives most of that gain, not its weight decay"
    least = "" if base.steps().median.exact else "more than "
    took = f"Adam at weight decay {control.weight_decay:g}, without a filter, takes {taken(plain)}"
    factors = f"{least}{slow / middle:.0f} times as fast as without weight decay. {fast.name} is {middle / quick:.1f}"
    return Finding(words, f"{took}: {factors} times as fast as that.", in_short=True)


def instead(tasks: Tasks) -> Finding | None:
    """Whether a larger learning rate with less decay does what the filters do."""
    known = {arm.key: arm for arm in make_arms(tasks.get("modmul", ()))}
    filtered, plain = (
        [known[key] for key in map(request_key, requests) if key in known]
        for requests in ((EMA, MA), (without_filter(EMA), without_filter(MA)))
    )
    if not (filtered and plain):
        return None
    best = min(plain, key=lambda arm: arm.steps().order)
    beaten = [arm.name for arm in filtered if best.steps().order <= arm.steps().order]
    words = "A larger learning rate does not replace the filter"
    if beaten:
        words = f"A larger learning rate with less weight decay does as much as {' and '.join(beaten)}"
    texts = [*map(instead_text, plain), *(f"{arm.name} takes {taken(arm)}" for arm in filtered)]
    return Finding(words, f"{'; '.join(texts)}.", in_short=True)


def instead_text(arm: Arm) -> str:
    optim = arm.runs[0].settings["optim"]
    setting = f"learning rate {optim['lr']:g} and weight decay {optim['weight_decay']:.2g}"
    return f"Adam at {setting}, without a filter, takes {taken(arm)}"


def decay_alone(found: Sequence[Control]) -> Finding | None:
    """Figure 7: decay without a filter makes training unstable, and the two together are more than either."""
    rows = [control for control in found if control.optimizer == "adam" and control.weight_decay]
    parts = [decay_text(control, arm) for control in rows if (arm := control.arms["no filter"]) is not None]
    if not parts:
        return None
    steady = all(reaches_level(control) for control in rows if control.arms["no filter"] is not None)
    words = "Adam generalises with weight decay alone, unlike in the paper"
    if not steady:
        words = "Too much weight decay makes Adam without a filter unstable, as the paper says"
    most = max((c.weight_decay for c in found if c.optimizer == "adamw" and reaches_level(c)), default=None)
    free = "" if most is None else f" AdamW, whose weight decay is decoupled, generalises at decays up to {most:g}."
    return Finding(words, f"{' '.join(parts)}{free}")


def decay_text(control: Control, plain: Arm) -> str:
    took = f"Adam at weight decay {control.weight_decay:g} takes {taken(plain)} without a filter"
    beside = [f"{taken(arm)} with {name}" for name, arm in control.arms.items() if arm not in (None, plain)]
    return ", ".join([took, *beside]) + "."


def reaches_level(control: Control) -> bool:
    """Whether most runs without a filter do."""
    arm = control.arms["no filter"]
    return arm is not None and arm.steps().median.exact


def no_decay(found: Sequence[Control]) -> Finding | None:
    """Whether a filter helps by itself, without weight decay."""
    base, *filtered = found[0].arms.items()
    known = [(name, arm) for name, arm in filtered if arm is not None]
    if base[1] is None or not known:
        return None
    texts = [f"{name} takes {taken(arm)}" for name, arm in known]
    middle, plain = [arm.steps().median for _, arm in known], base[1].steps()
    words = "Without weight decay, too, a filter is faster than none"
    if not all(median.exact and median.value < plain.low.value for median in middle):
        words = "Without weight decay a filter is not always faster than none"
    return Finding(words, f"Without weight decay {enumerate_words(texts)}, no filter {taken(base[1])}.")


def staged(tasks: Tasks) -> Finding | None:
    """Table 1: from the beginning, after overfitting, and the slow part alone."""
    known = {arm.name: arm for arm in paper_arms(tasks.get("modmul", ()))}
    names = ("2-stage MA", "1-stage MA", "2-stage MA, slow only")
    if not all(name in known for name in names):
        return None
    two, one, slow = (known[name] for name in names)
    if not (two.steps().median.exact and one.steps().median.exact):
        return None
    verdict, alone = judge(two.steps(), one.steps()), slow.steps().censored == slow.steps().count
    words = "Starting the filter after overfitting is faster, as the paper says"
    if verdict != "better":
        words = "Starting the filter after overfitting makes no clear difference"
    if not alone:
        words += ", but the slow part alone generalises too"
    texts = [f"{arm.name} takes {taken(arm)}" for arm in (two, one, slow)]
    paper = enumerate_words([published_of(arm.runs[0].settings).steps_text for arm in (two, one, slow)])
    return Finding(words, f"{enumerate_words(texts)}; in the paper {paper}.")


# Words ----------------------------------------------------------------------------------------------------------------


def grokfast_arms(found: Sequence[Control]) -> list[Arm]:
    """The arms of Table 3: each filter at the weight decay that the paper gives it."""
    pairs = [(name, control.arms[name]) for name in ("MA", "EMA") for control in found]
    return [arm for name, arm in pairs if arm is not None and arm.name == f"Grokfast-{name}"]


def factor_of(arm: Arm, baseline: int) -> float:
    """How many times as fast the paper says that an arm is."""
    return baseline / (published_of(arm.runs[0].settings).steps or baseline)
