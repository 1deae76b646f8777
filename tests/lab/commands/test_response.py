"""`grokfast response`: a filter in frequency, in numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from grokfast.lab.commands.cli import main

Call = Callable[..., tuple[int, str, str]]


def test_response_says_what_a_filter_does(call: Call) -> None:
    code, out, _ = call("response", "ema", "--alpha", "0.98", "--lamb", "2")
    assert code == 0
    assert "EMA, alpha 0.98, lamb 2" in out
    constant = next(line for line in out.splitlines() if "constant" in line)
    assert constant.split() == ["constant", "3.000", "2.000"]  # 1 + lamb, and lamb
    assert "311 steps" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ema", "--alpha", "2"], "alpha must be in [0, 1), got 2.0"),
        (["fir"], "the filter fir needs taps, got none"),
        (["kalman"], "filter must be one of ema, ma, fir, iir, butterworth or FILE.py:CLASS, got kalman"),
    ],
)
def test_what_is_no_filter_gives_one_line(call: Call, words: list[str], message: str) -> None:
    assert call("response", *words) == (1, "", f"grokfast: error: {message}\n")


def test_a_flag_of_another_filter_is_unknown() -> None:
    with pytest.raises(SystemExit):
        main(["response", "ema", "--window-size", "5"])


def test_the_help_lists_the_filters(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["response", "--help"])
    assert "  butterworth  " in capsys.readouterr().out


def test_a_filter_of_the_users_own_is_shown(call: Call, tmp_path: Path) -> None:
    source = "from dataclasses import dataclass\nimport grokfast\n"
    source += "@dataclass(frozen=True, kw_only=True)\nclass Calm(grokfast.EMA):\n    alpha: float = 0.5\n"
    (tmp_path / "calm.py").write_text(source)
    assert "Calm, alpha 0.5, lamb 3" in call("response", f"{tmp_path / 'calm.py'}:Calm", "--lamb", "3")[1]
