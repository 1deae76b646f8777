from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from made import as_csv, made_run, make_rows, write_imdb
from tiny import TINY_FLAGS

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import build_parser, main
from grokfast.lab.config import fingerprint
from grokfast.lab.commands.flags import command_line
from grokfast.lab.report.markdown import MARKS

TRAIN = ["train", "modmul", *TINY_FLAGS, "--steps", "12"]


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(words)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_train_show_runs_compare(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    where = ("--runs-dir", str(runs_dir))
    code, out, _ = call(capsys, *TRAIN, *where)
    assert code == 0
    assert "modmul-baseline-wd0-s0" in out
    assert call(capsys, *TRAIN, "--filter", "ema", "--seed", "1", *where)[0] == 0
    assert "complete" in call(capsys, "runs", *where)[1]
    listed = json.loads(call(capsys, "runs", "--json", *where)[1])
    assert [run["status"] for run in listed] == ["complete", "complete"]
    shown = json.loads(call(capsys, "show", "modmul-ema", "--json", *where)[1])
    assert shown["config"]["filter"]["alpha"] == 0.98
    assert "alpha" in call(capsys, "show", "modmul-ema", *where)[1]
    names = [run["name"] for run in listed]
    compared = call(capsys, "compare", *names, *where)[1]
    assert "optim.weight_decay" in compared
    assert "loop.seed" in compared
    assert "task.p" not in compared


def test_json_prints_one_object_and_nothing_else(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    code, out, err = call(capsys, *TRAIN, "--json", "--runs-dir", str(runs_dir))
    assert code == 0
    assert json.loads(out)["summary"]["steps"] == 12
    assert err == ""


def test_quiet_prints_nothing(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    assert call(capsys, *TRAIN, "--quiet", "--runs-dir", str(runs_dir)) == (0, "", "")


def test_the_same_config_again_is_not_run_again(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    where = ("--runs-dir", str(runs_dir))
    call(capsys, *TRAIN, *where)
    (run,) = load_runs(runs_dir)
    stamp = (run.path / "summary.json").stat().st_mtime_ns
    code, out, _ = call(capsys, *TRAIN, *where)
    assert code == 0
    assert "has been run already" in out
    assert (run.path / "summary.json").stat().st_mtime_ns == stamp


def test_an_unfinished_run_offers_resume(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    where = ("--runs-dir", str(runs_dir))
    call(capsys, *TRAIN, *where)
    (run,) = load_runs(runs_dir)
    (run.path / "summary.json").unlink()
    (run.path / "checkpoints").mkdir()
    code, _, err = call(capsys, *TRAIN, *where)
    assert code == 1
    assert f"grokfast resume {run.name} --runs-dir" in err
    assert call(capsys, "resume", run.name, *where)[0] == 0
    assert run.status == "complete"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--filter", "ema", "--alpha", "2"], "alpha must be in [0, 1), got 2.0"),
        (["--until", "3"], "until must be in (0, 1], got 3.0"),
        (["--p", "8"], "p must be"),
        (["--device", "abacus"], "abacus"),
        (["--filter", "fir"], "taps must be a non-empty sequence"),
    ],
)
def test_bad_values_give_one_line(
    capsys: pytest.CaptureFixture[str], runs_dir: Path, words: list[str], message: str
) -> None:
    code, out, err = call(capsys, *TRAIN, *words, "--runs-dir", str(runs_dir))
    assert code == 1
    assert out == ""
    assert message in err
    assert err.count("\n") == 1
    assert load_runs(runs_dir) == []


@pytest.mark.parametrize(
    "words", [["--filter", "kalman"], ["--steps", "many"], ["--two-stage", "soon"], ["--colour", "red"]]
)
def test_unknown_words_are_refused_by_name(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*TRAIN, *words])
    assert stopped.value.code == 2
    assert words[1] in capsys.readouterr().err


def test_unknown_runs_are_refused(capsys: pytest.CaptureFixture[str], runs_dir: Path) -> None:
    for words in (["show", "x"], ["resume", "x"], ["compare", "x", "y"], ["report"]):
        code, _, err = call(capsys, *words, "--runs-dir", str(runs_dir))
        assert code == 1
        assert err.count("\n") == 1


def test_a_directory_that_cannot_be_made_gives_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    code, _, err = call(capsys, *TRAIN, "--runs-dir", str(tmp_path / "file" / "runs"))
    assert code == 1
    assert err.count("\n") == 1
    assert "file" in err


def test_a_full_disk_gives_one_line_and_leaves_earlier_files(tmp_path: Path) -> None:
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000));"
        "from grokfast.lab.commands.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    words = [*TRAIN, "--checkpoint-seconds", "0", "--quiet", "--runs-dir", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "file too large" in done.stderr
    (run,) = load_runs(tmp_path)
    assert [row.step for row in run.rows] == [3]
    assert list((run.path / "checkpoints").iterdir()) == []
    assert main(["resume", run.name, "--quiet", "--runs-dir", str(tmp_path)]) == 0


