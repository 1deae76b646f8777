"""The tasks in examples/tasks train on small data that is made here: they are files like a user's own."""

from pathlib import Path

import pytest
import torch
from made import write_mnist

from grokfast import lab

TASKS = Path(__file__).parents[2] / "examples" / "tasks"
SHORT = {"steps": 3, "eval_every": 3, "threads": 1, "schedule": "cosine", "warmup_steps": 1}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A few reviews and a few digits, in the files of the real data sets."""
    (tmp_path / "imdb").mkdir()
    reviews = "review,sentiment\n" + 200 * "A film that one sees twice,positive\n"
    (tmp_path / "imdb" / "IMDB Dataset.csv").write_text(reviews)
    write_mnist(tmp_path)
    return tmp_path


def test_the_language_model_and_its_adapters_train(data: Path, tmp_path: Path) -> None:
    sizes = {"width": 8, "heads": 2, "depth": 1, "context": 8, "batch_size": 2}
    base = lab.train(f"{TASKS}/gpt_task.py:Gpt", tmp_path / "runs", data_dir=str(data), **sizes, **SHORT)
    assert base.done
    assert base.rows[-1].val_accuracy is None
    weights = str(base.path / "model.pt")
    run = lab.train(f"{TASKS}/lora_task.py:Lora", tmp_path / "runs", base=weights, filter="ema", **sizes, **SHORT)
    assert run.done
    trained = {name for name in run.weights() if name.endswith((".a", ".b"))}
    frozen = run.weights().keys() - trained
    assert len(trained) == 8
    assert all(torch.equal(run.weights()[name], base.weights()[name.replace(".layer.", ".")]) for name in frozen)


def test_adapters_need_the_weights_of_a_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"base must be the model\.pt of a run of gpt_task\.py:Gpt, got ''"):
        lab.train(f"{TASKS}/lora_task.py:Lora", tmp_path)


def test_the_convolutional_network_trains(data: Path, tmp_path: Path) -> None:
    run = lab.train(f"{TASKS}/cnn_task.py:Cnn", tmp_path / "runs", data_dir=str(data), filter="ma", width=2, **SHORT)
    assert run.done
    assert run.rows[-1].val_accuracy is not None
