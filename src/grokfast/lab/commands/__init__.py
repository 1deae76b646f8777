"""One file per command, each with `add(parser)` and `run(args)`. Only these files print.

Only the requested command is imported. `cli`, `common` and `runs` do not import torch.
"""
