"""Single runs in depth: filters and gradients in frequency, weights in space. Nothing here trains a task."""
