"""The report in a real browser: it loads offline, reacts, fits a phone, and says what the run files say."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from made import create_made
from tiny import tiny

from grokfast.lab.analysis.inside import look_inside, save_inside
from grokfast.lab.report import write_report
from grokfast.lab.runs.directory import Run, readable_runs
from grokfast.lab.runs.writer import create_run
from grokfast.lab.settings import experiment_of
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.run import train

HOSTILE = "<script>document.title='owned'<|script>"  # a slash cannot stand in the name of a folder
PICTURES = "[...document.querySelectorAll('.picture')]"
Visit = Callable[..., Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two seeds of one arm, a baseline, hostile names of a run and of a filter, an incomplete run, a damaged one."""
    folder = tmp_path_factory.mktemp("runs")
    recording = {"steps": 300, "eval_every": 50, "gradients": 20, "snapshots": 3}
    made = [train(settings, folder) for settings in (tiny(filter="ema", seed=0), tiny(filter="ema", seed=1), tiny())]
    deep = train(tiny(filter="ma", window_size=4, **recording), folder)
    save_inside(deep, look_inside(deep))
    hostile = Run(deep.path.rename(folder / HOSTILE))
    unfinished = train(tiny(seed=7), folder, Watcher(should_stop=lambda: True))
    return [*made, hostile, own_filter_run(folder), unfinished, damaged_run(folder)]


def own_filter_run(folder: Path) -> Run:
    """A run whose filter is a user's own, with a hostile name; it is not known here."""
    run = create_made(folder, tiny(filter="ema", seed=5), [0.5, 0.2], finish=False)
    kept = json.loads((run.path / "settings.json").read_text())
    kept["settings"] |= {"filter": HOSTILE}
    (run.path / "settings.json").write_text(json.dumps({**kept, "experiment": experiment_of(tiny(seed=5))[::-1]}))
    return Run(run.path)


def damaged_run(folder: Path) -> Run:
    run = create_run(tiny(seed=9), folder, {})
    (run.path / "settings.json").write_text(json.dumps({"version": 1, "settings": {"task": "<b>chess</b>"}}))
    return Run(run.path)


