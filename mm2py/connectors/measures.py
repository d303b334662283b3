"""
A flow's measurements since the daemon started: the figures in its view and its metrics.

Epochs' outcomes go in here; views come out. It outlives restarts of the flow's groups and a reload of its settings, so
that counters never go back. The arithmetic is in `core.windows` and `core.lag`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import attrs

from mm2py.clock import Clock
from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.connectors.partition_measures import CachedView, PartitionMeasures
from mm2py.connectors.rounds import Rounds
from mm2py.core.lag import Retention, least_lag
from mm2py.core.level import seconds_until_level
from mm2py.core.source.progress import PartitionState
from mm2py.core.source.stalls import why_it_waits
from mm2py.core.source.states import PartitionStates
from mm2py.model.behind import Behind
from mm2py.model.counters import Counters, Effort
from mm2py.model.epoch import (
    EpochOutcome,
    EpochPlan,
    Histogram,
    PartitionPlan,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.state import (
    CopiedHeartbeatsView,
    EpochView,
    FlowView,
    PartitionStage,
    PartitionView,
    TaskView,
)
from mm2py.model.topic import MissingTopic, Unmatched, have_records_waiting


#: How far back quantiles look.
_WINDOW_S = 60.0
#: Maximum age of a view of an idle partition whose rates are not 0 yet.
_VIEW_KEPT_S = 5.0
#: How many such views are made again at once. With more partitions than that the age grows with their number.
_RENEWALS = 1_000
#: The stages of partitions that are to be level some time: neither paused nor in need of an operator.
_COPIED = frozenset({PartitionStage.COPYING, PartitionStage.BACKING_OFF})
#: Number of epochs of each copy task to show.
_EPOCHS = 30


@attrs.frozen
class _Sample:
    """The measurements of one epoch."""

    at: float
    latency: Histogram
    age: Histogram


@attrs.frozen(eq=False)
class _Rest:
    """When an epoch of *plan* ended that told of none of its partitions but of the *others*: nothing is left to copy of
    them. Of each of very many, that is recorded when it matters.
    """

    plan: EpochPlan
    others: Collection[TopicPartition]
    at: float

    def has(self, source: TopicPartition) -> bool:
        return source in self.plan.by_source and source not in self.others


@attrs.define
class TaskMeasures(Effort):
    """One copy task since the daemon started; names and units are those of `TaskView`."""

    lost_epochs: int = 0
    rss_bytes: int = 0
    elapsed_s: float = 0.0
    boundary_s: float = 0.0
    epochs_ended: int = 0
    records: int = 0
    bytes: int = 0
    epochs: deque[EpochView] = attrs.field(factory=lambda: deque(maxlen=_EPOCHS))

    def account(self, plan: EpochPlan, outcome: EpochOutcome, took_s: float, wall_ms: int) -> None:
        """Add an epoch's outcome."""
        boundary_s = max(0.0, took_s - outcome.elapsed_s)
        self.add(outcome)
        self.rss_bytes = outcome.rss_bytes
        self.elapsed_s += outcome.elapsed_s
        self.boundary_s += boundary_s
        self.epochs_ended += 1
        self.records += outcome.records
        self.bytes += outcome.bytes
        self.epochs.append(
            EpochView(
                epoch=plan.epoch,
                ended_ms=wall_ms,
                records=outcome.records,
                bytes=outcome.bytes,
                elapsed_s=outcome.elapsed_s,
                boundary_ms=boundary_s * 1000,
                partitions=len(plan.partitions),
            )
        )

    def lose(self, plan: EpochPlan, cause: str, wall_ms: int) -> None:
        """Record a lost epoch."""
        self.lost_epochs += 1
        self.epochs.append(EpochView(plan.epoch, wall_ms, 0, 0, 0.0, 0.0, len(plan.partitions), cause))

    def show(self, view: TaskView) -> TaskView:
        """Add the totals to a copy task's *view*."""
        sums = {field.name: getattr(self, field.name) for field in attrs.fields(TaskMeasures)}
        return attrs.evolve(view, **sums | {"epochs": tuple(self.epochs)})


