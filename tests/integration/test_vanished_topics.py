"""Internal topics that vanish while a flow runs, on real clusters. Epochs run in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.events import InternalTopicExpires, InternalTopicRecreated, StepFailed
from tests.support.damage import vanish
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.groups import commit_plainly
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers, read_topic
from tests.support.topics import create_topic, list_topics, topic_configs


Latest = Mapping[bytes | None, tuple[bytes | None, object]]
Place = tuple[str, str]
_ALIAS = "V"
_QUICK = {"B.offset.flush.interval.ms": 500, "emit.checkpoints.interval.seconds": 1, "emit.heartbeats.enabled": "true"}
_PARTITIONS = 2


async def latest(place: Place, about: str) -> Latest:
    """Return the newest record of each key that names *about*; none where there is no topic."""
    bootstrap, topic = place
    if topic not in await list_topics(bootstrap):
        return {}
    return {
        record.key: (record.value, record.headers)
        for records in (await read_topic(bootstrap, topic)).values()
        for record in records
        if record.key is not None and about.encode() in record.key
    }


async def settled(places: Collection[Place], about: str, *, last: int) -> Mapping[Place, Latest]:
    """Wait until positions after the *last* record are written and no topic changes any more; return their contents."""
    seen: dict[Place, Latest] = {}

    async def is_settled() -> bool:
        nonlocal seen
        before, seen = seen, {place: await latest(place, about) for place in places}
        written = [value or b"" for of_topic in seen.values() for value, _ in of_topic.values()]
        is_written = sum(f'"offset":{last}'.encode() in value for value in written) == _PARTITIONS
        assert is_written, [value for value in written if b"offset" in value]
        assert all(seen.values()), [topic for (_, topic), held in seen.items() if not held]
        changed = [topic for (_, topic) in seen if before.get((_, topic)) != seen[_, topic]]
        assert not changed, changed
        return True

    await eventually(is_settled, within_s=30, what="every internal topic holds what it is to hold", every_s=1.5)
    return seen


@pytest.mark.parametrize("is_replaced", [False, True], ids=["deleted", "replaced"])
async def test_what_vanishes_is_made_and_filled_again(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, *, is_replaced: bool
) -> None:
    """
    All internal topics of a flow vanish while nothing is copied: they come to hold what they held, and copying goes on.

    If another program was faster and created topics of the same names without compaction, that is reported.
    """
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"{_ALIAS}{int(is_replaced)}"
    at_target = [f"mm2-offsets.{alias}.internal", f"mm2-synced.{alias}.internal", f"{alias}.checkpoints.internal"]
    await create_topic(source, prefix, partitions=_PARTITIONS, configs={"retention.bytes": "123456789"})
    await produce_numbers(source, prefix, count=100, partitions=_PARTITIONS)
    await commit_plainly(source, f"{prefix}-group", {TopicPartition(prefix, 0): 50})
    settings = flow_settings(
        source, target, alias=alias, **{f"{alias}->B.topics": prefix, "groups": f"{prefix}-group", **_QUICK}
    )
    places = [*((target, topic) for topic in at_target), (source, "mm2-offset-syncs.B.internal")]
    every = [*places, (target, "heartbeats")]
    async with running_flow(settings, tmp_path) as flow:
        await flow.copied(100)
        before = await settled(places, prefix, last=49)
        for place in every:
            await vanish(*place, is_replaced=is_replaced)

        async def is_filled() -> bool:
            for place in places:
                assert await latest(place, prefix) == before[place], place[1]
            return {event.topic for event in flow.events.of(InternalTopicRecreated)} == {topic for _, topic in every}

        await eventually(is_filled, within_s=30, what="every topic holds what it held", every_s=0.3)
        await produce_numbers(source, prefix, count=100, partitions=_PARTITIONS)
        await flow.copied(200)
        await flow.drain()

    told = {event.topic: event for event in flow.events.of(InternalTopicRecreated)}
    assert all(bool(event.hint) is is_replaced for event in told.values())
    assert is_replaced or len(told) == len(flow.events.of(InternalTopicRecreated))
    assert not flow.events.of(StepFailed)
    assert {len(numbers) for numbers in (await read_numbers(target, f"{alias}.{prefix}")).values()} == {100}
    policies = {(await topic_configs(*place))["cleanup.policy"] for place in every}
    assert policies == {"delete" if is_replaced else "compact"}


async def test_every_internal_topic_that_would_expire_is_reported(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Somebody created them all before the mirror did, with the brokers' default policy; each is reported once."""
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"{_ALIAS}2"
    kinds = ("mm2-offsets.{}", "mm2-synced.{}", "mm2-offset-syncs.{}", "{}.checkpoints")
    topics = {f"{kind.format(alias)}.internal" for kind in kinds}
    for topic in topics:
        await create_topic(target, topic, configs={"cleanup.policy": "delete"})
    await create_topic(source, prefix, configs={"retention.bytes": "123456789"})
    await produce_numbers(source, prefix, count=10, partitions=1)
    keys = {f"{alias}->B.topics": prefix, "groups": f"{prefix}-group", "offset-syncs.topic.location": "target"}
    async with running_flow(flow_settings(source, target, alias=alias, **keys), tmp_path) as flow:
        await flow.copied(10)

        def are_reported() -> bool:
            found = {event.topic for event in flow.events.of(InternalTopicExpires)}
            assert topics <= found, topics - found
            return True

        await eventually(are_reported, within_s=30, what="each topic is reported")
        await flow.drain()

    told = [event for event in flow.events.of(InternalTopicExpires) if event.topic in topics]
    assert len(told) == len(topics)
    assert {(event.cluster, event.policy) for event in told} == {("B", "delete")}
