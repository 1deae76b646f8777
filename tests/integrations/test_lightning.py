"""Lightning trains exactly as a loop by hand with `grokfast.attach` on the same batches, in every mode it has."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from torch import Tensor, nn
from torch.optim import SGD, AdamW, Optimizer
from torch.utils.data import DataLoader

import grokfast
from grokfast import EMA, MA, Attachment, Saturation
from grokfast.integrations import lightning as integration
from grokfast.integrations.lightning import GrokfastCallback

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec.*is deprecated:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
]
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

FILTER = EMA(alpha=0.9, lamb=2.0)
STEPS = 20
POISONED = (0, 7, 8)  # batches whose gradients overflow under a GradScaler
_generator = torch.Generator().manual_seed(0)
BATCHES = [(torch.randn(8, 4, generator=_generator), torch.randn(8, 2, generator=_generator)) for _ in range(3 * STEPS)]


def make_net() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def adamw(params: Iterable[nn.Parameter]) -> Optimizer:
    return AdamW(params, lr=1e-2, weight_decay=0.1)


def mse(net: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return nn.functional.mse_loss(net(batch[0]).float(), batch[1].float())


def poison(net: nn.Module, index: int, poisoned: tuple[int, ...]) -> None:
    if index in poisoned:
        next(net.parameters()).grad[0, 0] = torch.inf  # type: ignore[index]


class Training:
    """What a Lightning module of either package needs."""

    def __init__(self, configure: Callable[[Any], Any] = adamw, poisoned: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.net, self.configure, self.poisoned, self.index = make_net(), configure, poisoned, 0

    def configure_optimizers(self) -> Any:
        return self.configure(self.net.parameters())

    def training_step(self, batch: Any, index: int) -> Tensor | None:
        self.index = index
        return mse(self.net, batch)

    def on_after_backward(self) -> None:
        poison(self.net, self.index, self.poisoned)


class Module(Training, pl.LightningModule):
    pass


class Manual(Module):
    """Two optimizers, one per layer, the second one every other batch."""

    automatic_optimization = False  # type: ignore

    def configure_optimizers(self) -> Any:
        return [adamw(self.net[0].parameters()), SGD(self.net[2].parameters(), lr=0.1)]

    def training_step(self, batch: Any, index: int) -> None:
        for i, optimizer in enumerate(self.optimizers()):  # type: ignore[arg-type]
            if i == 0 or index % 2:
                self.toggle_optimizer(optimizer)
                optimizer.zero_grad()
                self.manual_backward(mse(self.net, batch))
                optimizer.step()
                self.untoggle_optimizer(optimizer)


def make_trainer(*callbacks: pl.Callback, host: Any = pl, **options: Any) -> Any:
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    checkpoints = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
    length = {} if {"max_epochs", "fast_dev_run"} & set(options) else {"max_steps": STEPS, "max_epochs": -1}
    options = {"enable_checkpointing": checkpoints, **quiet, **length, **options}
    return host.Trainer(accelerator="cpu", devices=1, callbacks=list(callbacks), **options)


def loader(batches: list[Any] = BATCHES) -> Any:
    return DataLoader(batches, batch_size=None)  # type: ignore[arg-type]


def fit(module: pl.LightningModule, callback: GrokfastCallback, batches: list[Any] = BATCHES, **options: Any) -> Any:
    trainer = make_trainer(callback, **options)
    trainer.fit(module, loader(batches))
    return trainer


def by_hand(
    *,
    precision: str = "32-true",
    accumulate: int = 1,
    clip: float | None = None,
    order: str = "clip-then-filter",
    poisoned: tuple[int, ...] = (),
    batches: list[Any] = BATCHES,
    steps: int = STEPS,
) -> tuple[nn.Module, Attachment]:
    """The loop a person would write."""
    dtype = torch.bfloat16 if precision == "bf16-true" else torch.float32
    net = make_net().to(dtype)
    optimizer = adamw(net.parameters())
    handle = grokfast.attach(optimizer, FILTER)
    scaler = torch.amp.GradScaler("cpu", enabled=precision == "16-mixed")
    for i, (x, y) in enumerate(batches[: accumulate * steps]):
        if i % accumulate == 0:
            optimizer.zero_grad()
        with autocast(precision):
            loss = mse(net, (x.to(dtype), y.to(dtype)))
        scaler.scale(loss / accumulate).backward()
        poison(net, i, poisoned)
        if (i + 1) % accumulate:
            continue
        scaler.unscale_(optimizer)
        if order == "filter-then-clip":
            handle.apply()
        if clip is not None:
            nn.utils.clip_grad_norm_(net.parameters(), clip)
        scaler.step(optimizer)
        scaler.update()
    return net, handle


def autocast(precision: str) -> Any:
    dtypes = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
    if precision not in dtypes:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=dtypes[precision], cache_enabled=False)


def assert_same(net: nn.Module, handle: Attachment, expected_net: nn.Module, expected: Attachment) -> None:
    """Parameters, filter states and step counts are equal, bit for bit."""
    for p, q in zip(net.parameters(), expected_net.parameters(), strict=True):
        assert torch.equal(p, q)
        assert handle.state[p].keys() == expected.state[q].keys()
        for name, tensor in handle.state[p].items():
            assert tensor.dtype is torch.float32
            assert torch.equal(tensor, expected.state[q][name])
    assert handle.step == expected.step


MODES: dict[str, dict[str, Any]] = {
    "plain": {},
    "accumulation": {"accumulate": 3},
    "clip-then-filter": {"clip": 0.1},
    "filter-then-clip": {"clip": 0.1, "order": "filter-then-clip"},
    "filter-then-clip-accumulation": {"clip": 0.1, "order": "filter-then-clip", "accumulate": 3},
    "bf16-mixed": {"precision": "bf16-mixed", "clip": 0.1, "order": "filter-then-clip"},
    "bf16-true": {"precision": "bf16-true"},
    "16-mixed": {"precision": "16-mixed", "poisoned": POISONED},
    "16-mixed-clip-then-filter": {"precision": "16-mixed", "poisoned": POISONED, "clip": 0.1},
    "16-mixed-filter-then-clip": {
        "precision": "16-mixed", "poisoned": POISONED, "clip": 0.1, "order": "filter-then-clip",
    },
}  # fmt: skip


def fp16() -> MixedPrecision:
    """Lightning offers 16-mixed on accelerators only, by a check; its plugin runs on the CPU as well."""
    return MixedPrecision("16-mixed", "cpu")


def options_of(mode: dict[str, Any]) -> dict[str, Any]:
    """A mode as the trainer's options."""
    precision = mode.get("precision", "32-true")
    numbers = {"plugins": [fp16()]} if precision == "16-mixed" else {"precision": precision}
    return {"accumulate_grad_batches": mode.get("accumulate", 1), "gradient_clip_val": mode.get("clip"), **numbers}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_fit_equals_a_loop_by_hand(mode: dict[str, Any]) -> None:
    callback = GrokfastCallback(FILTER, order=mode.get("order", "clip-then-filter"))
    module = Module(poisoned=mode.get("poisoned", ()))
    trainer = fit(module, callback, **options_of(mode))
    assert trainer.global_step == STEPS
    assert callback.handles[0].step == STEPS - len(mode.get("poisoned", ()))
    assert_same(module.net, callback.handles[0], *by_hand(**mode))


