"""Throughput of a sweep with N workers against one worker of the same number of threads, on small runs.

    python benchmarks/sweep.py                          as many workers as cores, 24 runs of 300 steps
    python benchmarks/sweep.py --workers 4 --runs 40

The time is measured from the first run that is taken to the last one that ends: importing torch does not count. The
overhead per run is everything that a worker does besides training: asking the study, data and model, files.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from timing import Table, show, write

from grokfast.lab.request import ask
from grokfast.lab.sweep.local import count_cores, run_local
from grokfast.lab.sweep.space import Choices
from grokfast.lab.sweep.spec import Spec, save_spec, settle
from grokfast.lab.sweep.study import Sweep

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
    """Carry out the sweep in a fresh directory."""
    sizes = {"p": 23, "width": 32, "depth": 1, "heads": 2, "batch_size": 64}
    loop = {"steps": args.steps, "eval_every": 50, "threads": args.threads, "device": "cpu"}
    base = ask("modmul", filter="ema", **sizes, **loop)
    spec = settle(Spec(base, (Choices("lamb", (1.0, 2.0)),), tuple(range(max(1, args.runs // 2)))))
    with tempfile.TemporaryDirectory() as folder:
        save_spec(spec, Path(folder))
        with Sweep(Path(folder)) as sweep:
            if not run_local(sweep, workers, lambda tally: None):
                raise KeyboardInterrupt
            trials = sweep.trials()
            assert len(trials) == spec.total, "a run was tried twice"
            training = sum((sweep.run(point).summary or {})["seconds"] for point in spec.points())
    begun = min(t.datetime_start.timestamp() for t in trials if t.datetime_start)
    seconds = max(t.datetime_complete.timestamp() for t in trials if t.datetime_complete) - begun
    return {
        "seconds": round(seconds, 2),
        "runs_per_second": round(len(trials) / seconds, 4),
        "overhead_per_run": round((workers * seconds - training) / len(trials), 3),
    }


if __name__ == "__main__":
    main()