@attrs.define
class _Totals(Counters):
    """A flow's totals since the daemon started; names and units are those of `FlowView`."""

    latency: Histogram = attrs.field(factory=Histogram)
    age: Histogram = attrs.field(factory=Histogram)
    throttled_ms: int = 0

    def account(self, outcome: EpochOutcome) -> None:
        if outcome.latency.count:
            self.latency = self.latency.plus(outcome.latency)
        if outcome.age.count:
            self.age = self.age.plus(outcome.age)
        self.throttled_ms += outcome.throttled_ms
        for partition in outcome.partitions:
            self.add(partition)


class FlowMeasures:
    """One flow since the daemon started. Used from the event loop's thread only."""

    def __init__(self, clock: Clock) -> None:
        #: Retention of source topics, as far as known.
        self.retention: Mapping[str, Retention] = {}
        #: Mirrored topics of which the target lacks partitions.
        self.missing_topics: tuple[MissingTopic, ...] = ()
        #: What is selected, but not there.
        self.unmatched: Unmatched | None = None
        #: Source topics with heartbeats.
        self.heartbeats: frozenset[str] = frozenset()
        #: Writes of positions, and changes of who runs what of the flow.
        self.commits, self.rebalances = Rounds(clock), Rounds(clock)
        #: What its checkpoint connector measures.
        self.checkpoints = CheckpointLatencies(clock)
        #: How long a lag is valid; then the source must be queried again, or it is unknown.
        self.lag_holds_s = math.inf
        #: Whether the source does not answer right now: nothing that it reported counts as its end any more.
        self.is_source_away: Callable[[], bool] = lambda: False
        self._clock = clock
        self._partitions: dict[TopicPartition, PartitionMeasures] = {}
        #: Those that are behind, or were lately.
        self._lagging: dict[TopicPartition, PartitionMeasures] = {}
        self._tasks: dict[int, TaskMeasures] = {}
        #: The last epoch of each copy task that told which of its partitions are at rest.
        self._rests: dict[int, _Rest] = {}
        self._window: deque[_Sample] = deque()
        self._totals = _Totals()
        #: How many views may still be made again that are merely old.
        self._renewals = _RENEWALS

    # Epochs.

    def account(self, plan: EpochPlan, outcome: EpochOutcome, took_s: float) -> None:
        """Add an epoch's outcome, as a whole and for each of the partitions that it tells of."""
        now = self._clock.monotonic()
        for partition in outcome.partitions:
            self.know(plan.by_source[partition.source])
            # Records of a lost epoch of this daemon count too, once a resume has found them.
            self._totals.records += self._settled(partition.source).account(partition, now) - partition.records
        self._task(plan.task).account(plan, outcome, took_s, self._clock.wall_ms())
        self._totals.account(outcome)
        if outcome.records:
            self._window.append(_Sample(now, outcome.latency, outcome.age))
            self._trim(now)

    def look(self, state: PartitionState, *, at: float | None = None, is_copied: bool = True) -> None:
        """Record a partition's lag, which the source reported *at* that time or later, just now by default; unless it
        *is_copied*, no epoch has it.
        """
        at = self._clock.monotonic() if at is None else at
        measured = self._settled(state.source)
        measured.look(state.lag, state.log.high_watermark, at, is_copied=is_copied)
        if not measured.descent.is_over:
            self._lagging[state.source] = measured
        elif self._lagging:
            self._lagging.pop(state.source, None)

    def were_behind(self, sources: Container[TopicPartition]) -> list[TopicPartition]:
        """Return those of *sources* that are behind, or were lately: each look at them counts."""
        return [source for source in self._lagging if source in sources]

    def rest(self, plan: EpochPlan, others: Collection[TopicPartition], *, at: float | None = None) -> None:
        """Record that nothing was left to copy at that time, still, of the partitions of *plan* but of *others*."""
        before = self._rests.get(plan.task)
        if before is not None:
            is_same = before.plan.partitions is plan.partitions
            gone = set() if is_same else before.plan.by_source.keys() - plan.by_source.keys()
            for source in (*others, *gone):
                self._settled(source)
        self._rests[plan.task] = _Rest(plan, others, self._clock.monotonic() if at is None else at)

    def at_rest(self, held: Mapping[int, AbstractSet[TopicPartition]], within_s: float) -> set[TopicPartition]:
        """Return of which partitions, of those *held* by copy tasks, was known lately that nothing is left to copy."""
        found: set[TopicPartition] = set()
        for task, rest in self._rests.items():
            if task in held and self._clock.monotonic() - rest.at <= within_s:
                found |= (rest.plan.by_source.keys() & held[task]) - set(rest.others)
        return found

    def asked_s(self, source: TopicPartition) -> float:
        """Return the age of a partition's end offset at the source."""
        return self._settled(source).asked_s(self._clock.monotonic())

    def lose(self, plan: EpochPlan, cause: str) -> None:
        """Record a lost epoch."""
        for planned in plan.partitions:
            self.know(planned)
        self._task(plan.task).lose(plan, cause, self._clock.wall_ms())

    def keep(self, mirrored: Collection[TopicPartition]) -> None:
        """Forget all partitions but those *mirrored*, by whatever node: topics come and go under ever new names."""
        gone = self._partitions.keys() - mirrored
        for source in gone:
            del self._partitions[source]
            self._lagging.pop(source, None)

    def know(self, planned: PartitionPlan) -> None:
        """Record that an epoch had a partition whose end at the target was known."""
        if not planned.is_unsure:
            self._partition(planned.source).is_ours = True

    def _settled(self, source: TopicPartition) -> PartitionMeasures:
        """Return the measures of a partition, once it is recorded that it was at rest."""
        measured = self._partition(source)
        for rest in self._rests.values():
            if rest.has(source):
                measured.rest_until(rest.at)
        return measured

    def _partition(self, source: TopicPartition) -> PartitionMeasures:
        found = self._partitions.get(source)
        if found is None:
            found = self._partitions[source] = PartitionMeasures()
        return found

    def _task(self, task: int) -> TaskMeasures:
        return self._tasks.setdefault(task, TaskMeasures())

    # Views.

    @property
    def _lacks_topics(self) -> bool:
        """Whether records of topics wait that are not counted."""
        return have_records_waiting(self.missing_topics)

    def recent(self) -> tuple[Histogram, Histogram]:
        """Return latency and age of the last minute."""
        self._trim(self._clock.monotonic())
        latency, age = Histogram(), Histogram()
        for sample in self._window:
            latency, age = latency.plus(sample.latency), age.plus(sample.age)
        return latency, age

    def _trim(self, now: float) -> None:
        while self._window and self._window[0].at < now - _WINDOW_S:
            self._window.popleft()

    def task(self, view: TaskView) -> TaskView:
        """Add the totals to a copy task's *view*."""
        found = self._tasks.get(view.task)
        return view if found is None else found.show(view)

    def flow(self, view: FlowView) -> FlowView:
        """Add the totals to a flow's *view*."""
        latency, age = self.recent()
        losses = [it.seconds_until_loss for it in view.partitions if it.seconds_until_loss is not None]
        totals = {field.name: getattr(self._totals, field.name) for field in attrs.fields(_Totals)}
        is_listed = not view.unlisted and not self._lacks_topics
        unlisted = [] if is_listed else [Behind()]
        return attrs.evolve(
            view,
            **totals,
            latency_p50_ms=latency.quantile_ms(0.5),
            latency_p99_ms=latency.quantile_ms(0.99),
            age_p50_ms=age.quantile_ms(0.5),
            **attrs.asdict(Behind.together([*map(Behind.of, view.partitions), *unlisted])),
            seconds_until_loss=min(losses, default=None),
            seconds_until_level=self._seconds_until_level(view.partitions) if is_listed else None,
            missing_partitions=sum(it.partitions for it in self.missing_topics),
            missing_topics=self.missing_topics,
            unmatched=self.unmatched,
            copied_heartbeats=self._copied_heartbeats(view),
            commits=self.commits.view(),
        )

    def lag(self, partitions: Collection[TopicPartition], states: PartitionStates, unbegun: int) -> Behind:
        """Return how far behind a flow's view of *partitions* is, some *unbegun*; of very many, most are at rest and
        need no look.
        """
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        each = [Behind()] if unbegun or self._lacks_topics else []
        for source in states.moving if len(states.moving) < len(partitions) else partitions:
            if source not in states.moving or source not in partitions:
                continue
            state, measured = states[source], self._settled(source)
            waited_s, _ = measured.waiting(state, None, now, wall_ms)
            each.append(self._behind(state, waited_s, is_told=self._is_told(measured, now)))
        # The first one will do: nothing is left to copy of it.
        still = next((it for it in partitions if it in states and it not in states.moving), None)
        if still is not None:
            each.append(Behind(0, 0.0) if self._is_told(self._settled(still), now) else Behind())
        return Behind.together(each)

    def _is_told(self, measured: PartitionMeasures, now: float) -> bool:
        """Whether the source has reported a partition's end lately, and answers."""
        return measured.asked_s(now) <= self.lag_holds_s and not self.is_source_away()

    def _behind(self, state: PartitionState, waited_s: float | None, *, is_told: bool) -> Behind:
        """Return how far a partition is behind, the oldest record of which has *waited_s*; see `Behind`."""
        if state.lag is None or not is_told:
            return Behind.at_least(least_lag(state), waited_s)
        return Behind(state.lag, waited_s)

    def _seconds_until_level(self, partitions: Sequence[PartitionView]) -> float | None:
        """Return when all of *partitions* will be level; None if that is unknown, or if what is left of one rests."""
        copied = [it for it in partitions if it.stage in _COPIED]
        is_held = any(it.seconds_until_level is None and (it.is_paused or it.stage not in _COPIED) for it in partitions)
        if not copied or is_held or any(not Behind.of(it).is_known for it in copied):
            return None
        if not any(it.lag for it in copied) or not self._lagging:
            return 0.0
        # Of partitions that have copied nothing yet, records are taken to be as large as the others'.
        record_bytes = self._totals.bytes / self._totals.records if self._totals.records and self._totals.bytes else 1.0
        found = [it for it in map(self._lagging.get, (it.source for it in copied)) if it is not None]
        if any(it.descent.is_at_rest and it.descent.left for it in found):
            return None
        each = (it.weighed(record_bytes) for it in found)
        return seconds_until_level(each, self._clock.monotonic())

    def _copied_heartbeats(self, view: FlowView) -> tuple[CopiedHeartbeatsView, ...]:
        newest: dict[str, int] = {}
        for it in view.partitions if self.heartbeats else ():
            if it.source.topic in self.heartbeats and it.last_timestamp_ms is not None:
                newest[it.remote_topic] = max(it.last_timestamp_ms, newest.get(it.remote_topic, 0))
        return tuple(CopiedHeartbeatsView(topic, last_ms) for topic, last_ms in sorted(newest.items()))

    def partitions(
        self, states: Iterable[PartitionState], task_of: Mapping[TopicPartition, int]
    ) -> tuple[PartitionView, ...]:
        """Return a view of each of *states*."""
        now, wall_ms = self._clock.monotonic(), self._clock.wall_ms()
        self._renewals = _RENEWALS
        return tuple([self._viewed(state, task_of.get(state.source), now, wall_ms) for state in states])

    def _viewed(self, state: PartitionState, task: int | None, now: float, wall_ms: int) -> PartitionView:
        measured = self._partition(state.source)
        if not (is_told := self._is_told(measured, now)):
            is_told = self._is_told(self._settled(state.source), now)
        cached, retention = measured.cached, self.retention.get(state.source.topic)
        if cached is not None and cached.is_of(state, task, retention, is_told=is_told):
            if now < cached.holds_until or self._renewals <= 0:
                return cached.view
            self._renewals -= 1
        self._settled(state.source)
        waited_s, loss_s = measured.waiting(state, retention, now, wall_ms)
        behind = self._behind(state, waited_s, is_told=is_told)
        view = _view_of(state, measured, behind, now, task=task, loss_s=loss_s)
        # Times of a waiting or lagging partition advance every second.
        is_still = state.stage is PartitionStage.COPYING and state.lag == 0
        if is_still:
            is_at_rest = measured.is_at_rest(state.log.high_watermark, retention, now)
            holds_s = _VIEW_KEPT_S * max(1.0, len(self._partitions) / _RENEWALS)
            until = math.inf if is_at_rest else now + holds_s
            measured.cached = CachedView(view, state, task, retention, is_told, until)
        else:
            measured.cached = None
        return view


