"""Throughput of a sweep with N workers against one worker of the same number of threads, on small runs.

    python benchmarks/sweep.py                          as many workers as cores, 24 runs of 300 steps
    python benchmarks/sweep.py --workers 4 --runs 40

The time is measured from the end of the first run to the end of the last, so starting workers does not count. The
overhead per run is all that a worker does besides training: waiting for the leader, data and model, files.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from timing import Table, show, write

from grokfast.lab import load_runs
from grokfast.lab.search.search import Sweep
from grokfast.lab.search.space import Choices
from grokfast.lab.search.sweep import run_sweep, settle_sweep
from grokfast.lab.search.workers import count_cores

GOAL = 0.8  # of N times the throughput of one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=count_cores())
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("-o", "--out", type=Path)
    args = parser.parse_args()
    alone = measure(1, args)
    together = measure(args.workers, args)
    ratio = together["runs_per_second"] / (args.workers * alone["runs_per_second"])
    rows: Table = [{"workers": workers, **found} for workers, found in ((1, alone), (args.workers, together))]
    show(f"{args.runs} runs of {args.steps} steps, {args.threads} threads each", rows)
    print(f"{args.workers} workers: {ratio:.2f} x {args.workers} times the throughput of one (goal: {GOAL})")
    if args.out:
        write({"sweep": rows}, args.out)


def measure(workers: int, args: argparse.Namespace) -> dict[str, float]:
    """Run the sweep in a new directory."""
    given = {"p": 23, "width": 32, "depth": 1, "heads": 2, "batch_size": 64, "steps": args.steps, "eval_every": 50}
    given |= {"task": "modmul", "filter": "ema", "threads": args.threads, "device": "cpu"}
    seeds = tuple(range(max(1, args.runs // 2)))
    sweep = settle_sweep(Sweep(given, (Choices("lamb", (1.0, 2.0)),), seeds, "loss"))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        engine = {"engine": "local", "address": None, "tell": print}
        run_sweep(sweep, folder, workers=workers, watch=lambda progress: None, **engine)  # type: ignore[arg-type]
        runs = load_runs(folder / "runs")
        ends = sorted((run.path / "summary.json").stat().st_mtime for run in runs)
        training = sum((run.summary or {})["seconds"] for run in runs)
    count, seconds = len(runs) - workers, ends[-1] - ends[workers - 1]
    return {
        "seconds": round(seconds, 2),
        "runs_per_second": round(count / seconds, 4),
        "overhead_per_run": round(workers * seconds / count - training / len(runs), 3),
    }


if __name__ == "__main__":
    main()
