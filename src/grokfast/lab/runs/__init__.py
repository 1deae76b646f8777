"""Run directories: what they hold, how they are read, written and searched."""
