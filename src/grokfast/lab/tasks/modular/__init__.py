"""Modular arithmetic: x o y = z, by a small transformer."""
