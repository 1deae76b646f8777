"""A sweep on a Ray cluster: each run is a task that may be repeated, in a directory that all nodes see.

This process alone uses the study. A task whose worker or node died is started again by Ray and resumes its run.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from grokfast.lab.runs.directory import RunError
from grokfast.lab.sweep.local import POLL, Orders, Show, count_cores, ignore
from grokfast.lab.sweep.members import join
from grokfast.lab.sweep.space import Point
from grokfast.lab.sweep.spec import load_spec
from grokfast.lab.sweep.study import ATTEMPTS, Claim, Sweep
from grokfast.lab.sweep.trial import Ending
from grokfast.lab.training.interrupt import stop_on_interrupt
from grokfast.lab.training.messages import one_line


def run_ray(
    sweep: Sweep, workers: int | None, show: Show, command: list[str] | None = None, address: str | None = None
) -> bool:
    """Train everything that is left on a cluster, or on one made here; False if interrupted, which leaves checkpoints.

    Warnings of the workers go to Ray's logs.
    """
    connect(address)
    try:
        threads: int = sweep.spec.base.get("threads")
        gpus = int(sweep.spec.base.get("device").startswith("cuda"))
        check_room(threads, gpus)
        task = ray.remote(num_cpus=threads, num_gpus=gpus, max_retries=ATTEMPTS)(carry_out_there)
        at_once = workers or max(1, int(ray.cluster_resources().get("CPU", 1)) // threads)
        with stop_on_interrupt() as interrupted, sweep.joined():
            taken: dict[Any, Claim] = {}
            with join(sweep.folder) as leader:
                orders = Orders(sweep.folder.absolute(), leader, sweep.spec.own_code, ignore, command)
                while not interrupted() and (taken or sweep.tally().left):
                    while len(taken) < at_once and (claim := sweep.claim()):
                        taken[task.remote(orders, Path.cwd(), claim.point)] = claim
                    collect(sweep, taken)
                    show(sweep.tally())
            while taken:
                collect(sweep, taken)
            return not interrupted()
    finally:
        ray.shutdown()


def connect(address: str | None) -> None:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    found = address or os.environ.get("RAY_ADDRESS")
    if found is None:  # only names go through the object store
        options |= {"num_cpus": count_cores(), "include_dashboard": False, "object_store_memory": 100 << 20}
    try:
        ray.init(address=found or "local", **options)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise RunError(f"there is no Ray cluster at {found or 'local'}: {one_line(error)}") from error


def check_room(threads: int, gpus: int) -> None:
    """Refuse tasks that no node can hold: Ray would wait for such a node forever."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(node.get("CPU", 0) >= threads and node.get("GPU", 0) >= gpus for node in nodes):
        raise RunError(f"a node of the cluster must have {threads} CPUs and {gpus} GPUs for one run, got none")


def collect(sweep: Sweep, taken: dict[Any, Claim]) -> None:
    """Record in the study how tasks have ended; wait a little for one."""
    if not taken:
        time.sleep(POLL)
        return
    for task in ray.wait(list(taken), timeout=POLL)[0]:
        try:
            ending: Ending = ray.get(task)
        except RayError as error:
            ending = Ending("failed", error=one_line(error))
        sweep.finish(taken.pop(task), ending)


def carry_out_there(orders: Orders, cwd: Path, point: Point) -> Ending:
    """The task of a worker of the cluster. It needs no Optuna."""
    if any(orders.code):
        os.chdir(cwd)  # files of the user's own may be named by relative paths
        orders.code.load()
    return orders.train(load_spec(orders.folder), point)
