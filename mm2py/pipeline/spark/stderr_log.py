"""
Spark's stderr as messages of one line each.

Spark's own log gives one line for each thing (see log4j2.properties). Python workers share that stderr, and what they
print of an error is a stack of a dozen lines, perhaps several of them at once, mixed: one line reports what happened
and where. Whatever is not part of a stack passes as it is.
"""

from __future__ import annotations

import re
from typing import Final


_BEGIN: Final = "Traceback (most recent call last):"
#: Where in Java something was raised: its message and causes are lines of their own.
_JAVA_FRAME: Final = re.compile(r"\s+(at [^\s(]+\(|\.\.\. \d+ more)")
_FRAME: Final = re.compile(r'\s+File "(?P<file>[^"]*)", line (?P<line>\d+)')
#: The last line of a stack: an exception's name, perhaps with a message.
_END: Final = re.compile(r"[A-Za-z_][\w.]*(: .*)?")
#: A stack that was cut off, because its process was killed, must not swallow what others say for ever.
_MOST_LINES: Final = 400
_NAMED_PARTS: Final = 2
#: Spark closes a worker's connection when its task has failed, with the reason.
_HUNG_UP: Final = ("BrokenPipeError", "ConnectionResetError")
_DAEMON: Final = "pyspark/daemon.py"


class StderrLog:
    """Puts lines together."""

    def __init__(self) -> None:
        self._open = 0
        self._swallowed = 0
        self._where = ""

    def take(self, line: str) -> str | None:
        """Add a *line* without its end; return the message to report now, None if it is not complete yet."""
        if _JAVA_FRAME.match(line):
            return None
        if line.endswith(_BEGIN):
            self._open += 1
            before = line.removesuffix(_BEGIN).strip()
            return before or None
        if not self._open:
            return line
        if line[:1].isspace():
            return self._frame(line)
        if _END.fullmatch(line) is None:
            return line
        return self._close(line)

    def _frame(self, line: str) -> str | None:
        self._swallowed += 1
        if self._swallowed > _MOST_LINES:
            self._open = self._swallowed = 0
            return line
        found = _FRAME.match(line)
        if found is not None:
            self._where = f"{'/'.join(found['file'].split('/')[-_NAMED_PARTS:])}, line {found['line']}"
        return None

    def _close(self, line: str) -> str | None:
        self._open -= 1
        self._swallowed = 0
        where, self._where = self._where, self._where if self._open else ""
        if line.startswith(_HUNG_UP) and where.startswith(_DAEMON):
            return None
        return f"{line} ({where})" if where else line
