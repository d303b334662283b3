"""A cluster's brokers, leaders and connections, through leader moves, lost brokers and silence."""

from __future__ import annotations

import asyncio
import itertools
import re
from typing import Any

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.connections import address_of
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import JoinGroupRequest
from mm2py.wire.requests import EARLIEST, LATEST, MAX_TIMESTAMP, MetadataRequest
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import LIST_OFFSETS, METADATA, OLD_VERSIONS, FakeBrokers, FakeConnection, topics_with


FOO = [TopicPartition("foo", number) for number in range(3)]


@pytest.fixture
def brokers() -> FakeBrokers:
    fake = FakeBrokers()
    fake.topics = topics_with("foo", [0, 1, 2])
    return fake


def now() -> float:
    return asyncio.get_running_loop().time()


# Finding the brokers.


async def test_one_bootstrap_server_is_enough(brokers: FakeBrokers) -> None:
    """Any server that answers tells of all brokers."""
    endpoint = attrs.evolve(brokers.endpoint, bootstrap_servers=("nowhere:1", "b2:9092", "nowhere:2"))
    async with Cluster(endpoint, LoopClock(), opener=brokers.open) as cluster:
        assert (
            tuple(broker.host for broker in cluster.brokers.values()),
            cluster.metadata.cluster_id,
            cluster.metadata.controller_id,
        ) == (("b0", "b1", "b2"), "the-cluster", 0)


async def test_unreachable_after_one_round(brokers: FakeBrokers) -> None:
    """When no server answers, each has been asked once, and the error names them."""
    brokers.down = {0, 1, 2}
    cluster = Cluster(brokers.endpoint, LoopClock(), opener=brokers.open)
    with pytest.raises(ClusterUnreachableError, match=r"b0:9092,b1:9092,b2:9092.*refused"):
        await cluster.connect()

    assert sorted(brokers.attempts) == ["b0", "b1", "b2"]


async def test_an_unreachable_cluster_is_told_shortly(brokers: FakeBrokers) -> None:
    """The error says once where, and why; of several servers, which one said so."""
    brokers.down = {0, 1, 2}
    alone = attrs.evolve(brokers.endpoint, bootstrap_servers=("b0:9092",))
    told = []
    for endpoint in (alone, brokers.endpoint):
        with pytest.raises(ClusterUnreachableError) as caught:
            await Cluster(endpoint, LoopClock(), opener=brokers.open).connect()
        told.append(str(caught.value))

    assert told[0].count("b0:9092") == 1
    assert told[0].startswith("cluster A does not answer at b0:9092: ")
    assert "connection to broker" not in "".join(told)
    assert re.search(r"at b0:9092,b1:9092,b2:9092: b\d:9092: ", told[1])


async def test_a_server_that_accepts_and_says_nothing_is_left(brokers: FakeBrokers) -> None:
    """Silence of a server costs a bounded time and is unreachability."""
    brokers.latency_s = 3_600
    cluster = Cluster(brokers.endpoint, LoopClock(), opener=brokers.open)
    started = now()
    with pytest.raises(ClusterUnreachableError, match="not connected within 10 s"):
        await cluster.connect()

    assert now() - started == pytest.approx(30)


async def test_connecting_takes_as_long_as_its_setting_says(brokers: FakeBrokers) -> None:
    """socket.connection.setup.timeout.ms bounds each attempt."""
    brokers.latency_s = 3_600
    endpoint = attrs.evolve(brokers.endpoint, connection_setup_ms=2_000)
    started = now()
    with pytest.raises(ClusterUnreachableError, match="not connected within 2 s"):
        await Cluster(endpoint, LoopClock(), opener=brokers.open).connect()

    assert now() - started == pytest.approx(6)


async def test_a_server_that_knows_no_brokers_yet(brokers: FakeBrokers) -> None:
    """A broker that is still starting and names none is passed over."""
    brokers.script(METADATA, lambda _, request: request.RESPONSE_TYPE(0, [], None, -1, [], {}))
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        assert len(cluster.brokers) == 3


