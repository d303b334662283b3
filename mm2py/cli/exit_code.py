"""Exit codes of the commands; the numbers are Java MirrorMaker's."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """How a command ended."""

    OK = 0
    #: Invalid arguments to one of Kafka's other tools, which this command stands in for.
    BAD_USAGE = 1
    #: The configuration is invalid, or running failed.
    FAILED = 2
    #: The configuration is valid, but startup failed.
    NOT_STARTED = 3
    #: A check: what is to be checked cannot be reached. The number is that of Nagios for what is unknown.
    UNREACHABLE = 3
    #: Ctrl-C, before the command had begun.
    INTERRUPTED = 130
    #: Invalid arguments.
    BAD_ARGUMENTS = 255
