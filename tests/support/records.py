"""Records to mirror: what is written, what a consumer sees, and whether two topics hold the same."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple


Headers = tuple[tuple[str, bytes | None], ...]

#: 2024-01-01T00:00:00Z, in the middle of the timestamps made here. Brokers refuse those more than an hour ahead.
MIDDLE_MS = 1_704_067_200_000

_YEAR_MS = 365 * 24 * 3_600_000


class NewRecord(NamedTuple):
    """A record to be written. The timestamp is the producer's."""

    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int


class Record(NamedTuple):
    """A record as a consumer sees it. `timestamp_type` is 0 for CreateTime and 1 for LogAppendTime."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int


#: Per partition, in order.
Contents = dict[int, list[Record]]


def plain_records(count: int, *, size: int = 200, start: int = 0) -> Iterator[NewRecord]:
    """Make records with a key, a value of *size* bytes that begins with its number, and rising timestamps."""
    filler = b"." * max(0, size - 12)
    for number in range(start, start + count):
        yield NewRecord(b"key-%d" % (number % 1_000), b"%012d" % number + filler, (), MIDDLE_MS + number)


def strange_records(count: int, *, seed: int = 1) -> Iterator[NewRecord]:
    """
    Make every kind of record that Kafka allows, the same ones for the same seed.

    Null and empty keys and values; no, one and many headers, names that repeat or are empty, null and empty header
    values, names and values beyond ASCII; timestamps out of order, equal, at the epoch, and decades apart.
    """
    chance = random.Random(seed)
    keys = (None, b"", b"k", "schlüssel".encode(), bytes(range(256)))
    headers: tuple[Headers, ...] = (
        (),
        (("one", b"1"),),
        (("same", b"a"), ("same", b"b"), ("same", None), ("other", b"")),
        (("", b"unnamed"), ("größe", "naïve".encode())),
        tuple((f"h{number}", None if number % 3 == 0 else bytes([number])) for number in range(20)),
    )
    steps = (0, 1, -1, 1_000, -60_000, 5 * _YEAR_MS, -20 * _YEAR_MS)
    at_ms = MIDDLE_MS
    for number in range(count):
        at_ms = min(max(0, at_ms + chance.choice(steps)), MIDDLE_MS)
        value = (None, b"", b"%d" % number, b"%d:" % number + chance.randbytes(chance.randrange(300)))[number % 4]
        key = keys[chance.randrange(len(keys))] if value is not None else b"k%d" % number
        yield NewRecord(key, value, headers[chance.randrange(len(headers))], at_ms)
    # Both null at once: the emptiest record there is.
    yield NewRecord(None, None, (), 0)


def spread(records: Iterator[NewRecord], partitions: int) -> list[list[NewRecord]]:
    """Deal records out to partitions in turn."""
    dealt: list[list[NewRecord]] = [[] for _ in range(partitions)]
    for record, pile in zip(records, itertools.cycle(dealt), strict=False):
        pile.append(record)
    return dealt


def as_written(record: Record) -> NewRecord:
    """Forget where a record lies and who stamped it."""
    return NewRecord(record.key, record.value, record.headers, record.timestamp_ms)


def assert_same_records(source: Contents, remote: Contents, *, with_timestamp_types: bool = True) -> None:
    """Compare two topics, each partition in order; only the offsets may differ."""

    def content(record: Record) -> tuple[object, ...]:
        return record[1:] if with_timestamp_types else record[1:-1]

    assert sorted(source) == sorted(remote), "the partitions differ"
    for partition, expected in source.items():
        actual = remote[partition]
        for place, (wanted, seen) in enumerate(zip(expected, actual, strict=False)):
            assert content(wanted) == content(seen), (
                f"partition {partition}, record {place} differs: {_short(wanted)} at the source, {_short(seen)} here"
            )
        assert len(expected) == len(actual), _length_difference(partition, expected, actual)


def assert_written(written: Sequence[Sequence[NewRecord]], contents: Contents) -> None:
    """Check that a topic holds what was written to it, partition by partition, in order."""
    for partition, expected in enumerate(written):
        assert [as_written(record) for record in contents[partition]] == list(expected), (
            f"partition {partition} differs"
        )


def assert_numbers(numbers: Mapping[int, Sequence[int]], count: int) -> None:
    """Check that numbers 0 to *count*-1 are all there, in order per partition, none twice."""
    for partition, seen in sorted(numbers.items()):
        for before, after in itertools.pairwise(seen):
            assert before < after, f"partition {partition}: {after} comes after {before}"
    everything = sorted(itertools.chain.from_iterable(numbers.values()))
    missing = sorted(set(range(count)) - set(everything))
    assert not missing, f"{len(missing)} records are missing, the first are {missing[:5]}"
    assert everything == list(range(count)), f"{len(everything) - count} records are there twice"


def _short(record: Record) -> str:
    return f"{(record.value or b'')[:16]!r} at offset {record.offset}"


def _length_difference(partition: int, expected: Sequence[Record], actual: Sequence[Record]) -> str:
    extra = actual[len(expected) :] or expected[len(actual) :]
    who = "too many" if len(actual) > len(expected) else "missing"
    return f"partition {partition}: {len(actual)} records instead of {len(expected)}; {who} from {extra[0]}"
