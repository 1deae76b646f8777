"""Keras: wrap the optimizer. The model learns to multiply modulo 7, is saved and continues."""

import os
import tempfile
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "torch")  # or jax

import keras
import numpy as np

from grokfast.integrations.keras import GrokfastEMA

x, y = np.divmod(np.arange(49), 7)
inputs = np.concatenate([np.eye(7)[x], np.eye(7)[y]], axis=1).astype("float32")  # (49, 14)
answers = x * y % 7

keras.utils.set_random_seed(0)
model = keras.Sequential([keras.Input((14,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(7)])
model.compile(
    optimizer=GrokfastEMA(keras.optimizers.AdamW(1e-2, weight_decay=0.1), alpha=0.98, lamb=2.0),  # the one line
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
)
model.fit(inputs, answers, batch_size=49, epochs=100, verbose=0)

with tempfile.TemporaryDirectory() as folder:
    model.save(Path(folder, "model.keras"))  # includes the filter's state
    model = keras.saving.load_model(Path(folder, "model.keras"))
loss = model.fit(inputs, answers, batch_size=49, epochs=100, verbose=0).history["loss"][-1]
print(f"loss after 200 steps: {loss:.4f}")
assert loss < 0.1
