"""Filters in other frameworks: one module per framework, each with its own extra."""
