"""Grokfast for the Trainer of Transformers: as a callback, or as an optimizer that has the filter from birth."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

import grokfast
from grokfast.binding.attach import unwrap
from grokfast.binding.state import COUNT, PREFIX
from grokfast.filters.base import all_finite

try:
    import transformers
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

OptimizerChoice = tuple[type[Optimizer], dict[str, Any]]
BACKWARD = "updates the parameters during backward, before the filter could run"
REFUSED = {
    "LayerWiseDummyOptimizer": BACKWARD,  # stands in for the "layerwise" choices of TrainingArguments.optim
    "Lomo": BACKWARD,
    "AdaLomo": BACKWARD,
    "GrokAdamW": "has a filter of this kind inside, and two would amplify twice",
}


def grokfast_optimizer(
    choice: OptimizerChoice,
    filter: grokfast.Filter,
    *,
    start: int | grokfast.Trigger = 0,
    nonfinite: Literal["skip", "raise"] = "skip",
) -> OptimizerChoice:
    """The optimizer chosen, with the filter attached from birth, for `Trainer(optimizer_cls_and_kwargs=...)`.

    What the Trainer then makes is a plain instance of the class chosen, in the param groups the Trainer decides on.

    Args:
        choice: an optimizer class and its arguments; `Trainer.get_optimizer_cls_and_kwargs(args)` gives those that
            the training arguments ask for.
        filter: as for `grokfast.attach`, like `start` and `nonfinite`.

    Returns:
        A class and its arguments again.

    Example:
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
        grokfast.attach(optimizer, filter, start=start, nonfinite=nonfinite)
        return optimizer

    # The Trainer hands param groups to classes only, hence a class; it bears the name of the one it makes instances of.
    names = {"__module__": optimizer_cls.__module__, "__qualname__": optimizer_cls.__qualname__}
    return type(optimizer_cls.__name__, (optimizer_cls,), {**names, "__new__": new}), dict(kwargs)


class GrokfastCallback(TrainerCallback):
    """Attaches a filter to the optimizer of a Trainer: `Trainer(..., callbacks=[GrokfastCallback(grokfast.EMA())])`.

    The Trainer clips to `max_grad_norm` (1.0 unless told), then the filter runs: what the optimizer sees is bounded by
    (1 + lamb) * max_grad_norm.

    Args:
        filter: as for `grokfast.attach`, like `start` and `nonfinite`.
        clip_norm: run the filter first and clip what it made to this norm, > 0. Needs `max_grad_norm=0`.

    Attributes:
        handle: what `grokfast.attach` returns; None until training begins.
    """

    def __init__(
        self,
        filter: grokfast.Filter,
        *,
        start: int | grokfast.Trigger = 0,
        nonfinite: Literal["skip", "raise"] = "skip",
        clip_norm: float | None = None,
    ) -> None:
        if clip_norm is not None and not clip_norm > 0:
            raise ValueError(f"clip_norm must be > 0 or None, got {clip_norm!r}")
        self.filter, self.start, self.clip_norm = filter, start, clip_norm
        self.nonfinite: Literal["skip", "raise"] = nonfinite
        self._streak = getattr(start, "streak", 0)
        self.handle: grokfast.Attachment | None = None
        self._unproven: int | None = None  # the filter's step count until a step has moved it

    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        """Attach to an optimizer that the user made, before anything is loaded into it."""
        if kwargs["optimizer"] is not None:
            self._attach(kwargs["optimizer"])

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Attach to an optimizer that the Trainer made, into which it may have loaded a checkpoint."""
        if self.clip_norm is not None and args.max_grad_norm:
            raise ValueError(f"clip_norm needs max_grad_norm=0 in the training arguments, got {args.max_grad_norm}")
        if self.clip_norm is not None and args.fp16:
            raise ValueError("clip_norm must be None with fp16=True: the Trainer may not have unscaled by then")
        refuse_host(attached_late=True)
        handle = self.handle
        optimizer = unwrap(kwargs["optimizer"])
        if handle is None or handle.optimizer is not optimizer:
            found = {param: dict(entry) for param, entry in optimizer.state.items() if COUNT in entry}
            handle = self._attach(optimizer)
            if state.global_step and not found:
                warnings.warn("the checkpoint holds no grokfast state: the filter starts anew", stacklevel=2)
            if is_rounded(found, handle):
                load_again(handle, args, state)
        self._unproven = handle.step

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Filter and then clip, if asked to."""
        if self.clip_norm is not None and self.handle is not None:
            self.handle.apply()
            torch.nn.utils.clip_grad_norm_(kwargs["model"].parameters(), self.clip_norm)

    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Make sure, once, that the host's step runs the filter."""
        if self._unproven is None or self.handle is None:
            return
        if self.handle.step > self._unproven:
            self._unproven = None
        elif have_finite_gradients(self.handle.optimizer):  # else the step was one to leave alone
            kind = type(self.handle.optimizer).__name__
            raise RuntimeError(f"the filter saw no gradient in an optimizer step: the host bypasses {kind}.step()")

    def _attach(self, optimizer: Optimizer) -> grokfast.Attachment:
        refuse_optimizer(type(unwrap(optimizer)))
        if self.handle is not None:  # of an earlier optimizer, as in a search over hyper-parameters
            self.handle.remove()
        if not isinstance(self.start, int) and not any(COUNT in entry for entry in unwrap(optimizer).state.values()):
            self.start.streak = self._streak  # a new optimizer begins anew, and so does its first stage
        self.handle = grokfast.attach(optimizer, self.filter, start=self.start, nonfinite=self.nonfinite)
        return self.handle


