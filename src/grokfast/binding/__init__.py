"""When a filter runs: once per optimizer step, on finished and unscaled gradients."""
