"""Consumer groups: coordinators followed, results per group, brokers of every age."""

from __future__ import annotations

from typing import Any

import pytest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription, GroupListing, GroupType
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.consumer_groups import Groups
from tests.support.clocks import now
from tests.support.fake_brokers import (
    DESCRIBE,
    FIND_COORDINATOR,
    LIST,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OLD_VERSIONS,
    Answer,
    FakeBrokers,
    FakePartition,
    FakeTopic,
    says,
)


PLACE, OTHER = TopicPartition("t", 0), TopicPartition("u", 0)
#: Ids of topics: of the former and the present `PLACE`, and of `OTHER`.
OLD, NEW, THIRD = (f"AAAAAAAAAAAAAAAAAAAAA{last}" for last in "Qgw")


@pytest.fixture
def brokers() -> FakeBrokers:
    fake = FakeBrokers()
    fake.topics = {PLACE.topic: FakeTopic([FakePartition()])}
    return fake


@pytest.fixture
async def groups(cluster: Cluster) -> Groups:
    return Groups(cluster)


async def test_every_broker_s_groups_are_listed(brokers: FakeBrokers, groups: Groups) -> None:
    """Each broker lists its own groups, with type and state."""
    brokers.group("a", at=0)
    brokers.group("b", at=1, members=1, kind="share", protocol="share")
    brokers.group("c", at=2, kind="consumer")
    listed = await groups.list_groups()

    assert dict(listed.groups) == {
        "a": GroupListing("a", GroupType.CLASSIC, "consumer", "Empty"),
        "b": GroupListing("b", GroupType.SHARE, "share", "Stable"),
        "c": GroupListing("c", GroupType.CONSUMER, "consumer", "Empty"),
    }
    assert not listed.failures


def _refuses_to_list(node: int, brokers: FakeBrokers, otherwise: Answer | None = None) -> Answer:
    """Return answers in which one *node* may not be asked for its groups."""
    refusal, otherwise = says(0, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), [], {}), otherwise or brokers.plainly
    return lambda asked, request: (refusal if asked == node else otherwise)(asked, request)


def _loads_at_first(node: int, brokers: FakeBrokers) -> Answer:
    """Return answers in which one *node* still loads its groups when it is asked for the first time."""
    loads, loading = iter([True]), says(0, int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), [], {})
    return lambda asked, request: (loading if asked == node and next(loads, False) else brokers.plainly)(asked, request)


async def test_a_broker_that_does_not_list_is_named(brokers: FakeBrokers, groups: Groups) -> None:
    """One broker refuses: the others' groups are listed, and the failure is told."""
    brokers.group("a", at=0)
    brokers.script(LIST, *[_refuses_to_list(2, brokers)] * 3)
    listed = await groups.list_groups()

    assert list(listed.groups) == ["a"]
    assert {node: error.name for node, error in listed.failures.items()} == {2: "CLUSTER_AUTHORIZATION_FAILED"}


async def test_a_failure_is_not_forgotten_while_another_broker_is_asked_again(
    brokers: FakeBrokers, groups: Groups
) -> None:
    """One broker refuses for good, another loads its groups for a moment: the list lacks what the first one has."""
    brokers.group("a", at=0)
    brokers.group("b", at=1)
    brokers.script(LIST, *[_refuses_to_list(0, brokers, _loads_at_first(1, brokers))] * 4)
    listed = await groups.list_groups()

    assert list(listed.groups) == ["b"]
    assert {node: error.name for node, error in listed.failures.items()} == {0: "CLUSTER_AUTHORIZATION_FAILED"}


async def test_a_broker_that_went_away_leaves_the_list_incomplete(brokers: FakeBrokers, groups: Groups) -> None:
    """
    1. A broker dies before it has listed its groups, another one loads its own.
    2. The groups of the first go to a third, which has listed its own already; the cluster forgets the dead one.
    3. The loaded groups are listed. Those that moved are not, which is reported.
    """
    brokers.group("moved", at=2)
    brokers.group("b", at=1)
    list_groups = _loads_at_first(1, brokers)

    def answer(node: int, request: Any) -> Any:
        if node == 2:
            brokers.group("moved", at=0)
            del brokers.hosts[2]
            raise BrokerConnectionError("A", "b2:9092", "it died")
        return list_groups(node, request)

    brokers.script(LIST, *[answer] * 4)
    listed = await groups.list_groups()

    assert list(listed.groups) == ["b"]
    assert list(listed.failures) == [2]


