"""Hydra and Lightning's CLI make an optimizer with a filter from text. These run where the tools are installed."""

from typing import Any

import lightning.pytorch as pl
import pytest
import torch

from grokfast.filters import MA
from reference import filtered


def moves(optimizer: torch.optim.Optimizer, param: torch.nn.Parameter) -> torch.Tensor:
    """How far the parameter moves at each step of a ramp."""
    path = [param.detach().clone()]
    for t in range(1, 7):
        param.grad = torch.full_like(param, float(t))
        optimizer.step()
        path.append(param.detach().clone())
    return -torch.stack(path).diff(dim=0)[:, 0]


def test_hydra_makes_it_from_names_and_from_objects() -> None:
    hydra = pytest.importorskip("hydra.utils")
    omegaconf = pytest.importorskip("omegaconf")
    texts = [
        "{_target_: grokfast.Optimizer, optimizer: SGD, lr: 0.5, filter: ma, window_size: 3, lamb: 2.0}",
        """
        _target_: grokfast.Optimizer
        _partial_: true
        optimizer: {_target_: torch.optim.SGD, _partial_: true, lr: 0.5}
        filter: {_target_: grokfast.MA, window_size: 3, lamb: 2.0}
        """,
    ]
    expected = 0.5 * torch.tensor(filtered(MA(window_size=3, lamb=2.0), torch.arange(1.0, 7.0).double().numpy()))
    for text in texts:
        param = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
        config = omegaconf.OmegaConf.create(text)
        made = (
            hydra.instantiate(config)(params=[param])
            if "_partial_" in config
            else hydra.instantiate(config, params=[param])
        )
        assert type(made) is torch.optim.SGD
        torch.testing.assert_close(moves(made, param), expected)


SPEC = {
    "class_path": "grokfast.Optimizer",
    "init_args": {
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}},
        "filter": {"class_path": "grokfast.MA", "init_args": {"window_size": 3, "lamb": 2.0}},
    },
}


class Plain(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asked_by", ["the module", "the command line"])
def test_lightnings_command_line_makes_it_from_class_paths(asked_by: str, tmp_path: Any) -> None:
    pytest.importorskip("jsonargparse")
    from lightning.pytorch.cli import LightningCLI, OptimizerCallable

    class Asking(Plain):
        def __init__(self, optimizer: OptimizerCallable = torch.optim.Adam) -> None:
            super().__init__()
            self.make = optimizer

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return self.make(self.parameters())

    args: dict[str, Any] = {"model": {"optimizer": SPEC}} if asked_by == "the module" else {"optimizer": SPEC}
    args["trainer"] = {"logger": False, "accelerator": "cpu", "default_root_dir": str(tmp_path)}
    kind = Asking if asked_by == "the module" else Plain
    cli = LightningCLI(kind, run=False, args=args, save_config_callback=None)  # type: ignore
    made: Any = cli.model.configure_optimizers()
    made = made[0][0] if isinstance(made, tuple) else made
    assert type(made) is torch.optim.SGD
    expected = 0.5 * torch.tensor(filtered(MA(window_size=3, lamb=2.0), torch.arange(1.0, 7.0).numpy()))
    torch.testing.assert_close(moves(made, cli.model.weight), expected.float())
