"""Runs a program that dies with the process that started it, even when that process is killed outright.

Called as ``python tether.py PARENT_PID PROGRAM ARGUMENT...``. A wrapper of its own instead of `preexec_fn`, because
code run between fork and exec may deadlock in a process that has threads, as a test run with Spark has.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL at the parent's death, then become the program."""
    parent, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it died before the kernel was asked
        sys.exit(1)
    os.execv(command[0], command)  # noqa: S606 - becoming the program is the purpose


if __name__ == "__main__":
    main()
