"""Timestamps as operators write them: ISO 8601 with a zone, or milliseconds since 1970."""

from __future__ import annotations

import datetime as dt
from typing import Final


_EXPECTED: Final = "expected 2026-11-01T00:00:00Z or milliseconds since 1970"
_1970: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
#: Fewer milliseconds, a date in 1973 or before, are most likely seconds.
_LEAST_MS: Final = 100_000_000_000
_MOST_MS: Final = 2**63 - 1


def timestamp_ms(text: str) -> int:
    """Return the milliseconds since 1970 of a timestamp. Raise ValueError with what is expected."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return _of_number(text)
    try:
        at = dt.datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{_EXPECTED}, found {text!r}") from error
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: write {at.isoformat()}Z for UTC, or +02:00 at the end")
    if at < _1970:
        raise ValueError(f"{_EXPECTED}, found {text!r}, which is before 1970")
    # Rounded up: a record of the millisecond before it is older.
    return -((_1970 - at) // dt.timedelta(milliseconds=1))


def _of_number(text: str) -> int:
    value = int(text) if len(text) <= len(str(_MOST_MS)) else _MOST_MS + 1
    if value > _MOST_MS:
        raise ValueError(f"{_EXPECTED}, found {text}, which is too large")
    if 0 < value < _LEAST_MS:
        raise ValueError(f"{_EXPECTED}, found {text}: are these seconds? then write {text}000")
    return value
