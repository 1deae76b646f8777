"""Grokfast inside other training loops: one module per host, each with its own extra."""
