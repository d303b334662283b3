"""What makes two records the same, for one who reads both logs."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.pipeline.copy.log_walk import records_of
from tests.support.batches import START_MS, Content, build_batch, view_of


@pytest.mark.parametrize(
    ("change", "matches"),
    [
        ({}, True),
        ({"delta": 9}, True),
        ({"timestamp": 1}, False),
        ({"key": None}, False),
        ({"value": b""}, False),
        ({"headers": (("h", None),)}, False),
        ({"headers": (("h", b"1"), ("h", b"1"))}, False),
    ],
)
def test_records_match_by_all_but_their_offset(change: dict[str, Any], matches: bool) -> None:
    """Two sides hold the same record when everything but its place is equal."""
    content = Content(0, START_MS, b"k", b"v", (("h", b"1"),))
    (one,) = records_of(view_of(build_batch([content], base_offset=5)))
    (other,) = records_of(view_of(build_batch([content._replace(**change)], base_offset=70)))

    assert one.matches(other) is matches
    assert (one.digest() == other.digest()) is matches
