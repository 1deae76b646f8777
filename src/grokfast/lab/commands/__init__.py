"""One file per command, each with `add(parser)` and `run(args)`. The only room that prints.

Only the command that was asked for is imported. `cli`, `common`, `runs` and `show` import no torch.
"""
