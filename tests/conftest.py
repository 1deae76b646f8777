"""Settings of the whole suite: one thread per process, property tests that repeat."""

import gc
import inspect
import os

os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start: threads of many processes wait for each other
os.environ.setdefault("KERAS_BACKEND", "torch")  # Keras's default is TensorFlow

import hypothesis
import pytest
import torch
import torch.distributed.checkpoint
import torch.distributed.fsdp

torch.set_num_threads(1)

# What an old torch may lack: whether it is there, its name, and the tests that need it.
FEATURES = (
    (
        hasattr(torch.distributed.fsdp, "fully_shard"),
        "torch.distributed.fsdp.fully_shard",
        ("test_checkpoint_of_two_ranks_is_continued_by_one", "test_checkpoint_of_two_ranks_is_continued_by_three"),
    ),
    (
        "no_dist" in inspect.signature(torch.distributed.checkpoint.save).parameters,
        "torch.distributed.checkpoint.save(no_dist=True)",
        ("test_distributed_checkpoint_restores_filter_and_trigger",),
    ),
    (
        "param_names" in inspect.getsource(torch.optim.Optimizer),
        "names of parameters in torch.optim",
        (
            "test_08_sparse_gradients_are_refused_by_name",
            "test_detail_is_by_name",
            "test_load_hook_that_reorders_by_name_moves_the_filters_state_too",
            "test_raising_names_the_parameter_and_changes_nothing",
            "test_sparse_gradients_are_refused_by_name",
        ),
    ),
)

# `HYPOTHESIS_PROFILE=explore pytest` looks for new examples; the default repeats the same ones.
hypothesis.settings.register_profile("repeat", deadline=None, max_examples=60, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this torch lacks, by name."""
    lacking = {test: name for present, name, tests in FEATURES for test in tests if not present}
    for item in items:
        test = item.name.partition("[")[0]
        if test in lacking:
            item.add_marker(pytest.mark.skip(reason=f"torch {torch.__version__} lacks {lacking[test]}"))


def pytest_collection_finish() -> None:
    """Leave what is imported out of every later garbage collection: to look at it takes half a second."""
    gc.collect()
    gc.freeze()
