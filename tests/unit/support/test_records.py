"""The comparisons that later tests rely on: they must fail when something is wrong."""

from __future__ import annotations

import pytest

from tests.support.records import (
    Contents,
    Record,
    assert_numbers,
    assert_same_records,
    assert_written,
    plain_records,
    spread,
    strange_records,
)


def _contents() -> Contents:
    return {
        partition: [Record(place, *record, 0) for place, record in enumerate(pile)]
        for partition, pile in enumerate(spread(strange_records(30), 2))
    }


def test_strange_records_are_strange() -> None:
    """Every oddity that the name promises is among a few hundred records, and a seed gives the same ones again."""
    records = list(strange_records(400))
    timestamps = [record.timestamp_ms for record in records]
    names = [[name for name, _ in record.headers] for record in records]

    assert records == list(strange_records(400))
    assert {record.key for record in records} >= {None, b""}
    assert {record.value for record in records} >= {None, b""}
    assert any(len(set(used)) < len(used) for used in names)
    assert any(value is None for record in records for _, value in record.headers)
    assert timestamps != sorted(timestamps)
    assert max(timestamps) - min(timestamps) > 20 * 365 * 24 * 3_600_000


def test_spread_keeps_every_record() -> None:
    """Dealing out loses nothing and keeps the order."""
    piles = spread(plain_records(7), 3)

    assert [len(pile) for pile in piles] == [3, 2, 2]
    assert [pile[0].value[:12] for pile in piles if pile[0].value] == [b"%012d" % number for number in range(3)]


def test_offsets_may_differ() -> None:
    """Two topics hold the same records when only their offsets differ."""
    shifted = {
        partition: [record._replace(offset=record.offset + 100) for record in pile]
        for partition, pile in _contents().items()
    }

    assert_same_records(_contents(), shifted)


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"other"},
        {"value": b"other"},
        {"headers": (("other", None),)},
        {"timestamp_ms": 5},
        {"timestamp_type": 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_any_difference_is_found(change: dict[str, object]) -> None:
    """One changed field in one record is enough."""
    remote = _contents()
    remote[1][7] = Record(**{**remote[1][7]._asdict(), **change})

    with pytest.raises(AssertionError, match="partition 1, record 7 differs"):
        assert_same_records(_contents(), remote)


def test_missing_and_extra_records_are_found() -> None:
    """Too few records, too many, and another number of partitions are told apart."""
    fewer, more, narrower = _contents(), _contents(), _contents()
    fewer[0].pop()
    more[0].append(more[0][-1])
    del narrower[1]

    with pytest.raises(AssertionError, match="15 records instead of 16; missing"):
        assert_same_records(_contents(), fewer)
    with pytest.raises(AssertionError, match="17 records instead of 16; too many"):
        assert_same_records(_contents(), more)
    with pytest.raises(AssertionError, match="partitions differ"):
        assert_same_records(_contents(), narrower)


def test_what_was_written_is_compared_in_order() -> None:
    """A swap within a partition is found."""
    written = spread(strange_records(30), 2)
    swapped = [[written[0][1], written[0][0], *written[0][2:]], written[1]]

    assert_written(written, _contents())
    with pytest.raises(AssertionError, match="partition 0 differs"):
        assert_written(swapped, _contents())


@pytest.mark.parametrize(
    ("numbers", "complaint"),
    [
        ({0: [0, 2], 1: [1]}, "1 records are missing, the first are .3."),
        ({0: [0, 2], 1: [3, 1]}, "partition 1: 1 comes after 3"),
        ({0: [0, 2, 2], 1: [1, 3]}, "partition 0: 2 comes after 2"),
        ({0: [0, 1, 2], 1: [1, 3]}, "1 records are there twice"),
    ],
    ids=["missing", "out of order", "twice in a partition", "twice in two"],
)
def test_numbers_are_all_there_once_in_order(numbers: dict[int, list[int]], complaint: str) -> None:
    """Loss, disorder and repetition each have their own complaint."""
    assert_numbers({0: [0, 2], 1: [1, 3]}, 4)
    with pytest.raises(AssertionError, match=complaint):
        assert_numbers(numbers, 4)
