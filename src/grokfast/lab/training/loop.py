"""The training loop: budget, grid, warm-up, clipping, filter, checkpoints. It does not know which task it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch.nn.utils import clip_grad_norm_, get_total_norm

import grokfast
from grokfast.lab.config import RunConfig
from grokfast.lab.runs.metrics import Row, best, crossings, reaches
from grokfast.lab.runs.recording import GradientTap, save_snapshot, snapshot_steps
from grokfast.lab.runs.writer import Writer
from grokfast.lab.tasks.base import Task
from grokfast.lab.training import parallel, rivals
from grokfast.lab.training.machine import peak_memory_bytes
from grokfast.lab.training.optimizers import attach_filter, filter_metrics, make_optimizers, make_trigger, switch

TOGETHER = 32  # steps between checks where several ranks must agree


@dataclass(frozen=True)
class Watcher:
    """How a loop talks to its caller, who may stop the run at an evaluation, or at any step if asking is cheap."""

    on_row: Callable[[Row], None] = lambda row: None
    on_metrics: Callable[[int, dict[str, float]], None] | None = None  # of the filter, computed only if asked for
    on_warning: Callable[[str], None] = lambda message: None
    should_stop: Callable[[], bool] = lambda: False
    interrupted: Callable[[], bool] = lambda: False


def run_loop(config: RunConfig, task: Task, writer: Writer | None, watcher: Watcher) -> bool:
    """Train from the last checkpoint to the end; False if the watcher stopped it before."""
    loop = Loop(config, task, writer, watcher)
    try:
        return loop.run()
    finally:
        if loop.tap is not None:
            loop.tap.close()


class Loop:
    """One run in memory: task, optimizers, filter and progress. On ranks that do not write there is no writer."""

    def __init__(self, config: RunConfig, task: Task, writer: Writer | None, watcher: Watcher) -> None:
        self.config, self.task, self.writer, self.watcher = config, task, writer, watcher
        self.params = [p for p in self.task.model.parameters() if p.requires_grad]
        self.optimizers = make_optimizers(self.task.model, config.optim)
        self.full_rates = [group["lr"] for optimizer in self.optimizers for group in optimizer.param_groups]
        self.handles, trigger = attach_filter(self.optimizers, config)
        self.saturated = make_trigger()  # for the late decay
        self.triggers = [self.saturated, *([] if trigger is None else [trigger])]
        self.equalised = rivals.mlp_matrices(task.model) if config.optim.equal_grad else []
        self.clipped = rivals.clipped_matrices(task.model) if config.optim.row_norm else []
        self.step, self.samples, self.seconds = 0, 0, 0.0
        self._begin_interval()
        checkpoint, self.rows = parallel.from_leader(writer and partial(writer.resume, watcher.on_warning))
        if checkpoint is not None:
            self._restore(checkpoint)
        elif config.optim.row_norm:
            rivals.set_row_norms(self.clipped, config.optim.row_norm)
        switch(self.optimizers, "train")
        loop, self.snapshots, self.tap = config.loop, set[int](), None
        if writer is not None and loop.snapshots:
            self.snapshots = set(snapshot_steps(loop.snapshots, loop.steps))
        if writer is not None and loop.gradients:
            sampled = {"count": loop.gradients, "seed": loop.seed, "step": self.step}
            self.tap = GradientTap(writer.run.path, task.model, **sampled)

    def run(self) -> bool:
        """Train to `until` or to the end of the budget; False if asked to stop before."""
        self._saved = time.perf_counter()
        self._began = self._saved - self.seconds
        self._keep_weights()
        for due in evaluation_steps(self.config, self.task.epoch_steps, self.step):
            row = self._train_to(due)
            if row is None:
                return False
            switch(self.optimizers, "train")
            if self.tap is not None:
                self.tap.flush()
            self.seconds = time.perf_counter() - self._began
            row = row._replace(seconds=self.seconds)
            self.rows.append(row)
            if self.writer is not None:
                self.writer.append(row)
            self.watcher.on_row(row)
            if parallel.from_leader(lambda: finished(self.config, self.rows)):
                break
            stop = parallel.any_rank(self.watcher.should_stop() or self.watcher.interrupted())
            if stop or self._is_save_due():
                self._save()
            if stop:
                return False
        if self.writer is not None:
            switch(self.optimizers, "eval")
            self.writer.finish(self.task.model.state_dict(), summarize(self.config, self.rows, self.handles))
        return True

    def _train_to(self, due: int) -> Row | None:
        """Take steps up to `due`, then evaluate; None if interrupted on the way, with a checkpoint left."""
        lr, grad_norm = 0.0, torch.zeros(())
        while self.step < due:
            lr = self._set_learning_rate(self.step)
            batch = self.task.next_batch()
            mine = parallel.share(batch)
            if len(mine):
                loss, correct = self.task.loss(mine)
                loss.backward()
                self.loss_sum += loss.detach() * len(mine)
                self.correct_sum += 0 if correct is None else correct
            parallel.sum_gradients(self.params, len(mine) / len(batch))
            self._change_gradients()
            if self.config.optim.clip_norm:
                clip_grad_norm_(self.params, self.config.optim.clip_norm)
            self.step += 1
            if self.step == due:
                grad_norm = get_total_norm([p.grad for p in self.params if p.grad is not None])
            self._update(measured=self.step == due)
            self.pending += len(batch)
            if self.step < due and self._look():
                return None
        self.samples += self.pending
        loss, accuracy = (float(parallel.total(part)) / self.pending for part in (self.loss_sum, self.correct_sum))
        self._begin_interval()
        return self._evaluate(loss, accuracy, float(grad_norm), lr)

    def _begin_interval(self) -> None:
        """Sums over the examples since the last evaluation, and their number."""
        device = self.params[0].device
        self.pending = 0
        self.loss_sum, self.correct_sum = torch.zeros((), device=device), torch.zeros((), device=device)

    def _look(self) -> bool:
        """Between evaluations: save a checkpoint if one is due, or if the run is interrupted, which is returned."""
        stop, save = self.watcher.interrupted(), self._is_save_due()
        if parallel.ranks() > 1:
            if self.step % TOGETHER:
                return False
            stop, save = parallel.any_rank(stop), parallel.any_rank(save)
        if stop or save:
            self._save()
        return stop

    def _is_save_due(self) -> bool:
        return time.perf_counter() - self._saved >= self.config.loop.checkpoint_seconds

    def _save(self) -> None:
        """Write a checkpoint. Inside an interval all ranks must call this: their sums are added up."""
        self.seconds = time.perf_counter() - self._began
        state = self._state()
        if self.writer is not None:
            if self.tap is not None:
                self.tap.flush()
            self.writer.save_checkpoint(self.step, state)
        self._saved = time.perf_counter()

    def _change_gradients(self) -> None:
        """Apply the rival methods that change gradients."""
        optim = self.config.optim
        if optim.late_decay and self.saturated.fired:
            rivals.add_decay(self.params, optim.late_decay)
        if optim.perp_grad:
            rivals.project_gradients(self.params)
        rivals.equalise_gradients(self.equalised)

    def _update(self, *, measured: bool) -> None:
        """Let the optimizers step, with the filter inside, and record what configuration and watcher ask for."""
        if self.tap is not None:
            self.tap.take()
        for optimizer in self.optimizers:
            optimizer.step()
        if self.config.optim.row_norm:
            rivals.clip_rows(self.clipped, self.config.optim.row_norm)
        if self.tap is not None:
            self.tap.take()
        if measured and self.handles and self.watcher.on_metrics is not None:
            self.watcher.on_metrics(self.step, filter_metrics(self.handles))  # needs the gradients
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self._keep_weights()

    def _keep_weights(self) -> None:
        if self.writer is not None and self.step in self.snapshots:
            switch(self.optimizers, "eval")
            save_snapshot(self.writer.run.path, self.step, self.task.model)
            switch(self.optimizers, "train")

    def _evaluate(self, train_loss: float, train_accuracy: float, grad_norm: float, lr: float) -> Row:
        switch(self.optimizers, "eval")
        val = self.task.evaluate("val")
        for trigger in self.triggers:
            trigger.observe(train_accuracy)
        slow = [part for handle in self.handles for p in handle.state if (part := handle.slow(p)) is not None]
        return Row(
            step=self.step,
            train_loss=train_loss,
            train_accuracy=None if val.accuracy is None else train_accuracy,
            val_loss=val.loss,
            val_accuracy=val.accuracy,
            weight_norm=float(get_total_norm([p.detach() for p in self.params])),
            grad_norm=grad_norm,
            slow_norm=float(get_total_norm(slow)) if slow else None,
            lr=lr,
            samples=self.samples,
            seconds=0.0,
            more=val.more,
        )

    def _set_learning_rate(self, updates: int) -> float:
        """Linear warm-up: 0 at the first update, k/n of the full rate after k of n."""
        optim = self.config.optim
        warm = min(1.0, updates / optim.warmup_steps) if optim.warmup_steps else 1.0
        groups = (group for optimizer in self.optimizers for group in optimizer.param_groups)
        for group, full in zip(groups, self.full_rates, strict=True):
            group["lr"] = full * warm
        return optim.lr * warm

    def _state(self) -> dict[str, Any]:
        parts = self.loss_sum, self.correct_sum
        sums = [parallel.total(part.clone()) if self.pending else part for part in parts]
        return {
            "step": self.step,
            "samples": self.samples,
            "seconds": self.seconds,
            "model": self.task.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "task": self.task.state_dict(),
            "saturated": self.saturated.streak,
            "interval": (self.pending, *sums),
        }

    def _restore(self, state: dict[str, Any]) -> None:
        self.step, self.samples, self.seconds = state["step"], state["samples"], state["seconds"]
        self.task.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.task.load_state_dict(state["task"])
        self.saturated.streak = state.get("saturated", 0)  # version 0.1 knew no late decay
        if "interval" in state:  # older checkpoints were written at evaluations only
            self.pending, *sums = state["interval"]
            if self.writer is not None:  # on one rank only: the sums are over all ranks
                self.loss_sum, self.correct_sum = (part.to(self.params[0].device) for part in sums)


def evaluation_steps(config: RunConfig, epoch_steps: int, done: int) -> Iterator[int]:
    """The steps still to come at which the run is evaluated; the last one of the budget always is."""
    budget = config.loop.steps
    if config.loop.eval_log is None:
        every = config.loop.eval_every or epoch_steps
        yield from range(done + every - done % every, budget, every)  # not a set: a budget may be a trillion steps
        grid = set[int]()
    else:
        per_decade = config.loop.eval_log
        points = math.ceil(per_decade * math.log10(budget)) + 1
        grid = {round(10 ** (i / per_decade)) for i in range(points)}
    yield from sorted(step for step in {*grid, budget} if done < step <= budget)


def finished(config: RunConfig, rows: list[Row]) -> bool:
    """Whether `until` was reached and `extra_steps` have passed since, or the loss is not finite any more."""
    if not math.isfinite(rows[-1].train_loss):
        return True
    until = config.loop.until
    reached = [] if until is None else reaches(rows, until, config.task.measure)
    return True in reached and rows[-1].step >= rows[reached.index(True)].step + config.loop.extra_steps


def summarize(config: RunConfig, rows: list[Row], handles: list[grokfast.Attachment]) -> dict[str, Any]:
    """The results of a run, as plain data."""
    last, measure = rows[-1], config.task.measure
    accuracy, loss = best(rows, "accuracy"), best(rows, "loss")
    return {
        "steps": last.step,
        "seconds": last.seconds,
        "steps_per_second": last.step / last.seconds if last.seconds else None,
        "samples": last.samples,
        "measure": measure,
        "level": config.level,
        "crossings": {name: crossing._asdict() for name, crossing in crossings(rows, config.level, measure).items()},
        "final_train_accuracy": last.train_accuracy,
        "final_val_accuracy": last.val_accuracy,
        "final_val_loss": last.val_loss if math.isfinite(last.val_loss) else None,
        "best_val_accuracy": accuracy and accuracy.value,
        "best_val_loss": loss and loss.value,
        "diverged": not math.isfinite(last.train_loss),
        "filter_bytes": sum(handle.memory_bytes for handle in handles),
        "peak_memory_bytes": peak_memory_bytes(),
    }
