"""What a look at the topics of both clusters reports."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast
from unittest.mock import AsyncMock

import attrs
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.connectors.topics.remote_topics import Mirrored, Topics
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.synced import ForgottenConfig, SyncedConfig
from mm2py.model.topic import NewTopic, TopicDescription, TopicsView
from mm2py.policy.replication import DefaultReplicationPolicy
from mm2py.telemetry.events import StepFailed, TopicRemoved, TopicSkipped
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.topics.admin import Admin
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS, SyncedMemoryDouble, changed, source_context


@attrs.define
class _Listed:
    """A cluster that has topics of one partition each, and takes all changes."""

    cluster_id: str
    topics: set[str]
    brokers: int = 1
    all_brokers: int = 2
    #: The errors of topics that it does not create, by name.
    refusals: dict[str, ErrorCode] = attrs.field(factory=dict)
    #: What exists, but is not listed until it was listed that many times.
    late: dict[str, int] = attrs.field(factory=dict)
    listings: int = 0
    partitions: int = 1
    #: What is deleted in the moment in which it is to be grown.
    vanishing: set[str] = attrs.field(factory=set)
    #: What is so new that not all of its brokers know it.
    fresh: set[str] = attrs.field(factory=set)

    #: What exists, but may not be seen any more.
    unseen: set[str] = attrs.field(factory=set)
    #: What a listing shows; None for all.
    lists: set[str] | None = None
    #: The ids of topics that have one.
    ids: dict[str, str] = attrs.field(factory=dict)
    #: How long a listing takes.
    takes_s: float = 0.0

    async def unlisted(self, topics: Collection[str]) -> dict[str, BrokerAnsweredError | None]:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        there = sorted((self.unseen | self.topics) & set(topics))
        return {it: error_of(refused, "A", "Metadata", it) if it in self.unseen else None for it in there}

    async def missing(self, topics: Collection[str]) -> frozenset[str]:
        return frozenset(topics) - self.topics - self.unseen

    async def list_topics(self) -> TopicsView:
        self.listings += 1
        self.topics |= {topic for topic, listings in self.late.items() if self.listings > listings}
        internal = {"__consumer_offsets"}
        partitions = dict.fromkeys(range(self.partitions), 0)
        await asyncio.sleep(self.takes_s)
        return TopicsView(
            {
                topic: TopicDescription(self.ids.get(topic), partitions, topic in internal)
                for topic in (self.topics if self.lists is None else self.lists)
            }
        )

    async def topic_configs(self, topics: Collection[str], keys: Collection[str] = ()) -> dict[str, Mapping[str, Any]]:
        del keys
        unknown = cast("Any", error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "A", "DescribeConfigs"))
        return {topic: unknown if topic in self.fresh else {} for topic in topics}

    async def grow_partitions(self, totals: Mapping[str, int]) -> dict[str, BrokerAnsweredError | None]:
        self.topics -= self.vanishing & totals.keys()
        gone = error_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "B", "CreatePartitions")
        return {topic: None if topic in self.topics else gone for topic in totals}

    async def broker_configs(self, _keys: Collection[str]) -> Mapping[str, Any]:
        return {}

    async def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, BrokerAnsweredError | None]:
        self.topics |= {topic.name for topic in topics} - self.refusals.keys()
        return {
            topic.name: error_of(code, "B", "CreateTopics", f"{topic.name}: no")
            if (code := self.refusals.get(topic.name))
            else None
            for topic in topics
        }


class _NoPositions:
    """The positions of a mirror that has copied nothing."""

    known: ClassVar[Mapping[TopicPartition, Position]] = {}
    of_others: ClassVar[Mapping[str, Collection[TopicPartition]]] = {}


def _topics(
    source: _Listed,
    target: _Listed,
    events: EventLog,
    settings: FlowSettings = SETTINGS,
    *,
    may_act: bool = False,
    memory: SyncedMemoryDouble | None = None,
) -> Topics:
    ends = (cast("Admin", source), cast("Admin", target))
    context, kept = source_context(LoopClock(), events, settings), cast("Any", memory or SyncedMemoryDouble())
    topics = Topics(context, *ends, kept, _NoPositions(), on_missing=AsyncMock())
    topics.may_act = may_act
    return topics


async def test_a_topic_that_is_named_like_a_copy_is_reported_once(events: EventLog) -> None:
    """It may be the source's own, and Java before 4.4 mirrors it; only mirrors name a topic heartbeats."""
    source = _Listed("one", {"orders", "A.orders", "A.heartbeats"})
    topics = _topics(source, _Listed("other", set()), events)
    await topics.refresh_once()
    await topics.refresh_once()
    source.topics.add("C.A.bills")
    await topics.refresh_once()

    assert [event.topic for event in events.of(TopicSkipped)] == ["A.orders", "C.A.bills"]
    assert "A another alias" in events.of(TopicSkipped)[0].hint


