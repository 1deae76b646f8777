"""Small data sets in the formats of the real ones, and runs with given evaluations, for tests that train nothing."""

from __future__ import annotations

import csv
import gzip
import io
import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from tiny import tiny
from torch import Tensor

from grokfast.lab.runs.directory import Run
from grokfast.lab.runs.metrics import Row
from grokfast.lab.runs.writer import create_run, open_for_writing
from grokfast.lab.settings import Settings, resolve, run_id
from grokfast.lab.tasks.qm9.gdb9 import TARGETS
from grokfast.lab.training.loop import summarize


def write_idx(array: Tensor) -> bytes:
    """An array of bytes in the idx format."""
    head = bytes([0, 0, 8, array.dim()]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return head + bytes(array.to(torch.uint8).flatten().tolist())


def write_mnist(root: Path, *, folder: str = "mnist", packed: bool = True) -> Path:
    """40 training and 30 test images of random dots, brighter at the top for odd labels."""
    (root / folder).mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(0)
    for part, size in (("train", 40), ("t10k", 30)):
        labels = torch.randint(10, (size,), generator=generator)
        images = torch.randint(128, (size, 28, 28), generator=generator)
        images[labels % 2 == 1, :14] += 128
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", labels)):
            content = write_idx(array)
            (root / folder / (name + ".gz" * packed)).write_bytes(gzip.compress(content) if packed else content)
    return root


SMILES = [
    "C",
    "N",
    "O",
    "C#C",
    "C#N",
    "C=O",
    "CC",
    "CO",
    "CC#C",
    "CF",
    "C1CC1",
    "CC(=O)N",
    "[NH3+]CC(=O)[O-]",
    "c1ccoc1",
]
HEADER = ["mol_id", *TARGETS, "u0_atom", "u298_atom", "h298_atom", "g298_atom"]


def make_record(smiles: str, title: str) -> str:
    from rdkit import Chem

    molecule = Chem.AddHs(Chem.MolFromSmiles(smiles))
    molecule.SetProp("_Name", title)
    return Chem.MolToMolBlock(molecule) + "$$$$\n"


def make_table(titles: list[str]) -> str:
    rows = [[title, *(f"{100 * i + j}.25" for j in range(len(HEADER) - 1))] for i, title in enumerate(titles)]
    return "\n".join(",".join(row) for row in [HEADER, *rows]) + "\n"


def write_qm9(root: Path, *, folder: str = "qm9", titles: list[str] | None = None, packed: bool = False) -> Path:
    """A few molecules; in row i, the column j is 100 i + j + 1/4."""
    titles = [f"gdb_{i + 1}" for i in range(len(SMILES))] if titles is None else titles
    structures = "".join(make_record(smiles, title) for smiles, title in zip(SMILES, titles, strict=True))
    (root / folder).mkdir(parents=True, exist_ok=True)
    for name, content in (("gdb9.sdf", structures), ("gdb9.sdf.csv", make_table(titles))):
        data = gzip.compress(content.encode()) if packed else content.encode()
        (root / folder / (name + ".gz" * packed)).write_bytes(data)
    return root


WORDS = [a + b for a in "bcdfgklmnp" for b in ("ack", "ell", "irm", "otto", "unk")]
Rows = list[tuple[str, str]]


def make_rows(count: int = 40) -> Rows:
    source = random.Random(0)
    return [(" ".join(source.choices(WORDS, k=i % 17)), ("positive", "negative")[i % 2]) for i in range(count)]


def as_csv(rows: Rows, header: tuple[str, ...] = ("review", "sentiment")) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text).writerows([header, *rows])
    return text.getvalue().encode()


def write_imdb(folder: Path, content: bytes, name: str = "IMDB Dataset.csv") -> Path:
    (folder / "imdb").mkdir(parents=True, exist_ok=True)
    (folder / "imdb" / name).write_bytes(content)
    return folder


def row(step: int, loss: float, accuracy: float | None) -> Row:
    return Row(step, loss, accuracy, loss, accuracy, 1.0, 1.0, None, 0.1, step, float(step))


def write_run(
    folder: Path,
    config: Settings,
    rows: list[Row],
    *,
    snapshots: Mapping[int, Tensor] | None = None,
    finish: bool = True,
) -> Run:
    """A run of this configuration with these evaluations, and with snapshots of a matrix by step."""
    run = create_run(config, folder, {})
    with open_for_writing(run) as writer:
        for each in rows:
            writer.append(each)
        for step, matrix in (snapshots or {}).items():
            (run.path / "snapshots").mkdir(exist_ok=True)
            torch.save({"w": matrix}, run.path / "snapshots" / f"{step:09d}.pt")
        if finish:
            writer.finish({}, summarize(config, rows, []))
    return run


def swept_run(folder: Path, crossing: int, *, steps: int = 1000, evaluations: int = 100, **changes: Any) -> Run:
    """A run of the tiny task that reaches its level at a given step, if it has so many; no two are alike."""
    every = steps // evaluations
    config = tiny(steps=steps, eval_every=every, **changes)
    noise = random.Random(run_id(config))
    grid = range(every, steps + 1, every)
    rows = [row(step, 1.0 + noise.random(), 0.96 if step >= crossing else 0.9 * noise.random()) for step in grid]
    return write_run(folder, config, rows)


DECAY = {"mnist": 2.0, "qm9": 0.01, "imdb": 10.0}  # of Grokfast
ARMS: dict[str, dict[str, Any]] = {
    "Baseline": {},
    "Grokfast": {"filter": "ema"},
    "Grokfast-EMA": {"filter": "ema"},
    "Grokfast-MA": {"filter": "ma"},
    "1-stage MA": {"filter": "ma", "weight_decay": 0.0},
    "2-stage MA": {"filter": "ma", "weight_decay": 0.0, "two_stage": 500},
}


def made_run(
    folder: Path, arm: str, seed: int, losses: list[float], *, task: str = "qm9", finish: bool = True, **changes: Any
) -> Run:
    """A run of one of the paper's arms whose evaluations every 10 steps are as given."""
    given = {"weight_decay": DECAY[task]} if arm == "Baseline, decay of Grokfast" else ARMS[arm]
    settings = {"seed": seed, "steps": 10 * len(losses), "eval_every": 10, **given, **changes}
    return create_made(folder, resolve(task, **settings), losses, finish=finish)


def create_made(folder: Path, config: Settings, losses: list[float], *, finish: bool = True) -> Run:
    """A run of this configuration whose evaluations every 10 steps are as given; the accuracy is 1 - loss."""
    accuracies = [None if config["measure"] == "loss" else 0.0 if math.isnan(loss) else 1 - loss for loss in losses]
    rows = [row(10 * i, *pair) for i, pair in enumerate(zip(losses, accuracies, strict=True), 1)]
    return write_run(folder, config, rows, finish=finish)


def kept_run(
    folder: Path, kept: Mapping[int, Any], *, accuracy: float = 1.0, columns: int = 1, config: Settings | None = None
) -> Run:
    """A complete run that went through these weights; the last ones are its end."""
    config = config or tiny(snapshots=2)
    last = Row(max(kept), 0.1, 1.0, 0.1, accuracy, 1.0, 1.0, None, 1e-3, 8, 1.0)
    shaped = {step: torch.as_tensor(values, dtype=torch.float32).view(-1, columns) for step, values in kept.items()}
    return write_run(folder, config, [last], snapshots=shaped)
