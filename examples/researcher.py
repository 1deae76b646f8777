# %% [markdown]
# # Train, compare, look inside
#
# A small transformer learns to add modulo 23 in seconds. The notebook trains it, compares settings and looks into the
# network. It needs `pip install "grokfast[lab]"`. `make notebook` writes it from `examples/researcher.py`.
#
# ## A loop of your own
#
# `grokfast.attach` adds a filter to any first-order optimizer. The rest of the loop stays the same.

# %%
import torch

import grokfast

torch.manual_seed(0)
model = torch.nn.Linear(8, 3)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
handle = grokfast.attach(optimizer, grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line

inputs, labels = torch.randn(64, 8), torch.randint(3, (64,))
for _ in range(100):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(inputs), labels).backward()
    optimizer.step()
print(handle.step, "steps filtered;", handle.memory_bytes, "bytes of state")

# %% [markdown]
# ## Train
#
# `lab.train` does the same as `grokfast train modmul`, and its settings are the flags of that command. Each run has a
# directory of plain files. If a complete run with the same settings exists, `lab.train` returns it.
#
# We train three arms with two seeds each: AdamW, AdamW with the filter, and AdamW with a higher learning rate. The
# third arm shows whether tuning the baseline does as much as the filter.
#
# This shows the tools and is not evidence for the filter: we tried several filters on seed 0 and kept the only one that
# reached the target accuracy in time. The default values did not.

# %%
import tempfile

from grokfast import lab

folder = tempfile.mkdtemp()  # use "runs" to keep them
problem = {"operation": "add", "p": 23, "train_fraction": 0.7, "width": 32, "heads": 2, "depth": 1}
length = {"steps": 700, "until": 0.95, "eval_every": 20, "snapshots": 6, "threads": 1}
arms = [
    {"lr": 3e-3},
    {"lr": 3e-3, "filter": "ema", "alpha": 0.9, "lamb": 1.0},
    {"lr": 1e-2},
]
for arm in arms:
    for seed in (0, 1):
        run = lab.train("modmul", folder, optimizer="adamw", weight_decay=1.0, seed=seed, **problem, **length, **arm)
        print(run.name, run.crossing())

# %% [markdown]
# ## Compare
#
# `lab.table` returns a data frame with one row per run: its settings and results. `first` is the step at which the
# validation accuracy first reached 95%, or null. Runs that differ only in their seed have the same `experiment`.

# %%
table = lab.table(folder)
print(table.select("lr", "filter", "seed", "first", "final_val_accuracy"))
print(table.group_by("lr", "filter", maintain_order=True).agg("first"))

# %%
import matplotlib.pyplot as plt

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
colours: dict[str, str] = {}
for run in lab.load_runs(folder):
    colour = colours.setdefault(run.experiment, f"C{len(colours)}")
    name = f"learning rate {run.settings['lr']:g}, filter {run.settings['filter']}"
    curve = [(row.step, row.val_accuracy) for row in run.rows]
    axes.plot(*zip(*curve, strict=True), colour, label=name if run.seed == 0 else None)
axes.set(xlabel="steps", ylabel="validation accuracy")
_ = figure.legend(loc="outside upper center")

# %% [markdown]
# Compare the filter with the best baseline, not with the first one. Two seeds prove nothing. `grokfast duel` tunes each
# arm with the same budget, runs fresh seeds and gives a verdict with an interval. `grokfast report RUN RUN...` writes
# one page about your runs.
#
# ## Look inside
#
# The network adds numbers by adding angles, at a few key frequencies. `look_inside` measures this at each snapshot. The
# *restricted* loss is computed from the key frequencies alone. If it falls while the validation loss is still high, the
# network builds its solution before the accuracy shows it.

# %%
filtered = next(run for run in lab.load_runs(folder) if run.settings["filter"] == "ema")
found = lab.look_inside(filtered)
later = [moment for moment in found.moments if moment.step > 0]
steps = [moment.step for moment in later]
print(filtered.name, "uses the frequencies", found.key)

figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3), layout="constrained")
left.semilogy(steps, [moment.train_loss for moment in later], label="training")
left.semilogy(steps, [moment.val_loss for moment in later], label="validation")
left.semilogy(steps, [moment.restricted_loss for moment in later], label="restricted")
left.set(xlabel="steps", ylabel="loss")
left.legend()
right.bar(range(1, len(later[-1].embedding) + 1), later[-1].embedding)
_ = right.set(xlabel="frequency", ylabel="share of the embedding's power")

# %% [markdown]
# ## Read our results
#
# In a clone of the repository, `lab.table("results")` reads all runs behind our published numbers.

# %%
from pathlib import Path

results = next((path for path in ("results", "../results") if Path(path).is_dir()), folder)  # elsewhere: our own runs
ours = lab.table(results)
print(ours.height, "runs;", "tasks:", ", ".join(sorted(ours["task"].unique())))
print(ours.group_by("task", "filter").len().sort("task", "filter").head(8))
