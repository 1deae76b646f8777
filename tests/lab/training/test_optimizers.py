"""Any optimizer: torch's by name, others by path, with their options; Muon's split; modes of schedule-free ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import TINY_FLAGS, comparable, tiny

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main
from grokfast.lab.runs.recording import load_snapshots
from grokfast.lab.settings import OPTIMIZERS, command_line, optim_of, resolve
from grokfast.lab.tasks.modular.transformer import Decoder
from grokfast.lab.training.loop import Watcher
from grokfast.lab.training.optim import make_optimizers
from grokfast.lab.training.run import train

LION, FREE = "pytorch_optimizer:Lion", "pytorch_optimizer:ScheduleFreeAdamW"
OWN = """
import torch
class Plain(torch.optim.Optimizer):
    def __init__(self, params, lr, push=1.0):
        super().__init__(params, {"lr": lr, "push": push})
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.sub_(p.grad, alpha=group["lr"] * group["push"])
"""


def model() -> Decoder:
    return Decoder(width=8, depth=1, heads=2, vocabulary=9)


def built(**settings: Any) -> list[torch.optim.Optimizer]:
    return make_optimizers(model(), optim_of(tiny(**settings)))


@pytest.mark.parametrize("name", sorted(OPTIMIZERS))
def test_every_name_that_is_offered_trains(name: str, tmp_path: Path) -> None:
    run = train(tiny(optimizer=name, filter="ema", steps=4), tmp_path)
    assert run.done
    assert run.rows[-1].weight_norm > 0


def test_a_class_by_path_gets_our_settings_and_its_own_defaults() -> None:
    (lion,) = built(optimizer=LION, lr=2e-3, weight_decay=0.5)
    assert type(lion).__name__ == "Lion"
    group = lion.param_groups[0]
    assert (group["lr"], group["weight_decay"], group["betas"]) == (2e-3, 0.5, (0.9, 0.99))
    (given,) = built(optimizer=LION, betas=(0.9, 0.97), optimizer_option=(("weight_decouple", False),))
    assert given.param_groups[0]["betas"] == (0.9, 0.97)
    assert given.param_groups[0]["weight_decouple"] is False
    assert tiny(optimizer="pytorch_optimizer:AdEMAMix")["betas"] == [0.9, 0.999, 0.9999]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "pytorch_optimizer:Lyon"}, r"pytorch_optimizer:Lyon cannot be loaded"),
        ({"optimizer": "adamm"}, r"optimizer must be one of adam, .* or FILE.py:CLASS, got adamm"),
        ({"optimizer": "torch.nn:Linear"}, r"must name a subclass of torch.optim.optimizer.Optimizer"),
        ({"optimizer": LION, "momentum": 0.5}, r"momentum has no effect on pytorch_optimizer:Lion: it is for sgd"),
        ({"optimizer_option": (("lr", 1.0),)}, r"must not be a setting that has a flag, got lr: give --lr"),
        ({"optimizer": LION, "optimizer_option": (("warm", 1),)}, r"must be one of .*maximize.* for .*Lion, got warm"),
        ({"muon_params": "hidden"}, r"muon_params has no effect on adam: it is for muon"),
        ({"companion_lr": 1e-3}, r"companion_lr has no effect on adam: it is for muon"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(**settings)


def test_a_decay_that_a_class_does_not_take_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    name = f"{tmp_path / 'mine.py'}:Plain"
    assert built(optimizer=name, weight_decay=0.0)[0].param_groups[0]["push"] == 1.0
    with pytest.raises(ValueError, match=r"weight_decay must be 0 with .*:Plain, got 0.1"):
        built(optimizer=name, weight_decay=0.1)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("torch.optim:SparseAdam", "does not support dense gradients"),
        ("torch.optim:LBFGS", "closure"),
        ("pytorch_optimizer:LOMO", "LOMO"),
    ],
)
def test_an_optimizer_that_cannot_step_is_refused_in_one_line_before_there_is_a_run(
    name: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "modmul", *TINY_FLAGS, "--optimizer", name, "--runs-dir", str(tmp_path / "runs")]
    assert main([*words, "--weight-decay", "0"]) == 1
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
    assert not (tmp_path / "runs").exists()


def test_flags_reach_the_class_and_the_command_of_the_run_repeats_it(tmp_path: Path) -> None:
    words = ["--optimizer", "pytorch_optimizer:AdEMAMix", "--betas", "0.9", "0.99", "0.999", "--steps", "4"]
    words += ["--optimizer-option", "alpha=3", "--optimizer-option", "weight_decouple=True"]
    assert main(["train", "modmul", *TINY_FLAGS, *words, "--runs-dir", str(tmp_path), "--quiet"]) == 0
    (run,) = load_runs(tmp_path)
    assert run.name.startswith("modmul-p7-width16-pytorch_optimizer_AdEMAMix-baseline-lr0.001-wd0-s0-")
    assert run.settings["optimizer_option"] == [["alpha", 3], ["weight_decouple", True]]
    command = command_line(run.settings)
    assert "--optimizer-option alpha=3 --optimizer-option weight_decouple=True" in command
    assert "--betas 0.9 0.99 0.999" in command


# A run directory never imports ---------------------------------------------------------------------------------------


def test_looking_at_a_run_imports_no_optimizer_and_resuming_asks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped = train(tiny(optimizer=LION), tmp_path, Watcher(should_stop=lambda: True))
    del OPTIMIZERS[LION]  # as in a new process
    where = ["--runs-dir", str(tmp_path)]
    assert main(["runs", stopped.name, *where]) == 0
    assert LION not in OPTIMIZERS
    assert main(["train", "--resume", stopped.name, *where, "--quiet"]) == 1
    assert f"grokfast train --resume {stopped.name} --optimizer {LION} --runs-dir" in capsys.readouterr().err
    assert main(["train", "--resume", stopped.name, *where, "--quiet", "--optimizer", LION]) == 0
    assert stopped.status == "complete"


# Muon ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "count"), [("all", 7), ("matrices", 5), ("hidden", 4)])
def test_muon_takes_the_matrices_it_is_told_to(which: str, count: int) -> None:
    muon, companion = built(optimizer="muon", muon_params=which)
    assert len(muon.param_groups[0]["params"]) == count
    total = len(list(model().parameters()))
    assert len(companion.param_groups[0]["params"]) == total - count


def test_the_companion_of_muon_has_a_rate_and_a_decay_of_its_own(tmp_path: Path) -> None:
    settings = {"optimizer": "muon", "lr": 0.02, "weight_decay": 0.1, "optimizer_option": (("momentum", 0.9),)}
    muon, companion = built(**settings, companion_lr=1e-3, companion_decay=0.0)
    assert (muon.param_groups[0]["lr"], muon.param_groups[0]["momentum"]) == (0.02, 0.9)
    assert (companion.param_groups[0]["lr"], companion.param_groups[0]["weight_decay"]) == (1e-3, 0.0)
    assert built(**settings)[1].param_groups[0]["lr"] == 0.02
    still, moved = (train(tiny(**settings, companion_lr=lr, steps=5), tmp_path).weights() for lr in (1e-9, 1e-2))
    start = train(tiny(**{**settings, "lr": 1e-9}, companion_lr=1e-9, steps=5), tmp_path).weights()
    assert torch.allclose(still["tokens.weight"], start["tokens.weight"], atol=1e-6)
    assert not torch.allclose(moved["tokens.weight"], start["tokens.weight"], atol=1e-3)
    assert not torch.allclose(still["head.weight"], start["head.weight"], atol=1e-3)


# Schedule-free -------------------------------------------------------------------------------------------------------


def test_schedule_free_is_evaluated_and_kept_at_the_average_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    config = tiny(optimizer=FREE, lr=0.01, eval_every=5, snapshots=2, steps=20)
    whole = train(config, tmp_path / "whole")
    assert not train(config, tmp_path / "parts", Watcher(should_stop=lambda: True)).done
    parts = train(config, tmp_path / "parts")
    assert comparable(parts.rows) == comparable(whole.rows)
    last = dict(load_snapshots(whole))[20]
    assert all(torch.allclose(last[name], value, atol=1e-5) for name, value in whole.weights().items())
    norm = torch.stack([value.norm() for value in whole.weights().values()]).norm()
    assert abs(float(norm) - whole.rows[-1].weight_norm) < 1e-3


def test_modes_are_switched_around_every_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grokfast.lab.tasks.modular.task import ModularTask
    from grokfast.lab.training import loop

    made: list[torch.optim.Optimizer] = []
    make, evaluate, loss = loop.optim.make_optimizers, ModularTask.evaluate, ModularTask.loss
    seen: list[tuple[str, bool]] = []

    def keep(*args: Any) -> list[torch.optim.Optimizer]:
        made[:] = make(*args)
        return made

    def note(what: str, original: Any) -> Any:
        def noted(*args: Any) -> Any:
            seen.append((what, made[0].param_groups[0]["train_mode"]))
            return original(*args)

        return noted

    monkeypatch.setattr(loop.optim, "make_optimizers", keep)
    monkeypatch.setattr(ModularTask, "evaluate", note("evaluate", evaluate))
    monkeypatch.setattr(ModularTask, "loss", note("loss", loss))
    train(tiny(optimizer=FREE, eval_every=2, steps=4), tmp_path)
    assert set(seen) == {("loss", True), ("evaluate", False)}


def test_muon_takes_a_model_of_matrices_alone() -> None:
    config = optim_of(resolve("addition", optimizer="muon", muon_params="all"))
    optimizers = make_optimizers(torch.nn.Linear(3, 2, bias=False), config)
    assert [type(optimizer).__name__ for optimizer in optimizers] == ["Muon"]
