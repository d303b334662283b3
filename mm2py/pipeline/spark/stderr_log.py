"""
Spark's stderr as messages of one line each.

Spark's own log gives one line for each thing (see log4j2.properties). Python workers share that stderr, and what they
print of an error is a stack of a dozen lines, perhaps several of them at once, mixed: one line reports what happened
and where. Whatever is not part of a stack passes as it is.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final


#: Printed by every JVM that Spark starts, about nothing that can be changed; and what Java says before an error.
_IDLE_TALK: Final = (
    "WARNING: Using incubator modules",
    "WARNING: package sun.security.action",
    "WARN SparkConf: Note that spark.local.dir",
    "Picked up JAVA_TOOL_OPTIONS",
    "Picked up _JAVA_OPTIONS",
    "NOTE: Picked up JDK_JAVA_OPTIONS",
    "Error: A JNI error has occurred",
)
#: How many messages are kept for `reason`.
LAST_WORDS: Final = 20
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


def begin_to_listen(last_words: deque[str], tell: Callable[[str], object]) -> tuple[int, threading.Thread]:
    """
    Return where Spark's JVM is to write its stderr, and the thread that reads it; see `listen`.

    Raise `OSError`, or `RuntimeError` where there is no thread to be had.
    """
    read_end, write_end = os.pipe()
    listener = threading.Thread(target=listen, args=(read_end, last_words, tell), name="spark-stderr", daemon=True)
    try:
        listener.start()
    except RuntimeError:
        os.close(read_end)
        os.close(write_end)
        raise
    return write_end, listener


def listen(read_end: int, last_words: deque[str], tell: Callable[[str], object]) -> None:
    """Read the stderr of Spark's JVM until that ends; *tell* each message, and keep the last ones."""
    sayings = StderrLog()
    with open(read_end, encoding="utf-8", errors="replace") as lines:
        for raw in lines:
            line = raw.rstrip()
            if line and not line.startswith(_IDLE_TALK):
                message = sayings.take(line)
                if message is None:
                    continue
                last_words.append(message)
                try:
                    tell(message)
                except RuntimeError:  # the event loop is closed: there is no listener any more
                    continue


def reason(words: Sequence[str]) -> str:
    """Return the first of Spark's last words that names an error, else the last one."""
    return next((line for line in words if "rror" in line or "xception" in line), words[-1])
