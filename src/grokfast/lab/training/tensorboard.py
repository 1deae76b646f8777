"""TensorBoard events of a run."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grokfast.lab.runs.metrics import Row

Write = Callable[[int, Mapping[str, float | None]], None]  # a step, and its values by name


def scalars(row: Row) -> dict[str, float | None]:
    """What an evaluation measured, by name."""
    return {name: value for name, value in row._asdict().items() if name not in ("step", "more")} | dict(row.more or {})


@contextmanager
def event_writer(folder: Path | None) -> Generator[Write | None]:
    """A function that writes values, or None without folder; ValueError with a remedy where TensorBoard is missing."""
    if folder is None:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError('--tensorboard needs a package: pip install "grokfast[tensorboard]"') from error
    writer: Any = None

    def write(step: int, values: Mapping[str, float | None]) -> None:
        nonlocal writer
        # A resumed run repeats the steps after its checkpoint: their earlier events are purged.
        writer = writer or SummaryWriter(str(folder), purge_step=step)
        for name, value in values.items():
            if value is not None:
                writer.add_scalar(name, value, step)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
