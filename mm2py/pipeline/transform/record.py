"""Records on their way through a transform: one by one, or a chunk of them column by column."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import attrs

from mm2py.wire.batches.record_columns import Headers


class Row(NamedTuple):
    """A record as a transform gave it back, or as it is about to meet one; a timestamp of -1 is none."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers


@attrs.frozen
class Chunk:
    """
    Records of one range, in the order in which they came; a timestamp of -1 is none.

    An offset may be None where a transform made it so. `stray` says of the first record that a transform gave another
    topic or partition which one it is, and which of the two columns.
    """

    offsets: Sequence[int | None]
    timestamps: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]
    stray: tuple[int, str] | None = None

    def __len__(self) -> int:
        return len(self.offsets)
