"""The process of the command line: what must be set before torch is loaded, and Ctrl-C while it is being loaded.

A script that imports grokfast is not touched by any of this.
"""

import os
import signal
import sys

# Until a command runs there is nothing to save: Ctrl-C ends the process at once, without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run the command that was typed."""
    # Threads that wait for work sleep instead of spinning: two runs at once would take each other's cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from grokfast.lab.commands import cli

    code = cli.main()
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return code


if __name__ == "__main__":
    sys.exit(main())