def pause_left_s(state: PartitionState, now: float) -> float | None:
    """Return when a partition is retried; None if that does not depend on time."""
    return None if math.isinf(state.retry_at) else max(0.0, state.retry_at - now)


def _view_of(
    state: PartitionState,
    measured: PartitionMeasures,
    behind: Behind,
    now: float,
    *,
    task: int | None,
    loss_s: float | None,
) -> PartitionView:
    is_copying = state.stage is PartitionStage.COPYING
    reading = measured.window.read(now)
    end_offset, last_ms = state.log.high_watermark, state.last_timestamp_ms
    return PartitionView(
        source=state.source,
        remote_topic=state.remote_topic,
        task=task,
        stage=state.stage,
        position=state.position,
        downstream=state.downstream,
        lag=behind.lag,
        records=measured.records,
        bytes=measured.bytes,
        bytes_per_s=state.bytes_per_s or 0.0,
        retry_in_s=None if is_copying else pause_left_s(state, now),
        failure=why_it_waits(state),
        end_offset=end_offset if end_offset >= 0 and behind.is_known else None,
        log_start_offset=state.log.start if state.log.start >= 0 else None,
        record_rate=reading.record_rate if is_copying else 0.0,
        byte_rate=reading.byte_rate if is_copying else 0.0,
        age=reading.age,
        latency=reading.latency,
        lag_s=behind.lag_s,
        lag_is_least=behind.lag_is_least,
        lag_s_is_least=behind.lag_s_is_least,
        seconds_until_loss=None if behind.lag is None else loss_s,
        seconds_until_level=_until_level(state, measured, behind, now),
        last_timestamp_ms=last_ms if last_ms >= 0 else None,
    )


def _until_level(state: PartitionState, measured: PartitionMeasures, behind: Behind, now: float) -> float | None:
    """Return when nothing will be left; None if that is unknown, or if what is left is not being copied."""
    if not behind.is_known:
        return None
    if state.stage not in _COPIED or measured.descent.is_at_rest:
        return None if behind.lag else 0.0
    return seconds_until_level([measured.weighed(1.0)], now) if measured.descent.left else 0.0


def paused(view: PartitionView, *, is_held: bool) -> PartitionView:
    """Show a partition as paused; while a copy task holds it, its epoch has not ended yet."""
    stage = view.stage if is_held else PartitionStage.PAUSED
    level_s = 0.0 if view.lag == 0 else None
    view = attrs.evolve(
        view, stage=stage, is_paused=True, retry_in_s=None, seconds_until_level=level_s, bytes_per_s=0.0
    )
    return view if is_held else attrs.evolve(view, record_rate=0.0, byte_rate=0.0)
