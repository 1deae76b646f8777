"""A loop under Accelerate with a filter does what the plain loop does; the filter goes along in save_state."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor, nn

import grokfast

pytest.importorskip("accelerate")

from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.state import AcceleratorState, GradientState, PartialState
from accelerate.utils.deepspeed import DeepSpeedOptimizerWrapper
from accelerate.utils.megatron_lm import MegatronLMOptimizerWrapper

STEPS, HALF, CLIP = 20, 10, 0.5
EMA = grokfast.EMA(alpha=0.9, lamb=2.0)
Order = Literal["no clipping", "clip, filter", "filter, clip"]
Precision = Literal["no", "bf16", "fp16"]
DTYPES = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@pytest.fixture(autouse=True)
def _own_state() -> Iterator[None]:
    """Accelerate keeps one state per process: each test gets a new one."""
    yield
    for kind in (AcceleratorState, GradientState, PartialState):
        kind._reset_state()


def build(dtype: torch.dtype = torch.float32, **options: Any) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1, **options)


def data(count: int = STEPS, dtype: torch.dtype = torch.float32) -> list[tuple[Tensor, Tensor]]:
    made = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(count, 4, 3, generator=made), torch.randn(count, 4, 1, generator=made)
    return list(zip(inputs.to(dtype), labels, strict=True))


def loss_of(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return 30.0 * nn.functional.mse_loss(model(x).float(), y)


def new_scaler(*, enabled: bool = True) -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=128.0, enabled=enabled)  # no step of these is discarded by itself


def new_accelerator(precision: Precision = "no", every: int = 1) -> Accelerator:
    accelerator = Accelerator(cpu=True, mixed_precision=precision, gradient_accumulation_steps=every)
    if precision == "fp16":  # on a GPU, Accelerate would set these itself
        accelerator.scaler, accelerator.native_amp = new_scaler(), True
    return accelerator


def train(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    handle: grokfast.Attachment,
    batches: list[tuple[Tensor, Tensor]],
    order: Order = "no clipping",
) -> None:
    """The loop of Accelerate's documentation, with clipping on either side of the filter."""
    for x, y in batches:
        with accelerator.accumulate(model):
            accelerator.backward(loss_of(model, x, y))
            if accelerator.sync_gradients and order != "no clipping":
                if order == "filter, clip":
                    accelerator.unscale_gradients()
                    handle.apply()
                    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
                else:
                    accelerator.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            optimizer.zero_grad()


def train_by_hand(
    batches: list[tuple[Tensor, Tensor]], every: int = 1, order: Order = "no clipping", precision: Precision = "no"
) -> nn.Module:
    model, optimizer = build()
    handle = grokfast.attach(optimizer, EMA)
    scaler = new_scaler(enabled=precision == "fp16")
    for number, (x, y) in enumerate(batches, start=1):
        with torch.autocast("cpu", DTYPES[precision], enabled=precision != "no"):
            out = model(x)
        scaler.scale(30.0 * nn.functional.mse_loss(out.float(), y) / every).backward()
        if number % every:
            continue
        if order != "no clipping":
            scaler.unscale_(optimizer)
            if order == "filter, clip":
                handle.apply()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    assert handle.step == len(batches) // every
    return model


def equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(p, q) for p, q in zip(one.parameters(), other.parameters(), strict=True))


