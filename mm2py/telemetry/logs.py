"""The log's format: readable on a terminal, one JSON object per line otherwise. The only module that uses structlog.
Content and level are decided by the events.
"""

from __future__ import annotations

import contextlib
import json
import select
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TextIO

import structlog

from mm2py.telemetry.events import Event
from mm2py.telemetry.levels import LogLevels


#: The time of a line on a terminal: the machine's own, with its distance to UTC.
_CONSOLE_TIME: Final = "%Y-%m-%d %H:%M:%S.%f%z"
#: Characters that are written at once: fewer bytes than a pipe that can be written takes without waiting (PIPE_BUF).
_PIECE: Final = 1_000
#: How long a reader that is slow is waited for. The event loop stands still meanwhile.
_PATIENCE_MS: Final = 1_000


def log_sink(*, log_format: str, levels: LogLevels, stream: TextIO | None = None) -> Callable[[Event], None]:
    """
    Return the function that writes an event's log line if its level is one of those that *levels* let through.

    *log_format* is ``console``, ``json`` or ``auto``: console if *stream* (stderr) is a terminal.
    """
    out = stream or sys.stderr
    if out is None:  # stderr was closed before the start
        return lambda _event: None
    is_console = log_format == "console" or (log_format == "auto" and out.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(columns=_columns(has_colours=out.isatty()), sort_keys=False)
        if is_console
        else structlog.processors.JSONRenderer(serializer=_json, ensure_ascii=False)
    )
    logger = structlog.wrap_logger(
        _LineWriter(out),
        processors=[
            structlog.processors.TimeStamper(fmt=_CONSOLE_TIME if is_console else "iso", utc=not is_console),
            renderer,
        ],
        wrapper_class=structlog.BoundLogger,
    )

    def write(event: Event) -> None:
        if levels.logs(event):
            logger.info(event.name, level=event.severity.name.lower(), **event.fields())

    return write


def _columns(*, has_colours: bool) -> list[structlog.dev.Column]:
    """Return how a line on a terminal is built: time, level, name, then each fact as ``key=value``."""
    styles = structlog.dev.ConsoleRenderer.get_default_column_styles(colors=has_colours)
    levels = structlog.dev.ConsoleRenderer.get_default_level_styles(colors=has_colours)

    def fact(key: str, style: str, *, before: str = "", after: str = "", width: int = 0) -> structlog.dev.Column:
        formatter = structlog.dev.KeyValueColumnFormatter(
            key_style=styles.kv_key if not key else None,
            value_style=style,
            reset_style=styles.reset,
            value_repr=_quoted if not key else str,
            prefix=before,
            postfix=after,
            width=width,
        )
        return structlog.dev.Column(key, formatter)

    return [
        fact("timestamp", styles.timestamp),
        structlog.dev.Column("level", structlog.dev.LogLevelColumnFormatter(levels, reset_style=styles.reset)),
        fact("event", styles.bright, width=20),
        fact("", styles.kv_value),
    ]


def _quoted(value: object) -> str:
    """Return a fact's text, in quotes if it is several words: more facts follow on the line."""
    text = in_words(value)
    return f'"{text}"' if " " in text or not text else text


def in_words(value: object) -> str:
    """Return a fact as text: yes and no, and the members of a list with commas between, those of a mapping as pairs."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {in_words(one)}" for key, one in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(in_words, value))
    return "-" if value is None else str(value)


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
