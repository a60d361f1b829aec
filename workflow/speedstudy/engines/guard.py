"""Replace this process by a command that dies with its parent.

``python -m speedstudy.engines.guard PARENT_PID COMMAND ...``: asks the kernel to kill the process
when its parent ends, however that ends, and executes the command. A measurement that is killed
therefore never leaves an engine behind. Linux only; elsewhere `speedstudy recover` ends stragglers.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Execute ``arguments[1:]`` guarded; does not return."""
    parent = int(arguments[0])
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before the request took effect
        sys.exit(1)
    os.execvp(arguments[1], arguments[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
