"""Train the task `addition` about ten times as fast as the library does: thousands of runs for maps and duels.

`train` takes the flat settings of a run and returns its curve. The arithmetic is in addition_runs.c, which is compiled
when first used. tests/test_addition_runs.py compares it with the library run by run.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import math
import subprocess
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from grokfast.lab.tasks.addition import AdditionConfig, AdditionTask

SOURCE = Path(__file__).with_suffix(".c")
FLAGS = ["-O3", "-march=native", "-mprefer-vector-width=512", "-shared", "-fPIC"]
FLAGS += ["-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"]
USUAL: dict[str, Any] = {
    "p": 23,
    "width": 128,
    "train_fraction": 0.5,
    "label_noise": 0.0,
    "batch_size": 64,
    "loss": "mse",
    "steps": 3000,
    "eval_every": 20,
    "level": 0.95,
    "hold": 30,  # stop after this many further evaluations at the level; None: run to the end
    "lr": 0.01,
    "weight_decay": 0.0,
    "betas": (0.9, 0.98),
    "clip_norm": 0.0,
    "filter": None,
    "alpha": 0.98,
    "window_size": 100,
    "lamb": 2.0,
    "two_stage": 0,
    "average": None,
    "optimizer": "adamw",  # nadam (decoupled decay), ademamix, muon (for all matrices)
    "slow_beta": 0.98,  # AdEMAMix: decay of its slow average
    "slow_gain": 2.0,  # AdEMAMix: how much of it is added, its alpha
}

OPTIMIZERS = ("adamw", "nadam", "ademamix", "muon")
COUNTS = ("train_points", "val_points", "batch", "entropy", "steps", "eval_every", "hold", "filter", "window", "start")
COUNTS += ("optimizer",)
RATES = ("level", "lr", "decay", "beta1", "beta2", "eps", "clip", "alpha", "lamb", "average")
RATES += ("slow_beta", "slow_gain")


class _Settings(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int) for name in COUNTS] + [(name, ctypes.c_float) for name in RATES]


class Curve(NamedTuple):
    """One run at its evaluations."""

    steps: np.ndarray
    val_accuracy: np.ndarray
    train_accuracy: np.ndarray  # mean since the last evaluation
    val_loss: np.ndarray
    train_loss: np.ndarray
    coherence: np.ndarray  # |m|^2 / mean |g|^2 with m the average of gradients at alpha 0.98
    diverged: bool


def train(seed: int, **given: Any) -> Curve:
    """Train one run. Settings have the names of `grokfast train addition`; `average`: decay of averaged weights."""
    if unknown := set(given) - set(USUAL):
        raise ValueError(f"settings must be among {', '.join(USUAL)}, got {', '.join(sorted(unknown))}")
    s = {**USUAL, **given}
    if s["width"] % 16:
        raise ValueError(f"width must be a multiple of 16, got {s['width']}")
    if s["p"] > s["width"] and s["optimizer"] == "muon":
        raise ValueError(f"p must be <= width with muon, got {s['p']} and {s['width']}")
    kinds = {None: 0, "ema": 1, "ma": 2}
    # Weights, split and batches are the library's.
    task = AdditionTask(AdditionConfig(**{name: s[name] for name in list(USUAL)[:6]}), seed=seed)
    net, pairs = task.model, {name: _triples(split) for name, split in task.splits.items()}
    with torch.no_grad():
        weights = torch.cat([net.left.flatten(), net.right.flatten(), net.out.T.flatten()]).numpy().copy()
    sizes = [pairs[name].shape[1] for name in ("train", "val")]
    batch = s["batch_size"]
    draws = torch.randint(sizes[0], (s["steps"], batch), generator=task.generator).to(torch.int32).numpy()
    hold = -1 if s["hold"] is None else s["hold"]
    counts = [*sizes, batch, s["loss"] == "cross-entropy", s["steps"], s["eval_every"], hold]
    counts += [kinds[s["filter"]], s["window_size"], s["two_stage"] or 0]
    counts += [OPTIMIZERS.index(s["optimizer"])]
    rates = [s["level"], s["lr"], s["weight_decay"], *s["betas"], 1e-8, s["clip_norm"], s["alpha"], s["lamb"]]
    rows = np.zeros((math.ceil(s["steps"] / s["eval_every"]) + 1, 5), np.float32)
    settings = _Settings(*map(int, counts), *map(float, [*rates, s["average"] or 0.0, s["slow_beta"], s["slow_gain"]]))
    arrays = [weights, pairs["train"], pairs["val"], np.ascontiguousarray(draws), rows]
    addresses = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    found = _compiled(s["p"], s["width"]).run(ctypes.byref(settings), *addresses)
    count = abs(found)
    steps = np.minimum(np.arange(1, count + 1) * s["eval_every"], s["steps"])
    return Curve(steps, *rows[:count].T.copy(), diverged=found < 0)


def _triples(split: Any) -> np.ndarray:
    stacked = torch.stack([split.left, split.right, split.answer]).to(torch.int32)
    return np.ascontiguousarray(stacked.numpy())


@functools.cache
def _compiled(p: int, width: int) -> Any:
    text = SOURCE.read_text()
    name = hashlib.sha256(f"{text}{FLAGS}{p} {width}".encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir()) / f"addition_runs-{name}.so"
    if not path.exists():
        part = path.with_suffix(f".{ctypes.c_uint(id(text)).value}")
        command = ["gcc", *FLAGS, f"-DP={p}", f"-DWIDTH={width}", str(SOURCE), "-lm", "-o", str(part)]
        subprocess.run(command, check=True)
        part.replace(path)
    return ctypes.CDLL(str(path))
