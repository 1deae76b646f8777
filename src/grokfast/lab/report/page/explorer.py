"""The filter explorer: sliders for a filter, and what it does to frequencies, to one gradient and to recorded ones."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from grokfast.lab.compare.names import label
from grokfast.lab.report.page.assets import asset
from grokfast.lab.runs.directory import Run, RunError
from grokfast.lab.runs.recording import load_gradients

SHIPPED = Path(__file__).with_name("gradient.json")  # of one weight, for pages about runs that recorded none
STEPS, DIGITS = 600, 3
TEXT = (
    "Gain: 1 + h solid, h alone dashed. Impulse response: how much of a gradient is added to later ones. At work: a "
    "recorded gradient in grey, and in colour what the optimizer gets of it."
)


class Recorded(NamedTuple):
    """The gradient of one weight over some steps of training, and where it is from."""

    where: str
    values: list[float]


def recorded_gradient(runs: Sequence[Run]) -> Recorded:
    """From the first run that recorded gradients, the weight whose gradient is slowest; else the one that is shipped."""
    for run in runs:
        if run.loop["gradients"]:
            try:
                return slowest(run)
            except (RunError, ValueError, OSError):
                continue
    plain: dict[str, Any] = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return Recorded(**plain)


def slowest(run: Run) -> Recorded:
    """The weight with the largest mean beside its jitter, in the steps after the first tenth."""
    sampled = load_gradients(run)
    start = len(sampled.before) // 10
    part = sampled.before[start : start + STEPS].astype(float)
    if len(part) < 2 or not np.isfinite(part).all():
        raise ValueError(f"{run.name} must have recorded at least 2 steps that are finite")
    share = np.abs(part.mean(0)) / (part.std(0) + 1e-30)
    chosen = int(np.argmax(np.where(part.std(0) > 0, share, 0)))
    signal = part[:, chosen] / np.abs(part[:, chosen]).max()
    where = f"{label(run)}, a weight of {sampled.names[chosen]}, from step {start + 1:,}"
    return Recorded(where, [float(f"{value:.{DIGITS}g}") for value in signal])


def explorer(recorded: Recorded) -> str:
    """The controls and the places for the pictures; explorer.js fills them."""
    return f"""<div class="explorer"><div class="controls">
<label>filter <select name="kind"><option value="ema">EMA</option><option value="ma">MA</option></select></label>
{slider("alpha", 0.3, 3.0, 1.69897, 0.01)}{slider("window", 0, 2.7, 2, 0.01)}{slider("lamb", 0, 10, 2, 0.1)}</div>
<p role="status"></p>
<div class="pictures">{picture("Gain over frequency")}{picture("Impulse response")}{picture("The filter at work")}</div>
<script type="application/json">{json.dumps(recorded.values)}</script>
<p class="soft">{TEXT} This gradient is from {escape(recorded.where)}, scaled to 1.</p></div>"""


def slider(name: str, low: float, high: float, value: float, step: float) -> str:
    """Alpha and the window move on a logarithmic scale: 1 - 10^-x and 10^x."""
    return (
        f'<label>{name} <output for="explorer-{name}"></output> <input id="explorer-{name}" name="{name}" type="range" '
        f'min="{low}" max="{high}" value="{value}" step="{"any" if name != "lamb" else step}"></label>'
    )


def picture(title: str) -> str:
    return f'<figure><figcaption>{title}</figcaption><svg role="img" aria-label="{title}"></svg></figure>'


def explorer_page() -> str:
    """The explorer as a page of its own, for the docs."""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Grokfast: filter explorer</title><style>{asset("page.css")}</style></head><body><main>
<h1>What a filter does to gradients</h1>
<p>Grokfast adds the slow part of the gradients to each of them, ĝ = g + h ∗ g. Move the sliders.</p>
{explorer(recorded_gradient([]))}
</main><script>{asset("explorer.js")}</script></body></html>
"""
