"""The log's format: readable on a terminal, one JSON object per line otherwise. The only module that uses structlog.
Content and level are decided by the events.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Callable
from typing import Any, Final, TextIO

import structlog

from mm2py.telemetry.events import Event, Level


_LEVELS = {
    "trace": Level.DEBUG,
    "debug": Level.DEBUG,
    "info": Level.INFO,
    "warn": Level.WARN,
    "warning": Level.WARN,
    "error": Level.ERROR,
}
#: Characters that are written at once: fewer bytes than a pipe that can be written takes without waiting (PIPE_BUF).
_PIECE: Final = 1_000
#: How long a reader that is slow is waited for. The event loop stands still meanwhile.
_PATIENCE_MS: Final = 1_000


def log_sink(*, log_format: str, log_level: str, stream: TextIO | None = None) -> Callable[[Event], None]:
    """
    Return the function that writes an event's log line.

    *log_format* is ``console``, ``json`` or ``auto``: console if *stream* (stderr) is a terminal.
    """
    out = stream or sys.stderr
    if out is None:  # stderr was closed before the start
        return lambda _event: None
    least = _LEVELS.get(log_level.lower(), Level.INFO)
    is_console = log_format == "console" or (log_format == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=out.isatty(), pad_event_to=20, sort_keys=False)
        if is_console
        else structlog.processors.JSONRenderer(serializer=_json, ensure_ascii=False)
    )
    logger = structlog.wrap_logger(
        _LineWriter(out),
        processors=[
            structlog.processors.TimeStamper(fmt="%H:%M:%S.%f" if is_console else "iso", utc=not is_console),
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
    )

    def write(event: Event) -> None:
        if event.severity.value >= least.value:
            logger.info(event.name, level=event.severity.name.lower(), **event.fields())

    return write


class _LineWriter:
    """Writes lines to a stream, for structlog. A line that cannot be written is lost: neither a full disk nor a pipe
    whose reader has ended, or hangs, may stop a mirror, nor may a terminal that is stopped with Ctrl-S.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._poll = select.poll()
        self._has_file = False
        with contextlib.suppress(OSError, ValueError):  # what is no file can be written at any time
            self._poll.register(out.fileno(), select.POLLOUT)
            self._has_file = True
        self._is_blocked = self._is_cut = False

    def info(self, line: str) -> None:
        text = f"\n{line}\n" if self._is_cut else f"{line}\n"
        with contextlib.suppress(OSError, ValueError):
            for at in range(0, len(text), _PIECE):
                if not self._has_room():
                    self._is_cut = self._is_cut or at > 0
                    return
                self._out.write(text[at : at + _PIECE])
                self._out.flush()
            self._is_cut = False

    def _has_room(self) -> bool:
        """Whether something can be written now, or fails at once. What hangs is waited for once, until it is read."""
        if self._has_file:
            self._is_blocked = not self._poll.poll(0 if self._is_blocked else _PATIENCE_MS)
        return not self._is_blocked


def _json(facts: dict[str, Any], **options: Any) -> str:
    """Write one line, the subject first."""
    head = {key: facts[key] for key in ("timestamp", "level", "event")}
    return json.dumps(head | facts, **{**options, "default": str})
