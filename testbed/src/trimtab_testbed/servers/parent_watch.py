"""Runs a program that is killed when the process that started it exits, even if that process is itself killed.

Called as ``python parent_watch.py PARENT_PID PROGRAM ARGUMENT...``. A `preexec_fn` would not be safe: code between
fork and exec may deadlock in a process with threads, such as a test run with Spark.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Request SIGKILL at the parent's death, then become the program."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # the parent exited before the request
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main()
