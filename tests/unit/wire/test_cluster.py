"""A cluster's brokers, leaders and offsets, through leader moves, lost brokers and silence."""

from __future__ import annotations

import asyncio
import math
import re
from typing import Any

import attrs
import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster, MixedClustersError
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import JoinGroupRequest
from mm2py.wire.requests import EARLIEST, EARLIEST_LOCAL, LATEST, MetadataRequest
from tests.support.clocks import LoopClock, now
from tests.support.fake_brokers import (
    FOO,
    LIST_OFFSETS,
    METADATA,
    OLD_VERSIONS,
    FakeBrokers,
    advance,
    brokers_of_foo,
    says,
    topics_with,
)


@pytest.fixture
def brokers() -> FakeBrokers:
    return brokers_of_foo()


# Finding the brokers.


async def test_one_bootstrap_server_is_enough(brokers: FakeBrokers) -> None:
    """Any server that answers names all brokers."""
    endpoint = attrs.evolve(brokers.endpoint, bootstrap_servers=("nowhere:1", "b2:9092", "nowhere:2"))
    async with Cluster(endpoint, LoopClock(), opener=brokers.open) as cluster:
        assert [broker.host for broker in cluster.brokers.values()] == ["b0", "b1", "b2"]
        assert (cluster.metadata.cluster_id, cluster.metadata.controller_id) == ("the-cluster", 0)


async def test_bootstrap_servers_of_two_clusters_are_refused(brokers: FakeBrokers) -> None:
    """
    A connection would be made to one or the other by chance. The error says which server is of which cluster.

    A server that is down, or hangs, is none of another cluster, nor is an old one that does not say.
    """
    servers = ("b0:9092", "b1:9092", "b2:9092", "nowhere:1")
    async with Cluster(
        attrs.evolve(brokers.endpoint, bootstrap_servers=servers), LoopClock(), opener=brokers.open
    ) as cluster:
        brokers.cluster_of[1] = ""
        brokers.down = {0}
        await cluster.refuse_mixed_servers()
        before, brokers.latency_s = now(), 600
        await cluster.refuse_mixed_servers()
        took_s, brokers.latency_s = now() - before, 0.01
        brokers.cluster_of[1] = "another"
        with pytest.raises(MixedClustersError) as caught:
            await cluster.refuse_mixed_servers()

    assert took_s < 5
    assert "b1:9092 is of another, b2:9092 is of the-cluster" in str(caught.value)
    assert brokers.open_connections == []


async def test_an_unreachable_cluster_is_told_shortly(brokers: FakeBrokers) -> None:
    """Each server has been asked once; the error names them once, and why; of several, the one with the reason."""
    brokers.down = {0, 1, 2}
    alone = attrs.evolve(brokers.endpoint, bootstrap_servers=("b0:9092",))
    errors, asked = [], []
    for endpoint in (alone, brokers.endpoint):
        brokers.attempts.clear()
        with pytest.raises(ClusterUnreachableError) as caught:
            await Cluster(endpoint, LoopClock(), opener=brokers.open).connect()
        errors.append(str(caught.value))
        asked.append(sorted(brokers.attempts))

    assert asked == [["b0"], ["b0", "b1", "b2"]]
    assert errors[0].count("b0:9092") == 1
    assert errors[0].startswith("cluster A does not answer at b0:9092: ")
    assert "connection to broker" not in "".join(errors)
    assert re.search(r"at b0:9092,b1:9092,b2:9092: b\d:9092: .*refused", errors[1])


@pytest.mark.parametrize("setup_s", [10, 2])
async def test_a_server_that_accepts_and_says_nothing_is_left(brokers: FakeBrokers, setup_s: int) -> None:
    """Silence of a server costs the time of socket.connection.setup.timeout.ms, and is unreachability."""
    brokers.latency_s = 3_600
    endpoint = attrs.evolve(brokers.endpoint, connection_setup_ms=setup_s * 1_000)
    started = now()
    with pytest.raises(ClusterUnreachableError, match=f"not connected within {setup_s} s"):
        await Cluster(endpoint, LoopClock(), opener=brokers.open).connect()

    assert now() - started == pytest.approx(3 * setup_s)


