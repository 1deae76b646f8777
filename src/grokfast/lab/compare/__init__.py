"""Runs beside each other: over seeds, beside the paper's numbers, over many settings."""
