"""The client over a model of a cluster: topics looked up, checkpoints read, arguments judged, trouble told."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from mm2py.client.config import MirrorClientConfig
from mm2py.client.mirror_client import MirrorClient, ReadingTookTooLongError, TopicMissingError
from mm2py.client.records import Malformed, RecordKind
from mm2py.core.offsets.translation import Precision, Translated
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.model.checkpoint import Checkpoint, checkpoint_headers, checkpoint_key, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.offset_sync import OffsetSync, encode_offset_sync
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FETCH, METADATA, FakeBrokers, advance, topics_with


CHECKPOINTS = "A.checkpoints.internal"
ORDERS = TopicPartition("A.orders", 0)
BILLS = TopicPartition("A.bills", 3)
#: The id of a topic, and that of the one that has its name afterwards.
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


@pytest.fixture
def brokers() -> FakeBrokers:
    fake = FakeBrokers()
    fake.topics = topics_with(CHECKPOINTS, [1])
    for topic in ("orders", "heartbeats", "A.heartbeats", "A.Z.heartbeats", "A.orders", "mm2-offsets.A.internal"):
        fake.topics |= topics_with(topic, [0])
    return fake


def client_of(brokers: FakeBrokers) -> MirrorClient:
    servers = ",".join(brokers.endpoint.bootstrap_servers)
    return MirrorClient(MirrorClientConfig(servers, name="B"), clock=LoopClock(), opener=brokers.open)


@pytest.fixture
async def client(brokers: FakeBrokers) -> AsyncIterator[MirrorClient]:
    async with client_of(brokers) as connected:
        yield connected


async def write(brokers: FakeBrokers, *records: Checkpoint | LogRecord, topic: str = CHECKPOINTS) -> None:
    """Append checkpoints and other records, each in a batch of its own."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        for record in records:
            raw = LogRecord(*encode_checkpoint(record)) if isinstance(record, Checkpoint) else record
            await TopicLog(cluster, topic).append([attrs.evolve(raw, partition=0)])


async def test_names_tell_the_mirrors(client: MirrorClient) -> None:
    """Every question about names is answered from the topics that the cluster lists."""
    assert await client.upstream_clusters() == {"A", "Z"}
    assert await client.heartbeat_topics() == {"heartbeats", "A.heartbeats", "A.Z.heartbeats"}
    assert await client.checkpoint_topics() == {CHECKPOINTS}
    assert await client.remote_topics() == {"A.orders", "A.heartbeats", "A.Z.heartbeats"}
    assert await client.remote_topics("Z") == set()
    assert [await client.replication_hops(alias) for alias in ("A", "Z", "C")] == [1, 2, -1]


def test_one_name_is_judged_without_the_cluster() -> None:
    """What a topic is follows from its name alone; a client that was not entered can say it."""
    client = MirrorClient("b:9092")

    assert client.is_heartbeat_topic("A.heartbeats")
    assert client.is_checkpoint_topic(CHECKPOINTS)
    assert [client.is_remote_topic(topic) for topic in ("A.orders", "orders", CHECKPOINTS)] == [True, False, False]
    assert client.count_hops("A.Z.orders", "Z") == 2


async def test_remote_consumer_offsets(brokers: FakeBrokers, client: MirrorClient) -> None:
    """The latest checkpoint of each topic-partition counts, metadata included (testRemoteConsumerOffsets)."""
    await write(
        brokers,
        Checkpoint("group", ORDERS, 10, 5),
        Checkpoint("other", ORDERS, 70, 60),
        Checkpoint("group", BILLS, 3, 3, "by hand"),
        Checkpoint("group", ORDERS, 12, 7),
    )
    offsets = await client.remote_consumer_offsets("group", "A", 10.0)

    assert offsets == {ORDERS: CommittedOffset(7), BILLS: CommittedOffset(3, "by hand")}
    assert await client.remote_consumer_offsets("nobody", "A") == {}


