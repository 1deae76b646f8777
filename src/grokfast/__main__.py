"""The process of the command line: what must be set before torch is loaded, and Ctrl-C while it is being loaded.

A script that imports grokfast is not touched by any of this.
"""

import _signal as signal  # type: ignore[import-not-found]  # the module signal takes longer than all the rest up to here
import os
import sys

# Until a command runs there is nothing to save: Ctrl-C ends the process at once, without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def main() -> int:
    """Run the command that was typed."""
    # Threads that wait for work spin a little, then sleep: else two runs at once take each other's cores (docs/log.md).
    # libgomp obeys GOMP_SPINCOUNT, whatever the policy is; libomp knows the policy only. Both read once, with torch.
    if not any(name in os.environ for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")):
        os.environ.update(GOMP_SPINCOUNT="1000", OMP_WAIT_POLICY="passive")
    from grokfast.lab.commands import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
