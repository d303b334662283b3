"""Compacted topics as logs: made, read to the end, appended to."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, CorruptBatchError
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import position_key
from mm2py.wire.batches.batch import sign
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.security.access import NotAuthorizedError
from mm2py.wire.topic_log import LogRecord, TooFewBrokersError, TopicLog
from tests.support.clocks import WALL_START_MS
from tests.support.fake_brokers import CREATE_TOPICS, FETCH, PRODUCE, FakeBrokers, says, topics_with


SETTING = "offset.storage.replication.factor"


@pytest.fixture
def brokers() -> FakeBrokers:
    fake = FakeBrokers()
    fake.topics = topics_with("log", [0, 1, 2, 0])
    return fake


@pytest.fixture
async def log(cluster: Cluster) -> TopicLog:
    return TopicLog(cluster, "log")


# Creating.


def refuse_topics(brokers: FakeBrokers, code: int, words: str | None = None) -> None:
    """Have no topic, and let none be created."""
    brokers.topics = {}
    brokers.script(CREATE_TOPICS, says(0, [("log", code, words)]))


async def test_ensure_creates_a_compacted_topic(brokers: FakeBrokers, log: TopicLog) -> None:
    """A missing topic is created compacted, with the configs given."""
    brokers.topics = {}
    await log.create(25, 3, setting=SETTING, configs={"min.insync.replicas": "2"})
    [(_, request)] = brokers.requests_of(CREATE_TOPICS)

    assert request.create_topic_requests == [
        ("log", 25, 3, [], [("cleanup.policy", "compact"), ("min.insync.replicas", "2")])
    ]


@pytest.mark.parametrize("code", [ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION])
async def test_ensure_does_without_configs_that_are_refused(
    brokers: FakeBrokers, log: TopicLog, code: ErrorCode
) -> None:
    """A provider of Kafka lets clients choose some configs only, or values within its own limits."""
    refuse_topics(brokers, int(code), "segment.bytes must be at least 52428800")
    was_made = await log.create(25, 3, setting=SETTING, configs={"segment.bytes": "1048576"})
    asked = [request.create_topic_requests for _, request in brokers.requests_of(CREATE_TOPICS)]

    assert was_made
    assert asked == [
        [("log", 25, 3, [], [("cleanup.policy", "compact"), ("segment.bytes", "1048576")])],
        [("log", 25, 3, [], [("cleanup.policy", "compact")])],
    ]


async def test_ensure_leaves_an_existing_topic(brokers: FakeBrokers, log: TopicLog) -> None:
    """A topic that is there is taken as it is."""
    await log.create(25, 3, setting=SETTING)

    assert brokers.requests_of(CREATE_TOPICS) == []


@pytest.mark.parametrize("code", [29, 31, 35])
async def test_ensure_goes_on_where_it_may_not_create(brokers: FakeBrokers, log: TopicLog, code: int) -> None:
    """Without the right to create the topic it is assumed to be there, as Java MM2 does."""
    refuse_topics(brokers, code)
    await log.create(25, 3, setting=SETTING)

    assert len(brokers.requests_of(CREATE_TOPICS)) == 1


async def test_a_topic_that_we_may_not_create_is_asked_for_by_that(brokers: FakeBrokers, log: TopicLog) -> None:
    """A missing topic that we may not create is reported by the permission that lacks, not as unknown."""
    refuse_topics(brokers, 29)
    await log.create(25, 3, setting=SETTING)
    with pytest.raises(NotAuthorizedError) as caught:
        await log.read_all()

    assert caught.value.hint_for("User:mm2").startswith("grant User:mm2 CREATE on topic log of cluster A")


async def test_ensure_names_the_setting_to_lower(brokers: FakeBrokers, log: TopicLog) -> None:
    """A replication factor that the cluster is too small for is refused with the key to change."""
    refuse_topics(brokers, 38, "4 is larger than 3")
    with pytest.raises(TooFewBrokersError) as caught:
        await log.create(25, 4, setting=SETTING)

    assert str(caught.value) == (
        "cannot create topic log: offset.storage.replication.factor 4 > 3 brokers of cluster A"
    )


async def test_ensure_raises_what_is_really_wrong(brokers: FakeBrokers, log: TopicLog) -> None:
    """Any other refusal is an error."""
    refuse_topics(brokers, 44, "not here")
    with pytest.raises(BrokerAnsweredError, match=r"POLICY_VIOLATION.*not here"):
        await log.create(25, 3, setting=SETTING)


# Reading and appending.


async def test_what_is_appended_is_read(log: TopicLog) -> None:
    """Keys, values, headers and timestamps come back, by partition and offset, tombstones too."""
    records = [
        LogRecord(b"a", b"1", (("h", b"x"), ("h", None)), partition=3, timestamp_ms=5),
        LogRecord(b"b", None, partition=0),
        LogRecord(b"a", b"", partition=3),
    ]
    await log.append(records)
    stamp = (await log.read_all())[0].timestamp_ms
    read = await log.read_all()

    assert WALL_START_MS <= stamp < WALL_START_MS + 1_000
    assert read == [
        LogRecord(b"b", None, (), 0, 0, stamp),
        LogRecord(b"a", b"1", (("h", b"x"), ("h", None)), 3, 0, 5),
        LogRecord(b"a", b"", (), 3, 1, stamp),
    ]


async def test_reading_on(log: TopicLog) -> None:
    """
    From given positions only what is behind them comes, and what a position leaves out comes from its start.

    So does what ends before its position: an unclean election took records away, and others stand where they stood.
    """
    await log.append([LogRecord(b"a", b"%d" % number, partition=number % 2) for number in range(6)])
    await log.append([LogRecord(b"b", b"6", partition=0)])
    read = [record async for chunk in log.read_from({0: 2}) for record in chunk]
    rest = [record async for chunk in log.read_from({0: 4, 1: 3}) for record in chunk]
    cut = [record async for chunk in log.read_from({0: 5, 1: 3}) for record in chunk]

    assert sorted(record.value or b"" for record in read) == [b"1", b"3", b"4", b"5", b"6"]
    assert rest == []
    assert [record.value for record in cut] == [b"0", b"2", b"4", b"6"]


async def test_following_a_partition_is_one_fetch(brokers: FakeBrokers, log: TopicLog) -> None:
    """From a position on all that is there comes with the next position, or nothing; errors are raised at once."""
    await log.append([LogRecord(b"a", b"%d" % number, partition=1) for number in range(3)])
    before = len(brokers.requests)
    read = await log.read_on(1, 1)
    nothing = await log.read_on(1, 3)
    sent = len(brokers.requests) - before
    brokers.topics["log"].partitions[1].leader = 2
    with pytest.raises(BrokerAnsweredError, match="NOT_LEADER"):
        await log.read_on(1, 3)

    assert ([record.value for record in read[0]], read[1]) == ([b"1", b"2"], 3)
    assert (nothing, sent) == (([], 3), 2)


async def test_a_large_log_is_read_part_by_part(brokers: FakeBrokers, log: TopicLog) -> None:
    """What one fetch brings is decoded in one turn of the event loop; 8 MiB of positions hold it up for a second."""
    await log.append([LogRecord(b"key", b"value")])
    await log.read_all()

    assert max(request.max_bytes for _, request in brokers.requests_of(FETCH)) <= 1024 * 1024


async def test_nothing_to_read_and_nothing_to_append(brokers: FakeBrokers, log: TopicLog) -> None:
    """An empty topic is read without a fetch, and no records are appended without a produce."""
    await log.append([])
    records = await log.read_all()

    assert (records, brokers.requests_of(FETCH), brokers.requests_of(PRODUCE)) == ([], [], [])


async def test_keys_choose_java_s_partition(brokers: FakeBrokers, log: TopicLog) -> None:
    """Without a partition the key's murmur2 hash chooses it, as Java's producer does."""
    brokers.topics = topics_with("log", [0] * 25)
    await log.append([LogRecord(position_key("A", TopicPartition("foo", 0)), b"{}")])
    [record] = await log.read_all()

    assert record.partition == 16


async def test_many_records_take_several_batches_in_order(brokers: FakeBrokers, log: TopicLog) -> None:
    """More than fits into one batch is sent one batch after the other."""
    await log.append([LogRecord(b"%d" % number, b"v" * 1_000, partition=1) for number in range(1_000)])
    records = await log.read_all()

    assert [record.key for record in records] == [b"%d" % number for number in range(1_000)]
    assert len(brokers.requests_of(PRODUCE)) == 4


async def test_both_follow_a_leader_that_moved(brokers: FakeBrokers, log: TopicLog) -> None:
    """Appending and reading go on at the new leader."""
    await log.append([LogRecord(b"a", b"1", partition=0)])
    partition = brokers.topics["log"].partitions[0]
    partition.leader, partition.leader_epoch = 2, 6
    await log.append([LogRecord(b"a", b"2", partition=0)])
    partition.leader, partition.leader_epoch = 1, 7
    records = await log.read_all()

    assert [record.value for record in records] == [b"1", b"2"]


async def test_a_broker_that_is_away_for_a_while(brokers: FakeBrokers, log: TopicLog) -> None:
    """A broker's restart is waited out."""
    await log.read_all()
    brokers.down = {0}
    appending = asyncio.create_task(log.append([LogRecord(b"a", b"1", partition=0)]))
    await asyncio.sleep(10)
    brokers.down = set()
    await appending
    records = await log.read_all()

    assert [record.value for record in records] == [b"1"]


