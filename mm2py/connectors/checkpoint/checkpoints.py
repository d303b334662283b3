"""
Checkpoints: read the groups' committed offsets at the source, translate them, write due checkpoints to the target.

`core.checkpoint.checkpoints` decides what is due. A round queries each cluster once: all groups' offsets in one request
to each coordinator, and the target's end offsets only after translating, so that none of them is before a translated
offset.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress

import attrs

from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.connectors.checkpoint.own_moves import OwnMoves
from mm2py.connectors.context import CheckpointContext
from mm2py.connectors.offsets.offset_sync_store import OffsetSyncStore
from mm2py.connectors.offsets.translations import CopiedTopics
from mm2py.connectors.plugins import policy_of, remote_names_of, topic_filter_of
from mm2py.core import internal_topics
from mm2py.core.checkpoint.checkpoints import Emission, LogRange, judge_checkpoint
from mm2py.core.offsets.translation import Precision, Translated, Translation, Untranslated
from mm2py.errors import BrokerAnsweredError
from mm2py.model.checkpoint import (
    Checkpoint,
    MalformedCheckpointError,
    checkpoint_headers,
    decode_checkpoint,
    encode_checkpoint,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.state import GroupOffsetView
from mm2py.model.topic import is_other_topic
from mm2py.policy.plugins import CustomClassError
from mm2py.policy.replication import keeps_names
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.telemetry.events import CheckpointsRead, CheckpointsUnreadable, CheckpointsWritten
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fenced_writer import FencedWriter
from mm2py.wire.groups.consumer_groups import Groups, Offsets
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topic_log import LogRecord


#: As in Java, regardless of the topic's number of partitions.
_PARTITION = 0
#: Of how many groups that are gone, and partitions of one group, the last checkpoints are kept: one that is there again
#: must not go back.
_GONE = 1_000
_UNREADABLE = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

#: What fails if a custom class does not expect the name of a topic that a group reads.
_NAMES = "choose which offsets of groups to translate"

_BACK = "it came from the target"
_NO_RANGE = "the target did not return its log's offsets"
#: The metadata of an offset that was carried back to where the log begins, as the records that the group reads next are
#: gone there. The group has not read up to it: carried on by the other direction, it would skip them there, too.
_AT_LOG_START = "mm2py: log start"

#: The ids of topics at one moment, by their names.
_Ids = Mapping[str, str | None]


@attrs.frozen
class _Place:
    """A group's topic-partition in one round."""

    group: str
    source: TopicPartition
    remote: TopicPartition
    committed: CommittedOffset
    translation: Translation
    #: Whether its records came from the target.
    is_back: bool
    #: For which topic of its name at the target that is; None if that is unknown.
    topic_id: str | None = None

    @property
    def translated(self) -> Translated | None:
        return self.translation if isinstance(self.translation, Translated) else None


@attrs.frozen
class Round:
    """The result of a round: the groups' offsets at the target, and a view of them."""

    wanted: Mapping[str, Mapping[TopicPartition, CommittedOffset]]
    views: Mapping[str, tuple[GroupOffsetView, ...]]
    #: False while earlier translations are still being read.
    is_ready: bool = True
    #: Where groups are in topics that came from the target, as far as that is wanted: once the target has it, it need
    #: not be moved again. Offsets that are not copied yet are omitted, and will be translated better.
    back: Mapping[str, Mapping[TopicPartition, int]] = attrs.field(factory=dict)