async def test_old_brokers_are_asked_about_one_group_at_a_time(brokers: FakeBrokers, groups: Groups) -> None:
    """Kafka 2.1 knows neither types nor batches; the answers mean the same."""
    brokers.versions = OLD_VERSIONS
    for number, name in enumerate("abc"):
        brokers.group(name, {PLACE: number}, at=number)
    listed = await groups.list_groups()
    committed = await groups.committed(["a", "b", "c"])
    described = await groups.describe(["a", "b"])

    assert listed.groups["b"] == GroupListing("b", GroupType.CLASSIC, "consumer")
    assert committed == {name: {PLACE: CommittedOffset(number, "m")} for number, name in enumerate("abc")}
    assert described["a"] == GroupDescription("a", GroupType.CLASSIC, "consumer", "Empty")


async def test_an_old_coordinator_among_new_brokers_is_asked_about_one_group_at_a_time(
    brokers: FakeBrokers, groups: Groups
) -> None:
    """In a rolling upgrade to 3.0 a new broker looks all groups up at once, and one coordinator is still old."""
    brokers.versions_of[2] = brokers.versions | {OFFSET_FETCH: OLD_VERSIONS[OFFSET_FETCH]}
    for number, name in enumerate("abcd"):
        brokers.group(name, {PLACE: number}, at=min(number, 2))
    committed = await groups.committed(["a", "b", "c", "d"])

    assert {name: answer[PLACE].offset for name, answer in committed.items()} == {"a": 0, "b": 1, "c": 2, "d": 3}


def _hundred_groups(brokers: FakeBrokers) -> list[str]:
    for number in range(100):
        brokers.group(f"g{number}", {PLACE: number}, at=number % 3)
    return [f"g{number}" for number in range(100)]


async def test_groups_are_asked_about_in_one_request_per_coordinator(brokers: FakeBrokers, groups: Groups) -> None:
    """A hundred groups on three brokers: one look-up, three questions."""
    names = _hundred_groups(brokers)
    committed = await groups.committed(names)

    assert committed == {f"g{number}": {PLACE: CommittedOffset(number, "m")} for number in range(100)}
    assert len(brokers.requests_of(FIND_COORDINATOR)) == 1
    assert len(brokers.requests_of(OFFSET_FETCH)) == 3


async def test_groups_that_are_gone_are_forgotten(brokers: FakeBrokers, groups: Groups) -> None:
    """Programs that read under a new name at each start leave nothing; who coordinates the others stays known."""
    names = _hundred_groups(brokers)
    await groups.committed(names)
    groups.keep(["g7"])
    await groups.committed(["g7"])

    assert len(brokers.requests_of(FIND_COORDINATOR)) == 1
    assert len(groups._coordinators) == 1


@pytest.mark.parametrize("down", [set(), {0}], ids=["moved", "dead"])
async def test_a_coordinator_that_moved_is_looked_up_again(
    brokers: FakeBrokers, groups: Groups, down: set[int]
) -> None:
    """NOT_COORDINATOR or a broken connection means: ask who it is now, then repeat; others are not asked again."""
    brokers.group("a", {PLACE: 1}, at=0)
    brokers.group("b", {PLACE: 2}, at=1)
    await groups.committed(["a", "b"])
    brokers.down = down
    brokers.group("a", at=2)
    committed = await groups.committed(["a", "b"])

    assert committed["a"] == {PLACE: CommittedOffset(1, "m")}
    assert [node for node, _ in brokers.requests_of(OFFSET_FETCH)].count(1) == 2


