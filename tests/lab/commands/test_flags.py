"""Flags of tasks and filters: their defaults in the help, and which settings they give."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest

from grokfast.lab.commands.cli import build_parser, main
from grokfast.lab.commands.flags import FIRST, add_settings, by_filter, settings_from, value_text
from grokfast.lab.settings import settings_of
from grokfast.lab.tasks import TASKS


def parse(*words: str) -> dict[str, Any]:
    return settings_from(build_parser(list(words)).parse_args(words))


def help_of(*words: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main([*words[:-1], "--help", words[-1]] if words[-1] == "all" else [*words, "--help"])
    return capsys.readouterr().out


def test_flags_give_only_what_was_given() -> None:
    assert parse("train", "modmul") == {}
    given = parse("train", "modmul", "--filter", "ema", "--betas", "0.8", "0.9", "--no-fast", "--two-stage", "auto")
    assert given == {"filter": "ema", "betas": (0.8, 0.9), "fast": False, "two_stage": "auto"}


def test_filter_none_is_no_filter() -> None:
    assert parse("train", "modmul", "--filter", "none") == {"filter": None}


def test_numbers_below_zero_may_be_written_with_an_exponent() -> None:
    assert parse("train", "modmul", "--filter", "fir", "--taps", "-1e-5", "0.5")["taps"] == (-1e-5, 0.5)


def test_help_shows_the_defaults_of_the_task(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of("train", "modmul", "all", capsys=capsys, monkeypatch=monkeypatch)
    for default in (
        "learning rate (default: 0.001)",
        "(default: 0.005 for ema, 0.01 for ma, else 0)",
        "(default: 0.98 for ema)",
        "(default: 2 for ema, 5 for ma, else 1)",
        "(default: 97)",
        "(default: 50000)",
        "(default: 0.9 0.98)",
        "evaluate every n steps (default: once per epoch)",
    ):
        assert default in text
    text = help_of("train", "mnist", "all", capsys=capsys, monkeypatch=monkeypatch)
    assert "(default: 0.8 for ema)" in text
    assert "evaluate every n steps (default: 100)" in text


def test_help_shows_the_ten_settings_that_people_change_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of("train", "modmul", capsys=capsys, monkeypatch=monkeypatch)
    assert len(FIRST) == 10
    assert all(f"--{name.replace('_', '-')} " in text for name in FIRST)
    assert "--clip-norm" not in text
    assert "--help all" in text
    assert text.count("\n") < 45
    everything = help_of("train", "modmul", "all", capsys=capsys, monkeypatch=monkeypatch)
    assert all(f"--{name.replace('_', '-')}" in everything for name in settings_of("modmul", ["ema"]))


def test_help_without_a_task_lists_the_tasks(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = help_of("train", capsys=capsys, monkeypatch=monkeypatch)
    assert "  mnist     Digits of MNIST by an MLP\n" in text
    assert all(f"\n  {name} " in text for name in TASKS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chess"], "a task must be one of modmul, mnist, qm9, imdb, parity, addition or FILE.py:CLASS, got chess"),
        (["nowhere.py:Toy"], "nowhere.py:Toy must name a file that exists, got nowhere.py"),
        (["modmul", "--filter", "kalman"], "filter must be one of ema, ma, fir, iir, butterworth or FILE.py:CLASS, "),
        (["--steps", "3", "modmul"], "TASK must come before the flags, got --steps: grokfast train TASK --steps ..."),
    ],
)
def test_unknown_tasks_and_filters_give_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 1
    err = capsys.readouterr().err
    assert err.startswith(f"grokfast: error: {message}")
    assert err.count("\n") == 1


OWN_TASK = """
from dataclasses import dataclass
from grokfast.lab.tasks.modular.task import ModularConfig

@dataclass(frozen=True)
class Loud(ModularConfig):
    quiet: bool = False
"""


def test_a_field_called_like_a_flag_of_the_command_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loud.py").write_text(OWN_TASK)
    parser = argparse.ArgumentParser()
    parser.set_defaults(words=[])
    parser.add_argument("--quiet")
    with pytest.raises(ValueError, match="a field must not be called like another flag, got quiet"):
        add_settings(parser, f"{tmp_path / 'loud.py'}:Loud")


def test_defaults_that_all_filters_share_are_said_once() -> None:
    assert by_filter({"ema": "1", "ma": "5"}, "2") == "1 for ema, 5 for ma, else 2"
    assert value_text([0.9, 0.98]) == "0.9 0.98"
    assert [value_text(value) for value in (None, False, True, 1e-3, 0)] == ["", "", "yes", "0.001", "0"]