async def test_a_server_that_knows_no_brokers_yet(brokers: FakeBrokers) -> None:
    """A broker that is still starting and names none is passed over."""
    brokers.script(METADATA, says(0, [], None, -1, [], {}))
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        assert len(cluster.brokers) == 3


async def test_all_known_brokers_gone_means_the_bootstrap_servers_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A cluster whose brokers all moved is found again through its bootstrap servers."""
    brokers.break_connections()
    brokers.hosts = {7: "b0", 8: "new"}
    await cluster.refresh_metadata(())

    assert {node_id: broker.host for node_id, broker in cluster.brokers.items()} == {7: "b0", 8: "new"}


# Metadata.


async def test_metadata_answers(cluster: Cluster) -> None:
    """Leaders, epochs, partitions and the topic's id are known after a refresh."""
    await cluster.refresh_metadata(["foo"])

    assert (cluster.leader(FOO[1]), cluster.leader_epoch(FOO[1])) == (1, 5)
    assert (cluster.partitions_of("foo"), cluster.topic_id("foo")) == ((0, 1, 2), "AAAAAAAAAAAAAAAAAAAAAQ")


async def test_what_is_not_known(cluster: Cluster) -> None:
    """Unknown topics and partitions have no leader, no epoch, no partitions and no id."""
    nowhere = TopicPartition("nowhere", 0)
    await cluster.refresh_metadata(["nowhere"])

    assert (cluster.leader(nowhere), cluster.leader_epoch(nowhere)) == (None, -1)
    assert (cluster.partitions_of("nowhere"), cluster.topic_id("nowhere")) == ((), None)


@pytest.mark.parametrize(("newest", "epoch"), [(7, -1), (8, -1), (9, 5), (10, 5)])
async def test_old_brokers_answer_without_topic_ids(
    brokers: FakeBrokers, cluster: Cluster, newest: int, epoch: int
) -> None:
    """Brokers before Kafka 2.8 answer without topic ids, and before 2.4 with leader epochs that may be stale."""
    brokers.versions = OLD_VERSIONS | {METADATA: (0, newest)}
    brokers.break_connections()
    await cluster.refresh_metadata(["foo"])
    by_name = cluster.leader(FOO[2]), cluster.leader_epoch(FOO[2]), cluster.topic_id("foo")
    await cluster.refresh_metadata(None)
    all_topics = cluster.leader(FOO[2]), cluster.leader_epoch(FOO[2]), cluster.topic_id("foo")

    assert by_name == all_topics == (2, epoch, None)


