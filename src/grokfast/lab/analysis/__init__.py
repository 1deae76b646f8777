"""What is behind the curves: filters and gradients in frequency, weights in space. Nothing here trains."""
