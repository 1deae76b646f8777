"""MNIST, QM9, IMDb: does Grokfast gain anything over the baseline, and is the filter or the weight decay the cause?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from grokfast.lab.compare.arms import best_mean, paper_arms, whole_runs
from grokfast.lab.compare.seeds import Arm, Mean
from grokfast.lab.compare.verdicts import Finding, Verdict, judge, judge_means, taken
from grokfast.lab.paper.published import published_of
from grokfast.lab.runs.directory import Run

Tasks = Mapping[str, Sequence[Run]]  # runs by task, judged at one level


def matched_steps(tasks: Tasks) -> Finding | None:
    """MNIST: how soon, at the paper's weight decays and at equal ones."""
    arms = compared_arms(tasks, "mnist")
    if arms is None or not arms[1].steps().median.exact:
        return None
    base, fast, matched = arms
    numbers = [published_of(arm.runs[0].settings).steps_text for arm in (fast, base)]
    took = f"Grokfast takes {taken(fast)}, the baseline {taken(base)}; in the paper {' and '.join(numbers)}"
    same = f"At the weight decay of Grokfast, {matched.runs[0].weight_decay:g}, no filter takes {taken(matched)}"
    gain, real = judge(fast.steps(), base.steps()), judge(fast.steps(), matched.steps())
    sizes = [math.log(arm.steps().median.value) for arm in (base, matched, fast)]
    words = cause_of_gain("MNIST", gain, real, sizes)
    return Finding(words, f"{took}. {same}.", in_short=True)


def matched_values(tasks: Tasks, task: str) -> Finding | None:
    """QM9 and IMDb: how good, at the paper's weight decays and at equal ones."""
    arms = compared_arms(tasks, task)
    if arms is None:
        return None
    what, decay = arms[0].runs[0].measure, arms[2].runs[0].weight_decay
    base, fast, matched = means = [best_mean(whole_runs(arm.runs), what) for arm in arms]
    if min(mean.count for mean in means) < 2:  # one seed does not say how much seeds differ
        return None
    high = what == "accuracy"
    gain, real = judge_means(fast, base, high=high), judge_means(fast, matched, high=high)
    sizes = [mean.mean or 0.0 for mean in (base, matched, fast)]
    words = cause_of_gain({"imdb": "IMDb", "qm9": "QM9"}[task], gain, real, sizes)
    at = f" after {end:,} steps" if (end := arms[0].runs[0].end) else ""
    values = f"The best validation {what}{at} is {value(fast)} with Grokfast and {value(base)} without"
    same = f"{value(matched)} without a filter at the weight decay of Grokfast, {decay:g}"
    return Finding(words, f"{values}; it is {same}.{in_the_end(arms)}", in_short=True)


def in_the_end(arms: Sequence[Arm]) -> str:
    """What becomes of the runs of the baseline and of Grokfast that continue beyond the step they are compared at."""
    base, fast = ([Run(run.path) for run in arm.runs if run.end is not None] for arm in arms[:2])
    if not (base and fast):
        return ""
    end, what = base[0].loop["steps"], base[0].measure
    values = [value(best_mean(whole_runs(runs), what)) for runs in (fast, base)]
    return f" After {end:,} steps it is {values[0]} with Grokfast and {values[1]} without."


def cause_of_gain(name: str, gain: Verdict, real: Verdict, sizes: Sequence[float]) -> str:
    """Where a gain over the baseline comes from: `real` is the verdict at equal weight decay.

    `sizes` are those of the baseline, of the baseline at the weight decay of Grokfast, and of Grokfast.
    """
    if gain != "better":
        return f"On {name} we see no clear gain"
    if real != "better":
        return f"On {name} the gain comes from weight decay, not from the filter"
    base, matched, fast = sizes
    most = abs(base - matched) > abs(matched - fast)
    return f"On {name} {'most of the gain comes from weight decay' if most else 'the gain comes from the filter'}"


def compared_arms(tasks: Tasks, task: str) -> tuple[Arm, Arm, Arm] | None:
    """The baseline, Grokfast, and the baseline at the weight decay of Grokfast."""
    known = {arm.name: arm for arm in paper_arms(tasks.get(task, ()))}
    names = ("Baseline", "Grokfast", "Baseline, decay of Grokfast")
    return None if not all(name in known for name in names) else (known[names[0]], known[names[1]], known[names[2]])


def value(found: Mean) -> str:
    return f"{found.text(3)} ({found.count} seed{'' if found.count == 1 else 's'})"