async def test_a_lost_answer_may_write_twice_but_never_loses(brokers: FakeBrokers, log: TopicLog) -> None:
    """When the connection breaks after the write, the record is sent again."""

    def lost(node_id: int, request: Any) -> Any:
        brokers.plainly(node_id, request)
        raise BrokerConnectionError("A", "b0:9092", "reset by peer")

    brokers.script(PRODUCE, lost)
    await log.append([LogRecord(b"a", b"1", partition=0)])
    records = await log.read_all()

    assert [record.value for record in records] == [b"1", b"1"]


async def test_a_final_error_is_raised(brokers: FakeBrokers, log: TopicLog) -> None:
    """What the broker refuses for good is not tried again."""
    brokers.script(PRODUCE, says([("log", [(0, 29, -1, -1, 0)])], 0))
    with pytest.raises(BrokerAnsweredError, match="TOPIC_AUTHORIZATION_FAILED"):
        await log.append([LogRecord(b"a", b"1", partition=0)])


async def test_a_broker_that_stays_away(brokers: FakeBrokers, log: TopicLog) -> None:
    """A partition whose leader is gone is given up when the request timeout has passed."""
    await log.append([LogRecord(b"a", b"1", partition=1)])
    brokers.down = {1}
    started = asyncio.get_running_loop().time()
    with pytest.raises(BrokerAnsweredError, match="did not answer Produce"):
        await log.append([LogRecord(b"a", b"2", partition=1)])

    assert 29 < asyncio.get_running_loop().time() - started < 40