def refuse_optimizer(optimizer_cls: type[Optimizer]) -> None:
    for name in (base.__name__ for base in optimizer_cls.__mro__):
        if name in REFUSED:
            raise TypeError(f"optimizer must run the filter once per step: {name} {REFUSED[name]}")


def refuse_host(*, attached_late: bool) -> None:
    """Raise where Accelerate has been told to train in a way that would bypass the filter or lose its state."""
    host: Any = AcceleratorState()
    if host.distributed_type in ("DEEPSPEED", "MEGATRON_LM"):
        raise RuntimeError(f"{host.distributed_type} steps by an engine of its own, which would bypass the filter")
    if host.distributed_type == "FSDP" and host.fsdp_plugin.fsdp_version == 1:
        raise RuntimeError("FSDP version 1 is not supported: use version 2")
    if host.distributed_type == "FSDP" and attached_late:
        raise RuntimeError("FSDP loads checkpoints before a callback can attach: use grokfast_optimizer instead")


def have_finite_gradients(optimizer: Optimizer) -> bool:
    grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    return all_finite([[grad] for grad in grads])


def is_rounded(found: dict[Tensor, dict[str, Any]], handle: grokfast.Attachment) -> bool:
    """Whether the state adopted had been cast to a smaller dtype: that of the parameters, as optimizers load."""
    pairs = {(found[p][PREFIX + k].dtype, t.dtype) for p, state in handle.state.items() for k, t in state.items()}
    return any(torch.promote_types(had, needed) != had for had, needed in pairs)


def load_again(handle: grokfast.Attachment, args: TrainingArguments, state: TrainerState) -> None:
    """Load the optimizer's checkpoint once more, now that the filter is attached and keeps its state from rounding."""
    last = Path(args.output_dir or ".", f"checkpoint-{state.global_step}")
    folders = [Path(args.resume_from_checkpoint), last] if args.resume_from_checkpoint else [last]
    for path in (folder / "optimizer.pt" for folder in folders):
        saved = torch.load(path, map_location="cpu", weights_only=True) if path.is_file() else None
        if saved is not None and is_source(saved, handle):
            handle.optimizer.load_state_dict(saved)
            return
    tried = " or ".join(map(str, folders))
    raise RuntimeError(
        "the Trainer loaded the filter's state in the dtype of the parameters, and the checkpoint it came from is not "
        f"{tried}: name it in TrainingArguments(resume_from_checkpoint=...) or use grokfast_optimizer"
    )


def is_source(saved: dict[str, Any], handle: grokfast.Attachment) -> bool:
    """Whether the state adopted is the saved one, rounded."""
    keys = [key for group in saved["param_groups"] for key in group["params"]]
    params = [p for group in handle.optimizer.param_groups for p in group["params"]]
    entries = dict(zip(params, (saved["state"].get(key, {}) for key in keys), strict=False))
    return all(
        PREFIX + name in entries.get(p, {})
        and torch.equal(entries[p][PREFIX + name].to(p.device, p.dtype).to(tensor.dtype), tensor)
        for p, state in handle.state.items()
        for name, tensor in state.items()
    )
