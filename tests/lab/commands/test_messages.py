"""Mistakes on the command line: one line that names flag and cause, a non-zero exit code, nothing left behind."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny import TINY_FLAGS, tiny

from grokfast.lab.commands.cli import main
from grokfast.lab.training.run import train

Attempt = Callable[..., str]
TRAIN = ["train", "modmul", *TINY_FLAGS, "--steps", "6", "--quiet"]


@pytest.fixture
def attempt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Attempt:
    """Runs a command that must fail; gives the line that it prints."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text("in the way")

    def run(*words: str) -> str:
        try:
            code = main(list(words))
        except SystemExit as stopped:
            code = stopped.code
        out, err = capsys.readouterr()
        assert code in (1, 2), (words, code, err)
        assert out == ""
        assert err.startswith("grokfast: error: ")
        assert err.count("\n") == 1, err
        assert [path.name for path in tmp_path.iterdir()] == ["FILE"]
        return err

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--lr inf", "lr must be in [0, inf), got inf"),
        ("--lr nan", "lr must be in [0, inf), got nan"),
        ("--weight-decay nan", "weight_decay must be in [0, inf), got nan"),
        ("--seed 99999999999999999999999", "seed must be in [0, 2^63), got 99999999999999999999999"),
        ("--filter butterworth --order 1 --cutoff 0.7", "cutoff must be in (0, 0.5), got 0.7"),
        ("--filter butterworth --order 1 --cutoff 0", "cutoff must be in (0, 0.5), got 0.0"),
        ("--runs-dir FILE", "argument --runs-dir: must be a directory, got the file FILE"),
        ("--runs-dir ''", "argument --runs-dir: must be a directory, got ''"),
        ("--steps abc", "argument --steps: must be a whole number, got 'abc'"),
        ("--lr ''", "argument --lr: must be a number, got ''"),
        ("--two-stage soon", "argument --two-stage: must be a whole number or auto, got 'soon'"),
        ("--filtr ema", "--filtr is not known to grokfast train: did you mean --filter?"),
        ("--filter emma", "got emma: did you mean ema?"),
        ("--optimizer adamm", "got adamm: did you mean adam?"),
        # Values without effect.
        ("--alpha 0.9", "alpha needs a filter that has it, got none"),
        ("--filter ema --window-size 10", "window_size needs a filter that has it, got ema"),
        ("--momentum 0.9", "momentum has no effect on adam"),
        ("--nesterov", "nesterov has no effect on adam"),
        ("--optimizer sgd --betas 0.9 0.9", "betas has no effect on sgd"),
        ("--two-stage 5", "two_stage needs a filter, got none"),
        ("--extra-steps 5", "extra_steps needs until"),
        ("--companion-lr 0.1", "companion_lr has no effect on adam"),
        ("--muon-params all", "muon_params has no effect on adam"),
    ],
)
def test_a_bad_flag_of_train_is_named_with_its_cause(attempt: Attempt, words: str, message: str) -> None:
    assert message in attempt(*TRAIN, *shlex.split(words))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sweep modmul --filter ema --grid alpha=abc", "alpha must be a number, got 'abc'"),
        ("sweep modmul --filter ema --grid alph=0.9", "alph"),
        ("report ''", "the name of a run must not be empty, got ''"),
        ("runs ''", "the name of a run must not be empty, got ''"),
        ("train --resume ''", "the name of a run must not be empty, got ''"),
        ("runs --runs-dir FILE", "argument --runs-dir: must be a directory, got the file FILE"),
        ("response ema -o FILE/pic.png", "-o/--out: must be a file that can be written, got FILE/pic.png"),
        ("response ema -o pic.xyz", "-o/--out: must end with .png or .svg or .pdf, got pic.xyz"),
        ("response ema -o .", "-o/--out: must be a file, got the directory ."),
        ("demo --quick -o FILE/page.html", "-o/--out: must be a file that can be written, got FILE/page.html"),
        ("response ema -o /dev/null", "-o/--out: must be a file, got the special file /dev/null"),
        ("response ema -o ''", "-o/--out: must be a file, got ''"),
        ("demo --quick -o page.pdf", "-o/--out: must end with .html, got page.pdf"),
        ("trian modmul", "there is no command trian: did you mean train?"),
        ("train modmull", "got modmull: did you mean modmul?"),
    ],
)
def test_a_bad_word_is_named_with_its_cause(attempt: Attempt, words: str, message: str) -> None:
    assert message in attempt(*shlex.split(words))


def test_an_ambiguous_name_lists_its_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [train(tiny(steps=3, seed=seed), tmp_path) for seed in (0, 1)]
    assert main(["runs", "modmul", "--runs-dir", str(tmp_path)]) == 1
    names = ", ".join(run.name for run in runs)
    assert f"2 runs start with 'modmul' in {tmp_path}: {names}\n" in capsys.readouterr().err
    assert main(["runs", runs[0].name[1:], "--runs-dir", str(tmp_path)]) == 1
    assert f"did you mean {runs[0].name}?" in capsys.readouterr().err
