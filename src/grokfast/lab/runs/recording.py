"""What a run keeps besides its metrics, on demand: weights on a schedule, gradients of sampled scalars.

    snapshots/STEP.pt    the weights after STEP steps; dense early, sparse late
    gradients.json       which scalars were sampled
    gradients.f32        for each step their gradients before and after the filter

The end of the run seals them: `Run.check_large`.

A kill loses nothing: a resumed run takes later snapshots again, bit for bit the same, and cuts the gradients back to
the checkpoint it starts from.
"""

from __future__ import annotations

import io
import math
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from grokfast.lab.runs.directory import GRADIENTS, SAMPLED, SNAPSHOTS, Run, RunError
from grokfast.lab.runs.files import naming, read_json, write_atomically, write_json
from grokfast.lab.runs.writer import to_bytes

BUFFERED = 2000  # samples of the gradients in memory
OVERFIT_STEP = 500  # the paper's state B: the training data is learnt, nothing generalises yet


def snapshot_steps(per_decade: int, budget: int) -> list[int]:
    """When to keep the weights: this often per decade of steps, at 0, at the paper's state B and at the end.

    >>> snapshot_steps(2, 1000)
    [0, 1, 3, 10, 32, 100, 316, 500, 1000]
    """
    grid = {round(10 ** (i / per_decade)) for i in range(math.ceil(per_decade * math.log10(budget)) + 1)}
    return sorted(step for step in {0, OVERFIT_STEP, budget, *grid} if step <= budget)


def save_snapshot(folder: Path, step: int, model: nn.Module) -> None:
    (folder / SNAPSHOTS).mkdir(exist_ok=True)
    write_atomically(folder / SNAPSHOTS / f"{step:09d}.pt", to_bytes(model.state_dict()))


def load_snapshots(run: Run) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The weights a run kept, one by one, and those at its end."""
    run.check_large(SNAPSHOTS)
    paths = sorted((run.path / SNAPSHOTS).glob("*.pt"))
    if not paths:
        raise RunError(f"{run.name} kept no weights: train it with --snapshots")
    for path in paths:
        yield int(path.stem), load_weights(path)
    if run.done and (last := run.rows[-1].step) != int(paths[-1].stem):
        yield last, run.weights()


def load_weights(path: Path) -> dict[str, Tensor]:
    try:
        return parse_weights(path.read_bytes(), path)
    except OSError as error:
        raise RunError(f"{path} cannot be read: {error.strerror}") from error


def parse_weights(content: bytes, path: Path) -> dict[str, Tensor]:
    """The weights in the content of a file; no code in it is run."""
    try:
        found: Any = torch.load(io.BytesIO(content), weights_only=True, map_location="cpu")
    except (RuntimeError, EOFError, ValueError, OSError, KeyError, IndexError, pickle.UnpicklingError) as error:
        reason = " ".join(str(error).split())
        raise RunError(f"{path} is damaged: {reason:.80}") from error
    if not isinstance(found, dict) or not all(isinstance(part, Tensor) for part in found.values()):  # type: ignore[reportUnknown]
        raise RunError(f"{path} is damaged: it holds no weights")
    return found  # type: ignore[reportUnknown]


class Sampled(NamedTuple):
    """Gradients of some scalars over training."""

    names: list[str]  # of the parameter each scalar belongs to
    before: NDArray[np.float32]  # (steps, scalars)
    after: NDArray[np.float32]  # (steps, scalars): what the optimizer got


class GradientTap:
    """Appends the gradients of sampled scalars to a file, step by step.

    Args:
        folder: of the run.
        model: whose parameters to sample, each in equal number.
        count: how many scalars.
        seed: which ones.
        step: where the run stands; what the file holds beyond it is dropped.
    """

    def __init__(self, folder: Path, model: nn.Module, *, count: int, seed: int, step: int) -> None:
        self._chosen = choose(model, count, seed)
        self.scalars = sum(len(index) for _, _, index in self._chosen)
        self._rows: list[Tensor] = []
        names = [name for name, _, index in self._chosen for _ in range(len(index))]
        write_json(folder / SAMPLED, {"names": names})
        path = folder / GRADIENTS
        path.touch()
        size = step * 2 * self.scalars * 4
        if path.stat().st_size < size:
            raise RunError(f"{path} must hold {step:,} steps, got {path.stat().st_size:,} bytes of {size:,}")
        self._file = path.open("r+b")
        self._file.truncate(size)
        self._file.seek(0, io.SEEK_END)

    def take(self) -> None:
        """Sample the gradients: called before and after the filter changes them."""
        parts = [
            torch.zeros(len(index)) if p.grad is None else p.grad.detach().flatten()[index].float().cpu()
            for _, p, index in self._chosen
        ]
        self._rows.append(torch.cat(parts))
        if len(self._rows) >= BUFFERED:  # an even number: both samples of each step
            self.flush()

    def flush(self) -> None:
        if self._rows:
            with naming(Path(self._file.name)):
                self._file.write(torch.stack(self._rows).numpy().tobytes())
                self._file.flush()
                os.fsync(self._file.fileno())  # a checkpoint that follows must find it
            self._rows.clear()

    def close(self) -> None:
        self._file.close()


def choose(model: nn.Module, count: int, seed: int) -> list[tuple[str, nn.Parameter, Tensor]]:
    """Scalars of each parameter, in equal number as far as it has them, with their places in it."""
    generator = torch.Generator().manual_seed(seed)
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    each = max(1, count // len(named))
    places = [torch.randperm(p.numel(), generator=generator)[:each].sort().values for _, p in named]
    return [(name, p, index.to(p.device)) for (name, p), index in zip(named, places, strict=True)]


def recorded_bytes(run: Run) -> int:
    """How much disk the snapshots and gradients of a run take."""
    files = [*(run.path / SNAPSHOTS).glob("*.pt"), run.path / GRADIENTS]
    return sum(path.stat().st_size for path in files if path.exists())


def has_gradients(run: Run) -> bool:
    return (run.path / GRADIENTS).exists()


def sampled_names(path: Path) -> list[str]:
    """Which parameter each recorded scalar belongs to."""
    try:
        names: Any = read_json(path)["names"]
        if not (isinstance(names, list) and names):
            raise ValueError("names must be a list")
        return [str(name) for name in names]  # type: ignore[reportUnknownVariableType]
    except (OSError, ValueError, KeyError) as error:
        raise RunError(f"{path} is damaged: {error}") from error


def load_gradients(run: Run) -> Sampled:
    """The gradients a run recorded; read from the file where they are needed, not all at once."""
    path = run.path / GRADIENTS
    if not path.exists():
        raise RunError(f"{run.name} recorded no gradients: train it with --gradients")
    run.check_large("gradients")
    names = sampled_names(run.path / SAMPLED)
    values = np.memmap(path, dtype=np.float32, mode="r") if path.stat().st_size else np.zeros(0, np.float32)
    rows = len(values) // (2 * len(names))
    whole = values[: rows * 2 * len(names)].reshape(rows, 2, len(names))
    return Sampled(names, whole[:, 0], whole[:, 1])
