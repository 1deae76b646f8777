"""Pictures for papers: nothing is cut off, and numbers at axes are plain."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from grokfast.lab.report.draw_matplotlib import draw_plot
from grokfast.lab.report.pictures import Panel, Plot, Series


@pytest.mark.parametrize("letters", [10, 40, 80])
def test_the_legend_stays_within_the_picture(letters: int) -> None:
    name = (3 * "EMA, window size 100, weight decay 0.005 ")[:letters]
    series = [Series(i, f"{i} {name}", [1, 10], [1, 2]) for i in range(4)]
    figure = Figure(figsize=(11, 4.6), layout="constrained")
    part = figure.add_subfigure(figure.add_gridspec(1, 1)[0])
    draw_plot(part, Plot("it", "a title", [Panel("steps", "loss", series)]))
    figure.draw_without_rendering()
    (legend,) = part.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


@pytest.mark.parametrize(("low", "high", "some"), [(250, 500, "300"), (10, 500, "200"), (10, 20_000, "10,000")])
def test_log_axes_have_plain_numbers(low: float, high: float, some: str) -> None:
    figure = Figure(layout="constrained")
    part = figure.add_subfigure(figure.add_gridspec(1, 1)[0])
    draw_plot(
        part, Plot("it", "a title", [Panel("steps", "loss", [Series(0, "a", [low, high], [0.01, 1.0])], log_y=True)])
    )
    figure.draw_without_rendering()
    (axes,) = part.axes
    texts = [label.get_text() for label in axes.get_xticklabels()]
    assert some in texts
    assert len(texts) <= 12
    assert "0.1" in [label.get_text() for label in axes.get_yticklabels()]
    assert not [text for text in texts if "$" in text]
