"""One training loop, its optimizers, many processes, and the machine it runs on."""