def test_filter_then_clip_bounds_the_gradient_and_clip_then_filter_amplifies_it() -> None:
    """Batches that are all the same make the slow part equal to the gradient."""
    norms = {}
    for order in ("clip-then-filter", "filter-then-clip"):
        module = Module(lambda params: SGD(params, lr=0.0))
        fit(module, GrokfastCallback(FILTER, order=order), BATCHES[:1] * 3, gradient_clip_val=1e-3, max_epochs=1)
        norms[order] = nn.utils.get_total_norm([p.grad for p in module.parameters()]).item()  # type: ignore[misc]
    assert norms == pytest.approx({"clip-then-filter": 3e-3, "filter-then-clip": 1e-3}, rel=1e-2)


def hand_manual(filters: tuple[grokfast.Filter | None, ...]) -> nn.Module:
    net = make_net()
    optimizers = [adamw(net[0].parameters()), SGD(net[2].parameters(), lr=0.1)]
    for optimizer, filter in zip(optimizers, filters, strict=True):
        if filter is not None:
            grokfast.attach(optimizer, filter)
    for index, batch in enumerate(BATCHES[:STEPS]):
        for i, optimizer in enumerate(optimizers):
            if i == 0 or index % 2:
                optimizer.zero_grad()
                mse(net, batch).backward()
                optimizer.step()
    return net