@pytest.fixture(scope="module")
def page_path(runs: list[Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept, lost = readable_runs(runs)
    return write_report(kept, tmp_path_factory.mktemp("report") / "index.html", unreadable=lost)


@pytest.fixture(scope="module")
def opened() -> dict[int, Any]:
    """The page at each width, opened once for the tests that only look."""
    return {}


@pytest.fixture
def page(page_path: Path, visit: Visit, opened: dict[int, Any], request: pytest.FixtureRequest) -> Any:
    """The page at desktop or, with a width as the parameter, another size."""
    width = getattr(request, "param", 1200)
    if width not in opened:
        opened[width] = open_all(visit(page_path, width=width))
    return opened[width]


@pytest.fixture
def fresh(page_path: Path, visit: Visit) -> Any:
    """The page for a test that changes it."""
    return open_all(visit(page_path))


def open_all(page: Any) -> Any:
    """Opens all folds and waits until all pictures are drawn."""
    page.evaluate("document.querySelectorAll('details').forEach(box => { box.open = true })")
    whole = "p => p.querySelectorAll('.view svg').length === p.querySelectorAll('.view').length"
    page.wait_for_function(f"{PICTURES}.every({whole})")
    return page


def test_it_loads_without_complaints_and_without_the_network(page: Any, page_path: Path) -> None:
    assert page.complaints == []
    assert page.requests == [page_path.as_uri()]
    assert page_path.stat().st_size < 1_300_000


def test_text_of_runs_is_shown_and_not_run(page: Any) -> None:
    assert page.title() == "Grokfast: 6 runs"
    assert HOSTILE in page.inner_text("body")
    assert "settings.json: it must hold experiment and settings" in page.inner_text("body")
    assert page.query_selector("td script, th script, button script, .view script") is None


def test_tables_have_the_numbers_of_the_run_files(page: Any, runs: list[Run]) -> None:
    text = page.inner_text("main")
    for run in runs[:4]:
        assert f"{run.rows[-1].val_accuracy:.4f}" in text
        assert str(run.crossing()) in text
    assert "incomplete" in text


def lines_drawn(page: Any) -> int:
    return page.evaluate("document.querySelectorAll('#curves-modmul .view:first-child .mark-line path').length")


def test_a_button_hides_and_shows_a_curve_by_mouse_and_keyboard(fresh: Any) -> None:
    button, before = fresh.locator("#curves-modmul .names button").first, lines_drawn(fresh)
    button.click()
    for key, pressed in ((None, "false"), ("Space", "true"), ("Enter", "false")):
        if key is not None:
            fresh.keyboard.press(key)
        assert button.get_attribute("aria-pressed") == pressed
        fresh.wait_for_timeout(150)
        assert (lines_drawn(fresh) < before) == (pressed == "false")


def test_names_are_text_and_have_the_colours_of_the_curves(page: Any) -> None:
    names = page.locator("#curves-modmul .names button").all_inner_texts()
    assert any(name.startswith(f"{HOSTILE}, alpha 0.98") for name in names)
    drawn = set(
        page.evaluate(
            "[...document.querySelectorAll('#curves-modmul .mark-line path')].map(p => p.getAttribute('stroke'))"
        )
    )
    styles = page.evaluate(
        "[...document.querySelectorAll('#curves-modmul .names button')].map(b => b.getAttribute('style'))"
    )
    assert {style.rpartition(" ")[2].strip(";") for style in styles} == drawn
    assert page.title() == "Grokfast: 6 runs"


def test_steps_can_be_linear_and_back(fresh: Any) -> None:
    ticks = "#curves-modmul .view:first-child .role-axis-label text"
    labels = f"[...document.querySelectorAll('{ticks}')].map(t => t.textContent)"
    before, button = fresh.evaluate(labels), fresh.locator("button[data-scale]").first
    for pressed in ("true", "false"):
        button.click()
        fresh.wait_for_timeout(400)
        assert button.get_attribute("aria-pressed") == pressed
        assert (fresh.evaluate(labels) == before) == (pressed == "false")
    assert fresh.complaints == []


def test_dark_mode_has_light_letters_in_pictures_too(page: Any) -> None:
    light = "rgb(230, 234, 238)"
    assert page.evaluate("getComputedStyle(document.body).color") == light
    fill = "getComputedStyle(document.querySelector('.role-axis-label text')).fill"
    assert page.evaluate(fill) == light


@pytest.mark.parametrize("page", [360, 390, 768], indirect=True)
def test_nothing_overflows_or_is_cut_on_a_phone(page: Any) -> None:
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    cut = """[...document.querySelectorAll('.view text')].filter(text => {
        const box = text.getBoundingClientRect();
        return box.width && (box.left < -0.5 || box.right > innerWidth + 0.5);
    }).map(text => text.textContent)"""
    assert page.evaluate(cut) == []


def test_a_pointer_finds_what_a_curve_is(page: Any) -> None:
    spot = page.locator("#curves-modmul .view").first.locator(".mark-symbol path").last
    spot.hover(force=True)
    page.wait_for_selector("#vg-tooltip-element.visible")
    text = page.inner_text("#vg-tooltip-element")
    assert "steps" in text
    assert ("training" in text) != ("validation" in text)


def test_an_arm_has_one_colour_in_all_pictures(page: Any) -> None:
    ma = "#curves-modmul .names button:has-text('MA, window size 4')"
    style = page.get_attribute(ma, "style")
    for name in ("response", "trajectories"):
        drawn = page.evaluate(
            f"[...document.querySelectorAll('#{name} .mark-line path')].map(p => p.getAttribute('stroke'))"
        )
        assert style.rpartition(" ")[2].strip(";") in drawn


def test_ticks_are_plain_numbers(page: Any) -> None:
    ticks = page.evaluate("[...document.querySelectorAll('.role-axis-label text')].map(t => t.textContent)")
    assert ticks
    assert not [text for text in ticks if set("µmkne") & set(text)]


@pytest.mark.parametrize("page", [360, 1200], indirect=True)
def test_numbers_at_an_axis_do_not_touch(page: Any) -> None:
    touching = page.evaluate(
        """[...document.querySelectorAll('.role-axis')].flatMap(axis => {
            const shown = (text) => +(text.getAttribute('opacity') ?? 1);
            const labels = [...axis.querySelectorAll('.role-axis-label text')].filter(shown);
            const boxes = labels.map(t => t.getBoundingClientRect());
            const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
            return boxes.slice(1).filter((box, i) => touch(box, boxes[i]));
        }).length"""
    )
    assert touching == 0


def test_a_damaged_run_is_mentioned_at_the_top(fresh: Any) -> None:
    assert fresh.evaluate("document.querySelector('.warning').getBoundingClientRect().bottom") < 300
    assert fresh.inner_text(".warning") == "1 run cannot be shown: see why."
    fresh.click(".warning a")
    assert fresh.evaluate("location.hash") == "#part-Not_shown"


def test_the_contents_lead_to_every_section(page: Any) -> None:
    targets = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.hash.slice(1))")
    assert targets == page.evaluate("[...document.querySelectorAll('section')].map(s => s.id)")
    assert len(targets) == 7


@pytest.mark.parametrize("page", [360, 1200], indirect=True)
def test_a_wide_table_says_that_it_scrolls_and_shows_more_than_names(page: Any) -> None:
    page.evaluate("hint()")
    boxes = page.evaluate(
        """[...document.querySelectorAll('.scroll')].filter(b => b.clientWidth).map(b => [
            b.scrollWidth > b.clientWidth + 1, b.classList.contains('wide'), b.clientWidth,
            b.querySelector('tbody th').getBoundingClientRect().width])"""
    )
    assert any(wide for wide, *_ in boxes)
    assert all(wide == hinted for wide, hinted, *_ in boxes)
    assert all(name < width / 2 for _, _, width, name in boxes)


def test_a_box_that_is_cut_below_says_so(fresh: Any) -> None:
    boxes = """[...document.querySelectorAll('.scroll, pre')].filter(b => b.clientWidth).map(b => [
        b.scrollHeight > b.clientHeight + 1, b.classList.contains('tall')])"""
    fresh.add_style_tag(content=".scroll, pre { max-height: 60px !important }")
    fresh.evaluate("hint()")
    assert [True, True] in fresh.evaluate(boxes)
    assert all(cut == hinted for cut, hinted in fresh.evaluate(boxes))


def test_everything_recorded_is_drawn(page: Any) -> None:
    assert page.evaluate(f"{PICTURES}.map(picture => picture.id)") == [
        "curves-modmul",
        "response",
        "spectrum-0",
        "trajectories",
        "deviation",
        "inside-loss-0",
        "inside-layers-0",
    ]


def test_a_slider_moves_the_embeddings_through_training_by_keyboard(fresh: Any) -> None:
    dots = "[...document.querySelectorAll('.inside circle')].map(dot => dot.getAttribute('cx'))"
    last, text = fresh.evaluate(dots), fresh.inner_text(".inside output")
    assert len(last) == 6
    assert text == "step 300"
    fresh.focus(".inside input")
    fresh.keyboard.press("Home")
    assert fresh.inner_text(".inside output") == "step 0"
    assert fresh.evaluate(dots) != last
