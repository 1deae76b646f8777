"""Deliberate faults: kill -9, damaged files, full disks. `make soak` prints each fault, its count and losses.

    python benchmarks/soak.py                            54 kills, 210 damaged files, 6 full disks; about ten minutes
    python benchmarks/soak.py --kills 20 --damages 50    fewer of them
    python benchmarks/soak.py --seed 3                   at other moments and in other places

Every kind of run is killed until the number is reached; a run that ends earlier begins again. After each one
the same command continues, and in the end rows and weights, or trials and verdicts, must equal those of a run without
faults, bit for bit. A damaged file must be refused in one line, or change nothing. A full disk must give one line, and
when there is space again the same command must give the same result. A traceback counts as lost.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grokfast.lab import load_runs
from grokfast.lab.commands.cli import main as grokfast
from grokfast.lab.runs.directory import RunError
from grokfast.lab.search.outcome import load_outcome

TESTS = Path(__file__).parents[1] / "tests" / "lab"
OWN = TESTS / "own"
SMALL = "modmul --p 7 --width 16 --depth 1 --heads 2 --batch-size 8 --threads 1 --checkpoint-seconds 0.1"
LONG = "--steps 500 --eval-every 25"
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch._dynamo", "grokfast.lab.commands.train", "grokfast.lab.commands.duel"])

# Each kind of run: its command without the place.
KINDS: dict[str, str] = {
    "ema with recordings": f"train {SMALL} --filter ema {LONG} --snapshots 4 --gradients 20",
    "ma": f"train {SMALL} --filter ma --window-size 5 {LONG}",
    "two stages": f"train {SMALL} --filter ema --two-stage 200 {LONG}",
    "muon": f"train {SMALL} --optimizer muon --filter ema {LONG}",
    "qm9": "train qm9 --molecules 13 --width 6 --batch-size 4 --threads 1 --checkpoint-seconds 0.1 --filter ema"
    " --steps 80 --eval-every 10",
    "mnist": "train mnist --width 8 --train-points 30 --batch-size 10 --threads 1 --checkpoint-seconds 0.1 --filter ema"
    " --steps 400 --eval-every 20",
    "own task and filter": f"train {OWN / 'toy_task.py'}:Sides --filter {OWN / 'toy_filter.py'}:Pair --threads 1"
    f" --checkpoint-seconds 0.1 {LONG}",
    "sweep": f"sweep {SMALL} --filter ema --search tpe --trials 7 --range lamb=0.1:10:log --prune --objective loss"
    " --steps 80 --eval-every 10 --workers 2",
    "duel": f"duel modmul adamw adamw+ema {SMALL.removeprefix('modmul ')} --until 0.2 --hold 1 --tunings 2 --trials 3"
    " --seeds 1 --steps 40 --eval-every 5 --workers 2",
}
PLACES = {"sweep": "--sweep-dir", "duel": "--duel-dir"}  # the flag for the place; of the others --runs-dir


class Line(NamedTuple):
    """One line of the table."""

    fault: str
    times: int
    survived: int
    seconds: float


class Soak:
    """The directory of all runs, the commands, the undisturbed results, and the random numbers."""

    def __init__(self, folder: Path, seed: int, end: float) -> None:
        sys.path.insert(0, str(TESTS))
        from made import write_mnist, write_qm9

        folder = folder.resolve()
        self.folder, self.dice, self.end = folder, random.Random(seed), end
        self.data = str(write_qm9(write_mnist(folder / "data")))
        self.losses: list[str] = []
        self.refused = 0  # damaged files that were named; the others changed nothing
        self.whole: dict[str, Path] = {}
        self.took: dict[str, float] = {}
        for kind in KINDS:
            began, place = time.monotonic(), folder / "whole" / kind
            child = start(self.words(kind, place))
            child.join()
            if child.exitcode != 0:
                raise SystemExit(f"{kind} does not run at all, exit code {child.exitcode}")
            self.whole[kind], self.took[kind] = place, time.monotonic() - began

    def words(self, kind: str, place: Path) -> list[str]:
        data = ["--data-dir", self.data] if kind in ("qm9", "mnist") else []
        return [*KINDS[kind].split(), *data, PLACES.get(kind, "--runs-dir"), str(place), "--quiet"]

    def is_late(self) -> bool:
        return time.monotonic() > self.end

    def lose(self, what: str) -> bool:
        self.losses.append(what)
        return False

    def is_same(self, kind: str, place: Path) -> bool:
        """Whether a directory is complete and equals the undisturbed result."""
        try:
            return found_in(place) == found_in(self.whole[kind]) or self.lose(f"{kind} in {place.name}: not the same")
        except Exception as error:
            return self.lose(f"{kind} in {place.name}: {error!r}")


def start(words: list[str], limit: int | None = None, log: Path | None = None) -> Any:
    """A process that runs a command; a fork of one that has imported everything."""
    child = FORKS.Process(target=begin, args=(words, limit, log or Path(os.devnull)))
    child.start()
    return child


def begin(words: list[str], limit: int | None, log: Path) -> None:
    """Run a command like a terminal would, with a full disk if there is a limit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    multiprocessing.get_context = lambda method=None: FORKS  # type: ignore[assignment]  # workers are forks too
    if limit is not None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    sys.exit(grokfast(words))