@pytest.mark.parametrize(("other", "expected"), [("one", 0), ("two", 1)])
async def test_copies_beside_their_topics_are_not_reported(events: EventLog, other: str, expected: int) -> None:
    """If both aliases name one cluster, each of its copies has such a name."""
    await _topics(_Listed("one", {"orders", "A.orders"}), _Listed(other, set()), events).refresh_once()

    assert len(events.of(TopicSkipped)) == expected


async def test_each_refusal_is_reported_once(events: EventLog) -> None:
    """One that lasts hides none that comes later, of another kind or for another topic; each refresh counts as one."""
    target = _Listed("other", set(), refusals={"A.a": ErrorCode.INVALID_TOPIC_EXCEPTION})
    source = _Listed("one", {"a", "b"})
    topics = _topics(source, target, events, may_act=True)
    await topics.refresh_once()
    source.topics |= {"c", "d", "e"}
    target.refusals |= {
        "A.c": ErrorCode.POLICY_VIOLATION,
        "A.d": ErrorCode.INVALID_TOPIC_EXCEPTION,
        "A.e": ErrorCode.POLICY_VIOLATION,
    }
    await topics.refresh_once()
    await topics.refresh_once()

    assert [(event.step, event.error.partition("[")[2]) for event in events.of(StepFailed)] == [
        ("create remote topics", "17] (A.a: no)"),
        ("create remote topics", "44] (A.c: no); the same with A.e"),
        ("create remote topics", "17] (A.d: no)"),
    ]
    assert [(step.step, step.failures) for step in topics._reach.steps()] == [("create remote topics", 3)]


async def test_a_topic_that_is_left_to_the_next_refresh_is_not_waited_for(events: EventLog) -> None:
    """It was not created, as its configs are not known yet: looking for it would hold up the others."""
    source, target = _Listed("one", {"a", "b"}, fresh={"b"}), _Listed("other", set())
    topics = _topics(source, target, events, may_act=True)
    first = await topics.refresh_once()
    listings = target.listings
    source.fresh.clear()
    second = await topics.refresh_once()

    assert (list(first.remote_of), first.is_settled, listings) == (["a"], False, 2)
    assert (list(second.remote_of), second.is_settled) == (["a", "b"], True)


async def test_a_target_that_wants_its_brokers_up_first_is_asked_again(events: EventLog) -> None:
    """One of them restarts, and the source's number of replicas is wanted: it is told once that the topic waits."""
    settings = changed(SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, replication_factor=None))
    target = _Listed("other", set(), refusals={"A.a": ErrorCode.INVALID_REPLICATION_FACTOR})
    topics = _topics(_Listed("one", {"a"}), target, events, settings, may_act=True)
    are_settled = [(await topics.refresh_once()).is_settled for _ in range(2)]
    target.refusals.clear()
    are_settled.append((await topics.refresh_once()).is_settled)

    assert are_settled == [False, False, True]
    assert ["replication.factor is source, with 1 broker of cluster B" in it.error for it in events.of(StepFailed)] == [
        True
    ]


async def test_a_topic_that_another_one_creates_meanwhile(events: EventLog) -> None:
    """It is no failure, and mirrored at once, though brokers list it a little later."""
    target = _Listed("other", set(), refusals={"A.a": ErrorCode.TOPIC_ALREADY_EXISTS}, late={"A.a": 3})
    mirrored = await _topics(_Listed("one", {"a"}), target, events, may_act=True).refresh_once()

    assert (mirrored.is_settled, mirrored.remote_of) == (True, {"a": "A.a"})
    assert events.of(StepFailed) == ()


async def test_a_topic_that_exists_but_may_not_be_seen(events: EventLog) -> None:
    """What lacks is named, once, and the topic is not waited for each time."""
    target = _Listed("other", set(), refusals={"A.a": ErrorCode.TOPIC_ALREADY_EXISTS})
    topics = _topics(_Listed("one", {"a"}), target, events, may_act=True)
    await topics.refresh_once()
    before = target.listings
    await topics.refresh_once()

    assert ["DESCRIBE on topic A.a" in event.hint for event in events.of(StepFailed)] == [True]
    assert target.listings - before == 2


