"""The page in a real browser: it races, stays calm when asked to, works by keyboard, on a phone and offline."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grokfast.lab.commands.cli import main
from grokfast.playground import page

Visit = Callable[..., Any]
READY = "#presets button"
STILL = {"reduced_motion": "reduce"}  # no race starts by itself
SHORT = "#weight_decay=1&lamb=2"  # a race of about 1,000 steps


def step(page: Any) -> int:
    return int(page.inner_text("#step").removeprefix("step ").replace(",", ""))


def wait_for(page: Any, condition: str) -> None:
    page.wait_for_function(condition, timeout=30_000)


def test_it_is_one_small_file_without_addresses() -> None:
    text = page()
    assert len(text.encode()) <= 300_000
    assert not re.search(r"https?://|//\w+\.\w+|\burl\(|<link|<img|<iframe|src=|@import|^import |^export ", text, re.M)
    assert "{{" not in text


def test_the_command_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "race.html"
    assert main(["playground", "-o", str(path)]) == 0
    assert path.read_text(encoding="utf-8") == page()
    assert str(path) in capsys.readouterr().out
    assert [each.name for each in path.parent.iterdir()] == ["race.html"]
    with pytest.raises(SystemExit):
        main(["playground", "-o", str(tmp_path / "race.txt")])


def test_a_link_to_the_site_is_there_only_if_asked_for() -> None:
    assert "<a " not in page()
    assert '<a class="home" href="index.html">' in page(home="index.html")


def test_it_starts_by_itself_and_tells_how_the_race_ended(visit: Visit, page_path: Path) -> None:
    page = visit(page_path, ready=READY, hash=SHORT)
    page.select_option("#speed", "full")
    wait_for(page, "race.state === 'over'")
    told, means = page.inner_text("#happened"), page.inner_text("#meaning")
    found = re.findall(r"memorised at step (\d+), understood at (\d+)", told)
    assert len(found) == 2, told
    (_, without), (_, filtered) = [tuple(map(int, pair)) for pair in found]
    assert 250 < without < 500 < filtered < 1000
    assert "The filter hurts here" in means
    assert page.get_attribute("#presets button:nth-child(3)", "aria-pressed") == "true"
    lit = "networks.map(({light}) => light.filter((value) => value > 0.9).length / 529)"
    wait_for(page, f"{lit}.every((share) => share > 0.95)")
    page.click("#play")  # continue to the budget
    wait_for(page, f"networks.every(({{latest}}) => latest?.step > {step(page)})")
    assert page.complaints == []
    assert {url for url in page.requests if not url.startswith("blob:")} == {page_path.as_uri()}


def test_the_page_and_node_run_the_same_race(visit: Visit, page_path: Path, in_node: Callable[..., Any]) -> None:
    call = "(values) => runToEnd({...DEFAULTS, ...values}, 150)"
    values = {"weight_decay": 1, "seed": 5}
    in_page = visit(page_path, ready=READY, **STILL).evaluate(call, values)
    assert in_page == in_node(call, values)


def test_no_race_starts_by_itself_for_those_who_want_less_motion(visit: Visit, page_path: Path) -> None:
    page = visit(page_path, ready=READY, **STILL)
    page.wait_for_timeout(300)
    assert step(page) == 0
    assert "Press Start" in page.inner_text("#happened")
    page.click("#again")
    wait_for(page, "networks.every(({latest}) => latest?.step > 2)")


@pytest.mark.parametrize("width", [390, 1280])
def test_everything_works_by_keyboard(visit: Visit, page_path: Path, width: int) -> None:
    page = visit(page_path, width=width, ready=READY, **STILL)
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # the second preset
    assert "weight_decay=0.1&" in page.evaluate("location.hash")
    page.focus("#next")
    page.keyboard.press("Enter")
    wait_for(page, "networks.every(({latest}) => latest?.step === 1)")
    page.focus("#lamb")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#lamb", "aria-valuetext") == "2.5"
    assert "&lamb=2.5&" in page.evaluate("location.hash")
    assert "multiplied by 3.5," in page.inner_text("#gains")
    assert "EMA(alpha=0.98, lamb=2.5)" in page.inner_text("#python")
    wait_for(page, "networks.every(({latest}) => latest?.step === 0)")  # new settings are a new race
    page.focus("input[name=filter][value=ema]")
    page.keyboard.press("ArrowRight")
    assert page.is_visible("#window_size")
    assert not page.is_visible("#alpha")
    assert "MA(window_size=50, lamb=2.5)" in page.inner_text("#python")
    page.focus("#play")
    page.keyboard.press("Enter")
    wait_for(page, "networks.every(({latest}) => latest?.step > 2)")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    before = step(page)
    page.wait_for_timeout(300)
    assert step(page) == before
    assert page.inner_text("#play") == "Continue"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.complaints == []


def test_every_control_has_a_name(visit: Visit, page_path: Path) -> None:
    page = visit(page_path, ready=READY, **STILL)
    for control in page.locator("button, select, input, canvas").all():
        if control.is_visible() or control.get_attribute("type") == "radio":
            named = "e => (e.labels?.[0]?.textContent || e.getAttribute('aria-label') || e.textContent).trim()"
            assert control.evaluate(named), control.evaluate("e => e.outerHTML")


def test_a_shared_address_is_the_same_race(visit: Visit, page_path: Path) -> None:
    shared = "#filter=ma&window_size=20&lamb=3&weight_decay=0.3&share=0.6&loss=cross-entropy&batch=all&seed=7"
    page = visit(page_path, ready=READY, hash=shared, **STILL)
    assert page.input_value("#seed") == "7"
    assert page.is_checked("input[name=loss][value=cross-entropy]")
    assert page.is_checked("input[name=batch][value=all]")
    assert page.inner_text(".control[data-name=window_size] output") == "20"
    assert page.evaluate("race.training.reduce((a, b) => a + b)") == 317
    page.evaluate("location.hash = '#seed=9'")
    wait_for(page, "document.getElementById('seed').value === '9'")
    assert page.is_checked("input[name=filter][value=ema]")


def test_it_draws_at_most_30_times_a_second_and_rests_when_hidden(visit: Visit, page_path: Path) -> None:
    page = visit(page_path, ready=READY, hash=SHORT)
    count = """new Promise((resolve) => {
      const original = drawCurves;
      let count = 0;
      globalThis.drawCurves = (...given) => { count++; original(...given); };
      setTimeout(() => { globalThis.drawCurves = original; resolve(count); }, 1000);
    })"""
    assert 3 <= page.evaluate(count) <= 31
    hide = """(hidden) => {
      Object.defineProperty(document, "hidden", {value: hidden, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }"""
    page.evaluate(hide, True)
    page.wait_for_timeout(300)
    before = step(page)
    page.wait_for_timeout(300)
    assert step(page) == before
    page.evaluate(hide, False)
    wait_for(page, f"networks.every(({{latest}}) => latest?.step > {before})")


def test_colours_follow_the_scheme(visit: Visit, page_path: Path) -> None:
    page = visit(page_path, ready=READY, **STILL)
    dark = page.evaluate("colours.card")
    page.emulate_media(color_scheme="light")
    wait_for(page, f"colours.card !== '{dark}'")
