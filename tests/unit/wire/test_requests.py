"""Answers that are decoded by hand say what their schema says."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import pytest
from aiokafka.protocol.types import CompactArray

from mm2py.wire.requests import _PARTITIONS, _compact, _CompactPartitions


BY_HAND = _CompactPartitions()
BY_SCHEMA = CompactArray(_compact(_PARTITIONS[1].array_of))
PLAIN = (0, 7, 2, 5, [2, 1, 0], [2], [], {})
ODD = (5, 2**31 - 1, -1, -1, None, [], list(range(126)), {})
#: aiokafka writes the values of tagged fields without their size, but reads it.
TAGGED = (0, 1, 0, 0, [0], [0], [], {1: b"\x03abc", 300: b"\x00"})


@pytest.mark.parametrize("rows", [None, [], [PLAIN], [ODD, PLAIN], [TAGGED, PLAIN, TAGGED], [PLAIN] * 200])
def test_partitions_of_metadata_are_what_the_schema_reads(rows: Any) -> None:
    """Rows with or without replicas and tagged fields are read as by the schema, and nothing after them."""
    by_hand, by_schema = (BytesIO(BY_SCHEMA.encode(rows) + b"after") for _ in range(2))

    assert BY_HAND.decode(by_hand) == BY_SCHEMA.decode(by_schema)
    assert by_hand.read() == by_schema.read() == b"after"


def test_partitions_that_are_cut_off_are_an_error() -> None:
    """What is no whole answer is never taken for one."""
    whole = BY_SCHEMA.encode([PLAIN, PLAIN])
    for end in range(len(whole)):
        with pytest.raises((ValueError, IndexError, struct.error)):
            BY_HAND.decode(BytesIO(whole[:end]))
