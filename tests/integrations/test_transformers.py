"""The Trainer of Transformers with a filter does what a loop written by hand with grokfast.attach does."""

import importlib.util
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import grokfast

pytest.importorskip("transformers")

from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import LayerWiseDummyOptimizer

import grokfast.integrations.transformers as module
from grokfast.integrations.transformers import GrokfastCallback, grokfast_optimizer

STEPS, HALF = 20, 10
EMA = grokfast.EMA(alpha=0.9, lamb=2.0)
Batch = dict[str, Tensor]


class Tiny(nn.Module):
    """A regression that writes down what it is given."""

    def __init__(self, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head = nn.Linear(3, 5, dtype=dtype), nn.Linear(5, 1, dtype=dtype)
        self.scale = scale
        self.seen: list[Batch] = []

    def forward(self, x: Tensor, labels: Tensor) -> Batch:
        self.seen.append({"x": x, "labels": labels})
        logits = self.head(torch.tanh(self.body(x.to(self.body.weight.dtype))))[:, 0]
        return {"loss": self.scale * nn.functional.mse_loss(logits.float(), labels), "logits": logits}


def data() -> list[Batch]:
    made = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(60, 3, generator=made), torch.randn(60, generator=made)
    return [{"x": x, "labels": label} for x, label in zip(inputs, labels, strict=True)]


DATA = data()


def arguments(path: Path, **changes: Any) -> TrainingArguments:
    given = {
        "output_dir": str(path),
        "max_steps": STEPS,
        "per_device_train_batch_size": 4,
        "learning_rate": 0.01,
        "weight_decay": 0.1,
        "lr_scheduler_type": "constant",
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
        "logging_strategy": "no",
        "save_strategy": "no",
        "dataloader_pin_memory": False,
    }
    return TrainingArguments(**{**given, **changes})


def by_callback(model: nn.Module, args: TrainingArguments, filter: grokfast.Filter = EMA, **options: Any) -> Trainer:
    return Trainer(model, args, train_dataset=DATA, callbacks=[GrokfastCallback(filter, **options)])


def by_optimizer(model: nn.Module, args: TrainingArguments, filter: grokfast.Filter = EMA) -> Trainer:
    choice = grokfast_optimizer(Trainer.get_optimizer_cls_and_kwargs(args), filter)
    return Trainer(model, args, train_dataset=DATA, optimizer_cls_and_kwargs=choice)


def by_own_optimizer(model: nn.Module, args: TrainingArguments, filter: grokfast.Filter = EMA) -> Trainer:
    optimizers = (optimizer_of(model, args), None)
    callbacks = [GrokfastCallback(filter)]
    return Trainer(model, args, train_dataset=DATA, optimizers=optimizers, callbacks=callbacks)


WAYS = [by_callback, by_optimizer, by_own_optimizer]
Way = Callable[..., Trainer]


def optimizer_of(model: nn.Module, args: TrainingArguments) -> torch.optim.Optimizer:
    cls, kwargs = Trainer.get_optimizer_cls_and_kwargs(args)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": args.weight_decay}, {"params": rest, "weight_decay": 0.0}]
    return cls(groups, **kwargs)


def train_by_hand(model: Tiny, args: TrainingArguments, batches: list[Batch], *, clip_norm: float = 0.0) -> Tiny:
    """What the Trainer should come to; `clip_norm` clips after the filter, `args.max_grad_norm` before it."""
    optimizer = optimizer_of(model, args)
    handle = grokfast.attach(optimizer, EMA)
    size = args.gradient_accumulation_steps
    for start in range(0, len(batches), size):
        model.zero_grad()
        for batch in batches[start : start + size]:
            with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
                loss = model(**batch)["loss"]
            (loss / size).backward()
        if args.max_grad_norm:
            nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
        if clip_norm:
            handle.apply()
            nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
    assert handle.step == len(batches) // size
    return model


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {"max_grad_norm": 0.0},
    "accumulation": {"gradient_accumulation_steps": 3},
    "clipping": {"max_grad_norm": 0.5},
    "bf16": {"bf16": True},
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("way", WAYS)
def test_trainer_equals_a_loop_written_by_hand(way: Way, setting: str, tmp_path: Path) -> None:
    args = arguments(tmp_path, **SETTINGS[setting])
    scale = 30.0 if args.max_grad_norm == 0.5 else 1.0
    model = Tiny(scale=scale)
    way(model, args).train()
    assert len(model.seen) == STEPS * args.gradient_accumulation_steps
    assert equal(model, train_by_hand(Tiny(scale=scale), args, model.seen))


@pytest.mark.parametrize("optim", ["adamw_torch", "adamw_torch_fused", "sgd", "adafactor", "rmsprop", "adagrad"])
def test_every_optimizer_of_the_trainer_is_filtered(optim: str, tmp_path: Path) -> None:
    args = arguments(tmp_path, optim=optim)
    model = Tiny()
    by_callback(model, args).train()
    assert equal(model, train_by_hand(Tiny(), args, model.seen))


def test_filter_then_clip_equals_a_loop_written_by_hand(tmp_path: Path) -> None:
    args = arguments(tmp_path, max_grad_norm=0.0)
    model = Tiny(scale=30.0)
    by_callback(model, args, clip_norm=0.5).train()
    assert equal(model, train_by_hand(Tiny(scale=30.0), args, model.seen, clip_norm=0.5))


BUTTERWORTH = grokfast.Butterworth(2, 0.05, 1.0)  # its state is float64


@pytest.mark.parametrize(
    ("filter", "dtype"),
    [(EMA, torch.float32), (EMA, torch.bfloat16), (BUTTERWORTH, torch.float32)],
    ids=["fp32", "bf16 parameters", "float64 state"],
)
@pytest.mark.parametrize("way", WAYS)
def test_resumed_equals_uninterrupted(way: Way, filter: grokfast.Filter, dtype: torch.dtype, tmp_path: Path) -> None:
    args = arguments(tmp_path, save_strategy="steps", save_steps=HALF)
    whole, resumed = Tiny(dtype), Tiny(dtype)
    first = way(whole, args, filter)
    first.train()
    second = way(resumed, args, filter)
    second.train(resume_from_checkpoint=str(tmp_path / f"checkpoint-{HALF}"))
    assert len(resumed.seen) == STEPS - HALF
    assert equal(whole, resumed)
    assert same_state(first, second)


def same_state(one: Trainer, other: Trainer) -> bool:
    """Whether two optimizers hold the same bits, the filter's included."""
    pairs = zip(one.optimizer.state.values(), other.optimizer.state.values(), strict=True)  # type: ignore
    return all(
        a.keys() == b.keys()
        and "grokfast_count" in a
        and all(torch.equal(v, b[k]) and v.dtype == b[k].dtype for k, v in a.items() if isinstance(v, Tensor))
        for a, b in pairs
    )


def half_trained(path: Path) -> Path:
    """A checkpoint in the middle of a run with bf16 parameters."""
    args = arguments(path, save_strategy="steps", save_steps=HALF, max_steps=HALF)
    by_callback(Tiny(torch.bfloat16), args).train()
    return path / f"checkpoint-{HALF}"


@pytest.mark.parametrize("way", [by_optimizer, by_own_optimizer])
def test_attached_before_loading_any_checkpoint_will_do(way: Way, tmp_path: Path) -> None:
    checkpoint = half_trained(tmp_path / "one")
    resumed, whole = (way(Tiny(torch.bfloat16), arguments(tmp_path / "two")) for _ in range(2))
    resumed.train(resume_from_checkpoint=str(checkpoint))
    whole.train()
    assert same_state(resumed, whole)


def test_rounded_state_whose_checkpoint_is_not_found_is_refused(tmp_path: Path) -> None:
    checkpoint = half_trained(tmp_path / "one")
    trainer = by_callback(Tiny(torch.bfloat16), arguments(tmp_path / "two"))
    with pytest.raises(
        RuntimeError, match=r"in the dtype of the parameters, and the checkpoint .*resume_from_checkpoint"
    ):
        trainer.train(resume_from_checkpoint=str(checkpoint))


@pytest.mark.parametrize("change", ["values", "names"])
def test_rounded_state_is_not_taken_from_another_checkpoint(change: str, tmp_path: Path) -> None:
    checkpoint = half_trained(tmp_path / "one")
    other = tmp_path / "two" / f"checkpoint-{HALF}"
    shutil.copytree(checkpoint, other)
    saved = torch.load(other / "optimizer.pt")
    if change == "values":
        saved["state"][0]["grokfast_slow"].mul_(2.0)
    else:
        saved["state"][0]["grokfast_total"] = saved["state"][0].pop("grokfast_slow")
    torch.save(saved, other / "optimizer.pt")
    with pytest.raises(RuntimeError, match="in the dtype of the parameters"):
        by_callback(Tiny(torch.bfloat16), arguments(tmp_path / "two")).train(resume_from_checkpoint=str(checkpoint))


def test_rounded_state_is_taken_from_the_checkpoint_named_in_the_arguments(tmp_path: Path) -> None:
    checkpoint = half_trained(tmp_path / "one")
    args = arguments(tmp_path / "two", resume_from_checkpoint=str(checkpoint))
    resumed, whole = (by_callback(Tiny(torch.bfloat16), args) for _ in range(2))
    resumed.train(resume_from_checkpoint=str(checkpoint))
    whole.train()
    assert same_state(resumed, whole)


def test_checkpoint_without_filter_is_named_when_resumed(tmp_path: Path) -> None:
    args = arguments(tmp_path, save_strategy="steps", save_steps=HALF, max_steps=HALF)
    Trainer(Tiny(), args, train_dataset=DATA).train()
    trainer = by_callback(Tiny(), arguments(tmp_path))
    with pytest.warns(UserWarning, match="no grokfast state: the filter starts anew"):
        trainer.train(resume_from_checkpoint=True)


def test_trained_again_the_filter_continues(tmp_path: Path) -> None:
    callback = GrokfastCallback(EMA)
    trainer = Trainer(Tiny(), arguments(tmp_path, max_steps=3), train_dataset=DATA, callbacks=[callback])
    trainer.train()
    handle = callback.handle
    trainer.train()
    assert callback.handle is handle
    assert handle is not None
    assert handle.step == 6


def test_callback_moves_on_to_the_next_optimizer(tmp_path: Path) -> None:
    callback = GrokfastCallback(EMA)
    args = arguments(tmp_path, max_steps=3)
    Trainer(Tiny(), args, train_dataset=DATA, callbacks=[callback]).train()
    first = callback.handle
    Trainer(Tiny(), args, train_dataset=DATA, callbacks=[callback]).train()
    assert callback.handle is not first
    assert callback.handle is not None
    assert callback.handle.step == 3


def test_optimizer_made_is_a_plain_instance_of_the_class_chosen(tmp_path: Path) -> None:
    trainer = by_optimizer(Tiny(), arguments(tmp_path))
    assert type(trainer.create_optimizer()) is torch.optim.AdamW
    cls, _ = grokfast_optimizer((torch.optim.AdamW, {}), EMA)
    assert str(cls) == str(torch.optim.AdamW)  # the Trainer looks for "bitsandbytes" in it


def test_start_and_nonfinite_reach_the_attachment(tmp_path: Path) -> None:
    callback = GrokfastCallback(EMA, start=7, nonfinite="raise")
    Trainer(Tiny(), arguments(tmp_path, max_steps=1), train_dataset=DATA, callbacks=[callback]).train()
    assert callback.handle is not None
    assert (callback.handle.start, callback.handle.nonfinite) == (7, "raise")
    model = Tiny(scale=float("inf"))
    choice = grokfast_optimizer((torch.optim.SGD, {"lr": 0.1}), EMA, nonfinite="raise")
    trainer = Trainer(model, arguments(tmp_path), train_dataset=DATA, optimizer_cls_and_kwargs=choice)
    with pytest.raises(FloatingPointError, match="gradients must be finite"):
        trainer.train()


# What is refused --------------------------------------------------------------------------------------------------


class Lomo(torch.optim.SGD):
    """Bears the name of one that updates the parameters during backward."""


class GrokAdamW(torch.optim.SGD):
    """Bears the name of one with a filter inside."""


def with_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, path: Path, **options: Any) -> Trainer:
    callbacks = [GrokfastCallback(EMA, **options)]
    args = arguments(path, max_steps=3)
    return Trainer(model, args, train_dataset=DATA, optimizers=(optimizer, None), callbacks=callbacks)


