"""Run a filter once per optimizer step, on finished and unscaled gradients."""
