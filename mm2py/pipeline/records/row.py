"""A record on its way through a transform."""

from __future__ import annotations

from typing import NamedTuple

from mm2py.wire.record_columns import Headers


class Row(NamedTuple):
    """A record as a transform gave it back, or as it is about to meet one; a timestamp of -1 is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