@pytest.mark.parametrize("code", [ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
async def test_one_group_s_failure_is_its_own(brokers: FakeBrokers, groups: Groups, code: ErrorCode) -> None:
    """Refused for good, or for as long as the request timeout: the answer of that group, and no other's."""
    brokers.group("a", {PLACE: 1}, at=0)
    brokers.group("b", at=0)
    brokers.errors = {"b": int(code), "forbidden": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    committed = await groups.committed(["a", "b", "forbidden"])
    described = await groups.describe(["a", "b", "forbidden"])

    assert committed["a"] == {PLACE: CommittedOffset(1, "m")}
    assert isinstance(described["a"], GroupDescription)
    for answers in (committed, described):
        refused = {name: answer.name for name, answer in answers.items() if isinstance(answer, BrokerAnsweredError)}
        assert refused == {"b": code.name, "forbidden": "GROUP_AUTHORIZATION_FAILED"}


async def test_a_consumer_group_is_not_taken_for_one_that_does_not_exist(brokers: FakeBrokers, groups: Groups) -> None:
    """Asked in the classic way, an active group of the consumer protocol is `Dead`; so that is not what counts."""
    brokers.group("modern", at=0, members=2, kind="consumer")
    brokers.group("classic", at=1, members=1)
    described = await groups.describe(["modern", "classic", "nobody"])

    assert described == {
        "modern": GroupDescription("modern", GroupType.CONSUMER, "consumer", "Stable", 2),
        "classic": GroupDescription("classic", GroupType.CLASSIC, "consumer", "Stable", 1),
        "nobody": GroupDescription("nobody", GroupType.CLASSIC, "", "Dead", exists=False),
    }


async def test_a_failed_description_stays_a_failure(brokers: FakeBrokers, groups: Groups) -> None:
    """A consumer group whose description is refused is not asked about in the classic way, which would say `Dead`."""
    brokers.group("modern", members=2, kind="consumer")
    brokers.errors = {"modern": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    described = await groups.describe(["modern"])

    assert isinstance(described["modern"], BrokerAnsweredError)
    assert not brokers.requests_of(DESCRIBE)


async def test_a_commit_follows_its_coordinator_and_is_refused_for_members(
    brokers: FakeBrokers, groups: Groups
) -> None:
    """A coordinator that moved answers per partition; a group with members refuses an admin."""
    brokers.group("a", at=0)
    brokers.group("busy", at=1, members=1)
    await groups.committed(["a"])
    brokers.group("a", at=2)
    written = await groups.commit("a", {PLACE: CommittedOffset(5)})
    refused = await groups.commit("busy", {PLACE: CommittedOffset(5)})

    assert written == {PLACE: None}
    assert brokers.committed("a") == {PLACE: 5}
    assert [error and error.name for error in refused.values()] == ["UNKNOWN_MEMBER_ID"]
    assert brokers.committed("busy") == {}


async def test_an_offset_is_committed_for_the_topic_that_it_is_of(brokers: FakeBrokers, groups: Groups) -> None:
    """
    A topic is deleted and created again. What was meant for the former one is refused by the broker, which is told the
    id; before a broker that takes names only its topics are asked for, and nothing is sent.
    """
    brokers.topics = {PLACE.topic: FakeTopic([FakePartition()], NEW), OTHER.topic: FakeTopic([FakePartition()], THIRD)}
    both = {PLACE: CommittedOffset(5, "", OLD), OTHER: CommittedOffset(6, "", THIRD)}
    refused = [await groups.commit("a", both)]
    brokers.versions = {**brokers.versions, OFFSET_COMMIT: (2, 9)}
    brokers.break_connections()
    refused += [await groups.commit("b", both)]
    brokers.requests.clear()
    refused += [await groups.commit("c", {PLACE: CommittedOffset(5, "", OLD)})]

    assert [error and error.name for answers in refused for error in answers.values()] == [
        "UNKNOWN_TOPIC_ID", None, "UNKNOWN_TOPIC_ID", None, "UNKNOWN_TOPIC_ID",
    ]  # fmt: skip
    assert brokers.committed("a") == brokers.committed("b") == {OTHER: 6}
    assert brokers.requests_of(OFFSET_COMMIT) == []


async def test_an_offset_of_an_unknown_topic_is_committed_by_its_name(brokers: FakeBrokers, groups: Groups) -> None:
    """Java's positions do not say to which topic records went."""
    brokers.topics = {PLACE.topic: FakeTopic([FakePartition()], NEW), OTHER.topic: FakeTopic([FakePartition()], THIRD)}
    written = await groups.commit("a", {PLACE: CommittedOffset(5), OTHER: CommittedOffset(6, "", OLD)})

    assert [error and error.name for error in written.values()] == [None, "UNKNOWN_TOPIC_ID"]
    assert brokers.committed("a") == {PLACE: 5}


async def test_a_cluster_that_is_away_is_raised(brokers: FakeBrokers, groups: Groups) -> None:
    """No broker answers at all: that is not a failure of a single group."""
    brokers.group("a")
    await groups.committed(["a"])
    brokers.down = {0, 1, 2}
    for ask in (groups.committed(["a"]), groups.describe(["b"]), groups.list_groups()):
        with pytest.raises(ClusterUnreachableError):
            await ask


async def test_no_group_waits_for_another_one_s_coordinator_again_and_again(
    brokers: FakeBrokers, groups: Groups
) -> None:
    """
    A partition of __consumer_offsets has no leader, for hours.

    A coordinator that moves is waited for. What did not come back in that time is asked once for each question, so that
    a round of questions is not over before it is through; when it answers, it is waited for as any other.
    """
    for number, name in enumerate("ab"):
        brokers.group(name, {PLACE: number}, at=number)
    brokers.errors = {"b": int(ErrorCode.COORDINATOR_NOT_AVAILABLE)}
    took_s, answered = list[float](), list[bool]()

    async def ask() -> None:
        begun = now()
        committed = await groups.committed(["a", "b"])
        took_s.append(round(now() - begun, -1))
        answered.append("b" in brokers.errors or committed["b"] == {PLACE: CommittedOffset(1, "m")})
        assert committed["a"] == {PLACE: CommittedOffset(0, "m")}

    await ask()
    await groups.describe(["a", "b"])
    await ask()
    brokers.errors.clear()
    await ask()
    brokers.errors = {"b": int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)}
    await ask()

    assert took_s == [30, 0, 0, 30]
    assert all(answered)
