"""Lightning: one callback, a checkpoint and a resume. The model learns to multiply modulo 7 from half of the table."""

import logging
import tempfile
import warnings
from pathlib import Path

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

import grokfast
from grokfast.integrations.lightning import GrokfastCallback

# Warnings about Lightning itself: it uses a deprecated name of torch, and wants workers even for 24 rows.
warnings.filterwarnings("ignore", message=".*treespec, LeafSpec.*is deprecated", category=FutureWarning)
warnings.filterwarnings("ignore", message=".*does not have many workers")
logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Multiply(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(torch.nn.Linear(14, 64), torch.nn.ReLU(), torch.nn.Linear(64, 7))

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        inputs, answers = batch
        return torch.nn.functional.cross_entropy(self.net(inputs), answers)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2, weight_decay=0.1)


def fit(epochs: int, checkpoint: Path | None = None) -> tuple[pl.Trainer, Multiply]:
    callback = GrokfastCallback(grokfast.EMA(alpha=0.98, lamb=2.0))  # the one line
    trainer = pl.Trainer(
        max_epochs=epochs, callbacks=[callback], gradient_clip_val=1.0, accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Multiply()
    trainer.fit(model, batches, ckpt_path=checkpoint)
    return trainer, model


x, y = torch.cartesian_prod(torch.arange(7), torch.arange(7)).T
inputs = torch.cat([torch.nn.functional.one_hot(x, 7), torch.nn.functional.one_hot(y, 7)], 1).float()
answers = x * y % 7
half = torch.randperm(49, generator=torch.Generator().manual_seed(0))[:24]
batches = DataLoader(TensorDataset(inputs[half], answers[half]), batch_size=12)

_, uninterrupted = fit(100)
checkpoint = Path(tempfile.mkdtemp()) / "half.ckpt"
fit(50)[0].save_checkpoint(checkpoint)
_, resumed = fit(100, checkpoint)  # the filter's state is in the checkpoint

accuracy = (uninterrupted.net(inputs[half]).argmax(1) == answers[half]).float().mean()
pairs = zip(uninterrupted.parameters(), resumed.parameters(), strict=True)
equal = all(torch.equal(p, q) for p, q in pairs)
print(f"training accuracy after 200 steps: {accuracy:.2f}; resumed at step 100 equals uninterrupted: {equal}")
assert equal
