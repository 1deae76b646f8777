"""The report in a real browser: it loads offline, reacts, fits a phone, and says what the run files say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tiny import tiny

from grokfast.lab.analysis.inside_run import look_inside, save_inside
from grokfast.lab.report import write_report
from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.files import read_json, write_json
from grokfast.lab.runs.writer import create_run
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.train import train

HOSTILE = "<script>document.title='owned'<|script>"  # a slash cannot stand in the name of a folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two seeds of one arm, a baseline, hostile names of a run and of a filter, an incomplete run, a foreign one."""
    folder = tmp_path_factory.mktemp("runs")
    recording = {"steps": 300, "eval_every": 50, "gradients": 20, "snapshots": 3}
    configs = [tiny(filter="ema", seed=0), tiny(filter="ema", seed=1), tiny()]
    configs.append(tiny(filter="ma", window_size=4, **recording))
    made = [train(config, folder).run for config in configs]
    unfinished = train(tiny(seed=7), folder, Watcher(should_stop=lambda: True)).run
    hostile = Run(made[3].path.rename(folder / HOSTILE))
    own = train(tiny(filter="ema", seed=5), folder).run
    config = read_json(own.path / "config.json")
    write_json(own.path / "config.json", {**config, "filter": {"name": HOSTILE, "gain": 2.0}})
    foreign = create_run(tiny(seed=9), folder, {})
    parts: dict[str, Any] = {key: {} for key in ("task", "filter", "optim", "loop")}
    write_json(foreign.path / "config.json", {"task_name": "<b>chess</b>", **parts})
    save_inside(hostile, look_inside(hostile))
    return [*made[:3], hostile, Run(own.path), unfinished, Run(foreign.path)]


