"""Numbered streams on both sides of a mirror: how much has arrived, and whether it is exactly the source's."""

from __future__ import annotations

from tests.support.eventually import eventually
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.topics import end_offsets, ends_of, looking_at


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
