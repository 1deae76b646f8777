"""A filter for the Trainer of Transformers: a callback, or an optimizer with the filter attached."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

import grokfast

try:
    import transformers
    from accelerate.optimizer import AcceleratedOptimizer
    from accelerate.state import AcceleratorState
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError(
        'grokfast.integrations.transformers needs transformers and accelerate: pip install "grokfast[transformers]"'
    ) from error
if int(transformers.__version__.split(".")[0]) < 5:
    raise ImportError(
        f"grokfast.integrations.transformers needs transformers >= 5, got {transformers.__version__}: "
        'pip install --upgrade "grokfast[transformers]"'
    )

Nonfinite = Literal["scaler", "ignore", "skip", "raise"]
OptimizerChoice = tuple[type[Optimizer], dict[str, Any]]
BACKWARD = "updates the parameters during backward, before the filter could run"
REFUSED = {
    "LayerWiseDummyOptimizer": BACKWARD,  # made for the "layerwise" choices of TrainingArguments.optim
    "Lomo": BACKWARD,
    "AdaLomo": BACKWARD,
    "GrokAdamW": "has such a filter inside, and two would amplify twice",
}


def grokfast_optimizer(
    choice: OptimizerChoice,
    filter: grokfast.Filter,
    *,
    start: int | grokfast.Trigger = 0,
    nonfinite: Nonfinite = "scaler",
    lamb: Callable[[int], float] | None = None,
    alpha: Callable[[int], float] | None = None,
) -> OptimizerChoice:
    """An optimizer with the filter attached, for `Trainer(optimizer_cls_and_kwargs=...)`.

    The Trainer then creates a plain instance of the chosen class with its usual param groups.

    Args:
        choice: an optimizer class and its arguments, e.g. `Trainer.get_optimizer_cls_and_kwargs(args)` for those in the
            training arguments.
        filter: computes what is added to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: the step or the trigger that starts the filter, as in `grokfast.attach`.
        nonfinite: what to do if a gradient holds an inf or a NaN, as in `grokfast.attach`.
        lamb: a schedule, as in `grokfast.attach`.
        alpha: a schedule for an `EMA`, as in `grokfast.attach`.

    Returns:
        An optimizer class and its arguments.

    Examples:
        >>> filtered = grokfast_optimizer((torch.optim.AdamW, {"lr": 1e-3}), grokfast.EMA(alpha=0.98, lamb=2.0))
        >>> # Trainer(model, args, optimizer_cls_and_kwargs=filtered, ...)
    """
    optimizer_cls, kwargs = choice
    if not (isinstance(optimizer_cls, type) and issubclass(optimizer_cls, Optimizer)):
        raise TypeError(f"choice must begin with a subclass of torch.optim.Optimizer, got {optimizer_cls!r}")
    refuse_optimizer(optimizer_cls)

    def new(cls: type[Optimizer], params: Any, **options: Any) -> Optimizer:
        refuse_host(attached_late=False)
        optimizer: Any = optimizer_cls(params, **options)
        grokfast.attach(optimizer, filter, start=start, nonfinite=nonfinite, lamb=lamb, alpha=alpha)
        return optimizer

    # A class, because the Trainer passes param groups only to classes. It has the name of the class that it creates.
    names = {"__module__": optimizer_cls.__module__, "__qualname__": optimizer_cls.__qualname__}
    return type(optimizer_cls.__name__, (optimizer_cls,), {**names, "__new__": new}), dict(kwargs)


class GrokfastCallback(TrainerCallback):
    """Attaches a filter to the optimizer of a Trainer: `Trainer(..., callbacks=[GrokfastCallback(grokfast.EMA())])`.

    The Trainer clips to `max_grad_norm` (1.0 by default), then the filter runs: the optimizer sees gradients of a norm
    up to (1 + lamb) * max_grad_norm.

    Args:
        filter: computes what is added to the gradients, e.g. `grokfast.EMA(alpha=0.98, lamb=2.0)`.
        start: the step or the trigger that starts the filter, as in `grokfast.attach`.
        nonfinite: what to do if a gradient holds an inf or a NaN, as in `grokfast.attach`.
        lamb: a schedule, as in `grokfast.attach`.
        alpha: a schedule for an `EMA`, as in `grokfast.attach`.
        log_every: add `handle.metrics()` to the Trainer's logs every N steps, which waits for the device. None: never.
        clip_norm: run the filter first, then clip to this norm, > 0. Needs `max_grad_norm=0`.

    Attributes:
        handle: the handle from `grokfast.attach`; None until training begins.

    Examples:
        >>> import grokfast
        >>> from grokfast.integrations.transformers import GrokfastCallback
        >>> callback = GrokfastCallback(grokfast.EMA(alpha=0.98, lamb=2.0))  # Trainer(..., callbacks=[callback])
    """

    def __init__(
        self,
        filter: grokfast.Filter,
        *,
        start: int | grokfast.Trigger = 0,
        nonfinite: Nonfinite = "scaler",
        lamb: Callable[[int], float] | None = None,
        alpha: Callable[[int], float] | None = None,
        clip_norm: float | None = None,
        log_every: int | None = None,
    ) -> None:
        if log_every is not None and (not isinstance(log_every, int) or isinstance(log_every, bool) or log_every < 1):
            raise ValueError(f"log_every must be an integer >= 1 or None, got {log_every!r}")
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm must be > 0 or None, got {clip_norm!r}")
        self.filter, self.start, self.clip_norm = filter, start, clip_norm
        self._options: dict[str, Any] = {"start": start, "nonfinite": nonfinite, "lamb": lamb, "alpha": alpha}
        self.log_every = log_every
        self._metrics: dict[str, float] = {}  # not logged yet
        self._streak = getattr(start, "streak", 0)
        self.handle: grokfast.Attachment | None = None
        self._unproven: int | None = None  # the filter's step count, until a step has increased it

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Attach to an optimizer that the user made, before a checkpoint is loaded."""
        if kwargs["optimizer"] is not None:
            self._attach(kwargs["optimizer"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach to an optimizer that the Trainer made and may have loaded a checkpoint into."""
        if self.clip_norm is not None and args.max_grad_norm:
            raise ValueError(f"clip_norm needs max_grad_norm=0 in the training arguments, got {args.max_grad_norm}")
        if self.clip_norm is not None and args.fp16:
            raise ValueError("clip_norm must be None with fp16=True: the Trainer may not have unscaled by then")
        refuse_host(attached_late=True)
        handle = self.handle
        if handle is None or handle.optimizer is not unwrap(kwargs["optimizer"]):
            handle = self._attach(kwargs["optimizer"])
            if state.global_step and not handle.resumed:
                warnings.warn("the checkpoint holds no grokfast state: the filter starts anew", stacklevel=2)
            if is_rounded(handle):
                load_again(handle, args, state)
        self._unproven = handle.step

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Filter, then clip, if `clip_norm` is set."""
        if self.clip_norm is not None and self.handle is not None:
            self.handle.apply()
            torch.nn.utils.clip_grad_norm_(kwargs["model"].parameters(), self.clip_norm)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Measure if metrics are due. Check once that the Trainer's step runs the filter."""
        if self.handle is not None and self.log_every is not None and (state.global_step + 1) % self.log_every == 0:
            self._metrics = self.handle.metrics()
            control.should_log = True
        if self._unproven is None or self.handle is None:
            return
        if self.handle.step > self._unproven:
            self._unproven = None
        elif have_finite_gradients(self.handle.optimizer):  # otherwise the filter ignores the step
            kind = type(self.handle.optimizer).__name__
            raise RuntimeError(f"the filter saw no gradient in an optimizer step: the Trainer bypasses {kind}.step()")

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Add the metrics to the Trainer's logs and history. Callbacks after this one see them."""
        if self._metrics:
            kwargs["logs"].update(self._metrics)
            state.log_history[-1].update(self._metrics)
            self._metrics = {}

    def _attach(self, optimizer: Optimizer) -> grokfast.Attachment:
        refuse_optimizer(type(unwrap(optimizer)))
        if self.handle is not None:  # on an earlier optimizer, as in a search over hyper-parameters
            self.handle.remove()
        with warnings.catch_warnings():
            # The Trainer may have loaded a checkpoint and rounded the state. on_train_begin then loads it again.
            warnings.filterwarnings("ignore", "the filter's state was found in")
            self.handle = grokfast.attach(optimizer, self.filter, **self._options)
        if not isinstance(self.start, int) and not self.handle.resumed:
            self.start.streak = self._streak  # for a new optimizer the trigger starts again
        return self.handle


def unwrap(optimizer: Any) -> Optimizer:
    return optimizer.optimizer if isinstance(optimizer, AcceleratedOptimizer) else optimizer


def refuse_optimizer(optimizer_cls: type[Optimizer]) -> None:
    for name in (base.__name__ for base in optimizer_cls.__mro__):
        if name in REFUSED:
            raise TypeError(f"optimizer must run the filter once per step: {name} {REFUSED[name]}")


def refuse_host(*, attached_late: bool) -> None:
    """Raise if Accelerate's settings would bypass the filter or lose its state."""
    host: Any = AcceleratorState()
    if host.distributed_type in ("DEEPSPEED", "MEGATRON_LM"):
        raise RuntimeError(f"{host.distributed_type} steps in its own engine, which would bypass the filter")
    if host.distributed_type == "FSDP" and host.fsdp_plugin.fsdp_version == 1:
        raise RuntimeError("FSDP version 1 is not supported: use version 2")
    if host.distributed_type == "FSDP" and attached_late:
        raise RuntimeError("FSDP loads checkpoints before a callback can attach: use grokfast_optimizer instead")


def have_finite_gradients(optimizer: Optimizer) -> bool:
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return all(bool(grad.isfinite().all()) for grad in grads)


def is_rounded(handle: grokfast.Attachment) -> bool:
    """Whether the loaded state was cast to the dtype of the parameters, as optimizers do when they load."""
    pairs = [(tensor, p.dtype) for p, state in handle.state.items() for tensor in state.values()]
    wide = [pair for pair in pairs if torch.promote_types(pair[0].dtype, pair[1]) != pair[1]]
    return bool(wide) and all(torch.equal(tensor, rounded(tensor, dtype)) for tensor, dtype in wide)


def rounded(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype).to(tensor.dtype)


def load_again(handle: grokfast.Attachment, args: TrainingArguments, state: TrainerState) -> None:
    """Load the optimizer's checkpoint again. With the filter attached, its state is not rounded."""
    last = Path(args.output_dir or ".", f"checkpoint-{state.global_step}")
    folders = [Path(args.resume_from_checkpoint), last] if args.resume_from_checkpoint else [last]
    adopted = handle.state
    for path in (folder / "optimizer.pt" for folder in folders):
        if path.is_file() and loads_as(adopted, handle, torch.load(path, map_location="cpu", weights_only=True)):
            return
    tried = " or ".join(map(str, folders))
    raise RuntimeError(
        "the Trainer loaded the filter's state in the dtype of the parameters, and the checkpoint it came from is not "
        f"{tried}: name it in TrainingArguments(resume_from_checkpoint=...) or use grokfast_optimizer"
    )


def loads_as(adopted: dict[Tensor, dict[str, Tensor]], handle: grokfast.Attachment, saved: dict[str, Any]) -> bool:
    """Load a checkpoint. Return whether its filter state, when rounded, equals `adopted`."""
    try:
        handle.optimizer.load_state_dict(saved)
    except ValueError:  # it belongs to another model or filter
        return False
    return handle.state.keys() == adopted.keys() and all(
        torch.equal(rounded(tensor, p.dtype), adopted[p][name])
        for p, state in handle.state.items()
        for name, tensor in state.items()
    )