class Checkpoints:
    """
    The checkpoints of one flow.

    a. A checkpoint never goes back unless its group went back, or the target's log did. b. None points beyond the end
    of the target's log.
    """

    def __init__(
        self,
        context: CheckpointContext,
        source: Cluster,
        target: Cluster,
        *,
        forward: OffsetSyncStore,
        back: OffsetSyncStore,
        latencies: CheckpointLatencies,
        writer: FencedWriter | None = None,
    ) -> None:
        """Create them for two open clusters. *forward* translates offsets of topics that this flow mirrors, *back* of
        topics that the flow in the other direction brought to the source. Both take the topic-partition by its name at
        the source.
        """
        self._config = config = context.config
        self._passed_over = context.passed_over
        self._source = Groups(source)
        self._at_source = source
        self._target = target
        self._policy = policy_of(config)
        self._name_remote = remote_names_of(config)
        self._filter = topic_filter_of(config)
        self._forward = forward
        self._back = back
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._latencies = latencies
        topic = internal_topics.checkpoints(config, self._policy)
        self.log = CompactedTopic(config.flow, target, topic, context.events, self._contents, writer=writer)
        self._last: dict[str, dict[TopicPartition, Checkpoint]] = {}
        #: Those of the last ones that are missing in the topic, because it was deleted together with their remote
        #: topic.
        self._unwritten: set[tuple[str, TopicPartition]] = set()
        self._knows_history = True
        self._refused: set[str] = set()
        self._own_moves = OwnMoves(self._source)
        #: The topics that groups read in the last round.
        self._read_topics: frozenset[str] = frozenset()

    def last_of(self, group: str) -> dict[TopicPartition, int]:
        """Return the offsets at the target that the last checkpoints of *group* hold."""
        return {remote: checkpoint.downstream for remote, checkpoint in self._last.get(group, {}).items()}

    # Existing checkpoints.

    async def read(self) -> bool:
        """Read the checkpoints topic; create it if it is missing. Return whether it could be read."""
        config = self._config
        await self.log.ensure()
        try:
            await self.log.await_stable()
            malformed = await self._read()
        except BrokerAnsweredError as error:
            if error.code not in _UNREADABLE:
                raise
            self._knows_history = False
            hint = "let the mirror read the checkpoints topic, so that it can continue it"
            self._events.emit(CheckpointsUnreadable(config.flow, self.log.topic, str(error), hint))
            return False
        self._knows_history = True
        known = sum(map(len, self._last.values()))
        self._events.emit(CheckpointsRead(config.flow, self.log.topic, known, len(malformed)))
        self._passed_over.note(self.log.topic, malformed)
        return True

    async def _read(self) -> list[tuple[LogRecord, str]]:
        """Remember what the topic holds, of every group that there ever was; return what is invalid."""
        malformed: list[tuple[LogRecord, str]] = []
        async with aclosing(self.log.read_from({})) as chunks:
            async for records in chunks:
                for record in records:
                    try:
                        self._remember(decode_checkpoint(record.key, record.value, record.headers))
                    except MalformedCheckpointError as error:
                        malformed.append((record, error.reason))
                await self._clock.sleep(0)  # there may be a million
        return malformed

    def _remember(self, checkpoint: Checkpoint) -> None:
        # The newest come last, of groups and of each one's: see `_follow`.
        last = self._last.pop(checkpoint.group, {})
        last.pop(checkpoint.remote, None)
        last[checkpoint.remote] = checkpoint
        self._last[checkpoint.group] = last
        self._unwritten.discard((checkpoint.group, checkpoint.remote))

    # A round.

    async def emit_once(self, groups: Collection[str]) -> Round:
        """Translate what *groups* have committed and write the checkpoints that are due."""
        begun, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        self._follow(frozenset(groups))
        if self.log.is_look_due:
            await self.log.look()
        await self._own_moves.describe()
        committed_by, places = await self._find_places(groups)
        self._follow_places(places)
        back = {(place.group, place.source): place.committed.offset for place in places if place.is_back}
        await self._own_moves.take(back, committed_by)
        ranges = await self._ranges({place.remote for place in places if place.translated})
        due: list[Checkpoint] = []
        standing: dict[tuple[str, TopicPartition], Checkpoint] = {}
        for place in places:
            held = ranges.get(place.remote)
            if place.translated is not None and held is not None:
                checkpoint, is_due = self._judge(place, place.translated, held)
                standing[place.group, place.remote] = checkpoint
                due += [checkpoint] if is_due else []
        if due:
            await self.log.append(_records(due, wall_ms))
            for checkpoint in due:
                self._remember(checkpoint)
            took_ms = (self._clock.monotonic() - begun) * 1000
            for it in due:
                self._latencies.note(it.group, it.remote, round(took_ms))
            self._events.emit(CheckpointsWritten(self._config.flow, len({it.group for it in due}), len(due), took_ms))
        return self._round(places, ranges, standing)

    def _follow(self, groups: frozenset[str]) -> None:
        """Forget most of what is known of all groups but these: many programs read under a new name each time."""
        self._latencies.follow(groups)
        self._source.keep(groups)
        for group in self._refused - groups:
            self._refused.discard(group)
            self._reach.answered((), _step_of(group))
        gone = [group for group in self._last if group not in groups]
        for group in gone[:-_GONE]:
            self._unwritten -= {(group, remote) for remote in self._last.pop(group)}

    def _follow_places(self, places: Iterable[_Place]) -> None:
        """Forget most of what is known of partitions that a group does not read any more: topics come and go, too."""
        read: dict[str, set[TopicPartition]] = {}
        for place in places:
            if len(self._last.get(place.group, ())) > _GONE:
                read.setdefault(place.group, set()).add(place.remote)
        for group, remotes in read.items():
            gone = [remote for remote in self._last[group] if remote not in remotes]
            for remote in gone[:-_GONE]:
                del self._last[group][remote]
                self._unwritten.discard((group, remote))

    def note_settled(self, found: Round, groups: Collection[str]) -> None:
        """Record that the target is up to date with what the round *found* of *groups*."""
        for group in groups:
            self._own_moves.settle(group, found.back.get(group, {}))

    def _judge(self, place: _Place, translated: Translated, held: LogRange) -> tuple[Checkpoint, bool]:
        """Return the new last checkpoint, and whether it must be written."""
        last = self._last.get(place.group, {}).get(place.remote)
        new = Checkpoint(
            place.group,
            place.remote,
            place.committed.offset,
            min(translated.offset, held.end),
            place.committed.metadata,
            place.topic_id,
        )
        emission = judge_checkpoint(
            last, new, end=held.end, is_exact=translated.is_exact, knows_history=self._knows_history
        )
        if emission is Emission.HELD_BACK and last is not None:
            return last, False
        return new, emission.is_due or (place.group, place.remote) in self._unwritten

    async def _contents(self) -> Sequence[LogRecord]:
        """Return the last checkpoints, except those beyond the current end of the target's log."""
        last = [checkpoint for by_remote in self._last.values() for checkpoint in by_remote.values()]
        ends = await self.ends_of({checkpoint.remote for checkpoint in last})
        true = [
            it
            for it in last
            if it.downstream <= ends.get(it.remote, -1)
            and not is_other_topic(it.topic_id, self._target.topic_id(it.remote.topic))
        ]
        self._unwritten = {(it.group, it.remote) for it in last} - {(it.group, it.remote) for it in true}
        return _records(true, self._clock.wall_ms())

    # Reading.

    async def _find_places(
        self, groups: Collection[str]
    ) -> tuple[Mapping[str, Offsets | BrokerAnsweredError], list[_Place]]:
        """
        Read and translate what *groups* have committed, as far as all of it is of the topics that there are.

        A topic of the source may be deleted and created again between two of these steps, and a remote one after its
        translations were made. So ids are asked for before offsets are read, and after they are translated.
        """
        while True:
            asked = self._read_topics
            before = await _ids(self._at_source, asked)
            committed_by = await self._source.committed(groups)
            self._read_topics = frozenset(filter(self._is_of_flow, _topics_in(committed_by.values())))
            if self._read_topics <= asked:
                break
        places = await self._places_of(committed_by)
        after = await _ids(self._at_source, self._read_topics)
        there = await _ids(self._target, {place.remote.topic for place in places})
        return committed_by, [self._checked(place, (before, after), there) for place in places]

    def _is_of_flow(self, topic: str) -> bool:
        """Whether offsets of a topic may be translated; of one that a custom class does not expect, `_place` tells."""
        with suppress(CustomClassError):
            return not self._policy.is_internal_topic(topic) and (
                self._filter.takes_topic(topic) or self._is_from_target(topic)
            )
        return False

    def _checked(self, place: _Place, here: tuple[_Ids, _Ids], there: _Ids) -> _Place:
        """Return *place* with the id of its topic at the target, untranslated if any topic is another one by now."""
        source, remote_id = place.source, there.get(place.remote.topic)
        if place.is_back:
            origin = self._back.source_of(source)
            copied = self._back.topics_of(origin) if origin is not None else CopiedTopics()
            source_id, topic_id = copied.remote_id, copied.source_id
        else:
            copied = self._forward.topics_of(source)
            source_id, topic_id = copied.source_id, copied.remote_id
        is_other = is_other_topic(topic_id, remote_id) or any(
            is_other_topic(source_id, ids.get(source.topic)) for ids in here
        )
        translation = Untranslated.OTHER_TOPIC if is_other else place.translation
        return attrs.evolve(place, translation=translation, topic_id=topic_id or remote_id)

    async def _places_of(self, committed_by: Mapping[str, Offsets | BrokerAnsweredError]) -> list[_Place]:
        """Translate what groups have committed. A group whose coordinator fails is skipped."""
        places: list[_Place] = []
        unexpected: list[CustomClassError] = []
        await self._reach.done("read where records went", (), self._forward.refresh)
        await self._refresh_back(committed_by.values())
        for group, offsets in sorted(committed_by.items()):
            if isinstance(offsets, BrokerAnsweredError):
                self._refused.add(group)
                self._reach.failed(_step_of(group), offsets, counted_as="read the offsets of groups")
                continue
            if group in self._refused:
                self._refused.discard(group)
                self._reach.answered((), _step_of(group))
            for source, committed in sorted(offsets.items()):
                try:
                    place = self._place(group, source, committed)
                except CustomClassError as error:
                    unexpected.append(error)
                    continue
                if place is not None:
                    places.append(place)
        if unexpected:
            self._reach.failed(_NAMES, unexpected[0])
        else:
            self._reach.answered((), _NAMES)
        return places

    async def _refresh_back(self, offsets_of_groups: Iterable[Offsets | BrokerAnsweredError]) -> None:
        """Refresh the reverse translation if a group reads topics that came from the target."""
        if any(map(self._is_from_target, _topics_in(offsets_of_groups))):
            await self._reach.done("read the way back", [self._config.flow.source], self._back.refresh)

    def _place(self, group: str, source: TopicPartition, committed: CommittedOffset) -> _Place | None:
        """Translate an offset; None if the topic does not belong to this flow. Raise `CustomClassError`."""
        policy, topic, takes = self._policy, source.topic, self._filter.takes_topic
        if policy.is_internal_topic(topic):
            return None
        back = self._at_target(source)
        if not (takes(topic) or (back is not None and takes(back.topic))):
            return None
        remote = TopicPartition(self._name_remote(topic), source.partition) if back is None else back
        translation: Translation
        if back is not None:
            translation = self._back.upstream(source, committed.offset)
        elif committed.metadata == _AT_LOG_START:
            translation = Untranslated.NOT_READ
        else:
            translation = self._forward.downstream(source, committed.offset)
        return _Place(group, source, remote, committed, translation, back is not None)

    def _at_target(self, source: TopicPartition) -> TopicPartition | None:
        """Return the name at the target of a topic-partition that came from there, None for any other."""
        topic = self._topic_at_target(source.topic)
        if topic is None:
            return None
        # The flow that copied it is more reliable than its name: routers rename topics before the policy does.
        return self._back.source_of(source) or TopicPartition(topic, source.partition)

    def _is_from_target(self, topic: str) -> bool:
        """Whether a topic came from the target; of one that a custom policy does not expect, `_place` tells."""
        with suppress(CustomClassError):
            return self._topic_at_target(topic) is not None
        return False

    def _topic_at_target(self, topic: str) -> str | None:
        """Return the name at the target of a topic that came from there, by its name; None for any other."""
        flow, policy = self._config.flow, self._policy
        if keeps_names(policy, flow.source) or policy.topic_source(topic) != flow.target:
            return None
        return policy.upstream_topic(topic)

    async def ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the target's end offsets; partitions that cannot be queried are omitted."""
        return {tp: held.end for tp, held in (await self._ranges(partitions)).items()}

    async def _ranges(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogRange]:
        """Return the start and end offsets of the target's logs; partitions that cannot be queried are omitted."""
        if not partitions:
            return {}
        starts = await self._target.list_offsets(partitions, EARLIEST)
        ends = await self._target.list_offsets(partitions, LATEST)
        ranges = {}
        for tp in partitions:
            start, end = starts[tp], ends[tp]
            if not isinstance(start, BrokerAnsweredError) and not isinstance(end, BrokerAnsweredError):
                ranges[tp] = LogRange(start, end)
        return ranges

    def _round(
        self,
        places: Sequence[_Place],
        ranges: Mapping[TopicPartition, LogRange],
        standing: Mapping[tuple[str, TopicPartition], Checkpoint],
    ) -> Round:
        wanted: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        back: dict[str, dict[TopicPartition, int]] = {}
        views: dict[str, list[GroupOffsetView]] = {}
        for place in places:
            key = (place.group, place.remote)
            checkpoint, held = standing.get(key), ranges.get(place.remote)
            offset = held.clamp(checkpoint.downstream) if checkpoint is not None and held is not None else None
            is_wanted = not place.is_back or (place.group, place.source) in self._own_moves
            if checkpoint is not None and offset is not None and is_wanted:
                is_read = not place.is_back or offset <= checkpoint.downstream
                metadata = checkpoint.metadata if is_read else _AT_LOG_START
                wanted.setdefault(place.group, {})[place.remote] = CommittedOffset(offset, metadata, place.topic_id)
                if place.is_back and place.translated is not None and place.translated.precision is not Precision.END:
                    back.setdefault(place.group, {})[place.source] = place.committed.offset
            view = _viewed(place, offset, held)
            latency = self._latencies.of(place.group, place.remote)
            views.setdefault(place.group, []).append(attrs.evolve(view, latency=latency))
        is_ready = all(place.translation is not Untranslated.NOT_READY for place in places)
        return Round(wanted, {group: tuple(found) for group, found in views.items()}, is_ready, back)