async def test_all_known_brokers_gone_means_the_bootstrap_servers_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A cluster whose brokers all moved is found again through its bootstrap servers."""
    brokers.break_connections()
    brokers.hosts = {7: "b0", 8: "new"}
    await cluster.refresh_metadata(())

    assert {node_id: broker.host for node_id, broker in cluster.brokers.items()} == {7: "b0", 8: "new"}


@pytest.mark.parametrize(
    ("server", "expected"),
    [("h:1", ("h", 1)), ("h", ("h", 9092)), ("[::1]:5", ("::1", 5)), ("[::1]", ("::1", 9092)), ("SSL://h:2", ("h", 2))],
)
def test_addresses(server: str, expected: tuple[str, int]) -> None:
    """A bootstrap server is a host with or without a port, IPv6 in brackets."""
    address = address_of(server)

    assert expected == address


# Metadata.


async def test_metadata_answers(cluster: Cluster) -> None:
    """Leaders, epochs, partitions and the topic's id are known after a refresh."""
    await cluster.refresh_metadata(["foo"])

    assert (
        cluster.partitions_of("foo"),
        cluster.leader(FOO[1]),
        cluster.leader_epoch(FOO[1]),
        cluster.topic_id("foo"),
    ) == ((0, 1, 2), 1, 5, "AAAAAAAAAAAAAAAAAAAAAQ")


async def test_what_is_not_known(cluster: Cluster) -> None:
    """Unknown topics and partitions have no leader, no epoch, no partitions and no id."""
    nowhere = TopicPartition("nowhere", 0)
    await cluster.refresh_metadata(["nowhere"])

    assert (
        cluster.leader(nowhere),
        cluster.leader_epoch(nowhere),
        cluster.partitions_of("nowhere"),
        cluster.topic_id("nowhere"),
    ) == (None, -1, (), None)