async def test_a_refresh_of_all_forgets_deleted_topics(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A topic that is not in the answer about all topics is gone."""
    await cluster.refresh_metadata(["foo"])
    brokers.topics = topics_with("bar", [0])
    await cluster.refresh_metadata(None)

    assert list(cluster.metadata.topics) == ["bar"]


async def test_missing_topics_are_forgotten_once_that_is_old(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A worker asks for ever new topics, and never for all: what is gone would stay, and be copied with each answer."""
    for number in range(5):
        await cluster.refresh_metadata([f"gone-{number}"])
    fresh = set(cluster.metadata.topics)
    await cluster.clock.sleep(cluster.endpoint.metadata_max_age_ms / 1000 + 1)
    await cluster.refresh_metadata(["gone-9", "foo"])

    assert {f"gone-{number}" for number in range(5)} <= fresh
    assert set(cluster.metadata.topics) == {"gone-9", "foo"}
    assert cluster.aged(["gone-0", "gone-9"]) == ["gone-0"]


async def test_topics_that_are_not_asked_for_any_more_are_forgotten(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A worker copies other topics now, and has not heard that the former ones are deleted."""
    brokers.topics |= topics_with("bar", leaders=[0])
    await cluster.ensure_metadata(["foo", "bar"])
    for _ in range(25):
        await cluster.clock.sleep(cluster.endpoint.metadata_max_age_ms / 2000)
        known = set(cluster.metadata.topics)
        await cluster.ensure_metadata(["foo"])

    assert known == {"foo", "bar"}
    assert set(cluster.metadata.topics) == {"foo"}


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
    """A caller that waits for a refresh that is cancelled gets one of its own."""
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


async def test_metadata_that_has_aged_is_known(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Only what was never asked for is, unless what has aged is to be renewed, too."""
    await cluster.ensure_known(["foo"])
    brokers.requests.clear()
    await asyncio.sleep(cluster.endpoint.metadata_max_age_ms / 1000 + 1)
    await cluster.ensure_known(["foo"])

    assert brokers.requests_of(METADATA) == []
    assert cluster.aged(["foo"]) == ["foo"]


@pytest.mark.parametrize(("is_old", "believed"), [(False, (2, 6)), (True, (0, -1))])
async def test_a_leader_with_an_older_epoch(
    brokers: FakeBrokers, cluster: Cluster, believed: tuple[int, int], *, is_old: bool
) -> None:
    """It is the older truth: a broker that lags behind does not bring the old leader back. But one before Kafka 2.4 may
    name the new leader with an epoch of before.
    """
    if is_old:
        brokers.versions = OLD_VERSIONS
    partition = brokers.topics["foo"].partitions[0]
    partition.leader, partition.leader_epoch = 2, 6
    await cluster.refresh_metadata(["foo"])
    partition.leader, partition.leader_epoch = 0, 5
    await cluster.refresh_metadata(["foo"])

    assert (cluster.leader(FOO[0]), cluster.leader_epoch(FOO[0])) == believed


async def test_a_topic_that_was_created_again_starts_its_epochs_again(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Epochs of a topic with another id are not compared."""
    await cluster.refresh_metadata(["foo"])
    brokers.topics["foo"].topic_id = "AAAAAAAAAAAAAAAAAAAAAg"
    brokers.topics["foo"].partitions[0].leader_epoch = 0
    await cluster.refresh_metadata(["foo"])

    assert cluster.leader_epoch(FOO[0]) == 0


# Requests.


async def test_silence_closes_the_connection(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A request without an answer ends with the request timeout, and its connection with it."""
    connection = await cluster.connection(1)
    brokers.latency_s = 3_600
    started = now()
    with pytest.raises(
        BrokerConnectionError, match="broker b1:9092 of cluster A: no answer to MetadataRequest within 30 s"
    ):
        await cluster.send_to(1, MetadataRequest([]))

    assert (connection.is_closed, pytest.approx(now() - started)) == (True, 30)


async def test_an_answer_that_waits_for_others_is_waited_for(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A group's coordinator answers a JoinGroup once all members have joined: up to a session after they were asked."""
    brokers.versions = {**brokers.versions, JoinGroupRequest.API_KEY: (0, 9)}
    await cluster.connection(1)
    brokers.latency_s = 3_600
    joining = JoinGroupRequest("A-mm2", 30_000, 30_000, "", "node-1", "connect", [("mm2py-1", b"")])
    started = now()
    with pytest.raises(BrokerConnectionError, match="no answer to JoinGroupRequest within 60 s"):
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
        advance(partition, 100 + number)
    offsets = await cluster.list_offsets(FOO, LATEST, reads_committed=True)
    asked = sorted((node_id, request.topics[0][1][0][1]) for node_id, request in brokers.requests_of(LIST_OFFSETS))

    assert ({tp: 100 + tp.partition for tp in FOO}, [(0, 5), (1, 5)]) == (offsets, asked)


async def test_offsets_of_old_brokers(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Brokers of Kafka 2.1 answer for start and end; what is in remote storage is beyond them."""
    brokers.versions = OLD_VERSIONS
    brokers.break_connections()
    earliest = await cluster.list_offsets(FOO, EARLIEST)
    local = await cluster.list_offsets(FOO[:1], EARLIEST_LOCAL)

    assert (dict.fromkeys(FOO, 0), ErrorCode.UNSUPPORTED_VERSION) == (earliest, local[FOO[0]].code)


async def test_offsets_since_a_time_without_records(brokers: FakeBrokers, cluster: Cluster) -> None:
    """The end is asked for before the time: a record that comes in between is later than both, and not left out."""
    advance(brokers.topics["foo"].partitions[0], 100)

    def later_than_all(_node: int, request: Any) -> Any:
        """Append a record, after which there is still none of that time."""
        advance(brokers.topics["foo"].partitions[0], 101)
        tags = ({},) if request.FLEXIBLE_VERSION else ()
        return request.RESPONSE_TYPE(0, [("foo", [(0, 0, -1, -1, 7, *tags)], *tags)], *tags)

    brokers.script(LIST_OFFSETS, brokers.plainly)
    brokers.script(LIST_OFFSETS, later_than_all)

    assert await cluster.offsets_since(FOO[:1], 1_793_491_200_000) == {FOO[0]: 100}


async def test_offsets_follow_a_leader_that_moved(brokers: FakeBrokers, cluster: Cluster) -> None:
    """If a partition's leader has moved, the new one is looked up and asked."""
    await cluster.refresh_metadata(["foo"])
    partition = brokers.topics["foo"].partitions[0]
    partition.leader, partition.leader_epoch = 2, 6
    advance(partition, 42)
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


async def test_offsets_wait_once_for_a_leader_that_is_gone(brokers: FakeBrokers, cluster: Cluster) -> None:
    """
    A broker with the only replica of a partition is down for hours.

    Who asks for it together with others waits for it once. It is found when it is back, and then waited for as before.
    """
    took_s, found = list[float](), list[object]()
    for leader in (-1, -1, 2, -1):
        partition = brokers.topics["foo"].partitions[0]
        partition.leader, partition.leader_epoch = leader, partition.leader_epoch + 1
        started = now()
        offsets = await cluster.list_offsets(FOO, LATEST)
        took_s.append(round(now() - started, -1))
        found.append(isinstance(offsets[FOO[0]], int))

    assert took_s == [30, 0, 0, 30]
    assert found == [False, False, True, False]


async def test_offsets_do_not_wait_longer_for_a_leader_than_asked_to(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A partition without a leader is an error soon, but one whose leader has merely moved is found."""
    await cluster.refresh_metadata(["foo"])
    partitions = brokers.topics["foo"].partitions
    partitions[0].leader, partitions[1].leader, partitions[1].leader_epoch = -1, 2, 6
    started = now()
    offsets = await cluster.list_offsets(FOO, LATEST, patience_s=1.0)
    codes = [offset if isinstance(offset, int) else offset.code for offset in map(offsets.get, FOO)]

    assert codes == [ErrorCode.LEADER_NOT_AVAILABLE, 0, 0]
    assert now() - started < 3


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


# Topics that are not there, and those that may not be seen.


async def test_a_topic_that_may_not_be_described_is_not_missing(brokers: FakeBrokers) -> None:
    """Brokers say so of a topic that is not there alone; of a hidden one they refuse to tell."""
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        assert [await cluster.has_topic(topic) for topic in ("foo", "bar")] == [True, False]
        last = max(tp.partition for tp in FOO)
        found = [cluster.is_missing(TopicPartition("foo", number)) for number in (last, last + 1)]
        assert found == [False, True]
        assert cluster.is_missing(TopicPartition("bar", 0))
        brokers.denied_until["foo"] = math.inf
        with pytest.raises(BrokerAnsweredError, match=r"TOPIC_AUTHORIZATION_FAILED \[29\] \(foo\)"):
            await cluster.has_topic("foo")
        assert not cluster.is_missing(FOO[0])
        answers = await cluster.list_offsets(FOO[:1], LATEST)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(answers[FOO[0]])


async def test_a_topic_that_cannot_be_there_is_missing(cluster: Cluster) -> None:
    """A cluster's alias may have blanks, and is part of names; a remote topic's name may be too long."""
    assert not await cluster.has_topic("mm2-offset-syncs.my cluster.internal")
    assert cluster.is_missing(TopicPartition("mm2-offset-syncs.my cluster.internal", 0))


async def test_a_hidden_topic_is_asked_for_beside_all_topics(brokers: FakeBrokers) -> None:
    """A list of all topics leaves it out as if it was gone, and one request serves all that ask meanwhile."""
    brokers.denied_until["foo"] = math.inf
    async with Cluster(brokers.endpoint, LoopClock(), opener=brokers.open) as cluster:
        first = asyncio.create_task(cluster.refresh_metadata(()))
        await asyncio.sleep(0)
        listing = asyncio.create_task(cluster.refresh_metadata(None))
        with pytest.raises(BrokerAnsweredError, match="TOPIC_AUTHORIZATION_FAILED"):
            await cluster.has_topic("foo")
        await asyncio.gather(first, listing)