async def test_what_is_missing_has_the_target_s_refusal(events: EventLog) -> None:
    """For as long as it lasts, also after it was reported."""
    target = _Listed("other", set(), refusals={"A.a": ErrorCode.TOPIC_AUTHORIZATION_FAILED})
    topics = _topics(_Listed("one", {"a", "b"}), target, events, may_act=True)
    refused = [await topics.refresh_once() for _ in range(2)]
    target.refusals.clear()
    created = await topics.refresh_once()

    for mirrored in refused:
        (missing,) = mirrored.missing
        assert (missing.topic, missing.remote_topic, missing.sources) == ("a", "A.a", (TopicPartition("a", 0),))
        assert missing.failure is not None
        assert "CREATE on topic A.a of cluster B" in missing.failure.hint
    assert created.missing == ()


async def test_each_missing_topic_has_a_reason_of_its_own(events: EventLog) -> None:
    """A topic that is refused for one reason says nothing of why another one is, or what of a third one is missing."""
    codes = {"A.a": ErrorCode.INVALID_REPLICATION_FACTOR, "A.b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    target = _Listed("other", {"A.c"}, refusals=dict(codes))
    settings = changed(SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, replication_factor=2))
    source = _Listed("one", {"a", "b", "c"})
    mirrored = await _topics(source, target, events, settings, may_act=True).refresh_once()
    one, other = mirrored.missing

    assert [place.topic for place in mirrored.places] == ["c"]
    assert one.failure is not None
    assert one.failure.message == "cannot create topic A.a: replication.factor 2 > 1 broker of cluster B"
    assert other.failure is not None
    assert "TOPIC_AUTHORIZATION_FAILED" in other.failure.message


async def test_names_that_are_too_long_and_one_that_collides_have_reasons_of_their_own(events: EventLog) -> None:
    """Brokers have one error for both; the collision comes first, and is not the reason of the others."""
    long = [letter * 248 for letter in "yz"]
    names = {"a_b", *long}
    refusals = {f"A.{name}": ErrorCode.INVALID_TOPIC_EXCEPTION for name in names}
    target = _Listed("other", set(), refusals=refusals)
    await _topics(_Listed("one", names), target, events, may_act=True).refresh_once()
    one, two = (event.error for event in events.of(StepFailed))

    assert ("A.a_b" in one, "the same" in one) == (True, False)
    assert two.endswith(f"; the same with A.{long[1]}")


async def test_topics_that_may_not_be_seen_any_more_are_not_taken_for_deleted(events: EventLog) -> None:
    """A broker lists neither; asked by name, it says which is which, and what to grant is reported once."""
    source = _Listed("one", {"a", "b", "c", "d"})
    topics = _topics(source, _Listed("other", set()), events)
    await topics.refresh_once()
    source.topics, source.unseen = {"d"}, {"a", "b"}
    await topics.refresh_once()
    mirrored = await topics.refresh_once()
    (refused,) = events.of(StepFailed)
    source.topics, source.unseen = {"a", "d"}, set()
    then = await topics.refresh_once()

    assert [event.topic for event in events.of(TopicRemoved)] == ["c", "b"]
    assert "TOPIC_AUTHORIZATION_FAILED [29] (a); the same with b" in refused.error
    assert "DESCRIBE on topic a of cluster A" in refused.hint
    assert _hidden(mirrored) == [("a", "TOPIC_AUTHORIZATION_FAILED"), ("b", "TOPIC_AUTHORIZATION_FAILED")]
    assert _hidden(then) == []


async def test_a_topic_that_was_hidden_before_the_start_is_known_by_its_position(events: EventLog) -> None:
    """Its lag is unknown then, too; a topic that was removed is nothing that is missing."""
    source = _Listed("one", {"d"}, unseen={"a"})
    topics = _topics(source, _Listed("other", {"A.d"}), events)
    known = {it: Position(it, 5) for it in (TopicPartition("a", 0), TopicPartition("removed", 0))}
    topics._positions = cast("Any", SimpleNamespace(known=known, of_others={}))
    mirrored = await topics.refresh_once()

    assert _hidden(mirrored) == [("a", "TOPIC_AUTHORIZATION_FAILED")]
    assert not events.of(TopicRemoved)