@pytest.mark.parametrize(
    ("callbacks", "filters"),
    [
        ([GrokfastCallback(FILTER)], (FILTER, FILTER)),
        ([GrokfastCallback(FILTER, optimizers=(0,))], (FILTER, None)),
        ([GrokfastCallback(FILTER, optimizers=[1])], (None, FILTER)),
        (
            [GrokfastCallback(FILTER, optimizers=(0,)), GrokfastCallback(MA(window_size=3), optimizers=(1,))],
            (FILTER, MA(window_size=3)),
        ),
    ],
    ids=["both", "first", "second", "each-its-own"],
)
def test_manual_optimization_equals_a_loop_by_hand(callbacks: list[GrokfastCallback], filters: Any) -> None:
    module = Manual()
    trainer = make_trainer(*callbacks, max_epochs=1)
    trainer.fit(module, loader(BATCHES[:STEPS]))
    steps = [handle.step for callback in callbacks for handle in callback.handles]
    assert steps == [n for n, filter in zip((STEPS, STEPS // 2), filters, strict=True) if filter is not None]
    for p, q in zip(module.net.parameters(), hand_manual(filters).parameters(), strict=True):
        assert torch.equal(p, q)


def test_manual_optimization_can_filter_before_it_clips() -> None:
    """By the handle, as the refusal of order="filter-then-clip" advises."""
    callback = GrokfastCallback(FILTER)

    class Clipping(Module):
        automatic_optimization = False  # type: ignore

        def training_step(self, batch: Any, index: int) -> None:
            optimizer: Any = self.optimizers()
            optimizer.zero_grad()
            self.manual_backward(mse(self.net, batch))
            callback.handles[0].apply()
            self.clip_gradients(optimizer, 0.1, "norm")
            optimizer.step()

    module = Clipping()
    fit(module, callback)
    assert_same(module.net, callback.handles[0], *by_hand(clip=0.1, order="filter-then-clip"))


def test_schedulers_see_the_same_steps() -> None:
    def configure(params: Any) -> dict[str, Any]:
        optimizer = adamw(params)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step", "frequency": 5}}

    module, callback = Module(configure), GrokfastCallback(FILTER, start=3)
    fit(module, callback)
    net = make_net()
    optimizer = adamw(net.parameters())
    handle = grokfast.attach(optimizer, FILTER, start=3)
    for index, batch in enumerate(BATCHES[:STEPS]):
        optimizer.zero_grad()
        mse(net, batch).backward()
        optimizer.step()
        if (index + 1) % 5 == 0:
            optimizer.param_groups[0]["lr"] *= 0.5
    assert_same(module.net, callback.handles[0], net, handle)


# Checkpoints ------------------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("precision", ["32-true", "bf16-true"])
@pytest.mark.parametrize("saved", ["by-checkpoint-callback", "after-fit"])
def test_resume_equals_uninterrupted(precision: str, saved: str, tmp_path: Path) -> None:
    def run(module: Module, callback: GrokfastCallback, epochs: int, **options: Any) -> Any:
        checkpoint = [ModelCheckpoint(tmp_path, "{epoch}")] if saved == "by-checkpoint-callback" else []
        trainer = make_trainer(callback, *checkpoint, max_epochs=epochs, precision=precision)
        trainer.fit(module, loader(BATCHES[:10]), **options)
        return trainer

    path = tmp_path / "epoch=0.ckpt"
    trainer = run(Module(), GrokfastCallback(FILTER), 1)
    if saved == "after-fit":
        trainer.save_checkpoint(path)
    module, callback = Module(), GrokfastCallback(FILTER)
    run(module, callback, 2, ckpt_path=path)
    assert callback.handles[0].step == 20
    assert_same(module.net, callback.handles[0], *by_hand(precision=precision, batches=BATCHES[:10] * 2))


def test_resume_restores_the_progress_of_a_trigger(tmp_path: Path) -> None:
    saturated = Saturation(above=0.9, patience=3)

    class Observing(Module):
        def on_train_batch_end(self, *args: Any) -> None:
            if args[-1] < 2:
                saturated.observe(1.0)

    callback = GrokfastCallback(FILTER, start=saturated)
    fit(Observing(), callback, BATCHES[:3], max_epochs=1).save_checkpoint(tmp_path / "c")
    fresh = Saturation(above=0.9, patience=3)
    trainer = make_trainer(GrokfastCallback(FILTER, start=fresh), max_epochs=2)
    trainer.fit(Module(), loader(BATCHES[:3]), ckpt_path=tmp_path / "c")
    assert fresh.streak == 2


# More than one fit ------------------------------------------------------------------------------------------------


def test_second_fit_with_one_callback_starts_anew() -> None:
    callback = GrokfastCallback(FILTER)
    for _ in range(2):
        module = Module()
        fit(module, callback)
        assert_same(module.net, callback.handles[0], *by_hand())


def test_second_fit_of_the_same_optimizer_continues() -> None:
    """Whichever callback it is, since the first fit detached its own and left the state behind."""
    module = Module()
    optimizer = adamw(module.net.parameters())
    module.configure = lambda params: optimizer
    fit(module, GrokfastCallback(FILTER), BATCHES[:10], max_epochs=1)
    callback = GrokfastCallback(FILTER)
    fit(module, callback, BATCHES[10:20], max_epochs=1)
    assert_same(module.net, callback.handles[0], *by_hand())


def test_fit_without_the_callback_is_not_filtered() -> None:
    module = Module()
    optimizer = SGD(module.net.parameters(), lr=0.0)
    module.configure = lambda params: optimizer
    fit(module, GrokfastCallback(FILTER), BATCHES[:3], max_epochs=1)
    make_trainer(max_epochs=1).fit(module, loader(BATCHES[:1]))
    found = [p.grad for p in module.parameters()]
    optimizer.zero_grad()
    mse(module.net, BATCHES[0]).backward()
    for grad, p in zip(found, module.parameters(), strict=True):
        assert torch.equal(grad, p.grad)  # type: ignore[arg-type]


def test_exception_detaches_and_keeps_the_state() -> None:
    class Failing(Module):
        def training_step(self, batch: Any, index: int) -> Tensor | None:
            if index == 3:
                raise OSError("no more data")
            return super().training_step(batch, index)

    callback, module = GrokfastCallback(FILTER), Failing()
    with pytest.raises(OSError, match="no more data"):
        fit(module, callback)
    assert grokfast.attach(callback.handles[0].optimizer, FILTER).step == 3


def test_evaluation_and_fast_dev_run_work() -> None:
    class Evaluated(Module):
        def validation_step(self, batch: Any, index: int) -> None:
            mse(self.net, batch)

        test_step = validation_step

    module, callback = Evaluated(), GrokfastCallback(FILTER)
    trainer = make_trainer(callback, fast_dev_run=2)
    trainer.validate(module, loader(), verbose=False)
    assert callback.handles == []
    trainer.fit(module, loader(), loader())
    trainer.test(module, loader(), verbose=False)
    assert callback.handles[0].step == 2


# What is left alone -----------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
@pytest.mark.parametrize("order", ["clip-then-filter", "filter-then-clip"])
def test_step_skipped_by_training_step_leaves_the_state_alone(order: Any) -> None:
    """Lightning calls the hooks of a step and leaves the gradients scaled, yet does not step."""

    class Skipping(Module):
        def training_step(self, batch: Any, index: int) -> Tensor | None:
            return None if index == 3 else super().training_step(batch, index)

    callback = GrokfastCallback(FILTER, order=order)
    fit(Skipping(), callback, BATCHES[:4], max_epochs=1, accumulate_grad_batches=2, plugins=[fp16()])
    assert callback.handles[0].step == 1


def test_metrics_are_logged_when_asked_for() -> None:
    module = Module()
    logged: list[dict[str, float]] = []
    module.log_dict = lambda values, **options: logged.append(values)  # type: ignore[method-assign]
    callback = GrokfastCallback(FILTER, log_every=2)
    fit(module, callback)
    assert [row["grokfast/steps"] for row in logged] == [2.0 * (i + 1) for i in range(len(logged))] != []
    assert logged[0]["grokfast/steps"] == 2.0
    with pytest.raises(ValueError, match="log_every must be an integer >= 1 or None, got 0"):
        GrokfastCallback(FILTER, log_every=0)


def test_nonfinite_policy_reaches_the_filter() -> None:
    with pytest.raises(FloatingPointError, match="at step 1"):
        fit(Module(poisoned=(1,)), GrokfastCallback(FILTER, nonfinite="raise"))


# What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DeepSpeedStrategy, FSDPStrategy])
def test_strategy_that_owns_gradients_is_refused(kind: type) -> None:
    optimizer = adamw(make_net().parameters())
    trainer: Any = SimpleNamespace(strategy=kind.__new__(kind), optimizers=[optimizer])
    with pytest.raises(ValueError, match=f"strategy must .*{kind.__name__}"):
        GrokfastCallback(FILTER).on_fit_start(trainer, Module())
    grokfast.attach(optimizer, FILTER)  # nothing was attached


def wrapped(params: Any) -> Optimizer:
    optimizer = adamw(params)
    optimizer.optimizer = SGD(optimizer.param_groups[0]["params"], lr=0.1)  # type: ignore[attr-defined]
    return optimizer


@pytest.mark.parametrize(
    ("configure", "message"),
    [
        (lambda params: torch.optim.LBFGS(params), "must be of first order"),
        (wrapped, "must not be a wrapper: attach to the SGD inside"),
        (lambda params: [], "at least one optimizer to filter, got none"),
    ],
    ids=["lbfgs", "wrapper", "none"],
)
def test_optimizer_that_cannot_be_filtered_is_refused(configure: Any, message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        fit(Module(configure), GrokfastCallback(FILTER))


@pytest.mark.parametrize("order", ["clip-then-filter", "filter-then-clip"])
@pytest.mark.parametrize("plugins", [[], [fp16()]], ids=["32-true", "16-mixed"])
def test_optimizer_that_bypasses_its_hooks_is_refused(order: Any, plugins: list[Any]) -> None:
    class Bypassing(SGD):
        def __init__(self, params: Any) -> None:
            super().__init__(params, lr=0.1)
            self.step: Any = self.own_step

        def own_step(self, closure: Any = None) -> None:
            if closure is not None:
                closure()

    module = Module(Bypassing)
    with pytest.raises(RuntimeError, match="Bypassing stepped without running its step hooks"):
        fit(module, GrokfastCallback(FILTER, order=order), plugins=plugins)


def test_optimizer_that_comes_later_is_refused() -> None:
    class Swapping(Module):
        def on_train_start(self) -> None:
            self.trainer.optimizers = [SGD(self.net.parameters(), lr=0.1)]

    with pytest.raises(RuntimeError, match="the SGD that steps did not exist at the start of fit"):
        fit(Swapping(), GrokfastCallback(FILTER))


def test_two_filters_on_one_optimizer_are_refused() -> None:
    with pytest.raises(ValueError, match="has a filter attached already"):
        make_trainer(GrokfastCallback(FILTER), GrokfastCallback(FILTER)).fit(Module(), loader())


def test_filter_first_is_refused_where_no_hook_comes_first() -> None:
    callback = GrokfastCallback(FILTER, order="filter-then-clip")
    with pytest.raises(ValueError, match="'clip-then-filter' with manual optimization"):
        fit(Manual(), callback)
    with pytest.raises(ValueError, match="'clip-then-filter' with a fused optimizer"):
        fit(Module(lambda params: AdamW(params, fused=True)), callback, plugins=[fp16()])


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"order": "clip"}, ValueError, "order must be one of 'clip-then-filter', 'filter-then-clip', got 'clip'"),
        ({"optimizers": ()}, ValueError, r"optimizers must be None or indices such as \(0,\), got \(\)"),
        ({"optimizers": 0}, ValueError, r"optimizers must be None or indices such as \(0,\), got 0"),
        ({"optimizers": ("a",)}, TypeError, "optimizers must be indices >= 0, got 'a'"),
        ({"optimizers": (-1,)}, ValueError, "optimizers must be indices >= 0, got -1"),
    ],
)
def test_bad_argument_is_refused_at_once(options: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        GrokfastCallback(FILTER, **options)


def test_index_without_an_optimizer_is_refused() -> None:
    with pytest.raises(ValueError, match=r"optimizers must be indices in \[0, 1\), got 1"):
        fit(Module(), GrokfastCallback(FILTER, optimizers=(0, 1)))


# The package ------------------------------------------------------------------------------------------------------


def load_integration() -> Any:
    """The module, imported once more under another name."""
    assert integration.__file__ is not None
    spec = importlib.util.spec_from_file_location("integration_again", integration.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_missing_package_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lightning", "lightning.pytorch", "pytorch_lightning"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r'is installed: pip install "grokfast\[lightning\]"$'):
        load_integration()


def test_old_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    old = ModuleType("lightning.pytorch")
    old.__version__ = "1.9.5"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning.pytorch", old)
    with pytest.raises(ImportError, match=r"lightning must be >= 2.0, got 1.9.5"):
        load_integration()


def test_package_in_use_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that its trainer finds a callback of its own."""
    monkeypatch.delitem(sys.modules, "lightning.pytorch")
    host = ModuleType("pytorch_lightning")
    host.__version__, host.Callback = "2.6.6", object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pytorch_lightning", host)
    assert load_integration().Callback is object


def test_pytorch_lightning_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import pytorch_lightning

    for name in ("lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    callback = load_integration().GrokfastCallback(FILTER)
    assert isinstance(callback, pytorch_lightning.Callback)
    module = type("Other", (Training, pytorch_lightning.LightningModule), {})()
    make_trainer(callback, host=pytorch_lightning).fit(module, loader())
    assert_same(module.net, callback.handles[0], *by_hand())  # type: ignore