def found_in(place: Path) -> list[Any]:
    """The results of all runs in a directory, and of a duel, without times."""
    found: list[Any] = []
    for folder in (place, place / "runs", place / "tuning"):
        for run in sorted(load_runs(folder), key=lambda run: run.name):
            if not run.done and not (place / "trials.jsonl").exists():
                raise ValueError(f"{run.name} is {run.status}")
            run.check_large()
            found.append([run.name, run.done, [row._replace(seconds=0.0) for row in run.rows]])
            found.append({name: tensor.tolist() for name, tensor in run.weights().items()} if run.done else {})
            found.append([(path.name, sum_of(path)) for path in sorted(run.path.glob("snapshots/*.pt"))])
            recorded = run.path / "gradients.f32"
            found.append(recorded.read_bytes() if recorded.exists() else b"")
    if (place / "trials.jsonl").exists():
        found.append(sorted((place / "trials.jsonl").read_text().splitlines()))
    if (place / "duel.json").exists():
        outcome = load_outcome(place)
        found += [outcome.trials, outcome.settings, [v for v in outcome.verdicts if v["by"] != "seconds"]]
    return found


def sum_of(path: Path) -> float:
    return float(sum(tensor.double().sum() for tensor in torch.load(path, weights_only=True).values()))


# Kills ----------------------------------------------------------------------------------------------------------------


def kill(soak: Soak, kind: str, aim: int) -> tuple[int, int]:
    """Kill a kind of run until the number is reached; gives how often, and how many of these changed nothing."""
    kills = survived = rounds = 0
    while kills < aim and not soak.is_late():
        place, here = soak.folder / "killed" / f"{kind} {rounds}", 0
        rounds += 1
        while True:
            child = start(soak.words(kind, place))
            if here < 4 and kills + here < aim:
                child.join(soak.dice.uniform(0.1, 0.9) * soak.took[kind])
                if child.exitcode is None:
                    kill_some(child.pid, place, soak.dice)
                    here += 1
                    child.join(60)
                    if child.exitcode is not None and child.exitcode != 0:
                        continue
            child.join(max(1.0, soak.end - time.monotonic() + 120))
            break
        if child.exitcode == 0:
            same = soak.is_same(kind, place)
        else:
            same = soak.lose(f"{kind}: exit code {child.exitcode} after {here} kills")
        kills, survived = kills + here, survived + (here if same else 0)
        shutil.rmtree(place, ignore_errors=True)
    return kills, survived


def kill_some(leader: int, place: Path, dice: random.Random) -> None:
    """Kill a process, or the workers that train for it, or all of them."""
    workers = [pid for pid in who_writes_in(place) if pid != leader]
    match dice.choice(["leader", "worker", "all"]) if workers else "leader":
        case "leader":
            victims = [leader]
        case "worker":
            victims = [dice.choice(workers)]
        case _:
            victims = [leader, *workers]
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def who_writes_in(place: Path) -> set[int]:
    """The processes with an open file below a directory."""
    found: set[int] = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError):
            if place in link.readlink().parents:
                found.add(int(link.parts[2]))
    return found


# Damage ---------------------------------------------------------------------------------------------------------------


def damage(soak: Soak, aim: int) -> tuple[int, int]:
    """One file of a stopped or complete run, sweep or duel cut, emptied, changed or filled with junk, then read."""
    stopped: list[tuple[str, Path]] = []
    for kind in [kind for kind in KINDS if kind not in PLACES]:  # theirs are those of runs
        place = soak.folder / "stopped" / kind
        for _ in range(20):  # until one is stopped in the middle
            child = start(soak.words(kind, place))
            child.join(0.6 * soak.took[kind])
            child.terminate()
            child.join()
            if child.exitcode != 0 and any(place.rglob("checkpoints/*.json")):
                stopped.append((kind, place))
                break
            shutil.rmtree(place, ignore_errors=True)
    cases = [(kind, place, "whole") for kind, place in soak.whole.items()]
    cases += [(kind, place, "stopped") for kind, place in stopped]
    times = survived = 0
    while times < aim and not soak.is_late():
        kind, place, state = soak.dice.choice(cases)
        copy = soak.folder / "damaged" / str(times)
        shutil.copytree(place, copy)
        files = [path for path in sorted(copy.rglob("*")) if path.is_file() and is_sealed(path, state)]
        target = soak.dice.choice(files)
        how = spoil(target, soak.dice)
        label = f"{kind} ({state}), {target.relative_to(copy)} {how}"
        times += 1
        survived += reads_well(soak, kind, copy, state, label)
        shutil.rmtree(copy, ignore_errors=True)
    return times, survived


def is_sealed(path: Path, state: str) -> bool:
    """Whether a file has a digest: the end of a run seals its environment and its recordings."""
    later = path.name in ("environment.json", "gradients.f32", "gradients.json") or path.parent.name == "snapshots"
    return path.name != "lock" and (state == "whole" or not later)


