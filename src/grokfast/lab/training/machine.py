"""The machine that trains a run: versions, memory, signals and warnings."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import os
import platform
import signal
import subprocess
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import grokfast
from grokfast.lab.filters import describe
from grokfast.lab.settings import Settings, filter_of
from grokfast.lab.tasks.base import Size

GIGABYTE = 1e9
COPIES = 4  # of the weights: themselves, their gradients, and the two averages of the Adam family
WORD = 4  # bytes of a weight
# Schedulers end a job with SIGTERM, and a terminal that is closed sends SIGHUP. Windows has no SIGHUP.
STOPPING = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


def describe_machine(command: list[str] | None, data: Any) -> dict[str, Any]:
    """Versions, hardware, commit, the command, and what identifies the data."""
    return {
        "grokfast": grokfast.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
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
    """The commit of grokfast's own sources, marked if they were changed; None outside a checkout."""
    folder = Path(__file__).parent

    def git(*args: str) -> str:
        return subprocess.run(["git", "-C", str(folder), *args], capture_output=True, text=True, check=True).stdout

    try:
        changed = git("status", "--porcelain", "--untracked-files=no", ".")
        return git("rev-parse", "HEAD").strip() + ("+changes" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def peak_memory_bytes() -> int | None:
    """Largest memory of this process so far: on the GPU if there is one, else resident."""
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

    Freeing one large block raises its threshold, up to 32 MiB. With other C libraries this does nothing.
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


# The global random stream -------------------------------------------------------------------------------------------
#
# Our tasks draw from generators of their own. A module such as dropout in a user's model draws from the global stream.


@contextmanager
def random_stream(seed: int, device: str) -> Generator[None]:
    """While this lasts, a seed decides what is drawn from the global stream. Afterwards the stream is as before."""
    with torch.random.fork_rng(devices=[torch.device(device)] if device.startswith("cuda") else []):
        torch.default_generator.manual_seed(seed)
        if device.startswith("cuda"):
            torch.cuda.manual_seed(seed)
        yield


def random_states(device: str) -> list[torch.Tensor]:
    """The place in the global stream, for a checkpoint."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if device.startswith("cuda") else [])]


def set_random_states(states: list[torch.Tensor]) -> None:
    torch.set_rng_state(states[0])
    for state in states[1:]:
        torch.cuda.set_rng_state(state)


# Memory ---------------------------------------------------------------------------------------------------------------


def check_memory(settings: Settings, size: Size) -> None:
    """Raise ValueError if a run of this size needs more memory than is free, or than it may use."""
    filter, limit = filter_of(settings), settings["memory_limit"]
    weights, state = COPIES * WORD * size.weights, state_bytes(filter, size.weights)
    needed = weights + state + size.data_bytes
    allowed = available_bytes(settings["device"]) if limit is None else limit * GIGABYTE
    if needed <= allowed:
        return
    name = "" if filter is None else describe(filter)
    parts = {f"the filter {name}": state, "weights and optimizer": weights, "data": size.data_bytes}
    listed = "; ".join(f"{part}: {gigabytes(value)}" for part, value in parts.items() if value >= 0.01 * needed)
    why = f"memory_limit is {gigabytes(allowed)}" if limit is not None else f"{gigabytes(allowed)} are free"
    flag = "" if math.isinf(needed) else f": --memory-limit {math.ceil(needed / GIGABYTE)} tries it all the same"
    raise ValueError(f"this run needs about {gigabytes(needed)} of memory ({listed}), and {why}{flag}")


def state_bytes(filter: grokfast.Filter | None, weights: int) -> float:
    """The state of a filter for this many weights, without making it; inf if no tensor could be that large."""
    if filter is None or weights == 0:
        return 0
    try:
        made = filter.new_state(torch.empty(weights, device="meta"))
    except (RuntimeError, TypeError, OverflowError) as error:
        if "overflow" in str(error).lower():
            return math.inf
        return 0  # a filter of the user's own may know real tensors only
    return sum(tensor.numel() * tensor.element_size() for tensor in made.values())


def available_bytes(device: str) -> float:
    """The free memory of a device; inf if it is unknown."""
    if device.startswith("cuda"):
        return torch.cuda.mem_get_info(torch.device(device))[0]
    found = [math.inf]
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable")))
    with contextlib.suppress(OSError, ValueError):  # a container may have less than its machine; ValueError: "max"
        group = Path("/sys/fs/cgroup")
        found.append(int((group / "memory.max").read_text()) - int((group / "memory.current").read_text()))
    if found == [math.inf]:
        with contextlib.suppress(AttributeError, ValueError, OSError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    return min(found)


def gigabytes(size: float) -> str:
    """A size in words.

    >>> gigabytes(171.2e9), gigabytes(1.5e9), gigabytes(3e6)
    ('171 GB', '1.5 GB', '0.003 GB')
    """
    return f"{size / GIGABYTE:,.0f} GB" if size >= 100 * GIGABYTE else f"{size / GIGABYTE:.2g} GB"


# Signals and warnings -------------------------------------------------------------------------------------------------


@contextmanager
def stop_on_interrupt() -> Generator[Callable[[], bool]]:
    """Turn the first Ctrl-C, SIGTERM or SIGHUP into a question the loop can ask; a second one acts at once.

    A SIGHUP that is ignored stays ignored, for nohup.
    """
    asked = False
    previous = {number: signal.getsignal(number) for number in STOPPING}

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        asked = True
        signal.signal(signum, previous[signal.Signals(signum)])

    heard = [number for number in STOPPING if number == signal.SIGINT or previous[number] != signal.SIG_IGN]
    for number in heard:
        signal.signal(number, ask)
    try:
        yield lambda: asked
    finally:
        for number in heard:
            signal.signal(number, previous[number])


@contextmanager
def block_interrupts() -> Generator[None]:
    """Processes started here do not receive Ctrl-C, not even while they import; this process does so afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def plain_warnings(tell: Callable[[str], None]) -> Generator[None]:
    """Give each warning to `tell` as one line."""
    original = warnings.showwarning
    warnings.showwarning = lambda message, *rest, **more: tell(f"warning: {' '.join(str(message).split())}")  # type: ignore[assignment]
    try:
        yield
    finally:
        warnings.showwarning = original
