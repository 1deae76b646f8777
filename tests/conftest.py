"""Settings of the whole suite: one thread per worker, property tests that repeat."""

import os

import hypothesis
import torch

torch.set_num_threads(1)

# `HYPOTHESIS_PROFILE=explore pytest` looks for new examples; the default repeats the same ones.
hypothesis.settings.register_profile("repeat", deadline=None, max_examples=60, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=500, database=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
