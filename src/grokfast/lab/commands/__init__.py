"""One file per command, each with `HELP`, `add(parser)` and `run(args)`. The only room that prints.

Importing these files imports no torch: what is heavy is imported where it is used.
"""