async def test_a_topic_that_came_back_after_the_listing_is_looked_at_again(events: EventLog) -> None:
    """The mirror lost its rights for a moment: the topic is not reported as removed, nor as mirrored."""
    source = _Listed("one", {"a", "d"})
    topics = _topics(source, _Listed("other", {"A.a", "A.d"}), events)
    await topics.refresh_once()
    source.lists = {"d"}
    mirrored = await topics.refresh_once()

    assert (mirrored.is_settled, _hidden(mirrored)) == (False, [("a", "")])
    assert not events.of(TopicRemoved)


def _hidden(mirrored: Mirrored) -> list[tuple[str, str]]:
    """Return the topics that the source hides, with its errors."""
    found = ((it.topic, "" if it.failure is None else it.failure.error) for it in mirrored.missing if it.is_hidden)
    return sorted(found)


async def test_a_topic_that_is_deleted_when_it_is_to_be_grown(events: EventLog) -> None:
    """It is created again by the next refresh, and no failure."""
    target = _Listed("other", {"A.a"}, vanishing={"A.a"})
    topics = _topics(_Listed("one", {"a"}, partitions=2), target, events, may_act=True)
    first = await topics.refresh_once()
    target.partitions = 2
    second = await topics.refresh_once()

    assert (first.is_settled, second.is_settled, events.of(StepFailed)) == (False, True, ())


class ChoosyFilter:
    """A filter of one's own that does not expect every name."""

    def takes_topic(self, topic: str) -> bool:
        return int(topic.partition("-")[2]) > 0


