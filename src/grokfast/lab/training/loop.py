"""The training loop: budget, grid, warm-up, clipping, filter, checkpoints. It does not know which task it runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils import clip_grad_norm_, get_total_norm

import grokfast
from grokfast.lab.runs.metrics import Row, best, crossings, reaches
from grokfast.lab.runs.recording import GradientTap, save_snapshot, snapshot_steps
from grokfast.lab.runs.writer import Writer
from grokfast.lab.settings import Settings, filter_of, optim_of
from grokfast.lab.stats import held_crossing
from grokfast.lab.tasks.base import Task
from grokfast.lab.tasks.contract import check_evaluation
from grokfast.lab.training import optim
from grokfast.lab.training.machine import peak_memory_bytes, random_states, set_random_states


@dataclass(frozen=True)
class Watcher:
    """How a loop talks to its caller, who may stop the run at an evaluation, or at any step if asking is cheap."""

    on_row: Callable[[Row], None] = lambda row: None
    on_metrics: Callable[[int, dict[str, float]], None] | None = None  # of the filter, computed only if asked for
    on_warning: Callable[[str], None] = lambda message: None
    should_stop: Callable[[], bool] = lambda: False
    interrupted: Callable[[], bool] = lambda: False


class Loop:
    """One run in memory: task, optimizers, filter and progress."""

    def __init__(self, settings: Settings, task: Task, writer: Writer, watcher: Watcher) -> None:
        self.settings, self.task, self.writer, self.watcher = settings, task, writer, watcher
        self.optim = optim_of(settings)
        self.params = [p for p in self.task.model.parameters() if p.requires_grad]
        self.optimizers = optim.make_optimizers(self.task.model, self.optim)
        self.full_rates = [group["lr"] for optimizer in self.optimizers for group in optimizer.param_groups]
        self.handles, trigger = optim.attach_filter(self.optimizers, filter_of(settings), settings["two_stage"])
        self.saturated = optim.make_trigger()  # for the late decay
        self.triggers = [self.saturated, *([] if trigger is None else [trigger])]
        self.equalised = optim.mlp_matrices(task.model) if self.optim.equal_grad else []
        self.clipped = optim.clipped_matrices(task.model) if self.optim.row_norm else []
        self.averages: list[Tensor] = []  # of the weights, from the first step on
        self.step, self.samples, self.seconds = 0, 0, 0.0
        self._begin_interval()
        checkpoint = writer.load_checkpoint(watcher.on_warning)
        self.rows = list(writer.run.rows)
        if checkpoint is not None:
            self._restore(checkpoint)
        elif self.optim.row_norm:
            optim.set_row_norms(self.clipped, self.optim.row_norm)
        optim.switch(self.optimizers, "train")
        kept, sampled = settings["snapshots"], settings["gradients"]
        self.snapshots = set(snapshot_steps(kept, settings["steps"])) if kept else set[int]()
        self.tap: GradientTap | None = None
        if sampled:
            where = {"seed": settings["seed"], "step": self.step}
            self.tap = GradientTap(writer.run.path, task.model, count=sampled, **where)

    def run(self) -> bool:
        """Train to `until` or to the end of the budget; False if asked to stop before."""
        self._saved = time.perf_counter()
        self._began = self._saved - self.seconds
        self._keep_weights()
        for due in evaluation_steps(self.settings, self.task.epoch_steps, self.step):
            row = self._train_to(due)
            if row is None:
                return False
            if self.tap is not None:
                self.tap.flush()
            self.seconds = time.perf_counter() - self._began
            row = row._replace(seconds=self.seconds)
            self.rows.append(row)
            self.writer.append(row)
            self.watcher.on_row(row)
            if finished(self.settings, self.rows):
                break
            stop = self.watcher.should_stop() or self.watcher.interrupted()
            if stop or self._is_save_due():
                self._save()
            if stop:
                return False
        self._show_evaluated()
        self.writer.finish(self.task.model.state_dict(), summarize(self.settings, self.rows, self.handles))
        return True

    def _train_to(self, due: int) -> Row | None:
        """Take steps up to `due`, then evaluate; None if interrupted on the way, with a checkpoint left."""
        lr, grad_norm = 0.0, torch.zeros(())
        while self.step < due:
            lr = self._set_learning_rate(self.step)
            batch = self.task.next_batch()
            loss, correct = self.task.loss(batch)
            loss.backward()
            self.loss_sum += loss.detach() * len(batch)
            self.correct_sum += 0 if correct is None else correct
            self.pending += len(batch)
            self._change_gradients()
            self.step += 1
            if self.step == due:
                grad_norm = get_total_norm([p.grad for p in self.params if p.grad is not None])
            self._update(measured=self.step == due)
            if self.step < due:
                stop = self.watcher.interrupted()
                if stop or self._is_save_due():
                    self._save()
                if stop:
                    return None
        self.samples += self.pending
        loss, accuracy = float(self.loss_sum) / self.pending, float(self.correct_sum) / self.pending
        self._begin_interval()
        return self._evaluate(loss, accuracy, float(grad_norm), lr)

    def _begin_interval(self) -> None:
        """Sums over the examples since the last evaluation, and their number."""
        device = self.params[0].device
        self.pending = 0
        self.loss_sum, self.correct_sum = torch.zeros((), device=device), torch.zeros((), device=device)

    def _change_gradients(self) -> None:
        """Apply the rival methods that change gradients, then clip."""
        if self.optim.late_decay and self.saturated.fired:
            optim.add_decay(self.params, self.optim.late_decay)
        if self.optim.perp_grad:
            optim.project_gradients(self.params)
        optim.equalise_gradients(self.equalised)
        if self.optim.clip_norm:
            clip_grad_norm_(self.params, self.optim.clip_norm)

    def _update(self, *, measured: bool) -> None:
        """Let the optimizers step, with the filter inside, and record what settings and watcher ask for."""
        if self.tap is not None:
            self.tap.take()
        for optimizer in self.optimizers:
            optimizer.step()
        if self.optim.row_norm:
            optim.clip_rows(self.clipped, self.optim.row_norm)
        if self.tap is not None:
            self.tap.take()
        if measured and self.handles and self.watcher.on_metrics is not None:
            self.watcher.on_metrics(self.step, optim.filter_metrics(self.handles))  # needs the gradients
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        if self.optim.average is not None:
            self._average(self.optim.average)
        self._keep_weights()

    @torch.no_grad()
    def _average(self, decay: float) -> None:
        """average <- decay average + (1 - decay) weights. The first weights begin it: zeros would damp it."""
        if not self.averages:
            self.averages = [p.detach().clone() for p in self.params]
        for average, p in zip(self.averages, self.params, strict=True):
            average.lerp_(p, 1 - decay)

    def _show_evaluated(self) -> None:
        """Put the weights into the model that are evaluated and kept, which may be averages."""
        optim.switch(self.optimizers, "eval")
        self._swap_averages()

    def _show_trained(self) -> None:
        self._swap_averages()
        optim.switch(self.optimizers, "train")

    @torch.no_grad()
    def _swap_averages(self) -> None:
        for i, average in enumerate(self.averages):
            self.averages[i] = self.params[i].detach().clone()
            self.params[i].copy_(average)

    def _keep_weights(self) -> None:
        if self.step in self.snapshots:
            self._show_evaluated()
            save_snapshot(self.writer.run.path, self.step, self.task.model)
            self._show_trained()

    def _evaluate(self, train_loss: float, train_accuracy: float, grad_norm: float, lr: float) -> Row:
        self._show_evaluated()
        val = self.task.evaluate("val")
        check_evaluation(self.task, val)
        for trigger in self.triggers:
            trigger.observe(train_accuracy)
        slow = [part for handle in self.handles for p in handle.state if (part := handle.slow(p)) is not None]
        row = Row(
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
        self._show_trained()
        return row

    def _set_learning_rate(self, updates: int) -> float:
        """Linear warm-up: 0 at the first update, k/n of the full rate after k of n. Then constant, or half a cosine."""
        warmup, steps = self.optim.warmup_steps, self.settings["steps"]
        warm = min(1.0, updates / warmup) if warmup else 1.0
        if self.optim.schedule == "cosine" and updates > warmup:
            warm = (1 + math.cos(math.pi * (updates - warmup) / (steps - warmup))) / 2
        groups = (group for optimizer in self.optimizers for group in optimizer.param_groups)
        for group, full in zip(groups, self.full_rates, strict=True):
            group["lr"] = full * warm
        return self.optim.lr * warm

    # Checkpoints ------------------------------------------------------------------------------------------------------

    def _is_save_due(self) -> bool:
        return time.perf_counter() - self._saved >= self.settings["checkpoint_seconds"]

    def _save(self) -> None:
        """Write a checkpoint."""
        self.seconds = time.perf_counter() - self._began
        if self.tap is not None:
            self.tap.flush()
        state = {
            "step": self.step,
            "samples": self.samples,
            "seconds": self.seconds,
            "model": self.task.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "task": self.task.state_dict(),
            "saturated": self.saturated.streak,
            "interval": (self.pending, self.loss_sum, self.correct_sum),
            "averages": self.averages,
            "random": random_states(self.settings["device"]),
        }
        self.writer.save_checkpoint(self.step, state)
        self._saved = time.perf_counter()

    def _restore(self, state: dict[str, Any]) -> None:
        self.step, self.samples, self.seconds = state["step"], state["samples"], state["seconds"]
        self.task.model.load_state_dict(state["model"])
        for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)
        self.task.load_state_dict(state["task"])
        self.saturated.streak = state["saturated"]
        device = self.params[0].device
        self.pending, *sums = state["interval"]
        self.loss_sum, self.correct_sum = (part.to(device) for part in sums)
        self.averages = [part.to(device) for part in state["averages"]]
        set_random_states(state["random"])


def evaluation_steps(settings: Settings, epoch_steps: int, done: int) -> Iterator[int]:
    """The steps still to come at which the run is evaluated; the last one of the budget always is."""
    budget, per_decade = settings["steps"], settings["eval_log"]
    if per_decade is None:
        every = settings["eval_every"] or epoch_steps
        yield from range(done + every - done % every, budget, every)  # not a set: a budget may be a trillion steps
        grid = set[int]()
    else:
        points = math.ceil(per_decade * math.log10(budget)) + 1
        grid = {round(10 ** (i / per_decade)) for i in range(points)}
    yield from sorted(step for step in {*grid, budget} if done < step <= budget)


def finished(settings: Settings, rows: list[Row]) -> bool:
    """Whether `until` was reached and held and `extra_steps` have passed since, or the loss is not finite any more."""
    if not math.isfinite(rows[-1].train_loss):
        return True
    until = settings["until"]
    if until is None:
        return False
    reached = reaches(rows, until, settings["measure"])
    first = held_crossing([row.step for row in rows], reached, settings["hold"]).step
    return first is not None and rows[-1].step >= first + settings["extra_steps"]


def summarize(settings: Settings, rows: list[Row], handles: list[grokfast.Attachment]) -> dict[str, Any]:
    """The results of a run, as plain data."""
    last, measure, until = rows[-1], settings["measure"], settings["until"]
    level = settings["level"] if until is None else until
    accuracy, loss = best(rows, "accuracy"), best(rows, "loss")
    return {
        "steps": last.step,
        "samples": last.samples,
        "seconds": last.seconds,
        "steps_per_second": last.step / last.seconds if last.seconds else None,
        "measure": measure,
        "level": level,
        "crossings": {name: crossing._asdict() for name, crossing in crossings(rows, level, measure).items()},
        "final_train_accuracy": last.train_accuracy,
        "final_val_accuracy": last.val_accuracy,
        "final_val_loss": last.val_loss if math.isfinite(last.val_loss) else None,
        "best_val_accuracy": accuracy and accuracy.value,
        "best_val_loss": loss and loss.value,
        "diverged": not math.isfinite(last.train_loss),
        "filter_bytes": sum(handle.memory_bytes for handle in handles),
        "peak_memory_bytes": peak_memory_bytes(),
    }