def test_interrupt_leaves_a_checkpoint_and_says_how_to_go_on(tmp_path: Path) -> None:
    words = ["train", "modmul", *TINY_FLAGS, "--steps", "1000000", "--runs-dir", str(tmp_path)]
    process = subprocess.Popen([sys.executable, "-m", "grokfast.lab.commands.cli", *words], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not any(run.rows for run in load_runs(tmp_path)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    (run,) = load_runs(tmp_path)
    assert process.returncode == 130
    assert f"grokfast resume {run.name}" in err
    assert len(list((run.path / "checkpoints").iterdir())) == 2


def test_plain_lines_when_the_output_is_no_terminal(
    capsys: pytest.CaptureFixture[str], runs_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grokfast.lab.commands.terminal.LINE_SECONDS", 0.0)
    _, _, err = call(capsys, *TRAIN, "--runs-dir", str(runs_dir))
    lines = err.splitlines()
    assert len(lines) == 4
    assert "step 12 of 12, train" in lines[-1]
    assert "steps/s" in lines[-1]
    assert "\x1b" not in err


def test_without_tensorboard_there_is_one_line_and_no_run(
    runs_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main([*TRAIN, "--tensorboard", "--quiet", "--runs-dir", str(runs_dir)]) == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert load_runs(runs_dir) == []


def test_compare_finds_settings_that_only_a_run_in_the_middle_has(
    runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, last = (made_run(runs_dir, "Baseline", seed, [0.5], task="mnist") for seed in (0, 1))
    middle = made_run(runs_dir, "Baseline", 0, [9.0])
    names = [run.name for run in (first, middle, last)]
    assert "task.molecules" in call(capsys, "compare", *names, "--runs-dir", str(runs_dir))[1]


def test_results_go_into_a_page_between_its_marks(
    tmp_path: Path, runs_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made_run(runs_dir, "Baseline", 0, [0.5, 0.1], task="mnist")
    page = tmp_path / "page.md"
    page.write_text(f"above\n{MARKS[0]}\nold\n{MARKS[1]}\nbelow\n")
    assert main(["results", str(runs_dir), "--summary", str(page)]) == 0
    assert "| mnist | Baseline | 0.01 | 1 | steps to 0.85 | 20 | 44,022 |" in page.read_text()
    assert "old" not in page.read_text()


def test_tensorboard_events_hold_the_rows(runs_dir: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert main([*TRAIN, "--tensorboard", "--quiet", "--runs-dir", str(runs_dir)]) == 0
    (run,) = load_runs(runs_dir)
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("val_accuracy")] == [row.step for row in run.rows]


def test_help_shows_the_papers_defaults(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    with pytest.raises(SystemExit):
        main(["train", "modmul", "--help"])
    out = capsys.readouterr().out
    for text in (
        "(default: 0.001)",
        "0.005 for ema",
        "0.01 for ma",
        "(default: 0.98)",
        "(default: 97)",
        "(default: 50000)",
    ):
        assert text in out


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["--filter", "ema"],
        ["--filter", "ma", "--window-size", "20", "--two-stage", "500", "--slow-only", "--weight-decay", "0.0"],
        ["--filter", "fir", "--taps", "0.5", "0.5", "--betas", "0.8", "0.9", "--until", "0.95", "--p", "11"],
    ],
)
def test_the_command_of_a_run_repeats_it(words: list[str]) -> None:
    from grokfast.lab.commands.train import config_from

    config = config_from(build_parser().parse_args(["train", "modmul", *words]))
    again = config_from(build_parser().parse_args(command_line(config).split()[1:]))
    assert again == config


def test_demo_leaves_a_page_and_a_picture(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "page" / "index.html"
    code, text, _ = call(capsys, "demo", "--quick", "--quiet", "-o", str(out), "--runs-dir", str(tmp_path / "runs"))
    assert code == 0
    assert "39,890" in text
    page = out.read_text()
    assert "Grokfast-EMA, seed 0" in page
    assert "http://" not in page.split("<script")[0]
    assert (out.parent / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_response_says_what_a_filter_does_and_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["response", "ema", "--alpha", "0.98", "--lamb", "2", "-o", str(tmp_path / "r.svg")]) == 0
    said = capsys.readouterr().out
    assert "EMA, alpha 0.98, lamb 2" in said
    assert "3.000" in said  # 1 + lamb of what is constant
    assert "311 steps" in said
    assert (tmp_path / "r.svg").read_text().startswith("<?xml")


def test_response_of_a_bad_value_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["response", "ema", "--alpha", "2"]) == 1
    assert capsys.readouterr().err == "grokfast: error: alpha must be in [0, 1), got 2.0\n"


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures_of_everything_a_run_recorded(tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--runs-dir", str(tmp_path / "runs"), "--quiet"]
    record = ["--steps", "300", "--snapshots", "3", "--gradients", "20", "--eval-every", "50"]
    assert main(["train", "modmul", "--filter", "ema", *TINY_FLAGS, *record, *folder]) == 0
    assert main(["figures", *folder[:2], "-o", str(tmp_path / "out"), "--format", ending]) == 0
    names = sorted(path.name.split("-")[0].split(".")[0] for path in (tmp_path / "out").iterdir())
    assert names == ["curves", "response", "spectrum", "theorem", "trajectories"]


def test_results_are_a_table_for_each_task_with_arms(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = ["--runs-dir", str(tmp_path / "runs"), "--quiet", "--threads", "1"]
    (tmp_path / "runs").mkdir()
    assert main(["results", *folder[:2]]) == 1
    assert "no complete run of one of the paper's arms" in capsys.readouterr().err
    for seed in ("0", "1"):
        assert main(["train", "modmul", "--filter", "ema", "--steps", "10", "--seed", seed, *folder]) == 0
    assert main(["results", *folder[:2], "-o", str(tmp_path / "r.md")]) == 0
    text = (tmp_path / "r.md").read_text()
    assert "| Grokfast-EMA | 0.005 | 2 | > 10 | > 10 | 910 |" in text
    assert "Grokfast-EMA: seeds 0, 1; 10 steps; evaluated once per epoch" in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lr", "-1"], "learning rate"),
        (["--betas", "2", "2"], "beta"),
        (["--optimizer", "sgd", "--nesterov"], "Nesterov"),
        (["--filter", "ema", "--two-stage", "-5"], "start"),
        (["--extra-steps", "5"], "extra_steps needs until"),
    ],
)
def test_values_out_of_range_leave_no_run(
    tmp_path: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, *TRAIN, *flags, "--runs-dir", str(tmp_path / "runs"))
    assert code == 1
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_a_trigger_on_accuracy_is_refused_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "train", "qm9", "--filter", "ema", "--two-stage", "auto")
    assert (code, err) == (
        1,
        "grokfast: error: two_stage auto needs a task with an accuracy, got one without: give a step\n",
    )


def test_the_same_settings_with_other_data_are_not_taken_for_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = write_imdb(tmp_path / "one", as_csv(make_rows(40)))
    other = write_imdb(tmp_path / "other", as_csv(make_rows(41)[1:]))
    small = ["--rows", "40", "--length", "12", "--width", "6", "--batch-size", "7", "--steps", "3", "--threads", "1"]
    flags = ["train", "imdb", *small, "--runs-dir", str(tmp_path / "runs"), "--data-dir"]
    assert call(capsys, *flags, str(one))[0] == 0
    assert "has been run already" in call(capsys, *flags, str(one))[1]
    code, _, err = call(capsys, *flags, str(other))
    assert code == 1
    assert "this run was begun with other data" in err


def test_a_missing_folder_and_a_file_are_no_folders_of_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert "a folder of runs must exist, got" in call(capsys, "results", str(tmp_path / "nowhere"))[2]
    assert "must be a directory of runs, got a file" in call(capsys, "runs", "--runs-dir", str(tmp_path / "file"))[2]


def test_numbers_below_zero_may_be_written_with_an_exponent(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "response", "fir", "--taps", "-1e-5", "0.5")[0] == 0


@pytest.mark.parametrize(
    "flags",
    [
        ["mnist", "--eval-log", "5"],
        ["imdb", "--variant", "paper", "--clip-norm", "0"],
        ["qm9", "--filter", "ma", "--two-stage", "7", "--target", "mu"],
        ["modmul", "--filter", "iir", "--b", "-1e-05", "0.5", "--a", "1", "--snapshots", "3", "--no-fast"],
    ],
)
def test_the_command_that_repeats_a_run_gives_its_configuration(flags: list[str]) -> None:
    from grokfast.lab.commands.train import config_from

    config = config_from(build_parser().parse_args(["train", *flags]))
    again = config_from(build_parser().parse_args(shlex.split(command_line(config))[1:]))
    assert fingerprint(again) == fingerprint(config)