async def test_a_checkpoint_of_a_topic_that_is_gone_is_none(brokers: FakeBrokers, client: MirrorClient) -> None:
    """The remote topic was created again since: a group would skip records of that one. Java's do not say of which."""
    for group, topic_id in (("ours", OLD), ("java", None)):
        at = Checkpoint(group, ORDERS, 10, 5, topic_id=topic_id)
        await write(brokers, LogRecord(*encode_checkpoint(at), checkpoint_headers(at)))
    before = await client.remote_consumer_offsets(["ours", "java"], "A")
    brokers.topics["A.orders"].topic_id = NEW

    assert before == {"ours": {ORDERS: CommittedOffset(5)}, "java": {ORDERS: CommittedOffset(5)}}
    assert await client.remote_consumer_offsets(["ours", "java"], "A") == {"java": {ORDERS: CommittedOffset(5)}}


async def test_offsets_of_several_groups_come_in_one_reading(brokers: FakeBrokers, client: MirrorClient) -> None:
    """A pattern must match the whole name, and takes every group that it matches; names may be listed, too."""
    await write(
        brokers, *(Checkpoint(group, ORDERS, 10, place) for place, group in enumerate(("a1", "a2", "b1", "a2x")))
    )
    brokers.requests.clear()
    by_pattern = await client.remote_consumer_offsets(re.compile("a."), "A")
    fetches = len(brokers.requests_of(FETCH))
    by_name = await client.remote_consumer_offsets(["b1", "a2x", "nobody"], "A")

    assert by_pattern == {"a1": {ORDERS: CommittedOffset(0)}, "a2": {ORDERS: CommittedOffset(1)}}
    assert by_name == {"b1": {ORDERS: CommittedOffset(2)}, "a2x": {ORDERS: CommittedOffset(3)}}
    assert fetches == 1


async def test_a_group_s_name_is_no_pattern(brokers: FakeBrokers, client: MirrorClient) -> None:
    """A text is taken letter by letter."""
    await write(brokers, Checkpoint("a.b", ORDERS, 1, 1), Checkpoint("axb", ORDERS, 2, 2))

    assert await client.remote_consumer_offsets("a.b", "A") == {ORDERS: CommittedOffset(1)}


async def test_malformed_and_removed_checkpoints_count_for_nothing(brokers: FakeBrokers, client: MirrorClient) -> None:
    """What cannot be read is passed over, and a record without a value takes its checkpoint away."""
    await write(
        brokers,
        Checkpoint("group", ORDERS, 10, 5),
        LogRecord(b"\x00", b"nonsense"),
        Checkpoint("group", BILLS, 1, 1),
        LogRecord(checkpoint_key("group", BILLS), None),
    )
    offsets = await client.remote_consumer_offsets("group", "A")
    records = [record async for chunk in client.records(CHECKPOINTS, RecordKind.CHECKPOINT) for record in chunk]

    assert offsets == {ORDERS: CommittedOffset(5)}
    assert isinstance(records[1].content, Malformed)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        pytest.param((None, "A"), TypeError, id="no group"),
        pytest.param((b"group", "A"), TypeError, id="bytes"),
        pytest.param(([], "A"), ValueError, id="no groups"),
        pytest.param(("group", None), TypeError, id="no alias"),
        pytest.param(("group", ""), ValueError, id="empty alias"),
        pytest.param(("group", "A", 0), ValueError, id="no time"),
        pytest.param(("group", "A", -1.0), ValueError, id="less than no time"),
    ],
)
async def test_remote_consumer_offsets_illegal_args(
    brokers: FakeBrokers, arguments: tuple[Any, ...], error: type[Exception]
) -> None:
    """An argument that makes no sense is refused before the cluster is asked (testRemoteConsumerOffsetsIllegalArgs)."""
    with pytest.raises(error, match=r"group|source_alias|timeout_s"):
        await client_of(brokers).remote_consumer_offsets(*arguments)

    assert brokers.requests == []


async def test_a_missing_checkpoints_topic_is_named(client: MirrorClient) -> None:
    """No mirror writes checkpoints from there: an error with the topic's name, not an empty answer after a minute."""
    with pytest.raises(TopicMissingError, match=r"cluster B has no topic C\.checkpoints\.internal"):
        await client.remote_consumer_offsets("group", "C")


