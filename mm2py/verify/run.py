"""
Does the target hold what the source does? Looking at both clusters, comparing on Spark, and saying what was found.

Nothing is written to either cluster, and no mirror needs to run; one that does is not in the way (`verify.verdicts`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import ClassVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.plugins import policy_of, topic_filter_of, transforms_of
from mm2py.core.offsets.translation import Translated, Translation
from mm2py.core.topics.topology import Copied, select
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.positions_topic import PositionsTopic
from mm2py.model.topic import TopicDescription, TopicsView, is_other_topic
from mm2py.pipeline.copy.refusals import failure_of
from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.selection import near_misses
from mm2py.verify.job import VerifyRunner
from mm2py.verify.values import Equality, PartitionReport, Slice, SliceOutcome, VerifyPlan, VerifyReport
from mm2py.verify.verdicts import (
    LEAST_SPAN,
    SAMPLE_SPAN,
    PartitionBounds,
    Whole,
    cut,
    judge,
    needs_one_piece,
    requested,
    sampled,
    span_for,
    whole_of,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topic_log import TopicLog
from mm2py.wire.topics.admin import Admin


#: No more Spark tasks than that for each slot: each costs some milliseconds.
_TASKS_PER_SLOT = 16
_TRANSFORMED = "a transform changes its records on their way"
#: Policies that leave what was copied of a topic in the remote topic when it is created again.
_APPENDING = frozenset({"earliest", "latest"})
_PLAIN_NAME = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


@attrs.define(eq=False)
class NothingToVerifyError(Mm2Error):
    """No topic is left to be compared, or one that was named is not there."""

    hint: ClassVar[str] = "--topics takes names and regular expressions, as topics does in the properties file"

    flow: str
    problem: str

    def __str__(self) -> str:
        return f"{self.flow}: {self.problem}"


@attrs.define(eq=False)
class EmptyRangeError(Mm2Error):
    """No partition has a record in the requested range."""

    hint: ClassVar[str] = "correct --from and --to; an offset applies to every partition"

    flow: str
    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.flow}: no partition has offsets in that range; they begin at {self.first} and end at {self.end}"


@attrs.frozen
class Moment:
    """A place in every partition: an upstream offset, or a time in milliseconds since the epoch."""

    offset: int | None = None
    timestamp_ms: int | None = None


@attrs.frozen
class VerifyRequest:
    """What is to be compared; without topics all that the flow mirrors."""

    topics: tuple[str, ...] = ()
    start: Moment | None = None
    end: Moment | None = None
    share: float = 1.0
    seed: int = 0
    ignore_expired: bool = False
    slots: int = 2


@attrs.frozen
class Progress:
    """How far a comparison has come."""

    doing: str
    tasks_done: int = 0
    tasks: int = 0


class Verification:
    """One comparison of a flow."""

    def __init__(
        self,
        settings: FlowSettings,
        request: VerifyRequest,
        runner: VerifyRunner,
        *,
        clock: Clock,
        progress: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self._settings = settings
        self._request = request
        self._runner = runner
        self._clock = clock
        self._progress = progress
        self._translations = Translations(flow_runs=1 << 62, partition_runs=1 << 62)
        self._positions: dict[TopicPartition, Position] = {}
        self._reports: list[PartitionReport] = []
        self._comparing_s = 0.0

    async def run(self) -> VerifyReport:
        """Compare; raise where a cluster does not answer, or nothing is there to be compared."""
        begun = self._clock.monotonic()
        self._progress(Progress("looking at both clusters"))
        looks = await self._look()
        self._check_range(looks)
        wholes = [self._whole(look) for look in looks]
        slices = self._cut(wholes)
        outcomes = await self._compare("comparing", slices)
        again = self._in_one_piece(wholes, slices, outcomes)
        if again:
            outcomes.update(await self._compare("comparing again in one piece", again))
        asked, compared = _offsets(whole.slice for whole in wholes), _offsets(slices)
        for whole in wholes:
            tp = whole.slice.source
            if tp in outcomes:
                share = compared[tp] / asked[tp] if asked[tp] else 1.0
                self._reports.append(
                    judge(whole, outcomes[tp], share=share, ignore_expired=self._request.ignore_expired)
                )
        every = [outcome for some in outcomes.values() for outcome in some]
        return VerifyReport(
            flow=str(self._settings.flow),
            partitions=tuple(sorted(self._reports, key=lambda report: report.source)),
            source_bytes=sum(outcome.source_bytes for outcome in every),
            target_bytes=sum(outcome.target_bytes for outcome in every),
            batches_unopened=sum(outcome.batches_unopened for outcome in every),
            batches_opened=sum(outcome.batches_opened for outcome in every),
            elapsed_s=self._clock.monotonic() - begun,
            comparing_s=self._comparing_s,
            slices=len(slices),
            share=compared.total() / asked.total() if asked.total() else 1.0,
            left_out=sum(whole.slice.source not in outcomes for whole in wholes),
        )

    # Looking.

    async def _look(self) -> list[PartitionBounds]:
        settings = self._settings
        async with Cluster(settings.source, self._clock) as source, Cluster(settings.target, self._clock) as target:
            there = (await Admin(source).list_topics()).topics
            remote = (await Admin(target).list_topics()).topics
            stored = await self._stored(target, remote)
            copied = Copied.of(stored.positions.values(), remote)
            remote_of = self._copied_as_they_are(self._select(there, copied), there)
            self._take_positions(stored, remote, there, remote_of)
            tps = list(self._on_both_sides(remote_of, there, remote))
            # In this order: what the target holds now is at the source before the source's end of a moment later.
            ends = await target.list_offsets({self._remote(tp, remote_of) for tp in tps}, LATEST, reads_committed=True)
            starts = await target.list_offsets({self._remote(tp, remote_of) for tp in tps}, EARLIEST)
            committed = settings.source_connector.limits.reads_committed
            source_ends = await source.list_offsets(tps, LATEST, reads_committed=committed)
            source_starts = await source.list_offsets(tps, EARLIEST)
            asked = [await self._offsets_of(source, tps, at) for at in (self._request.start, self._request.end)]
        looks = []
        for tp in tps:
            other = self._remote(tp, remote_of)
            facts = source_starts[tp], source_ends[tp], starts[other], ends[other]
            refused = next((fact for fact in facts if isinstance(fact, BrokerAnsweredError)), None)
            if refused is not None:
                failure = failure_of(refused, (settings.source, settings.target))
                self._cannot_tell(tp, other, "; ".join(filter(None, (failure.message, failure.hint))))
                continue
            start, end, remote_start, remote_end = (fact for fact in facts if isinstance(fact, int))
            position = self._positions.get(tp)
            ids = there[tp.topic].topic_id, remote[other.topic].topic_id
            look = PartitionBounds(tp, other.topic, start, end, remote_start, remote_end, topic_ids=ids)
            proven = None if position is None else position.next_upstream
            looks.append(attrs.evolve(look, proven=proven, asked_from=asked[0].get(tp), asked_to=asked[1].get(tp)))
        return looks

    def _select(self, there: Mapping[str, TopicDescription], copied: Copied) -> Mapping[str, str]:
        """Choose the topics, with their remote ones; of those that the flow refuses to mirror, report why."""
        settings, wanted = self._settings, self._request.topics
        transforms = transforms_of(settings.source_connector)
        for name in wanted:
            if _PLAIN_NAME.issuperset(name) and name not in there:
                near = near_misses([name], there)
                meant = f"; did you mean {', '.join(near)}?" if near else ""
                raise NothingToVerifyError(
                    str(settings.flow),
                    f"cluster {settings.flow.source} has no topic {name}, or we may not see it{meant}",
                )
        selected = select(
            TopicsView(there).partition_counts(),
            settings.flow,
            policy_of(settings.source_connector),
            DefaultTopicFilter.of(wanted) if wanted else topic_filter_of(settings.source_connector),
            heartbeats_replication_enabled=settings.source_connector.topics.heartbeats_enabled and not wanted,
            name_remote=transforms.name_remote,
            name_before=transforms.name_before,
            copied=copied,
        )
        for topic, refused in selected.refused.items():
            for number in there[topic].partitions:
                other = TopicPartition(refused.remote_topic, number)
                why = refused.failure.message if refused.failure is not None else ""
                self._cannot_tell(TopicPartition(topic, number), other, why)
        if not selected.remote_of and not selected.refused:
            raise NothingToVerifyError(str(settings.flow), "it mirrors none of the source's topics that are asked for")
        return selected.remote_of

    def _copied_as_they_are(
        self, remote_of: Mapping[str, str], there: Mapping[str, TopicDescription]
    ) -> Mapping[str, str]:
        """Leave out the topics of which the target is not meant to hold what the source does."""
        transforms = transforms_of(self._settings.source_connector)
        for topic, remote_topic in remote_of.items():
            if transforms.task_of(topic) is not None:
                for number in there[topic].partitions:
                    tp, other = TopicPartition(topic, number), TopicPartition(remote_topic, number)
                    self._cannot_tell(tp, other, _TRANSFORMED)
        return {topic: remote for topic, remote in remote_of.items() if transforms.task_of(topic) is None}

    async def _stored(self, target: Cluster, remote: Mapping[str, TopicDescription]) -> PositionsTopic:
        """Read the flow's positions and offset translations."""
        settings = self._settings
        stored = PositionsTopic(settings.flow.source, settings.source_connector.name)
        if settings.source_connector.offset_storage.topic in remote:
            for record in await TopicLog(target, settings.source_connector.offset_storage.topic).read_all():
                stored.take(record)
        return stored

    def _take_positions(
        self,
        stored: PositionsTopic,
        remote: Mapping[str, TopicDescription],
        there: Mapping[str, TopicDescription],
        remote_of: Mapping[str, str],
    ) -> None:
        """Take over what was stored of the topics as they are now."""
        self._positions = stored.positions
        for tp, position in list(self._positions.items()):
            topic, copy = there.get(tp.topic), remote.get(remote_of.get(tp.topic, ""))
            is_other = topic is None or is_other_topic(position.topic_id, topic.topic_id)
            if is_other or (copy is not None and is_other_topic(position.remote_topic_id, copy.topic_id)):
                del self._positions[tp]
        self._translations.load(stored.chunks.values())
        self._translations.adopt(
            self._positions, {tp: remote_of[tp.topic] for tp in self._positions if tp.topic in remote_of}
        )

    def _on_both_sides(
        self,
        remote_of: Mapping[str, str],
        there: Mapping[str, TopicDescription],
        remote: Mapping[str, TopicDescription],
    ) -> Collection[TopicPartition]:
        """Return the partitions that both clusters have; the others cannot be compared."""
        found, target = [], self._settings.flow.target
        for topic, remote_topic in remote_of.items():
            copy = remote.get(remote_topic)
            for number in there[topic].partitions:
                tp, other = TopicPartition(topic, number), TopicPartition(remote_topic, number)
                if copy is None:
                    self._cannot_tell(tp, other, f"cluster {target} has no topic {remote_topic}, or we may not see it")
                elif number not in copy.partitions:
                    self._cannot_tell(tp, other, f"topic {remote_topic} has only {len(copy.partitions)} partitions")
                else:
                    found.append(tp)
        return found

    def _cannot_tell(self, tp: TopicPartition, other: TopicPartition, reason: str) -> None:
        self._reports.append(PartitionReport(tp, other, Equality.CANNOT_TELL, reasons=(reason,), share=0.0))

    @staticmethod
    def _remote(tp: TopicPartition, remote_of: Mapping[str, str]) -> TopicPartition:
        return TopicPartition(remote_of[tp.topic], tp.partition)

    @staticmethod
    async def _offsets_of(
        source: Cluster, tps: Collection[TopicPartition], moment: Moment | None
    ) -> Mapping[TopicPartition, int]:
        """Return the upstream offsets of a moment; partitions without a record at or after it are omitted."""
        if moment is None:
            return {}
        if moment.offset is not None or moment.timestamp_ms is None:
            return dict.fromkeys(tps, moment.offset or 0)
        found = await source.list_offsets(tps, moment.timestamp_ms)
        ends = await source.list_offsets([tp for tp, offset in found.items() if offset == -1], LATEST)
        return {tp: offset for tp, offset in {**found, **ends}.items() if isinstance(offset, int)}

    # Planning.

    def _check_range(self, looks: Sequence[PartitionBounds]) -> None:
        """
        Refuse a range of offsets that nothing is in: it is mistyped, whereas nothing may have come since a time. What
        could not be looked at may have it, and is not taken for equal.
        """
        moments = self._request.start, self._request.end
        held = [look for look in looks if look.source_start < look.source_end]
        is_by_offset = any(moment is not None and moment.offset is not None for moment in moments)
        if is_by_offset and held and not self._reports and not any(begin < end for begin, end in map(requested, held)):
            first, end = min(look.source_start for look in held), max(look.source_end for look in held)
            raise EmptyRangeError(str(self._settings.flow), first, end)

    def _whole(self, look: PartitionBounds) -> Whole:
        remote = TopicPartition(look.remote_topic, look.source.partition)
        return whole_of(
            look,
            self._downstream(look.source),
            lambda at: _exact(self._translations.upstream(remote, at)),
            is_appended=self._settings.source_connector.broken_history.on_source_recreated in _APPENDING,
        )

    def _downstream(self, source: TopicPartition) -> Callable[[int], int | None]:
        return lambda at: _exact(self._translations.downstream(source, at))

    def _cut(self, wholes: Sequence[Whole]) -> list[Slice]:
        request = self._request
        offsets = sum(whole.slice.offsets for whole in wholes)
        span = span_for(offsets, request.slots)
        is_sample = request.share < 1
        if is_sample:
            span = max(SAMPLE_SPAN, min(span, LEAST_SPAN, int(offsets * request.share) // 4))
        slices = [
            part
            for whole in wholes
            for part in cut(whole, self._downstream(whole.slice.source), span, anywhere=is_sample)
        ]
        slices = [attrs.evolve(part, number=number) for number, part in enumerate(slices)]
        return sampled(slices, request.share, request.seed) if is_sample else slices

    def _in_one_piece(
        self, wholes: Sequence[Whole], slices: Sequence[Slice], outcomes: Mapping[TopicPartition, list[SliceOutcome]]
    ) -> list[Slice]:
        """Return partitions, in one piece, whose slices are inconclusive."""
        if self._request.share < 1:
            return []
        number = len(slices)
        return [
            attrs.evolve(whole.slice, number=number + at)
            for at, whole in enumerate(wholes)
            if needs_one_piece(outcomes.get(whole.slice.source, ()))
        ]

    # Comparing.

    async def _compare(self, doing: str, slices: Sequence[Slice]) -> dict[TopicPartition, list[SliceOutcome]]:
        if not slices:
            return {}
        settings, request = self._settings, self._request
        count = min(len(slices), max(1, request.slots) * _TASKS_PER_SLOT)
        # The longest ones first, so that no slot is left alone with one at the end.
        dealt: list[list[Slice]] = [[] for _ in range(count)]
        for at, part in enumerate(sorted(slices, key=lambda part: -part.offsets)):
            dealt[at % count].append(part)
        plans = [
            VerifyPlan(settings.source, settings.target, tuple(some), settings.source_connector.limits.reads_committed)
            for some in dealt
        ]
        self._progress(Progress("starting Spark"))
        await self._runner.ready()
        self._progress(Progress(doing, 0, count))
        begun = self._clock.monotonic()
        found = await self._runner.run(
            str(settings.flow), plans, lambda done: self._progress(Progress(doing, done, count))
        )
        self._comparing_s += self._clock.monotonic() - begun
        by_number = {outcome.number: outcome for outcome in found}
        outcomes: dict[TopicPartition, list[SliceOutcome]] = {}
        for part in slices:
            outcomes.setdefault(part.source, []).append(by_number[part.number])
        return outcomes


def _exact(translation: Translation) -> int | None:
    return translation.offset if isinstance(translation, Translated) and translation.is_exact else None


def _offsets(slices: Iterable[Slice]) -> Counter[TopicPartition]:
    total: Counter[TopicPartition] = Counter()
    for part in slices:
        total[part.source] += part.offsets
    return total
