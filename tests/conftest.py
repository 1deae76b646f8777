"""Settings of the whole suite: one thread per process, property tests that repeat."""

import gc
import os

os.environ["OMP_NUM_THREADS"] = "1"  # of the processes that tests start: threads of many processes wait for each other

import hypothesis
import torch

torch.set_num_threads(1)

# `HYPOTHESIS_PROFILE=explore pytest` looks for new examples; the default repeats the same ones.
hypothesis.settings.register_profile("repeat", deadline=None, max_examples=60, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))


def pytest_collection_finish() -> None:
    """Leave what is imported out of every later garbage collection: to look at it takes half a second."""
    gc.collect()
    gc.freeze()