async def test_old_brokers_tell_no_topic_ids(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Brokers of Kafka 2.1 tell leaders and epochs, but no topic ids."""
    brokers.versions = OLD_VERSIONS
    brokers.break_connections()
    await cluster.refresh_metadata(["foo"])

    assert (cluster.leader(FOO[2]), cluster.leader_epoch(FOO[2]), cluster.topic_id("foo")) == (2, 5, None)


async def test_a_refresh_of_all_forgets_deleted_topics(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What all topics were asked for and none was told of is gone."""
    await cluster.refresh_metadata(["foo"])
    brokers.topics = topics_with("bar", [0])
    await cluster.refresh_metadata(None)

    assert list(cluster.metadata.topics) == ["bar"]


async def test_concurrent_refreshes_share_requests(brokers: FakeBrokers, cluster: Cluster) -> None:
    """However many ask at once, at most one request is in flight and the next one serves all who wait."""
    brokers.requests.clear()
    brokers.topics |= topics_with("bar", [1])
    async with asyncio.TaskGroup() as tasks:
        for topic in ["foo", "bar"] * 10:
            tasks.create_task(cluster.refresh_metadata([topic]))

    asked = brokers.requests_of(METADATA)
    assert (cluster.partitions_of("foo"), cluster.partitions_of("bar"), len(asked)) == ((0, 1, 2), (0,), 1)


async def test_a_failed_refresh_fails_all_who_waited(brokers: FakeBrokers, cluster: Cluster) -> None:
    """When the cluster is gone, waiting callers share the failure instead of each finding out."""
    brokers.down = {0, 1, 2}
    brokers.break_connections()
    brokers.attempts.clear()
    outcomes = await asyncio.gather(*(cluster.refresh_metadata(["foo"]) for _ in range(10)), return_exceptions=True)

    assert ([ClusterUnreachableError] * 10, 6) == ([type(outcome) for outcome in outcomes], len(brokers.attempts))


async def test_a_cancelled_refresh_leaves_the_others(cluster: Cluster) -> None:
    """Who waits behind a cancelled refresh is served by one of its own."""
    first = asyncio.create_task(cluster.refresh_metadata([]))
    second = asyncio.create_task(cluster.refresh_metadata(["foo"]))
    await asyncio.sleep(0.001)
    first.cancel()
    await asyncio.wait([first, second])

    assert (first.cancelled(), cluster.partitions_of("foo")) == (True, (0, 1, 2))


async def test_forced_refreshes_keep_a_distance(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A caller that refreshes in a loop does not flood the brokers."""
    brokers.requests.clear()
    started = now()
    while now() - started < 10:
        await cluster.refresh_metadata(["foo"])

    assert len(brokers.requests_of(METADATA)) < 110


async def test_metadata_ages(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What is fresh is not asked for again; what is older than its greatest age is."""
    await cluster.ensure_metadata(["foo"])
    brokers.requests.clear()
    await cluster.ensure_metadata(["foo"])
    fresh = len(brokers.requests)
    await asyncio.sleep(cluster.endpoint.metadata_max_age_ms / 1000 + 1)
    await cluster.ensure_metadata(["foo"])

    assert (fresh, len(brokers.requests_of(METADATA))) == (0, 1)


async def test_a_broker_that_lags_behind_does_not_bring_the_old_leader_back(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    """An answer with an older leader epoch than the known one is the older truth."""
    partition = brokers.topics["foo"].partitions[0]
    partition.leader, partition.leader_epoch = 2, 6
    await cluster.refresh_metadata(["foo"])
    partition.leader, partition.leader_epoch = 0, 5
    await cluster.refresh_metadata(["foo"])

    assert (cluster.leader(FOO[0]), cluster.leader_epoch(FOO[0])) == (2, 6)


async def test_a_topic_made_anew_starts_its_epochs_anew(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Epochs of a topic with another id are not compared."""
    await cluster.refresh_metadata(["foo"])
    brokers.topics["foo"].topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
    brokers.topics["foo"].partitions[0].leader_epoch = 0
    await cluster.refresh_metadata(["foo"])

    assert cluster.leader_epoch(FOO[0]) == 0


# Connections.


async def test_connections_are_shared_by_purpose(cluster: Cluster) -> None:
    """One connection per broker and purpose, however many ask for it at once."""
    fetch, again, produce, other = await asyncio.gather(
        cluster.connection(1, "fetch"),
        cluster.connection(1, "fetch"),
        cluster.connection(1, "produce"),
        cluster.connection(2, "fetch"),
    )

    assert (fetch is again, len({id(fetch), id(produce), id(other)})) == (True, 3)


async def test_a_broken_connection_is_opened_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Who asks after the connection broke gets a new one."""
    first = await cluster.connection(1)
    first.close()
    second = await cluster.connection(1)

    assert (second.is_closed, len(brokers.open_connections)) == (False, 1)


async def test_reconnects_back_off(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Attempts at a broker that refuses come at growing distances, up to the greatest, a fifth more or less."""
    brokers.down = {1}
    times = []
    for _ in range(12):
        with pytest.raises(BrokerConnectionError, match="refused"):
            await cluster.connection(1)
        times.append(now())
    pauses = [after - before - brokers.latency_s for before, after in itertools.pairwise(times)]
    expected = [min(1.0, 0.05 * 2**number) for number in range(11)]

    assert all(0.79 * wanted <= pause <= 1.21 * wanted for pause, wanted in zip(pauses, expected, strict=True))


async def test_back_off_ends_with_success(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A broker that came back is connected to, and starts with a clean slate."""
    brokers.down = {1}
    for _ in range(6):
        with pytest.raises(BrokerConnectionError):
            await cluster.connection(1)
    brokers.down = set()
    connection = await cluster.connection(1)
    connection.close()
    started = now()
    await cluster.connection(1)

    assert now() - started == pytest.approx(brokers.latency_s)


async def test_a_broker_that_moved_is_reached_at_its_new_address(brokers: FakeBrokers, cluster: Cluster) -> None:
    """After a refresh that shows another address the old connection is closed and the new one used."""
    old = await cluster.connection(1)
    brokers.hosts[1] = "b1-new"
    await cluster.refresh_metadata(())
    await cluster.connection(1)

    assert (old.is_closed, brokers.attempts[-1]) == (True, "b1-new")


async def test_a_broker_that_moves_while_it_is_connected_to(brokers: FakeBrokers) -> None:
    """A connection to the old address that opens after the move is closed, and its caller has to ask again."""
    gates: list[asyncio.Event] = []

    async def open_late(endpoint: ClusterEndpoint, host: str, port: int) -> FakeConnection:
        connection = await brokers.open(endpoint, host, port)
        if gates:
            await gates.pop().wait()
        return connection

    async with Cluster(brokers.endpoint, LoopClock(), opener=open_late) as cluster:
        await cluster.connection(0)  # which is asked for metadata, then
        gate = asyncio.Event()
        gates.append(gate)
        first = asyncio.create_task(cluster.connection(1))
        await asyncio.sleep(2 * brokers.latency_s)
        brokers.hosts[1] = "b1-new"
        await cluster.refresh_metadata(())
        await cluster.connection(1)
        gate.set()
        with pytest.raises(BrokerConnectionError, match="moved"):
            await first

    assert brokers.open_connections == []


async def test_a_broker_that_is_fenced_for_a_moment_keeps_its_connections(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    """A broker that is missing from one answer is used on the same connection when it is back."""
    connection = await cluster.connection(1)
    host = brokers.hosts.pop(1)
    await cluster.refresh_metadata(())
    brokers.hosts[1] = host
    await cluster.refresh_metadata(())

    assert (connection.is_closed, await cluster.connection(1) is connection) == (False, True)


async def test_no_such_broker(cluster: Cluster) -> None:
    """A node that the metadata does not name cannot be connected to."""
    with pytest.raises(BrokerConnectionError, match="no such broker"):
        await cluster.connection(99)


async def test_close_leaves_nothing_open(brokers: FakeBrokers) -> None:
    """Leaving the block closes every connection, and nothing can be opened after."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        await cluster.connection(0, "fetch")
        await cluster.connection(1, "produce")
    with pytest.raises(BrokerConnectionError, match="closed"):
        await cluster.connection(2)

    assert brokers.open_connections == []


async def test_cancelled_anywhere_nothing_is_left_open(brokers: FakeBrokers) -> None:
    """Cancelled at any moment of connecting and asking, the cluster closes what it had opened."""

    async def use() -> None:
        async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
            await cluster.list_offsets(FOO, LATEST)

    left = []
    for step in range(20):
        task = asyncio.create_task(use())
        await asyncio.sleep(0.001 + step * 0.005)
        task.cancel()
        await asyncio.wait([task])
        left.append(len(brokers.open_connections))

    assert left == [0] * 20


# Requests.


async def test_silence_closes_the_connection(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A request without an answer ends with the request timeout, and its connection with it."""
    connection = await cluster.connection(1)
    brokers.latency_s = 3_600
    started = now()
    with pytest.raises(BrokerConnectionError, match="no answer within 30 s"):
        await cluster.send_to(1, MetadataRequest([]))

    assert (connection.is_closed, pytest.approx(now() - started)) == (True, 30)


async def test_an_answer_that_waits_for_others_is_waited_for(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A group's coordinator answers a JoinGroup once all members have joined: up to a session after they were asked."""
    brokers.versions = {**brokers.versions, JoinGroupRequest.API_KEY: (0, 9)}
    await cluster.connection(1)
    brokers.latency_s = 3_600
    joining = JoinGroupRequest("A-mm2", 30_000, 30_000, "", "node-1", "connect", [("mm2py-1", b"")])
    started = now()
    with pytest.raises(BrokerConnectionError, match="no answer within 60 s"):
        await cluster.send_to(1, joining)

    assert now() - started == pytest.approx(60)


async def test_any_broker_will_do(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A question that any broker answers goes to the next one when a broker is down."""
    brokers.down = {0, 1}
    answers = [await cluster.send_to_any(MetadataRequest([])) for _ in range(5)]

    assert len(answers) == 5


async def test_a_cluster_that_names_no_broker_is_told_by_where_it_was_asked(
    brokers: FakeBrokers, cluster: Cluster
) -> None:
    """All brokers may be fenced for a moment: the operator reads which address that is about."""
    await cluster.connection(0)
    brokers.hosts.clear()
    await cluster.refresh_metadata(())
    with pytest.raises(ClusterUnreachableError, match=r"at b0:9092,.*: it names no broker that is up"):
        await cluster.send_to_any(MetadataRequest([]))


async def test_a_request_no_version_of_which_the_broker_speaks(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A broker too old for a request counts as having answered so."""
    brokers.versions = {METADATA: (0, 3)}
    brokers.break_connections()
    with pytest.raises(BrokerAnsweredError) as caught:
        await cluster.send_to(0, MetadataRequest([]))

    assert caught.value.name == "UNSUPPORTED_VERSION"


# Offsets.


async def test_offsets_take_one_request_per_leader(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Partitions are asked for together, each at its leader, with the epoch that is known of it."""
    brokers.topics = topics_with("foo", [0, 1, 0])
    for number, partition in enumerate(brokers.topics["foo"].partitions):
        partition.end = 100 + number
    offsets = await cluster.list_offsets(FOO, LATEST, reads_committed=True)
    asked = sorted((node_id, request.topics[0][1][0][1]) for node_id, request in brokers.requests_of(LIST_OFFSETS))

    assert ({tp: 100 + tp.partition for tp in FOO}, [(0, 5), (1, 5)]) == (offsets, asked)


async def test_offsets_of_old_brokers(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Brokers of Kafka 2.1 tell start and end; the greatest timestamp is beyond them."""
    brokers.versions = OLD_VERSIONS
    brokers.break_connections()
    earliest = await cluster.list_offsets(FOO, EARLIEST)
    greatest = await cluster.list_offsets(FOO[:1], MAX_TIMESTAMP)

    assert (dict.fromkeys(FOO, 0), ErrorCode.UNSUPPORTED_VERSION) == (earliest, greatest[FOO[0]].code)


async def test_offsets_since_a_time_without_records(brokers: FakeBrokers, cluster: Cluster) -> None:
    """The end is asked for before the time: a record that comes in between is later than both, and not left out."""
    brokers.topics["foo"].partitions[0].end = 100

    def later_than_all(_node: int, request: Any) -> Any:
        """Append a record, after which there is still none of that time."""
        brokers.topics["foo"].partitions[0].end = 101
        tags = ({},) if request.FLEXIBLE_VERSION else ()
        return request.RESPONSE_TYPE(0, [("foo", [(0, 0, -1, -1, 7, *tags)], *tags)], *tags)

    brokers.script(LIST_OFFSETS, brokers.list_offsets)
    brokers.script(LIST_OFFSETS, later_than_all)

    assert await cluster.offsets_since(FOO[:1], 1_793_491_200_000) == {FOO[0]: 100}


async def test_offsets_follow_a_leader_that_moved(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A leader that is none any more is looked up and the new one asked."""
    await cluster.refresh_metadata(["foo"])
    partition = brokers.topics["foo"].partitions[0]
    partition.leader, partition.leader_epoch, partition.end = 2, 6, 42
    offsets = await cluster.list_offsets(FOO, LATEST)

    assert {FOO[0]: 42, FOO[1]: 0, FOO[2]: 0} == offsets


async def test_offsets_wait_for_a_leader(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A partition without a leader is waited for."""
    brokers.topics["foo"].partitions[0].leader = -1
    asking = asyncio.create_task(cluster.list_offsets(FOO, LATEST))
    await asyncio.sleep(5)
    brokers.topics["foo"].partitions[0].leader = 1
    offsets = await asking

    assert dict.fromkeys(FOO, 0) == offsets


async def test_offsets_of_what_does_not_exist(cluster: Cluster) -> None:
    """Unknown topics and partitions are errors in the answer, after a short while; the rest is there."""
    wanted = [FOO[0], TopicPartition("foo", 9), TopicPartition("nowhere", 0)]
    started = now()
    offsets = await cluster.list_offsets(wanted, LATEST)
    codes = [offsets[tp].code for tp in wanted[1:]]

    assert (offsets[FOO[0]], codes, now() - started < 6) == (0, [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2, True)


async def test_offsets_of_a_broker_that_stays_away(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What cannot be asked within the request timeout is an error in the answer."""
    await cluster.refresh_metadata(["foo"])
    brokers.down = {1}
    started = now()
    offsets = await cluster.list_offsets(FOO, LATEST)

    assert (offsets[FOO[1]].name, offsets[FOO[0]], now() - started < 40) == ("NETWORK_EXCEPTION", 0, True)


async def test_offsets_of_nothing(cluster: Cluster) -> None:
    """No partitions, no questions."""
    offsets = await cluster.list_offsets([], LATEST)

    assert offsets == {}