@pytest.mark.parametrize("kind", [LayerWiseDummyOptimizer, Lomo, GrokAdamW])
def test_optimizers_that_would_bypass_or_double_the_filter_are_refused(kind: Any, tmp_path: Path) -> None:
    model = Tiny()
    optimizer = kind(lr=0.1) if kind is LayerWiseDummyOptimizer else kind(model.parameters(), lr=0.1)
    with pytest.raises(TypeError, match=f"optimizer must run the filter once per step: {kind.__name__} "):
        with_optimizer(optimizer, model, tmp_path)
    with pytest.raises(TypeError, match=f"optimizer must run the filter once per step: {kind.__name__} "):
        grokfast_optimizer((kind, {}), EMA)


def test_step_that_bypasses_the_filter_is_an_error(tmp_path: Path) -> None:
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = with_optimizer(optimizer, model, tmp_path)
    optimizer.step = lambda closure=None: None  # type: ignore[method-assign]  # as a host that steps by itself
    with pytest.raises(RuntimeError, match=r"saw no gradient in an optimizer step: the Trainer bypasses SGD.step"):
        trainer.train()


def test_first_step_with_an_infinite_gradient_is_no_bypass(tmp_path: Path) -> None:
    model = Tiny(scale=float("inf"))
    trainer = with_optimizer(torch.optim.SGD(model.parameters(), lr=0.1), model, tmp_path, nonfinite="skip")
    with pytest.warns(UserWarning, match="inf or NaN in the gradient of"):
        trainer.train()