def spoil(path: Path, dice: random.Random) -> str:
    content = bytearray(path.read_bytes() or b" ")
    place = dice.randrange(len(content))
    how = dice.choice(["changed", "cut", "emptied", "junk"])
    if how == "changed":
        content[place] ^= 1 << dice.randrange(7)
    ways = {"changed": bytes(content), "cut": bytes(content[:place]), "emptied": b"", "junk": dice.randbytes(200)}
    path.write_bytes(ways[how])
    return how


def reads_well(soak: Soak, kind: str, copy: Path, state: str, label: str) -> bool:
    """Whether a damaged directory is refused in one line, or gives the undisturbed result."""
    code, err = call(soak.words(kind, copy))
    if "Traceback" in err:
        return soak.lose(f"{label}: {err.splitlines()[-1]}")
    if code != 0:
        lines = [line for line in err.splitlines() if "warning" not in line]
        soak.refused += 1
        return len(lines) == 1 or soak.lose(f"{label}: {len(lines)} lines: {err[:200]}")
    try:
        same = found_in(copy) == found_in(soak.whole[kind])
    except RunError:  # a complete run is not trained again; whoever reads the damaged file is told
        soak.refused += 1
        return True
    except Exception as error:
        return soak.lose(f"{label}: accepted, then {error!r}")
    return same or soak.lose(f"{label}: accepted, and not the same")


def call(words: list[str]) -> tuple[int, str]:
    """Run a command in this process; returns its exit code and its stderr, with a traceback if there is one."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as err:
        try:
            code = grokfast(words)
        except SystemExit as error:
            code = int(error.code or 0)
        except BaseException:
            traceback.print_exc()
            code = 1
    return code, err.getvalue()


# Full disks -----------------------------------------------------------------------------------------------------------


def fill_disk(soak: Soak, aim: int) -> tuple[int, int]:
    """Limit the size of files for a while, then remove the limit."""
    times = survived = 0
    kinds = ["ema with recordings", "sweep", "duel", "muon", "own task and filter", "ma"]
    while times < aim and not soak.is_late():
        kind = kinds[times % len(kinds)]
        place, log = soak.folder / "full" / str(times), soak.folder / "full.log"
        child = start(soak.words(kind, place), limit=soak.dice.choice([900, 3000, 9000]), log=log)
        child.join()
        said, times = log.read_text(), times + 1
        if child.exitcode != 1 or said.count("\n") != 1 or "too large" not in said:
            soak.lose(f"full disk, {kind}: exit code {child.exitcode}: {said[:300]}")
            continue
        again = start(soak.words(kind, place))
        again.join()
        survived += again.exitcode == 0 and soak.is_same(kind, place)
    return times, survived


# The table ------------------------------------------------------------------------------------------------------------


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=54)
    parser.add_argument("--damages", type=int, default=210)
    parser.add_argument("--disks", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1800, help="no new fault after this time")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    began, lines = time.monotonic(), list[Line]()
    with tempfile.TemporaryDirectory() as name:
        soak = Soak(Path(name), args.seed, began + args.seconds)
        print(f"undisturbed: {json.dumps({kind: round(took, 1) for kind, took in soak.took.items()})} s", flush=True)
        parts: list[tuple[str, Callable[[], tuple[int, int]]]] = []
        for place, kind in enumerate(KINDS):
            share = args.kills * (place + 1) // len(KINDS) - args.kills * place // len(KINDS)
            parts.append((f"kill -9: {kind}", lambda kind=kind, share=share: kill(soak, kind, share)))
        parts.append(("a damaged file", lambda: damage(soak, args.damages)))
        parts.append(("a full disk", lambda: fill_disk(soak, args.disks)))
        for fault, part in parts:
            start_of_part = time.monotonic()
            lines.append(Line(fault, *part(), time.monotonic() - start_of_part))
            print(f"  {lines[-1].fault}: {lines[-1].survived} of {lines[-1].times}", file=sys.stderr, flush=True)
    width = max(len(line.fault) for line in lines)
    print(f"{'fault':{width}}  times  survived  seconds")
    for line in lines:
        print(f"{line.fault:{width}}  {line.times:5}  {line.survived:8}  {line.seconds:7.0f}")
    kills = sum(line.times for line in lines if line.fault.startswith("kill"))
    lost = sum(line.times - line.survived for line in lines)
    print(f"{kills} kills, {lines[-2].times} damaged files, {lines[-1].times} full disks; {lost} lost", end="")
    print(f", {time.monotonic() - began:.0f} s")
    print(f"of the damaged files {soak.refused} were refused by name, the others changed nothing")
    for loss in soak.losses:
        print(f"  lost: {loss}")
    whole = kills >= args.kills and lines[-2].times >= args.damages and lines[-1].times >= args.disks
    if not whole:
        print("stopped by the time before all faults were tried")
    return 0 if whole and not lost else 1


if __name__ == "__main__":
    sys.exit(main())
