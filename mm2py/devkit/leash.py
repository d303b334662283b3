"""
Run a command that never outlives its parent.

This file is started by its path, not imported: it asks the kernel to kill the process when the parent is gone, and
then becomes the command, so the process id stays the one the parent knows.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys


_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    """Take the parent's process id and the command."""
    parent, *command = arguments
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):  # it went before the kernel knew our wish
        sys.exit(1)
    os.execvp(command[0], command)  # noqa: S606  # the command comes from `start_process` as a list


if __name__ == "__main__":
    main(sys.argv[1:])
