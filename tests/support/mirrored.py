"""Numbered streams on both sides of a mirror: how much has arrived, and whether it is exactly the source's."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.eventually import eventually
from tests.support.reading import read_numbers, read_topic
from tests.support.records import Record, assert_numbers, assert_same_records
from tests.support.topics import await_stable, end_offsets, ends_of, looking_at


#: More records than this are compared partition by partition: those of a soak take gigabytes.
_AT_ONCE = 300_000


async def arrived(bootstrap: str, remote_topic: str) -> int:
    """Return how many records a remote topic holds; 0 while it does not exist."""
    return sum((await end_offsets(bootstrap, remote_topic)).values())


async def await_arrived(bootstrap: str, remote_topic: str, count: int, *, within_s: float = 60.0) -> int:
    """Wait until a remote topic holds at least *count* records; return how many it holds."""

    async with looking_at(bootstrap) as cluster:

        async def enough() -> int | None:
            found = sum((await ends_of(cluster, remote_topic)).values())
            assert found >= count, f"{found} records"
            return found

        return await eventually(enough, within_s=within_s, what=f"{remote_topic} holds {count} records")


async def assert_mirrored(source: str, topic: str, target: str, remote_topic: str, count: int) -> None:
    """Wait until *count* numbered records have arrived; check that each is there once, in order, where it was."""
    await await_arrived(target, remote_topic, count)
    wanted, found = await read_numbers(source, topic), await read_numbers(target, remote_topic)
    assert_numbers(wanted, count)
    assert_numbers(found, count)
    for partition, numbers in wanted.items():
        assert found[partition] == numbers, f"partition {partition} of {remote_topic} differs from its source"


async def assert_records_mirrored(
    source: str, topic: str, target: str, remote_topic: str, count: int, *, mark: tuple[str, bytes] | None = None
) -> dict[int, Sequence[int]]:
    """
    Check that the remote topic has what its source has: *count* numbered records, each once, in order, as it was.

    With a *mark* each has that header in addition, and only committed ones count. Return their offsets by partition.
    """
    if mark is not None:
        await await_stable(target, remote_topic)
    numbers: dict[int, list[int]] = {}
    offsets: dict[int, Sequence[int]] = {}
    partitions = list(await end_offsets(source, topic))
    for some in [partitions] if count <= _AT_ONCE else [[it] for it in partitions]:
        wanted = await read_topic(source, topic, partitions=some)
        found = await read_topic(target, remote_topic, partitions=some, reads_committed=mark is not None)
        for partition, records in found.items():
            numbers[partition] = [int((record.value or b"")[:12]) for record in records]
            offsets[partition] = [record.offset for record in records]
            found[partition] = [_unmarked(record, mark) for record in records] if mark is not None else records
        assert_same_records(wanted, found)
    assert_numbers(numbers, count)
    return offsets


def _unmarked(record: Record, mark: tuple[str, bytes]) -> Record:
    assert record.headers[-1:] == (mark,), f"the last of {record.headers} is not {mark}"
    return record._replace(headers=record.headers[:-1])