@pytest.fixture(scope="module")
def page_path(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(runs, tmp_path_factory.mktemp("report") / "index.html")[0]


@pytest.fixture
def page(page_path: Path, visit: Callable[..., Any], request: pytest.FixtureRequest) -> Any:
    """The page at desktop or, with a width as the parameter, another size."""
    return visit(page_path, width=getattr(request, "param", 1200))


def test_it_loads_without_complaints_and_without_the_network(page: Any, page_path: Path) -> None:
    assert page.complaints == []
    assert page.requests == [page_path.as_uri()]


def test_text_of_runs_is_shown_and_not_run(page: Any) -> None:
    assert page.title() == "Grokfast: 6 runs"
    assert HOSTILE in page.inner_text("body")
    assert "config.json: not a configuration of this version" in page.inner_text("body")
    assert page.query_selector("td script, th script") is None


def test_tables_have_the_numbers_of_the_run_files(page: Any, runs: list[Run]) -> None:
    text = page.inner_text("main")
    for run in runs[:4]:
        summary = json.loads((run.path / "summary.json").read_text())
        assert f"{summary['final_val_accuracy']:.4f}" in text
        assert str(run.crossing()) in text
    assert "incomplete" in text


def test_the_legend_hides_and_shows_a_curve_by_mouse_and_keyboard(page: Any) -> None:
    button, chart = page.locator(".names button").first, "document.querySelector('.plotly-graph-div')"
    group = page.evaluate(f"{chart}.data.find(t => t.name === {json.dumps(button.inner_text())}).legendgroup")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for key, pressed, visible in (("Space", "true", True), ("Enter", "false", "legendonly")):
        page.keyboard.press(key)
        assert button.get_attribute("aria-pressed") == pressed
        states = page.evaluate(f"{chart}.data.map(t => [t.legendgroup, t.visible ?? true])")
        assert {state for of, state in states if of == group} == {visible}
        assert {state for of, state in states if of != group} == {True}


def test_the_legend_has_the_colours_of_the_curves_and_names_as_text(page: Any) -> None:
    names = page.locator(".names").first.locator("button").all_inner_texts()
    assert any(name.startswith(f"{HOSTILE}, gain 2, weight decay 0.005") for name in names)
    colours = page.evaluate(
        "[...document.querySelector('.names').querySelectorAll('button')].map(b => getComputedStyle(b).borderLeftColor)"
    )
    assert len(set(colours)) == len(names)
    assert page.title() == "Grokfast: 6 runs"


def test_the_axis_switch_turns_steps_linear_and_back(page: Any) -> None:
    button = page.locator("button[data-chart]").first
    for expected, pressed in (("linear", "true"), ("log", "false")):
        button.click()
        assert page.evaluate("document.querySelector('.plotly-graph-div').layout.xaxis.type") == expected
        assert button.get_attribute("aria-pressed") == pressed


def test_dark_mode_has_light_letters_in_charts_too(page: Any) -> None:
    ink = page.evaluate("document.querySelector('.plotly-graph-div').layout.font.color")
    assert ink == "#e6eaee"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(230, 234, 238)"


@pytest.mark.parametrize("page", [360, 414, 768], indirect=True)
def test_nothing_overflows_on_a_phone_and_no_text_lies_on_a_chart(page: Any) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.wait_for_timeout(300)
    overlaps = page.evaluate(
        """[...document.querySelectorAll('.plotly-graph-div')].filter(chart => {
            const next = chart.closest('[role=figure]').nextElementSibling;
            return next && chart.getBoundingClientRect().bottom > next.getBoundingClientRect().top + 1;
        }).length"""
    )
    assert overlaps == 0


def test_hover_says_training_or_validation_and_whole_steps(page: Any) -> None:
    texts = page.evaluate("document.getElementById('curves-modmul').data.map(t => t.hovertemplate).filter(t => t)")
    assert texts
    assert all((", training<br>" in text) != (", validation<br>" in text) for text in texts)
    assert all("steps %{x:,d}" in text for text in texts)


def test_an_arm_has_one_colour_in_all_charts(page: Any) -> None:
    lines = "document.getElementById('{}').data.filter(t => t.line?.color && t.name.startsWith('MA'))"
    of = f"{lines}.map(t => t.line.color)"
    colours = [set(page.evaluate(of.format(name))) for name in ("curves-modmul", "response", "trajectories")]
    (colour,) = colours[0]
    assert colours == [{colour}] * 3
    spectrum = "document.getElementById('spectrum-0').data.map(t => t.line.color)"
    assert set(page.evaluate(spectrum)) == {colour}


def test_ticks_are_plain_numbers_and_no_text_lies_on_another(page: Any) -> None:
    ticks = page.evaluate("[...document.querySelectorAll('.xtick, .ytick')].map(t => t.textContent)")
    assert ticks
    assert not [text for text in ticks if set("µmkn") & set(text)]
    assert page.evaluate("document.querySelectorAll('.textpoint').length") == 0


def test_a_damaged_run_is_mentioned_at_the_top(page: Any) -> None:
    top = page.evaluate("document.querySelector('.warning').getBoundingClientRect().bottom")
    assert top < 300
    assert page.inner_text(".warning") == "1 run cannot be shown and is missing below: why."
    page.click(".warning a")
    assert page.evaluate("location.hash") == "#part-Not_shown"


def test_the_contents_lead_to_every_section(page: Any) -> None:
    targets = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert targets == page.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
    assert len(targets) == 7


@pytest.mark.parametrize("page", [360, 1200], indirect=True)
def test_a_wide_table_says_that_it_scrolls_and_shows_more_than_names(page: Any) -> None:
    boxes = page.evaluate(
        """[...document.querySelectorAll('.scroll')].filter(b => b.clientWidth).map(b => [
            b.scrollWidth > b.clientWidth + 1, b.classList.contains('wide'), b.clientWidth,
            b.querySelector('tbody th').getBoundingClientRect().width])"""
    )
    assert any(wide for wide, *_ in boxes)
    assert all(wide == hinted for wide, hinted, *_ in boxes)
    assert all(name < width / 2 for _, _, width, name in boxes)


@pytest.mark.parametrize("page", [360, 1200], indirect=True)
def test_a_box_that_is_cut_below_says_so(page: Any) -> None:
    boxes = """[...document.querySelectorAll('.scroll, pre')].filter(b => b.clientWidth).map(b => [
        b.scrollHeight > b.clientHeight + 1, b.classList.contains('tall')])"""
    assert all(cut == hinted for cut, hinted in page.evaluate(boxes))
    page.add_style_tag(content=".scroll, pre { max-height: 60px !important }")
    page.evaluate("hint()")
    assert [True, True] in page.evaluate(boxes)
    assert all(cut == hinted for cut, hinted in page.evaluate(boxes))


@pytest.mark.parametrize("page", [360, 1200], indirect=True)
def test_numbers_at_an_axis_do_not_touch(page: Any) -> None:
    page.wait_for_timeout(300)
    touching = page.evaluate(
        """[...document.querySelectorAll('.xaxislayer-above')].flatMap(layer => {
            const boxes = [...layer.querySelectorAll('.xtick text')].map(t => t.getBoundingClientRect());
            boxes.sort((a, b) => a.left - b.left);
            return boxes.slice(1).filter((box, i) => box.left < boxes[i].right && box.top < boxes[i].bottom);
        }).length"""
    )
    assert touching == 0


def test_hover_has_no_zeros_at_the_end(page: Any) -> None:
    texts = page.evaluate("document.getElementById('response').data.map(t => t.hovertemplate).filter(t => t)")
    assert texts
    assert all("gain %{y:.4~g}" in text for text in texts if "gain" in text)


def test_everything_recorded_is_drawn(page: Any) -> None:
    names = page.evaluate("[...document.querySelectorAll('.plotly-graph-div')].map(chart => chart.id)")
    assert names == [
        "curves-modmul",
        "response",
        "spectrum-0",
        "trajectories",
        "deviation",
        "inside-loss-0",
        "inside-layers-0",
    ]
    painted = "[...document.querySelectorAll('.plotly-graph-div')].every(c => c.layout.font.color === '#e6eaee')"
    assert page.evaluate(painted)


def test_a_slider_moves_the_embeddings_through_training_by_keyboard(page: Any) -> None:
    dots = "[...document.querySelectorAll('.inside circle')].map(dot => dot.getAttribute('cx'))"
    last, text = page.evaluate(dots), page.inner_text(".inside output")
    assert len(last) == 6
    assert text == "step 300"
    page.focus(".inside input")
    page.keyboard.press("Home")
    assert page.inner_text(".inside output") == "step 0"
    assert page.evaluate(dots) != last
