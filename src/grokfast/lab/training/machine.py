"""The machine that trains a run: everything else that its numbers may depend on, and the memory it takes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

import grokfast
from grokfast.lab.training.parallel import ranks


def describe_machine(command: list[str] | None, data: str | None) -> dict[str, Any]:
    """Versions, hardware, commit, the command, and the checksum of the data."""
    return {
        "grokfast": grokfast.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "processes": ranks(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "commit": commit(),
        "command": command,
        "data": data,
    }


def processor() -> str:
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return platform.processor()


def commit() -> str | None:
    """The commit of grokfast's own sources, marked where they were changed; None outside a checkout."""
    folder = Path(__file__).parent

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", ".")
        return git("rev-parse", "HEAD").strip() + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def peak_memory_bytes() -> int | None:
    """Largest memory of this process so far: on the GPU where there is one, else resident."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated()
    with contextlib.suppress(OSError, StopIteration):
        # Not ru_maxrss: on Linux a process inherits its parent's.
        lines = Path("/proc/self/status").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    with contextlib.suppress(ImportError):
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return None


def keep_freed_memory() -> None:
    """Let glibc keep the memory that tensors free: by default it returns large blocks and faults them in again.

    Freeing one large block raises its threshold for doing so, up to 32 MiB. Elsewhere this does nothing.
    """
    torch.empty(31 << 18)  # 31 MiB


def forget_peak_memory() -> None:
    """Let the next run measure its own peak: the peak of a process includes everything it did before."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)  # glibc: gives back what earlier runs have freed
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: resets VmHWM