def _step_of(group: str) -> str:
    return f"read the offsets of group {group}"


def _records(checkpoints: Iterable[Checkpoint], wall_ms: int) -> list[LogRecord]:
    return [
        LogRecord(*encode_checkpoint(one), checkpoint_headers(one), partition=_PARTITION, timestamp_ms=wall_ms)
        for one in checkpoints
    ]


def _topics_in(offsets_of_groups: Iterable[Offsets | BrokerAnsweredError]) -> set[str]:
    return {tp.topic for offsets in offsets_of_groups if not isinstance(offsets, BrokerAnsweredError) for tp in offsets}


async def _ids(cluster: Cluster, topics: Collection[str]) -> _Ids:
    """Return the ids that *topics* have now."""
    if topics:
        await cluster.refresh_metadata(topics)
    return {topic: cluster.topic_id(topic) for topic in topics}


def _viewed(place: _Place, offset: int | None, held: LogRange | None) -> GroupOffsetView:
    why, translated = "" if held else _NO_RANGE, place.translated
    if isinstance(place.translation, Untranslated):
        why = f"{_BACK}: {place.translation.value}" if place.is_back else place.translation.value
    return GroupOffsetView(
        source=place.source,
        remote=place.remote,
        upstream=place.committed.offset,
        downstream=offset,
        distance=held.end - offset if held is not None and offset is not None else None,
        is_exact=translated is not None and translated.is_exact,
        behind=translated.behind if translated is not None and translated.offset == offset else None,
        why=why,
        is_back=place.is_back,
    )
