"""Run a command that dies with its starter, with all that it started.

``python guard.py PARENT_PID COMMAND ...``, as the leader of a process group: asks the kernel for a
signal when its parent ends, however that ends, and then kills the group. An engine may consist of
several processes that outlive their first one (vLLM's does), so a guard stays beside it; a killed
measurement therefore never leaves an engine behind. It ends as the command ends, by the same status
or signal. Linux only; elsewhere `speedstudy recover` ends stragglers.

Run by its path, not as a module of the package, so that it holds no memory worth a word.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PARENT_ENDED = signal.SIGHUP


def die_with_parent(parent: int, sign: signal.Signals) -> bool:
    """Ask the kernel for a signal to this process when its parent ends; Linux only.

    Returns:
        Whether ``parent`` is the parent still: it may have ended before the request took effect.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, sign)
    return os.getppid() == parent


def main(arguments: list[str]) -> None:
    """Run ``arguments[1:]`` guarded; does not return."""
    signal.signal(PARENT_ENDED, lambda *_: os.killpg(0, signal.SIGKILL))
    # The command gets them too, being of the group; it decides, and how it ends is passed on.
    # Functions, for an ignored signal would be ignored by the command as well.
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: None)
    if not die_with_parent(int(arguments[0]), PARENT_ENDED):
        sys.exit(1)
    guard = os.getpid()
    command = os.fork()
    if command == 0:
        if not die_with_parent(guard, signal.SIGKILL):
            sys.exit(1)
        os.execvp(arguments[1], arguments[1:])
    code = os.waitstatus_to_exitcode(os.waitpid(command, 0)[1])
    if code < 0:
        if -code != signal.SIGKILL:  # whose action cannot be set
            signal.signal(-code, signal.SIG_DFL)
        os.kill(guard, -code)
    sys.exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
