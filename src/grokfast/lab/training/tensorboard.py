"""TensorBoard events of a run, for those who look there."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grokfast.lab.runs.metrics import Row


@contextmanager
def event_writer(folder: Path | None) -> Generator[Callable[[Row], None]]:
    """A function that writes one evaluation, if anywhere; ValueError with a remedy where TensorBoard is missing."""
    if folder is None:
        yield lambda row: None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ValueError('--tensorboard needs a package: pip install "grokfast[tensorboard]"') from error
    writer: Any = None

    def write(row: Row) -> None:
        nonlocal writer
        # A resumed run repeats the steps after its checkpoint: what was written of them before is purged.
        writer = writer or SummaryWriter(str(folder), purge_step=row.step)
        for name, value in {**row._asdict(), **(row.more or {})}.items():
            if name not in ("step", "more") and value is not None:
                writer.add_scalar(name, value, row.step)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