async def test_a_partition_without_a_leader_is_named(brokers: FakeBrokers, log: TopicLog) -> None:
    """Its brokers may be away for hours: the topic is taken as it is, and what goes to other partitions is written."""
    brokers.topics["log"].partitions[2].leader = -1
    await log.create(4, 1, setting=SETTING)
    await log.append([LogRecord(b"a", b"1", partition=0)])
    with pytest.raises(BrokerAnsweredError) as writing:
        await log.append([LogRecord(b"a", b"1", partition=1), LogRecord(b"a", b"2", partition=2)])
    with pytest.raises(BrokerAnsweredError) as reading:
        await log.read_all()
    sent = [number for _, request in brokers.requests_of(PRODUCE) for _, rows in request.topics for number, _ in rows]

    assert str(writing.value) == str(reading.value) == "no broker of cluster A leads log-2"
    assert "kafka-topics.sh" in writing.value.hint
    assert sent == [0]


async def test_a_topic_that_is_missing(brokers: FakeBrokers, log: TopicLog) -> None:
    """Reading what does not exist is an error, not an empty log."""
    brokers.topics = {}
    with pytest.raises(BrokerAnsweredError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await log.read_all()


async def test_a_corrupt_batch(brokers: FakeBrokers, log: TopicLog) -> None:
    """A batch that does not match its checksum is named by its place."""
    await log.append([LogRecord(b"a", b"1", partition=2)])
    await log.append([LogRecord(b"a", b"2", partition=2)])
    there = brokers.topics["log"].partitions[2].batches
    batch = bytearray(there[1].raw)
    batch[-1] ^= 1
    there[1] = attrs.evolve(there[1], raw=bytes(batch))
    with pytest.raises(CorruptBatchError, match="log-2 offset 1"):
        await log.read_all()


async def test_a_header_that_is_no_text(brokers: FakeBrokers, log: TopicLog) -> None:
    """A batch with a header that no client can read is passed over, and what lies around it is read."""
    for value in (b"1", b"2", b"3"):
        await log.append([LogRecord(b"a", value, (("name", b"x"),), partition=2)])
    there = brokers.topics["log"].partitions[2].batches
    batch = bytearray(there[1].raw)
    at = batch.rindex(b"name")
    batch[at : at + 4] = b"\xff\xfe\xfd\xfc"
    sign(memoryview(batch), -1, -1, -1)
    batch[:8] = there[1].raw[:8]  # signing takes the place in the log away
    there[1] = attrs.evolve(there[1], raw=bytes(batch))

    assert [(record.offset, record.value) for record in await log.read_all()] == [(0, b"1"), (1, None), (2, b"3")]


async def test_records_deleted_while_they_are_read(brokers: FakeBrokers, log: TopicLog) -> None:
    """When the log's start moves past us, reading goes on from there."""
    for value in (b"1", b"2"):
        await log.append([LogRecord(b"a", value, partition=0)])

    def gone(_node_id: int, request: Any) -> Any:
        return request.RESPONSE_TYPE(0, 0, 0, [("log", [(0, 1, -1, -1, 1, [], -1, b"")])])

    brokers.script(FETCH, gone)
    records = await log.read_all()

    assert [record.value for record in records] == [b"2"]
