"""The part of the report on many settings: when it is there, what it recommends, what it draws."""

from __future__ import annotations

from pathlib import Path

import pytest
from made import swept_run

from grokfast.lab.compare.sensitivity import Family, find_families
from grokfast.lab.report import write_figures, write_report
from grokfast.lab.report.page.sweeps import recommendation, section
from grokfast.lab.report.pictures import HeatMap, Parallel, Plot
from grokfast.lab.report.sweeps import pictures
from grokfast.lab.runs.directory import Run

LAMBS, DECAYS = (1.0, 2.0, 4.0), (0.0, 0.01)


def steps(lamb: float, decay: float, seed: int) -> int:
    """Fastest at lamb 2 without decay; never in 1,000 steps at lamb 4 with it."""
    return round(300 * max(lamb / 2, 2 / lamb) * (1 + 100 * decay) + 20 * seed)


def square(folder: Path, seeds: int = 2) -> list[Run]:
    return [
        swept_run(folder, steps(lamb, decay, seed), filter="ema", lamb=lamb, weight_decay=decay, seed=seed)
        for lamb in LAMBS
        for decay in DECAYS
        for seed in range(seeds)
    ]


def only(runs: list[Run]) -> Family:
    (found,) = find_families(runs)
    return found


def test_the_recommendation_says_what_to_take_and_how_sure_it_is(tmp_path: Path) -> None:
    said = " ".join(recommendation(only(square(tmp_path))))
    assert "Recommended: lamb 2, weight decay 0 (with alpha 0.98, not varied)" in said
    assert "after 310 steps (2 seeds, 300 to 320)" in said
    assert "weight decay is the lowest that was tried" not in said  # nothing is below 0
    assert "best lamb is the" not in said
    assert "Second best: lamb 2, weight decay 0.01, after 610 steps" not in said
    alone = " ".join(recommendation(only(square(tmp_path / "alone", seeds=1))))
    assert "This is one seed" in alone
    lost = [swept_run(tmp_path / "lost", 9_999, filter="ema", lamb=lamb) for lamb in LAMBS]
    (line,) = recommendation(only(lost))
    assert line == (
        "No setting reached validation accuracy 0.95 in most of its runs in up to 1,000 steps: "
        "there is nothing to recommend."
    )


def test_the_second_best_is_named_with_whether_its_seeds_overlap(tmp_path: Path) -> None:
    for name, gap, said in (("near", 10, "its seeds overlap with the best"), ("far", 200, "no seeds overlap")):
        runs = [
            swept_run(tmp_path / name, 300 + gap * i + 20 * seed, filter="ema", lamb=lamb, seed=seed)
            for i, lamb in enumerate(LAMBS)
            for seed in (0, 1)
        ]
        assert said in " ".join(recommendation(only(runs)))


def test_cells_hold_medians_and_mark_what_did_not_arrive(tmp_path: Path) -> None:
    drawn, lines = pictures(only(square(tmp_path)), "it")
    assert isinstance(drawn, HeatMap)
    assert isinstance(lines, Parallel)
    texts = {
        (column, row): tile.text
        for row, tiles in zip(drawn.rows, drawn.tiles, strict=True)
        for column, tile in zip(drawn.columns, tiles, strict=True)
        if tile is not None
    }
    by_lamb = texts if drawn.x == "lamb" else {(b, a): text for (a, b), text in texts.items()}
    assert by_lamb[("2", "0")] == "★ 310"
    assert by_lamb[("1", "0")] == "610"
    assert by_lamb[("4", "0.01")] == "> 1,000"
    assert len(lines.strands) == len(LAMBS) * len(DECAYS)
    assert lines.strands[-1].shade == 0.0
    assert list(lines.beams)[-1] == "steps"
    assert all(0 <= height <= 1 for strand in lines.strands for height in strand.heights)


def test_letters_on_bright_fields_are_black_and_on_dark_and_grey_ones_white(tmp_path: Path) -> None:
    drawn, _ = pictures(only(square(tmp_path)), "it")
    assert isinstance(drawn, HeatMap)
    tiles = [tile for row in drawn.tiles for tile in row if tile is not None]
    assert {tile.text: drawn.ink(tile) for tile in tiles if tile.text in ("★ 310", "> 1,000")} == {
        "★ 310": "black",
        "> 1,000": "white",
    }


def test_one_number_is_drawn_as_a_curve(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, round(300 * lamb), filter="ema", lamb=lamb) for lamb in LAMBS]
    (plot,) = pictures(only(runs), "it")
    assert isinstance(plot, Plot)
    (panel,) = plot.panels
    assert list(panel.series[0].y) == [300, 600]
    assert list(panel.series[-1].x) == [4.0]  # not reached within the 1,000 steps


def test_the_page_and_the_figures_have_it(tmp_path: Path) -> None:
    runs = square(tmp_path)
    page, _ = write_report(runs, tmp_path / "out/index.html")
    text = page.read_text()
    assert "<h4>Best settings</h4>" in text
    assert "not measured" in text
    assert 'id="sweep-modmul-ema-0"' in text
    names = [path.stem for path in write_figures(runs, tmp_path / "figures", "png")]
    assert {"sweep-modmul-ema-0", "strands-modmul-ema-0"} <= set(names)


def test_a_sweep_without_any_arrival_is_drawn_too(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 9_999, filter="ema", lamb=lamb, alpha=alpha) for lamb in LAMBS for alpha in (0.9, 0.98)]
    text = section(only(runs), "it")
    assert "nothing to recommend" in text
    assert "Best settings" not in text
    assert len(write_figures(runs, tmp_path / "figures", "svg")) == 5


@pytest.mark.parametrize("values", [(0.0, 0.1, 0.2), tuple(0.01 * 1.3**i for i in range(30))])
def test_zeros_and_many_values_have_places(tmp_path: Path, values: tuple[float, ...]) -> None:
    runs = [
        swept_run(tmp_path, 100 + 10 * i, filter="ema", weight_decay=value, lamb=1.0 + i % 3, evaluations=50)
        for i, value in enumerate(values)
    ]
    drawn, lines = pictures(only(runs), "it")
    assert isinstance(drawn, HeatMap)
    assert isinstance(lines, Parallel)
    assert max(len(drawn.columns), len(drawn.rows)) <= 12
    assert all(len(ticks) <= 12 for ticks in lines.beams.values())


def test_a_sweep_is_judged_at_the_level_its_runs_stopped_at(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, round(100 * lamb), filter="ema", lamb=lamb, until=0.6, steps=400) for lamb in LAMBS]
    page = write_report(runs, tmp_path / "out/index.html")[0].read_text()
    said = " ".join(recommendation(only(runs)))
    steps = runs[0].crossing().step
    assert f"It reaches validation accuracy 0.6 after {steps} steps" in said
    assert said.split(". ")[0] in page
    assert f"EMA, alpha 0.98, lamb 1, weight decay 0.005 reaches 0.6 after {steps} steps" in page
    assert "Steps until the validation accuracy is 0.6" in page
    assert "0.95" not in page.split("</script>", 1)[1].split("<section>")[0]
    other = write_report(runs, tmp_path / "other.html", level=0.95)[0].read_text()
    assert "Steps until the validation accuracy is 0.95" in other
