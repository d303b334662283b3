"""Batches are the same without being opened only where their records are."""

from __future__ import annotations

import pytest

from mm2py.verify.side import are_same
from tests.support.batches import CODECS, LOG_APPEND_TIME, build_batch, contents, flipped, resigned, view_of


@pytest.mark.parametrize("codec", CODECS)
def test_the_mirror_s_copy_of_a_batch_is_the_same(codec: int) -> None:
    """Offsets, producer and checksum are the mirror's own; they say nothing about the records."""
    ours = view_of(build_batch(20, base_offset=500, codec=codec, producer=(7, 1, 90)))
    theirs = view_of(build_batch(20, base_offset=3, codec=codec, producer=(8, 0, 0)))

    assert ours.crc != theirs.crc
    assert are_same(ours, theirs)


@pytest.mark.parametrize("at", range(61, 61 + 200, 7))
def test_one_bit_makes_a_difference(at: int) -> None:
    """Whatever byte of the records it is in."""
    ours = build_batch(20)

    assert not are_same(view_of(ours), view_of(resigned(flipped(ours, at))))


def test_what_the_header_says_of_the_records_counts() -> None:
    """A record's timestamp and codec are in the header as well."""
    ours = view_of(build_batch(20))
    later = view_of(build_batch([it._replace(timestamp=it.timestamp + 1) for it in contents(20)]))
    stamped = view_of(build_batch(20, attributes=LOG_APPEND_TIME, max_timestamp=9))

    assert not are_same(ours, later)
    assert not are_same(ours, stamped)
    assert are_same(ours, stamped, ignore_timestamps=True)
    assert not are_same(ours, view_of(build_batch(21)))
    assert not are_same(view_of(build_batch(20, codec=3)), view_of(build_batch(20, codec=4)))