async def test_a_topic_that_may_not_be_seen(brokers: FakeBrokers, client: MirrorClient) -> None:
    """A missing right is an error of its own."""

    def refused(_node: int, request: Any) -> Any:
        answer = brokers.plainly(_node, request)
        answer.topics[0] = (29, *answer.topics[0][1:4], [], *answer.topics[0][5:])
        return answer

    await client.topics()
    brokers.script(METADATA, refused)
    with pytest.raises(BrokerAnsweredError, match="TOPIC_AUTHORIZATION_FAILED"):
        await client.remote_consumer_offsets("group", "A")


async def test_half_of_the_checkpoints_are_no_answer(brokers: FakeBrokers, client: MirrorClient) -> None:
    """When the time is over before the end is reached that is an error, unlike in Java."""
    await write(brokers, Checkpoint("group", ORDERS, 10, 5))
    await client.topics()
    brokers.latency_s = 3.0
    started = asyncio.get_running_loop().time()
    with pytest.raises(ReadingTookTooLongError, match="not read to its end within 5 s"):
        await client.remote_consumer_offsets("group", "A", 5.0)

    assert asyncio.get_running_loop().time() - started == pytest.approx(5.0)


async def test_a_cluster_that_does_not_answer(brokers: FakeBrokers) -> None:
    """Entering the client fails when no broker is there, and leaves nothing open."""
    brokers.down = set(brokers.hosts)
    with pytest.raises(ClusterUnreachableError, match="cluster B does not answer at b0:9092,b1:9092,b2:9092"):
        async with client_of(brokers):
            pass

    assert brokers.open_connections == []


async def test_leaving_closes_every_connection(brokers: FakeBrokers) -> None:
    """After the block no connection is open."""
    async with client_of(brokers) as client:
        await client.topics()

    assert brokers.connections != []
    assert brokers.open_connections == []


@pytest.mark.parametrize(
    "config", ["b:9092", {"bootstrap.servers": "b:9092"}, MirrorClientConfig(["b:9092"])], ids=["text", "map", "value"]
)
def test_three_ways_to_say_where_the_cluster_is(config: Any) -> None:
    """Servers alone, a mapping made for Java, and a value of ours mean the same."""
    assert MirrorClient(config).config == MirrorClientConfig("b:9092")


# Translating any offset.

SYNCS_HERE, SYNCS_THERE = "mm2-offset-syncs.A.internal", "mm2-offset-syncs.B.internal"


async def test_offset_syncs_are_read_where_they_lie(brokers: FakeBrokers, client: MirrorClient) -> None:
    """Syncs at the target are found there, those at the source through a client for the source."""
    key, value = encode_offset_sync(OffsetSync(TopicPartition("orders", 0), 100, 57))
    there = FakeBrokers()
    there.topics = topics_with(SYNCS_THERE, [0])
    await write(there, LogRecord(key, value), topic=SYNCS_THERE)
    advance(brokers.topics["A.orders"].partitions[0], 60)
    async with client_of(there) as source:
        by_source = await client.offset_translation("A", source=source, target_alias="B")
    brokers.topics |= topics_with(SYNCS_HERE, [0])
    await write(brokers, LogRecord(key, value), LogRecord(b"x", b"y"), topic=SYNCS_HERE)
    by_target = await client.offset_translation("A")

    for translation in (by_source, by_target):
        assert translation.partitions == {TopicPartition("orders", 0): ORDERS}
        assert translation.downstream(TopicPartition("orders", 0), 100) == Translated(57, Precision.OFFSET_SYNCS)


async def test_nothing_to_translate_by(client: MirrorClient) -> None:
    """Without positions and offset syncs the error names the topic that would have been read."""
    with pytest.raises(TopicMissingError, match=r"no topic mm2-offset-syncs\.C\.internal"):
        await client.offset_translation("C")


async def test_a_source_needs_the_target_s_alias(client: MirrorClient) -> None:
    """The name of the topic at the source has the target's alias in it."""
    with pytest.raises(ValueError, match="target_alias"):
        await client.offset_translation("A", source=client)
