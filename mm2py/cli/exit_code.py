"""What the commands tell their caller; the numbers are Java MirrorMaker's."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """How a command ended."""

    OK = 0
    #: Invalid arguments to one of Kafka's other tools, which this command stands in for.
    BAD_USAGE = 1
    #: Building or running failed.
    FAILED = 2
    #: It was built, but did not start.
    NOT_STARTED = 3
    #: Invalid arguments.
    BAD_ARGUMENTS = 255
