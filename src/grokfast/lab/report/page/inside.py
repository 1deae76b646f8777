"""The inside of networks on the page: a slider over training, and the curves of what was found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from grokfast.lab.analysis.inside_run import Inside, read_inside
from grokfast.lab.compare.names import label
from grokfast.lab.report.colours import number_of, number_runs
from grokfast.lab.report.draw_plotly import chart
from grokfast.lab.report.inside import inside_plots
from grokfast.lab.runs.directory import Run

TEXT = (
    "Each dot is the embedding of a number, on the plane of the strongest frequency; numbers that follow each other by that "
    "frequency have similar colours. As the network groks, the dots form a circle. Beside it: the share of each frequency "
    "in the power of the embedding and of the logits. Frequencies count turns around the group: for multiplication over "
    "discrete logarithms, without 0."
)
CURVES = (
    "Restricted: the loss of all pairs with the key frequencies alone. Excluded: the loss of the training pairs without one "
    "of them; it rises when the network comes to rely on it. Right: 0 is power spread evenly, 1 all at one frequency."
)


def inside_section(runs: Sequence[Run]) -> str:
    """What `grokfast inside` found of these runs; nothing where it was not called."""
    numbers = number_runs(runs)
    known = [(run, found) for run in runs if (found := read_inside(run)) is not None]
    return "".join(of_run(run, found, number_of(run, numbers), i) for i, (run, found) in enumerate(known))


def of_run(run: Run, found: Inside, number: int, place: int) -> str:
    drawn = "".join(f"<h4>{escape(plot.title)}</h4>{chart(plot)}" for plot in inside_plots(found, number, place))
    moments = [
        {"step": m.step, "points": m.points, "embedding": m.embedding, "logits": m.logits} for m in found.moments
    ]
    data = json.dumps({"symbols": found.symbols, "key": found.key, "moments": moments}, separators=(",", ":"))
    last = len(found.moments) - 1
    return f"""<h3>{escape(label(run))}</h3><div class="inside"><div class="controls">
<label>training <input type="range" min="0" max="{last}" value="{last}" step="1"> <output></output></label></div>
<div class="pictures">{picture(f"Embeddings at frequency {found.key[0]}")}{picture("Power of the embedding by frequency")}{picture("Power of the logits by frequency")}</div>
<script type="application/json">{data}</script></div><p class="soft">{TEXT}</p>{drawn}<p class="soft">{CURVES}</p>"""


def picture(title: str) -> str:
    return f'<figure><figcaption>{title}</figcaption><svg role="img" aria-label="{title}"></svg></figure>'
