"""Topics: list both clusters, create and grow remote topics, return what can be copied where. `core.topics.topology`
decides what is due; this module reads and acts.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

import attrs

from mm2py.connectors.context import SourceContext
from mm2py.connectors.pair import PairedSource
from mm2py.connectors.plugins import policy_of, selected_topics, topic_filter_of, transforms_of
from mm2py.connectors.supervise import until_set
from mm2py.connectors.topics.creation import TopicCreation
from mm2py.connectors.topics.hidden_topics import HiddenTopics
from mm2py.connectors.topics.ownership import SyncedMemory
from mm2py.connectors.topics.refusals import kind_of
from mm2py.core.source.due import RemotePartition
from mm2py.core.topics.topology import (
    NOTHING_COPIED,
    Action,
    Beside,
    Copied,
    CopyIntoItselfError,
    CreateTopic,
    GrowPartitions,
    NoRemoteNameError,
    Selected,
    copyable,
    missing,
    select,
)
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.topic import MissingTopic, TopicsView, Unmatched
from mm2py.policy.plugins import PluginError
from mm2py.policy.selection import unmatched
from mm2py.telemetry.events import (
    NoTopicsMatched,
    PartitionsGrown,
    StepFailed,
    TopicCreated,
    TopicRemoved,
    TopicSkipped,
    TopicsRefreshed,
)
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.security.access import unseen
from mm2py.wire.topic_log import TooFewBrokersError
from mm2py.wire.topics.admin import Admin


_MAX_MESSAGE_BYTES = "max.message.bytes"
_TIMESTAMP_TYPE = "message.timestamp.type"
#: Kafka's default, for a cluster that does not let us read configs.
_DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
#: Brokers learn of a new topic one after the other: number and interval of checks for it.
_LOOKS = 20
_LOOK_PAUSE_S = 0.1
#: Errors of creating and growing that mean that there is nothing left to do.
_DONE = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_PARTITIONS)
#: What was to be grown was deleted meanwhile: the next refresh will tell.
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
#: How many topics are named in an event.
_NAMED = 10
#: A look at the topics that left something undone is repeated after this, or the refresh interval if that is shorter.
_UNSETTLED_REFRESH_S = 10.0
_REFRESH = "refresh topics"
#: Looking for new topics takes at most this part of the time: with tens of thousands of partitions it is rarer.
_LOOKING_PART = 0.005


@attrs.frozen
class _Terms:
    """What a remote topic says of the batches that it takes."""

    max_message_bytes: int = _DEFAULT_MAX_MESSAGE_BYTES
    keeps_timestamps: bool = False


@attrs.frozen
class Mirrored:
    """What a flow mirrors, as of one refresh. `is_settled` is False if something could not be created or grown."""

    places: Mapping[TopicPartition, RemotePartition]
    is_settled: bool
    #: Topics of which the target lacks partitions, and why.
    missing: tuple[MissingTopic, ...] = ()
    #: Heartbeats topics at the source.
    heartbeats: frozenset[str] = frozenset()
    unmatched: Unmatched | None = None

    @functools.cached_property
    def remote_of(self) -> Mapping[str, str]:
        """The remote topic of each topic."""
        return {partition.topic: place.remote_topic for partition, place in self.places.items()}


class StoredPositions(Protocol):
    """What the positions topic says, as far as it was read."""

    @property
    def known(self) -> Mapping[TopicPartition, Position]: ...

    @property
    def of_others(self) -> Mapping[str, Collection[TopicPartition]]:
        """Of which partitions other connectors have positions, by their names."""


class Topics:
    """The topics of one flow."""

    def __init__(
        self,
        context: SourceContext,
        source: Admin,
        target: Admin,
        memory: SyncedMemory,
        positions: StoredPositions,
        *,
        on_missing: Callable[[Collection[str]], Awaitable[None]],
    ) -> None:
        """Make them; *positions* say where each was copied to. *on_missing* gets remote topics that are missing, and is
        awaited before they are created.
        """
        self._config = config = context.config
        self._source = source
        self._target = target
        self._pairs = context.pairs
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self.memory = memory
        self._creation = TopicCreation(config, source, target, memory, context.events)
        self._watchers: list[Callable[[Mapping[str, str]], None]] = []
        self._on_missing = on_missing
        #: What is mirrored, as of the last refresh.
        self.latest = Mirrored({}, is_settled=False)
        #: How many partitions the source's topics have had ever since the first look.
        self._first: Mapping[str, int] | None = None
        self._known: frozenset[str] = frozenset()
        self._hidden = HiddenTopics(config.flow, source, context.reach, context.events, self._tell_refused)
        #: The source's topics, as of the last look: id and number of partitions.
        self._seen: Mapping[str, tuple[str | None, int]] = {}
        self._positions = positions
        self._misnamed: Mapping[str, MissingTopic] = {}
        #: What the target refused in the last refresh, with the error codes, by remote topic.
        self._refused: Mapping[str, int] = {}
        self._skipped: frozenset[str] = frozenset()
        self._unmatched: Unmatched | None = None
        #: What that was found for: whether nothing is mirrored, and the source's topics.
        self._compared: tuple[bool, frozenset[str]] = (False, frozenset())
        self._wanted = asyncio.Event()
        #: Whether this node creates and grows remote topics: one of a flow's nodes does, the others wait for it.
        self.may_act = True
        self._policy = policy_of(config)
        self._filter = topic_filter_of(config)
        transforms = transforms_of(config)
        self._name_remote, self._name_before = transforms.name_remote, transforms.name_before

    async def refresh_once(self) -> Mirrored:
        """List both clusters, bring the target up to date, and return what can be copied now."""
        config, begun = self._config, self._clock.monotonic()
        view = await self._source.list_topics()
        source, self._seen = view.partition_counts(), view.ids_and_counts()
        is_first = self._first is None
        first = self._first = source if self._first is None else _least(self._first, source)
        seen = await self._target.list_topics()
        selected = self._select(source, seen)
        remote_of = selected.remote_of
        self._tell_skipped(selected.named_like_copies)
        self._refuse_own_topics(remote_of)
        target: Mapping[str, int] = seen.partition_counts()
        actions = missing(remote_of, source, target) if self.may_act else ()
        results = await self._act(actions, view)
        if actions:
            seen = await self._look_for(lambda found: missing(remote_of, source, found), results)
            target = seen.partition_counts()
        left = missing(remote_of, source, target)
        refused = self._note_refusals(results, left)
        await self._forget_gone(target.keys() | {action.remote_topic for action in left})
        await self._clock.sleep(0)  # others have a turn of the event loop between steps that look at each partition
        places = copyable(remote_of, source, target)
        terms = await self._terms(sorted(set(places.values())))
        found = {
            partition: RemotePartition(
                remote,
                view.topics[partition.topic].topic_id,
                terms[remote].max_message_bytes,
                seen.topics[remote].topic_id,
                terms[remote].keeps_timestamps,
                has_appeared=partition.partition >= first.get(partition.topic, 0),
            )
            for partition, remote in places.items()
        }
        await self._clock.sleep(0)
        hidden = await self._vanished(source, {*remote_of, *selected.refused}, is_first=is_first)
        mirrored = Mirrored(
            found,
            is_settled=not left and self._hidden.are_settled,
            missing=(*selected.refused.values(), *_missing_topics(remote_of, source, target, refused), *hidden),
            heartbeats=frozenset(filter(self._policy.is_heartbeats_topic, remote_of)),
            unmatched=self._unmatched_by({*remote_of, *selected.refused}, source),
        )
        self.latest = mirrored
        self._known, took_ms = frozenset(remote_of), (self._clock.monotonic() - begun) * 1000
        self._events.emit(TopicsRefreshed(config.flow, len(remote_of), len(found), len(actions), took_ms))
        for watcher in self._watchers:
            watcher(mirrored.remote_of)
        return mirrored

    async def _vanished(
        self, source: Mapping[str, int], mirrored: Collection[str], *, is_first: bool
    ) -> tuple[MissingTopic, ...]:
        """Return topics that were *mirrored* and are hidden now; report those that are not mirrored any more."""
        known = self._known | self._hidden.names
        if is_first:  # of an earlier life, or of another node, positions tell
            known = frozenset(self._selected(Counter(it.topic for it in self._positions.known)).remote_of)
        gone = known.difference(mirrored)
        for topic in sorted(self._known & gone & source.keys()):  # another connector has it now
            self._events.emit(TopicRemoved(self._config.flow, topic))
        return await self._hidden.among(gone - source.keys(), self.latest.places, is_first=is_first)

    async def refresh_forever(self, adopt: Callable[[Mirrored], Awaitable[Mirrored]], *, is_settled: bool) -> None:
        """Refresh when due, and have *adopt* take over what is mirrored, until cancelled."""
        chosen = self._config.topics
        interval_s = chosen.refresh_interval_s

        async def refresh() -> Mirrored:
            return await adopt(await self.refresh_once())

        while True:
            is_over = is_settled and not chosen.refresh_enabled
            pause_s = interval_s if is_settled else min(interval_s, _UNSETTLED_REFRESH_S)
            if is_over:
                await self._wanted.wait()
            else:
                await self._until_due(self._clock.monotonic() + pause_s)
            self._wanted.clear()
            mirrored = await self._reach.once(
                _REFRESH, self._config.flow.aliases, refresh, within_ms=self._config.admin_timeout_ms
            )
            is_settled = mirrored is not None and mirrored.is_settled

    async def _until_due(self, due_at: float) -> None:
        """Wait for the next refresh: until *due_at*, until one is wanted, or until the source has other topics."""
        look_s = self._config.topics.look_interval_s
        while True:
            begun = self._clock.monotonic()
            await until_set(self._wanted, max(0.0, min(due_at - begun, look_s)))
            begun = self._clock.monotonic()
            if self._wanted.is_set() or begun >= due_at:
                return
            has_changed = await self._reach.once(
                _REFRESH,
                [self._config.flow.source],
                self._look_at_source,
                within_ms=self._config.admin_timeout_ms,
            )
            if has_changed:
                return
            took_s = self._clock.monotonic() - begun
            look_s = max(self._config.topics.look_interval_s, took_s / _LOOKING_PART)

    async def _look_at_source(self) -> bool:
        """List the source's topics; return whether one that is mirrored, or would be, is not as it was."""
        now = (await self._source.list_topics()).ids_and_counts()
        changed = {topic for topic, _ in self._seen.items() ^ now.items()}
        selected = self._selected({topic: now[topic][1] for topic in changed & now.keys()})
        self._seen = now
        known = self._known | self._misnamed.keys() | self._hidden.names
        return bool(selected.remote_of or selected.refused) or not known.isdisjoint(changed)

    def want_refresh(self) -> None:
        """Request a refresh soon, to fix or report something."""
        self._wanted.set()

    def watch(self, watcher: Callable[[Mapping[str, str]], None]) -> None:
        """Call *watcher* with the remote topic of each mirrored topic, now and after each refresh."""
        self._watchers.append(watcher)
        watcher(self.latest.remote_of)

    async def measure_again(self) -> None:
        """Update the batch size limits of remote topics; everything else is as of the last refresh."""
        terms = await self._terms(sorted(set(self.latest.remote_of.values())))
        # A refresh may have ended meanwhile.
        places = {
            partition: attrs.evolve(place, max_message_bytes=terms[place.remote_topic].max_message_bytes)
            for partition, place in self.latest.places.items()
            if place.remote_topic in terms
        }
        self.latest = attrs.evolve(self.latest, places={**self.latest.places, **places})

    def _selected(
        self, source: Mapping[str, int], copied: Copied = NOTHING_COPIED, beside: Sequence[Beside] = ()
    ) -> Selected:
        config = self._config
        return select(
            source,
            config.flow,
            self._policy,
            self._filter,
            heartbeats_replication_enabled=config.topics.heartbeats_enabled,
            name_remote=self._name_remote,
            name_before=self._name_before,
            copied=copied,
            beside=beside,
        )

    def _beside(self, source: Mapping[str, int], copied: Copied) -> list[Beside]:
        """Return what other source connectors of the pair would copy; one without usable names copies nothing."""
        found, ours = list[Beside](), PairedSource(self._config)
        for other in self._pairs.beside(ours.flow):
            # Those of a standalone worker have positions under one name: what is copied, none of them holds alone.
            is_one = other.config.name == self._config.name
            of_theirs = (it.topic for it in self._positions.of_others.get(other.config.name, ()))
            holds = copied.topics if is_one else frozenset(of_theirs)
            with suppress(PluginError, NoRemoteNameError):
                remote_of = selected_topics(other.config, source).remote_of
                found.append(Beside(other.name, other.rank < ours.rank, remote_of, holds))
        return found

    def _select(self, source: Mapping[str, int], target: TopicsView) -> Selected:
        """Choose what is mirrored; report each topic once whose records would get into a wrong remote topic."""
        copied = Copied.of(self._positions.known.values(), target.topics)
        selected = self._selected(source, copied, self._beside(source, copied))
        for topic, refused in selected.refused.items():
            failure = refused.failure
            if failure is not None and self._misnamed.get(topic) != refused:
                self._events.emit(TopicSkipped(self._config.flow, topic, failure.message, failure.hint))
        self._misnamed = selected.refused
        return selected

    @property
    def _is_one_cluster(self) -> bool:
        """Whether both aliases name one cluster, by the brokers' own word."""
        return self._source.cluster_id is not None and self._source.cluster_id == self._target.cluster_id

    def _tell_skipped(self, topics: frozenset[str]) -> None:
        """Report topics that may be the source's own, though they are named like copies."""
        flow = self._config.flow
        if self._is_one_cluster:  # they are its copies
            return
        for topic in sorted(topics - self._skipped):
            if not self._policy.is_heartbeats_topic(topic):
                reason = f"its name has the alias of its own cluster, {flow.source}, like a copy that went round"
                hint = f"if it is none, give the topic another name, or {flow.source} another alias; else exclude it"
                self._events.emit(TopicSkipped(flow, topic, reason, hint))
        self._skipped = topics

    def _refuse_own_topics(self, remote_of: Mapping[str, str]) -> None:
        """Refuse to copy a topic into itself: bootstrap servers may hide that both aliases name one cluster."""
        own = [topic for topic, remote_topic in remote_of.items() if topic == remote_topic]
        if own and self._is_one_cluster:
            flow = self._config.flow
            raise CopyIntoItselfError(flow.source, flow.target, str(self._source.cluster_id), own[0])

    async def _act(
        self, actions: tuple[Action, ...], source_topics: TopicsView
    ) -> dict[str, BrokerAnsweredError | None]:
        """Perform the changes that can be made now; return per remote topic None, or why the target refused it."""
        new = [action for action in actions if isinstance(action, CreateTopic)]
        if new:
            await self._on_missing(frozenset(action.remote_topic for action in new))
        grown = [action for action in actions if isinstance(action, GrowPartitions)]
        created = await self._creation.create(new, source_topics)
        extended = await self._target.grow_partitions({it.remote_topic: it.after for it in grown})
        results = {**created, **extended}
        done = {topic for topic, error in results.items() if error is None}
        flow = self._config.flow
        for a in new:
            if a.remote_topic in done:
                self._events.emit(TopicCreated(flow, a.topic, a.remote_topic, a.partitions, a.reason))
        for b in grown:
            if b.remote_topic in done:
                self._events.emit(PartitionsGrown(flow, b.remote_topic, b.before, b.after, b.reason))
        return results

    async def _forget_gone(self, there: Collection[str]) -> None:
        """Forget what was set on remote topics that are not *there* any more, if this node creates and grows them."""
        if self.may_act:
            await self._creation.forget_gone(there)

    def _note_refusals(
        self, results: Mapping[str, BrokerAnsweredError | None], left: Iterable[Action]
    ) -> Mapping[str, PartitionFailure]:
        """
        Count what is *left* to do because the target refused it, and report it once, all of one kind together.

        Return why it did, by remote topic.
        """
        steps = {action.remote_topic: action.step for action in left}
        found = {
            topic: error
            for topic, error in results.items()
            if error is not None and topic in steps and error.code not in _GONE
        }
        for step in {steps[topic] for topic in found}:
            self._reach.count(step)
        news: dict[tuple[str, str], list[str]] = {}
        for topic, error in found.items():
            if self._refused.get(topic) != error.code:
                news.setdefault((steps[topic], kind_of(topic, error)), []).append(topic)
        for (step, _), topics in news.items():
            self._tell_refused(step, topics, self._explained(topics[0], found[topics[0]]))
        self._refused = {topic: error.code for topic, error in found.items()}
        explained = {topic: self._explained(topic, error) for topic, error in found.items()}
        return {
            topic: PartitionFailure(str(error), self._reach.hint_for(error), found[topic].name)
            for topic, error in explained.items()
        }

    def _explained(self, remote_topic: str, error: BrokerAnsweredError) -> Mm2Error:
        """Name the setting if more replicas are requested than there are brokers; Kafka's message does not."""
        factor, brokers = self._config.topics.replication_factor, self._target.brokers
        if error.code == ErrorCode.INVALID_REPLICATION_FACTOR and (factor is None or factor > brokers):
            wanted = "source" if factor is None else factor
            return TooFewBrokersError(error.cluster, remote_topic, "replication.factor", wanted, brokers)
        return unseen(error)

    async def _look_for(
        self,
        lacking: Callable[[Mapping[str, int]], Iterable[Action]],
        results: Mapping[str, BrokerAnsweredError | None],
    ) -> TopicsView:
        """Refresh the target until all new topics and partitions are visible. What another one has created or grown
        meanwhile is awaited as well, but only once: we may lack the permission to see it.
        """
        awaited = {
            topic
            for topic, error in results.items()
            if error is None or (error.code in _DONE and topic not in self._refused)
        }
        seen = TopicsView({})
        for _ in range(_LOOKS):
            seen = await self._target.list_topics()
            if awaited.isdisjoint(action.remote_topic for action in lacking(seen.partition_counts())):
                break
            await self._clock.sleep(_LOOK_PAUSE_S)
        return seen

    async def _terms(self, remote_topics: list[str]) -> dict[str, _Terms]:
        described = await self._target.topic_configs(remote_topics, [_MAX_MESSAGE_BYTES, _TIMESTAMP_TYPE])
        terms = dict.fromkeys(remote_topics, _Terms())
        for topic, configs in described.items():
            if isinstance(configs, BrokerAnsweredError):
                continue
            limit, kind = configs.get(_MAX_MESSAGE_BYTES), configs.get(_TIMESTAMP_TYPE)
            terms[topic] = _Terms(
                int(limit.value) if limit is not None and limit.value is not None else _DEFAULT_MAX_MESSAGE_BYTES,
                keeps_timestamps=kind is not None and kind.value == "CreateTime",
            )
        return terms

    def _tell_refused(self, step: str, topics: list[str], told: Mm2Error) -> None:
        """Report that a cluster refuses a step for *topics*, the first one in its own words."""
        others = f"; the same with {', '.join(topics[1:_NAMED])}" if topics[1:] else ""
        more = f" and {len(topics) - _NAMED} more" if len(topics) > _NAMED else ""
        self._events.emit(StepFailed(self._config.flow, step, f"{told}{others}{more}", self._reach.hint_for(told)))

    def _unmatched_by(self, selected: Collection[str], source: Mapping[str, int]) -> Unmatched | None:
        """Return what is to be mirrored, but not there; report if that is all: usually a name is misspelt."""
        was_idle, is_idle = self._compared[0], all(map(self._policy.is_heartbeats_topic, selected))
        if (compared := (is_idle, frozenset(source))) != self._compared:  # many names take a while to compare
            self._compared = compared
            self._unmatched = unmatched(self._config.topics.names, self._filter, source, is_idle=is_idle)
        found = self._unmatched
        if is_idle and not was_idle and found is not None:
            hint = found.hint or "see topics, topics.exclude and replication.policy.class"
            self._events.emit(NoTopicsMatched(self._config.flow, found.at_source, hint))
        return found


def _missing_topics(
    remote_of: Mapping[str, str],
    source: Mapping[str, int],
    target: Mapping[str, int],
    refused: Mapping[str, PartitionFailure],
) -> tuple[MissingTopic, ...]:
    """Return the topics of which the target lacks partitions, with why it *refused* some of their remote topics."""
    found = ((topic, remote, target.get(remote, 0), source[topic]) for topic, remote in remote_of.items())
    return tuple(MissingTopic(one, it, has, many - has, refused.get(it)) for one, it, has, many in found if has < many)


def _least(first: Mapping[str, int], now: Mapping[str, int]) -> Mapping[str, int]:
    """Return the least number of partitions of each topic that has been there all the while."""
    return {topic: min(count, now[topic]) for topic, count in first.items() if topic in now}
