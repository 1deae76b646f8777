"""Grokfast inside other training loops: one module per host, each an extra."""