def test_metrics_are_logged_when_asked_for(tmp_path: Path) -> None:
    model = Tiny()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    trainer = with_optimizer(optimizer, model, tmp_path, log_every=2)
    trainer.train()
    logged = [row for row in trainer.state.log_history if "grokfast/ratio" in row]
    assert [row["step"] for row in logged] == [2]
    assert logged[0]["grokfast/steps"] == 2.0
    with pytest.raises(ValueError, match="log_every must be an integer >= 1 or None, got 0"):
        GrokfastCallback(EMA, log_every=0)


def host(kind: str, version: int = 2) -> Callable[[], Any]:
    plugin = types.SimpleNamespace(fsdp_version=version)
    return lambda: types.SimpleNamespace(distributed_type=kind, fsdp_plugin=plugin)


@pytest.mark.parametrize(
    ("state", "way", "message"),
    [
        (host("DEEPSPEED"), by_callback, "DEEPSPEED steps in its own engine"),
        (host("DEEPSPEED"), by_optimizer, "DEEPSPEED steps in its own engine"),
        (host("MEGATRON_LM"), by_optimizer, "MEGATRON_LM steps in its own engine"),
        (host("FSDP", 1), by_optimizer, "FSDP version 1"),
        (host("FSDP"), by_callback, "use grokfast_optimizer instead"),
    ],
)
def test_hosts_that_would_bypass_the_filter_are_refused(
    state: Any, way: Way, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "AcceleratorState", state)
    with pytest.raises(RuntimeError, match=message):
        way(Tiny(), arguments(tmp_path)).train()


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    for value in (0, -1.0, float("nan")):
        with pytest.raises(ValueError, match=f"clip_norm must be > 0 or None, got {value}"):
            GrokfastCallback(EMA, clip_norm=value)
    with pytest.raises(ValueError, match=r"clip_norm needs max_grad_norm=0 in the training arguments, got 1.0"):
        by_callback(Tiny(), arguments(tmp_path), clip_norm=1.0).train()
    with pytest.raises(TypeError, match=r"choice must begin with a subclass of torch.optim.Optimizer, got <function"):
        grokfast_optimizer((with_optimizer, {}), EMA)  # type: ignore[arg-type]


def import_again() -> None:
    spec = importlib.util.spec_from_file_location("again", module.__file__)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


@pytest.mark.parametrize("name", ["transformers", "accelerate.state"])
def test_missing_extra_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'pip install "grokfast\[transformers\]"'):
        import_again()


def test_version_too_old_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["transformers"], "__version__", "4.57.1")
    with pytest.raises(ImportError, match=r"needs transformers >= 5, got 4\.57\.1"):
        import_again()
