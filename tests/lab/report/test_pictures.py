"""One description of a picture: as a page draws it, as a file, and in which colours."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import vl_convert
from made import made_run, swept_run

from grokfast.lab.report.curves import arm_colours, curves_picture, labelled_curves, name_colours
from grokfast.lab.report.depth import arms_in_turn, known_filters
from grokfast.lab.report.duels import duel_picture, overview_picture
from grokfast.lab.report.pictures import (
    COLOURS,
    GREY,
    Picture,
    axis,
    for_file,
    for_page,
    line,
    make_view,
    note,
    write_picture,
)
from grokfast.lab.runs.directory import Run
from grokfast.lab.stats import Steps, verdict
from grokfast.lab.tables import Arm, arms


def made(**options: Any) -> Picture:
    curves = [line(f"curve {i}", [10, 1000], [0.1, 0.2 * i], COLOURS[i], what="validation") for i in (1, 2)]
    drawn = make_view(curves, axis("steps", log=True), axis("accuracy", percent=True), **options)
    return Picture("it", "a title", [drawn], {one["name"]: one["colour"] for one in curves})


def texts(picture: Picture) -> str:
    return vl_convert.vegalite_to_svg(for_file([picture]))


@pytest.mark.parametrize(("ending", "beginning"), [("png", b"\x89PNG"), ("svg", b"<svg"), ("pdf", b"%PDF")])
def test_a_file_has_the_format_of_its_ending(ending: str, beginning: bytes, tmp_path: Path) -> None:
    assert write_picture([made(), made()], tmp_path / f"new/x.{ending}").read_bytes().startswith(beginning)


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"must end with \.png, \.svg or \.pdf, got \.gif"):
        write_picture([made()], tmp_path / "x.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_file_has_title_names_and_plain_numbers() -> None:
    drawn = texts(made(rules=[0.95], notes=[note(100, 0.2, "here\nit is", to=(500, 0.3))]))
    for text in ("a title", "curve 1", "curve 2", ">10<", ">100<", ">1,000<", ">20%<", ">here<", ">it is<"):
        assert text in drawn


def test_both_readers_draw_the_same_curves_and_only_a_page_has_marks_for_a_pointer() -> None:
    page, file = json.dumps(for_page(made())), json.dumps(for_file([made()]))
    data = "0,0,10,0.1,"
    assert data in page
    assert data in file
    assert ('"hover"' in page, '"hover"' in file) == (True, False)


@pytest.mark.parametrize(("low", "high", "some"), [(250, 500, "300"), (10, 500, "200"), (10, 20_000, "10,000")])
def test_log_axes_have_few_plain_numbers(low: float, high: float, some: str) -> None:
    drawn = make_view([line("a", [low, high], [0.01, 1.0], GREY)], axis("steps", log=True), axis("loss", log=True))
    shown = texts(Picture("it", "t", [drawn]))
    assert f">{some}<" in shown
    assert ">0.1<" in shown


def test_values_that_are_not_finite_are_left_out() -> None:
    drawn = make_view([line("a", [1, 2, 3], [1.0, float("nan"), float("inf")], GREY)], axis("x"), axis("y"))
    (data,) = (layer["data"]["values"] for layer in drawn["layer"])
    assert data.splitlines()[1:] == ["0,0,1,1,,,"]


# Colours --------------------------------------------------------------------------------------------------------------


def colour_of(found: list[Arm], run: Run) -> int:
    return COLOURS.index(arm_colours(found)[run.experiment])


def test_arms_have_the_colours_of_their_filters_if_the_paper_has_none(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 100 * i, filter=name) for i, name in enumerate(("ema", "ma", None), 2)]
    slower = swept_run(tmp_path, 900, filter="ema", lamb=5.0)
    found = arms([slower, *runs])
    assert [colour_of(found, run) for run in [*runs, slower]] == [2, 1, 0, 3]


def test_the_papers_arm_has_its_colour_even_if_another_is_faster(tmp_path: Path) -> None:
    paper = made_run(tmp_path, "Baseline", 0, [0.9] * 80 + [0.01], task="modmul")
    faster = made_run(tmp_path, "Baseline", 0, [0.01], task="modmul", lr=3e-3)
    found = arms([faster, paper])
    assert (colour_of(found, paper), colour_of(found, faster)) == (0, 3)


def test_arms_of_a_duel_have_the_colours_that_they_have_as_runs() -> None:
    names = ["adamw+ma", "adamw", "adamw+stablemax"]
    assert [COLOURS.index(colour) for colour in name_colours(names).values()] == [1, 0, 3]


def test_a_filter_of_several_arms_is_drawn_once_in_a_colour_of_its_own(tmp_path: Path) -> None:
    staged = made_run(tmp_path, "2-stage MA", 0, [0.9, 0.01], task="modmul")
    plain = made_run(tmp_path, "Grokfast-MA", 0, [0.9, 0.01], task="modmul")
    assert len(known_filters([staged, plain])) == 1
    many = [swept_run(tmp_path, 100 * i, filter="ema", lamb=float(i)) for i in range(1, 7)]
    assert len(set(known_filters(many).values())) == 6


def test_every_arm_has_its_turn_before_one_has_a_second(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 300, filter=name, seed=seed) for name in ("ema", "ma") for seed in (0, 1)]
    found = [(run.settings["filter"], run.seed) for run in arms_in_turn(runs)]
    assert found == [("ema", 0), ("ma", 0), ("ema", 1), ("ma", 1)]


def test_beyond_the_colours_the_slowest_arms_are_grey(tmp_path: Path) -> None:
    runs = [swept_run(tmp_path, 20 * i, filter="ema", lamb=float(i)) for i in range(1, 11)]
    baseline = made_run(tmp_path, "Baseline", 0, [0.5] * 50, task="modmul")
    found = arms([*runs, baseline])
    picture = curves_picture(found, "modmul")
    assert picture is not None
    assert list(picture.names)[-1] == "4 others"
    assert colour_of(found, baseline) == 0
    assert [arm_colours(found)[run.experiment] for run in runs[-4:]] == [GREY] * 4


# Direct labels, duels -------------------------------------------------------------------------------------------------


def test_labels_name_the_curves_with_their_median_steps(tmp_path: Path) -> None:
    crossings = {"fast": 100, "middle": 300, "slow": 900}
    shown = {name: arms([swept_run(tmp_path, step, lr=step * 1e-5)])[0] for name, step in crossings.items()}
    picture = labelled_curves(shown)
    assert picture.names == {}  # no legend
    drawn = texts(picture)
    for name, step in crossings.items():
        assert f">{name}<" in drawn
        assert f">{step} steps<" in drawn


def test_a_stair_rises_where_a_run_reaches_the_level() -> None:
    took = {"adamw": [Steps(100), Steps(300), Steps(500, False)], "adamw+ema": [Steps(50)] * 3}
    picture = duel_picture("duel", "modmul", took)
    (layers,) = (layer for layer in picture.views[0]["layer"] if "data" in layer)
    rows = [row.split(",") for row in layers["data"]["values"].splitlines()[1:]]
    ends = {k: max(float(row[3]) for row in rows if row[0] == k) for k in ("0", "1")}
    assert ends == {"0": pytest.approx(2 / 3, abs=1e-4), "1": 1.0}
    assert picture.names == name_colours(list(took))


def test_all_verdicts_fit_one_picture_and_open_intervals_are_cut() -> None:
    slow, fast = ([[Steps(n * (100 + seed)) for seed in range(6)]] for n in (3, 1))
    never = [[Steps(100, False)] * 6]
    drawn = texts(
        overview_picture([("a", verdict(fast, slow), None), ("b", verdict(fast, never), verdict(fast, fast))])
    )
    assert "as tuned" in drawn
    assert ">4<" in drawn