class ChoosyPolicy(DefaultReplicationPolicy):
    """A policy of one's own that has no name for most topics, and takes none for internal."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return {"t-1": f"{source_alias}.t-1"}.get(topic)  # type: ignore[return-value]

    def is_internal_topic(self, topic: str) -> bool:  # noqa: ARG002
        return False


CHOOSY_FILTER = changed(
    SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, filter_class=f"{__name__}.ChoosyFilter")
)
CHOOSY_POLICY = changed(
    SETTINGS, policy=attrs.evolve(SETTINGS.source_connector.policy, class_name=f"{__name__}.ChoosyPolicy")
)


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        (CHOOSY_FILTER, "ChoosyFilter: takes_topic('t') failed: ValueError"),
        (CHOOSY_POLICY, "topic t has got no remote name"),
    ],
    ids=["filter", "policy"],
)
async def test_a_custom_class_that_fails_stops_nothing(events: EventLog, settings: FlowSettings, error: str) -> None:
    """A topic that it does not expect is reported, once; what is mirrored already goes on, also from then on."""
    source = _Listed("one", {"t-1"})
    topics = _topics(source, _Listed("other", set()), events, settings, may_act=True)
    adopted: list[int] = []

    async def adopt(mirrored: Mirrored) -> Mirrored:
        adopted.append(len(mirrored.places))
        return mirrored

    refreshing = asyncio.create_task(topics.refresh_forever(adopt, is_settled=True))
    await asyncio.sleep(700)
    source.topics.add("t")
    await asyncio.sleep(700)
    source.topics = {"t-1"}
    await asyncio.sleep(700)

    assert not refreshing.done()
    assert (len(adopted) > 1, set(adopted)) == (True, {1})
    assert [event.error.rpartition(".")[2].partition('("')[0] for event in events.of(StepFailed)] == [error]
    assert all("correct" in event.hint for event in events.of(StepFailed))
    refreshing.cancel()


async def test_kafka_s_own_topics_are_never_mirrored(events: EventLog) -> None:
    """Not even if a policy of one's own takes them for others: offsets would be written over the target's."""
    source = _Listed("one", {"t-1", "__consumer_offsets"})
    mirrored = await _topics(source, _Listed("other", set()), events, CHOOSY_POLICY, may_act=True).refresh_once()

    assert mirrored.remote_of == {"t-1": "A.t-1"}


async def test_what_appears_later_is_told_from_what_was_there(events: EventLog) -> None:
    """A topic that comes, a partition by which one grows, and what is there again after it was gone."""
    source, target = _Listed("one", {"a", "b"}), _Listed("other", set(), partitions=9)
    topics = _topics(source, target, events, may_act=True)
    seen = [await topics.refresh_once()]
    source.topics, source.partitions = {"a", "c"}, 2
    seen.append(await topics.refresh_once())
    source.topics |= {"b"}
    seen.append(await topics.refresh_once())

    appeared = [{str(it) for it, place in mirrored.places.items() if place.has_appeared} for mirrored in seen]
    assert appeared == [set(), {"a-1", "c-0", "c-1"}, {"a-1", "b-0", "b-1", "c-0", "c-1"}]


async def test_what_was_set_on_remote_topics_that_are_gone_is_forgotten(events: EventLog) -> None:
    """
    Topics come and go under ever new names, at the target, too; what the mirror set there would be kept for good.

    Not of one that may not be seen any more, nor of one that a broker does not know for a moment: by that it is known
    which configs an operator has changed. Nor of one that was asked for: what the broker did not confirm may come yet.
    """
    stay = {"A.asked", "A.hidden", "A.late", "A.there"}
    written = [SyncedConfig(topic, key, ("1",)) for topic in sorted({"A.gone", *stay}) for key in "ab"]
    memory, target = SyncedMemoryDouble(), _Listed("other", {"A.there"}, unseen={"A.hidden"}, late={"A.late": 1})
    target.refusals["A.asked"] = ErrorCode.REQUEST_TIMED_OUT
    await memory.write(written)
    topics = _topics(_Listed("one", {"asked"}), target, events, may_act=True, memory=memory)
    left = []
    for _ in range(3):
        await topics.refresh_once()
        left.append(memory.configured)

    assert left == [{"A.gone", *stay}, stay, stay]
    assert memory.written == [*written, ForgottenConfig("A.gone", "a"), ForgottenConfig("A.gone", "b")]


class _Adopted:
    """What `refresh_forever` passes on, and when."""

    def __init__(self, topics: Topics) -> None:
        self._clock = LoopClock()
        self._refreshing = asyncio.create_task(topics.refresh_forever(self._adopt, is_settled=True))
        self.begun = self._clock.monotonic()
        self.at: list[float] = []

    async def _adopt(self, mirrored: Mirrored) -> Mirrored:
        self.at.append(self._clock.monotonic() - self.begun)
        return mirrored

    def stop(self) -> None:
        self._refreshing.cancel()


async def test_new_topics_are_found_by_listing_the_source_alone(events: EventLog) -> None:
    """
    A topic that comes, one that grows, one that is created again, and one that goes: each within 30 s.

    Nothing else is read while the source has nothing new, or something that the flow does not mirror.
    """
    chosen = attrs.evolve(SETTINGS.source_connector.topics, names=("orders.*",))
    source, target = _Listed("one", {"orders"}, ids={"orders": "1"}), _Listed("other", set())
    topics = _topics(source, target, events, changed(SETTINGS, topics=chosen), may_act=True)
    await topics.refresh_once()
    adopted = _Adopted(topics)
    await asyncio.sleep(100)
    source.topics.add("bills")
    await asyncio.sleep(100)
    listings, refreshes = target.listings, len(adopted.at)
    for change in (
        lambda: source.topics.add("orders-2"),
        lambda: source.ids.update(orders="2"),
        lambda: source.topics.discard("orders-2"),
    ):
        change()
        await asyncio.sleep(31)
    adopted.stop()

    assert (listings, refreshes) == (2, 0)
    assert adopted.at == [210, 240, 270]
    assert set(topics.latest.remote_of) == {"orders"}


async def test_the_source_is_listed_rarely_if_that_takes_long(events: EventLog) -> None:
    """With tens of thousands of partitions a listing takes half a second: it must not cost more than all the rest."""
    source = _Listed("one", {"orders"}, takes_s=0.5)
    topics = _topics(source, _Listed("other", {"A.orders"}), events)
    await topics.refresh_once()
    adopted = _Adopted(topics)
    listings = source.listings
    await asyncio.sleep(590)
    adopted.stop()

    assert source.listings - listings == 6


@pytest.mark.parametrize("refresh_enabled", [True, False])
async def test_an_interval_in_the_file_is_followed(events: EventLog, *, refresh_enabled: bool) -> None:
    """Whoever sets it, or switches refreshing off, gets no other requests in between."""
    chosen = attrs.evolve(SETTINGS.source_connector.topics, look_interval_s=600.0, refresh_enabled=refresh_enabled)
    source = _Listed("one", {"orders"})
    topics = _topics(source, _Listed("other", {"A.orders"}), events, changed(SETTINGS, topics=chosen))
    await topics.refresh_once()
    adopted = _Adopted(topics)
    source.topics.add("bills")
    await asyncio.sleep(599)
    before = source.listings
    await asyncio.sleep(2)
    adopted.stop()

    assert (before, source.listings) == (1, 2 if refresh_enabled else 1)
