"""Curves of what is inside a network, as data: losses by frequency, sparsity, norms and ranks."""

from __future__ import annotations

from collections.abc import Callable

from grokfast.lab.analysis.inside_run import Inside, Moment
from grokfast.lab.report.pictures import Panel, Plot, Series, Style, shade

FLOOR = 1e-8  # of losses on a log axis


def inside_plots(found: Inside, number: int, place: int) -> list[Plot]:
    """All in the colour of the run's arm; `place` tells the pictures of several runs apart."""
    later = [moment for moment in found.moments if moment.step > 0]  # log steps have no 0
    steps = [moment.step for moment in later]

    def line(name: str, of: Callable[[Moment], float], style: Style = "solid", strength: float = 1.0) -> Series:
        return Series(number, name, steps, [max(of(m), FLOOR) for m in later], style, strength=strength)

    losses = [
        line("training loss", lambda m: m.train_loss, "dashed"),
        line("validation loss", lambda m: m.val_loss),
        line("restricted loss", lambda m: m.restricted_loss, "dotted"),
        *(
            line(f"without frequency {k}", lambda m, i=i: m.excluded_loss[i], strength=shade(i, len(found.key)))
            for i, k in enumerate(found.key)
        ),
    ]
    sparse = [
        line("Gini of the embedding", lambda m: m.embedding_gini),
        line("Gini of the logits", lambda m: m.logits_gini, "dashed"),
        line("examples with zero loss", lambda m: m.zero_loss, "dotted"),
    ]
    names = list(found.moments[-1].norms)
    shades = {name: shade(i, len(names)) for i, name in enumerate(names)}
    norms = [line(name, lambda m, n=name: m.norms[n], strength=shades[name]) for name in names]
    ranks = [line(name, lambda m, n=name: m.ranks[n], strength=shades[name])._replace(named=False) for name in names]
    return [
        Plot(
            f"inside-loss-{place}",
            "Loss by frequency, and sparsity",
            [Panel("steps", "loss", losses, log_y=True), Panel("steps", "share", sparse)],
        ),
        Plot(
            f"inside-layers-{place}",
            "Norm and effective rank of each matrix, the later ones in a stronger colour",
            [Panel("steps", "norm", norms, log_y=True), Panel("steps", "effective rank", ranks)],
        ),
    ]