@pytest.mark.parametrize("before", [True, False], ids=["attached before prepare", "attached after"])
@pytest.mark.parametrize("every", [1, 3])
@pytest.mark.parametrize("order", ["no clipping", "clip, filter", "filter, clip"])
def test_accelerated_equals_a_loop_written_by_hand(before: bool, every: int, order: Order) -> None:
    accelerator = new_accelerator(every=every)
    model, optimizer = build()
    handle = grokfast.attach(optimizer, EMA) if before else None
    prepared, accelerated = accelerator.prepare(model, optimizer)
    handle = handle or grokfast.attach(accelerated, EMA)
    assert handle.optimizer is optimizer
    train(accelerator, prepared, accelerated, handle, data(STEPS * every), order)
    assert equal(model, train_by_hand(data(STEPS * every), every, order))


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("order", ["no clipping", "clip, filter", "filter, clip"])
def test_mixed_precision_equals_a_loop_written_by_hand(precision: Precision, order: Order) -> None:
    accelerator = new_accelerator(precision)
    model, optimizer = accelerator.prepare(*build())
    train(accelerator, model, optimizer, grokfast.attach(optimizer, EMA), data(), order)
    assert equal(model, train_by_hand(data(), order=order, precision=precision))


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("order", ["no clipping", "clip, filter", "filter, clip"])
def test_step_discarded_by_the_scaler_leaves_filter_and_parameters_untouched(order: Order, fused: bool) -> None:
    accelerator = new_accelerator("fp16")
    model, optimizer = accelerator.prepare(*build(fused=fused))
    handle = grokfast.attach(optimizer, EMA)
    batches = data()
    train(accelerator, model, optimizer, handle, batches[:HALF], order)
    parameters = [p.detach().clone() for p in model.parameters()]
    slow = [handle.slow(p).clone() for p in model.parameters()]  # type: ignore[union-attr]
    scale = accelerator.scaler.get_scale()
    train(accelerator, model, optimizer, handle, [(batches[0][0], torch.full((4, 1), torch.inf))], order)
    assert accelerator.scaler.get_scale() < scale
    assert handle.step == HALF
    for p, old, average in zip(model.parameters(), parameters, slow, strict=True):
        assert torch.equal(p, old)
        assert torch.equal(handle.slow(p), average)  # type: ignore[arg-type]
    train(accelerator, model, optimizer, handle, batches[HALF:], order)
    assert handle.step == STEPS


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("before", [True, False], ids=["attached before prepare", "attached after"])
def test_load_state_restores_the_filter_bit_for_bit(before: bool, dtype: torch.dtype, tmp_path: Path) -> None:
    def start() -> tuple[Accelerator, nn.Module, torch.optim.Optimizer, grokfast.Attachment]:
        accelerator = Accelerator(cpu=True)
        model, optimizer = build(dtype)
        handle = grokfast.attach(optimizer, EMA) if before else None
        model, optimizer = accelerator.prepare(model, optimizer)
        return accelerator, model, optimizer, handle or grokfast.attach(optimizer, EMA)

    batches = data(dtype=dtype)
    accelerator, model, optimizer, handle = start()
    train(accelerator, model, optimizer, handle, batches[:HALF])
    accelerator.save_state(str(tmp_path))
    train(accelerator, model, optimizer, handle, batches[HALF:])

    accelerator, resumed, optimizer, again = start()
    accelerator.load_state(str(tmp_path))
    assert again.step == HALF
    train(accelerator, resumed, optimizer, again, batches[HALF:])
    assert equal(model, resumed)
    for p, q in zip(model.parameters(), resumed.parameters(), strict=True):
        assert again.state[q]["slow"].dtype is torch.float32
        assert torch.equal(handle.state[p]["slow"], again.state[q]["slow"])


def test_prepare_in_the_middle_of_training_keeps_the_state_of_bf16_parameters() -> None:
    model, optimizer = build(torch.bfloat16)
    handle = grokfast.attach(optimizer, EMA)
    for x, y in data(3, torch.bfloat16):
        loss_of(model, x, y).backward()
        optimizer.step()
        optimizer.zero_grad()
    slow = {p: handle.slow(p).clone() for p in model.parameters()}  # type: ignore[union-attr]
    Accelerator(cpu=True).prepare(model, optimizer)  # saves and loads the optimizer's state
    assert handle.step == 3
    for p, average in slow.items():
        assert torch.equal(handle.slow(p), average)  # type: ignore[arg-type]


# What is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [DeepSpeedOptimizerWrapper, MegatronLMOptimizerWrapper])
def test_optimizers_stepped_by_an_engine_are_refused(kind: type[AcceleratedOptimizer]) -> None:
    Accelerator(cpu=True)
    wrapped = kind(build()[1])
    with pytest.raises(TypeError, match=f"optimizer must take its steps itself: {kind.__name__} leaves them to"):
        grokfast.attach(wrapped, EMA)


def test_optimizer_inside_a_prepared_one_is_checked_like_any_other() -> None:
    accelerator = Accelerator(cpu=True)
    model, optimizer = build()
    lbfgs = accelerator.prepare(torch.optim.LBFGS(model.parameters()))
    with pytest.raises(TypeError, match="LBFGS runs several"):
        grokfast.attach(lbfgs, EMA)
    prepared = accelerator.prepare(optimizer)
    grokfast.attach(prepared, EMA)
    for again in (prepared, optimizer):
        with pytest.raises(ValueError, match="has a filter attached already"):
            grokfast.attach(again, EMA)


def test_wrapper_of_the_same_name_from_elsewhere_is_refused() -> None:
    class AcceleratedOptimizer(torch.optim.SGD):  # not that of Accelerate
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            super().__init__(optimizer.param_groups, lr=0.1)
            self.optimizer = optimizer

    with pytest.raises(TypeError, match="must not be a wrapper: attach to the AdamW inside the AcceleratedOptimizer"):
        grokfast.attach(AcceleratedOptimizer(build()[1]), EMA)
