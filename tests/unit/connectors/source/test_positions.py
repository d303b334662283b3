"""The topic of positions: it vanishes while transactions write there, too; it was created by someone else."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.connectors.source.positions import NOTHING_COPIED, Positions
from mm2py.core.source.due import RemotePartition
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, decode_position, encode_position
from mm2py.telemetry.events import InternalTopicExpires, InternalTopicRecreated, StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, _built
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import PRODUCE, FakeBrokers, FakePartition, FakeTopic, advance
from tests.support.flow_rig import SETTINGS, changed, source_context


BUSY, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)


async def test_a_position_of_a_transaction_stays_the_newest() -> None:
    """
    The topic vanishes, and is created again. Right before what the daemon knows is written there, a transaction commits
    a further position of one partition: that is written once more behind the older one, and nothing else is.
    """
    brokers, clock = FakeBrokers(), LoopClock()
    events = EventLog(clock)
    settings = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, is_exactly_once=True))
    topic = settings.source_connector.offset_storage.topic
    key, value, headers = encode_position("A", Position(BUSY, 150, 149))
    (committed,) = _built([LogRecord(key, value, tuple(headers))], 0)

    def overtaken(node: int, request: Any) -> Any:
        ((_, rows),) = request.topics
        (number,) = (number for number, batch in rows if key in batch)
        brokers.topics[topic].partitions[number].append(committed, "")
        return brokers.plainly(node, request)

    async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster:
        positions = Positions(source_context(clock, events, settings), cluster, cluster, NOTHING_COPIED)
        await positions.read()
        await positions.write([Position(BUSY, 100, 99), Position(IDLE, 7, 6)])
        del brokers.topics[topic]
        brokers.script(PRODUCE, overtaken)
        await positions.log.look()
        records = await positions.log.read_all()

    found: dict[TopicPartition, list[int]] = {}
    for record in records:
        match decode_position(record.key, record.value, record.headers):
            case (_, Position() as position):
                found.setdefault(position.source, []).append(position.next_upstream)
    assert found == {BUSY: [150, 100, 150], IDLE: [7]}
    assert len(events.of(InternalTopicRecreated)) == 1


async def test_a_topic_in_which_positions_would_expire_is_reported() -> None:
    """Not one that the flow creates itself."""
    clock, topic = LoopClock(), SETTINGS.source_connector.offset_storage.topic
    events, reported = EventLog(clock), list[int]()
    brokers = FakeBrokers()
    for policy in (None, "compact", "compact,delete"):
        if policy is not None:
            brokers.topics[topic] = FakeTopic([FakePartition()], configs={"cleanup.policy": policy})
        async with Cluster(brokers.endpoint, clock, opener=brokers.open) as cluster:
            await Positions(source_context(clock, events, SETTINGS), cluster, cluster, NOTHING_COPIED).read()
        reported.append(len(events.of(InternalTopicExpires)))

    assert reported == [0, 0, 1]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("start", [{}, {"auto_offset_reset": "latest"}, {"start_timestamp_ms": 0}])
async def test_no_new_partition_waits_for_another_one_s_leader(side: str, start: dict[str, Any]) -> None:
    """
    A broker with the only replica of a new partition is down, for hours: it begins when that is back, and until then
    that is reported once. All others begin at once.

    That holds for `latest`, too, if the target has records and the source is asked where it starts, and for a time.
    """
    clock, places = LoopClock(), {}
    events = EventLog(clock)
    source, target = FakeBrokers(), FakeBrokers()
    settings = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, **start))
    for topic in ("whole", "broken"):
        source.topics[topic], target.topics[f"A.{topic}"] = (FakeTopic([FakePartition(end=5)]) for _ in range(2))
        places[TopicPartition(topic, 0)] = RemotePartition(f"A.{topic}", None, 1_048_588)
    broken = source.topics["broken"] if side == "source" else target.topics["A.broken"]
    broken.partitions[0].leader = -1
    async with (
        Cluster(source.endpoint, clock, opener=source.open) as here,
        Cluster(attrs.evolve(target.endpoint, alias="B"), clock, opener=target.open) as there,
    ):
        positions = Positions(source_context(clock, events, settings), here, there, NOTHING_COPIED)
        begun, took_s = list[set[str]](), list[float]()
        for leader in (-1, -1, None, -1, 1):
            if leader is None:  # its topic is deleted, and created again: what fails then is reported
                await positions.begin({})
                continue
            broken.partitions[0].leader, asked_at = leader, clock.monotonic()
            begun.append({it.topic for it in await positions.begin(places)})
            took_s.append(clock.monotonic() - asked_at)

    assert begun == [{"whole"}, {"whole"}, {"whole"}, {"whole", "broken"}]
    assert took_s[0] < 10
    assert took_s[1] < 1
    assert ["broken-0" in event.error for event in events.of(StepFailed)] == [True, True]


async def test_what_comes_while_a_partition_cannot_begin_is_not_left_out() -> None:
    """With `latest`: the target's brokers may still be busy with thousands of topics that were created for it."""
    clock, source, target = LoopClock(), FakeBrokers(), FakeBrokers()
    settings = changed(SETTINGS, copying=attrs.evolve(SETTINGS.source_connector.copying, auto_offset_reset="latest"))
    source.topics["t"], target.topics["A.t"] = FakeTopic([FakePartition(end=5)]), FakeTopic([FakePartition(leader=-1)])
    async with (
        Cluster(source.endpoint, clock, opener=source.open) as here,
        Cluster(attrs.evolve(target.endpoint, alias="B"), clock, opener=target.open) as there,
    ):
        positions = Positions(source_context(clock, EventLog(clock), settings), here, there, NOTHING_COPIED)
        places = {TopicPartition("t", 0): RemotePartition("A.t", None, 1_048_588)}
        assert await positions.begin(places) == {}
        advance(source.topics["t"].partitions[0], 8)
        target.topics["A.t"].partitions[0].leader = 1
        begun = await positions.begin(places)

    assert [position.next_upstream for position in begun.values()] == [5]
