"""What a flow measures: counts that never go back, lag in time, and what copy tasks took."""

from __future__ import annotations

import attrs
import pytest

from mm2py.connectors import measures
from mm2py.connectors.measures import FlowMeasures, paused
from mm2py.core.lag import Retention
from mm2py.core.source.progress import PartitionState
from mm2py.core.source.states import PartitionStates
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    HISTOGRAM_BOUNDS_MS,
    RECREATED,
    CopyLimits,
    Ended,
    EpochOutcome,
    EpochPlan,
    Histogram,
    LogOffsets,
    MeasuredTime,
    PartitionOutcome,
)
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.state import (
    CopiedHeartbeatsView,
    FlowState,
    FlowView,
    PartitionStage,
    PartitionView,
    TaskState,
    TaskView,
    TimesView,
)
from mm2py.model.topic import MissingTopic
from tests.support.clocks import ManualClock


FLOW = Flow("A", "B")
SOURCE = TopicPartition("t", 0)
END = ClusterEndpoint("A", ("127.0.0.1:1",))
STATE = PartitionState(SOURCE, "A.t", 100, 99, is_unsure=False, log=LogOffsets(high_watermark=100))


class MeasuresRig:
    """A flow's measures, and the state of its one partition."""

    def __init__(self, state: PartitionState = STATE) -> None:
        self.clock = ManualClock(now_s=1_000.0)
        self.measures = FlowMeasures(self.clock)
        self.state = state
        self.epoch = 0

    def plan(self, *, is_unsure: bool = False) -> EpochPlan:
        planned = attrs.evolve(self.state, is_unsure=is_unsure).plan
        return EpochPlan(FLOW, 0, self.epoch, END, END, (planned,), CopyLimits(), epoch_ms=5_000, drain_ms=5_000)

    def run(self, records: int = 0, *, plan: EpochPlan | None = None, **facts: object) -> None:
        """End an epoch of five seconds that copied *records*."""
        self.clock.advance(5.0)
        outcome = PartitionOutcome(
            SOURCE, self.state.position + records, 0, is_unsure=False, records=records, bytes=records * 10
        )
        whole = EpochOutcome(
            FLOW, 0, self.epoch, (attrs.evolve(outcome, **facts),), elapsed_s=4.9, cpu_s=0.25, rss_bytes=77,
            fetches=3, produces=2, retries=1, throttled_ms=40,
        )  # fmt: skip
        self.measures.account(plan or self.plan(), whole, 5.0)
        position = self.state.position + records
        end = self.state.log.high_watermark
        log = attrs.evolve(self.state.log, high_watermark=max(position, end) if end >= 0 else end)
        self.state = attrs.evolve(self.state, position=position, log=log)
        self.measures.look(self.state)
        self.epoch += 1

    def rest(self, records: int) -> None:
        """Let five seconds pass in which nothing is copied and *records* are produced."""
        self.clock.advance(5.0)
        log = attrs.evolve(self.state.log, high_watermark=self.state.log.high_watermark + records)
        self.state = attrs.evolve(self.state, log=log)
        self.measures.look(self.state, is_copied=False)

    def partition(self) -> PartitionView:
        (view,) = self.measures.partitions([self.state], {SOURCE: 0})
        return view

    def task(self) -> TaskView:
        return self.measures.task(TaskView(0, TaskState.RUNNING, self.epoch, 1))

    def flow(self) -> FlowView:
        view = FlowView(FLOW, FlowState.RUNNING, partitions=(self.partition(),))
        return self.measures.flow(view)


def test_counts_add_up_over_restarts() -> None:
    """Counts of a partition and of its flow go on although the group restarts and its states begin at 0."""
    rig = MeasuresRig()
    rig.run(30)
    rig.state = attrs.evolve(STATE, records=0)  # the next life of the group
    rig.run(12)

    assert (rig.partition().records, rig.partition().bytes) == (42, 420)
    assert (rig.flow().records, rig.flow().bytes) == (42, 420)
    assert (rig.task().records, rig.task().bytes) == (42, 420)


def test_the_lag_of_what_is_not_there_is_unknown() -> None:
    """Nobody knows how much waits of a topic that the target lacks, or that the source hides; the rest is the least."""
    rig = MeasuresRig()
    rig.rest(7)
    lacking = MissingTopic("new", "A.new", 0, 1)
    states, seen = PartitionStates(), []
    states[SOURCE] = rig.state
    for missing in (lacking, attrs.evolve(lacking, is_hidden=True), attrs.evolve(lacking, is_refused=True), None):
        rig.measures.missing_topics = () if missing is None else (missing,)
        each = rig.flow(), rig.measures.lag([SOURCE], states, unbegun=0)
        seen.append([(it.lag, it.lag_is_least) for it in each])

    assert seen == [[(7, True)] * 2, [(7, True)] * 2, [(7, False)] * 2, [(7, False)] * 2]


def test_what_a_lost_epoch_copied_is_counted_once_it_is_found() -> None:
    """An epoch is lost that had copied 9 records; the next one finds them at the target and copies 1 more."""
    rig = MeasuresRig()
    rig.run(30)
    rig.measures.lose(rig.plan(), "its Python worker was killed")
    rig.run(1, plan=rig.plan(is_unsure=True), resumed_records=9)

    assert rig.partition().records == rig.flow().records == 40
    assert rig.flow().resumed_records == 9


def test_a_lag_that_was_not_asked_for_lately_is_unknown() -> None:
    """Neither a caught-up partition nor one that lags shows an old lag, nor anything that follows from it."""
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=130)))
    rig.measures.lag_holds_s = 45.0
    rig.run(30)
    caught_up = rig.partition()
    rig.clock.advance(45.0)
    still = rig.partition()
    rig.clock.advance(1.0)
    unknown, flow = rig.partition(), rig.flow()

    assert (caught_up.lag, still.lag) == (0, 0)
    assert (unknown.lag, unknown.lag_s, unknown.end_offset, unknown.seconds_until_loss) == (None, None, None, None)
    assert (flow.lag_s, flow.records) == (None, 30)


def test_the_lag_of_what_has_not_begun_is_unknown() -> None:
    """What is listed is at its end; that is not said of all, whether partitions are listed or not."""
    rig = MeasuresRig()
    rig.run(30)
    places = [SOURCE, TopicPartition("a", 1)]
    listed = FlowView(FLOW, FlowState.RUNNING, partitions=(rig.partition(),))
    lags = [rig.measures.flow(attrs.evolve(listed, unlisted=number)).lag for number in (0, 1)]
    states = PartitionStates()
    states[SOURCE] = rig.state
    lags += [rig.measures.lag(places, states, unbegun).lag for unbegun in (0, 1)]

    assert lags == [0, None, 0, None]
    assert rig.measures.flow(attrs.evolve(listed, unlisted=1)).seconds_until_level is None


def test_a_source_that_does_not_answer_leaves_what_was_known_at_once() -> None:
    """What was left is left, or more; that nothing was left says nothing, and nothing is level any more."""
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=130)))
    rig.run(10)
    known = rig.partition()
    rig.measures.is_source_away = lambda: True
    away, flow = rig.partition(), rig.flow()
    rig.measures.is_source_away = lambda: False
    rig.run(20)
    level = rig.partition()
    rig.measures.is_source_away = lambda: True
    silent = rig.partition()

    assert (known.lag, known.lag_is_least) == (20, False)
    assert (away.lag, away.lag_is_least, away.seconds_until_level) == (20, True, None)
    assert (flow.lag, flow.lag_is_least, flow.seconds_until_level) == (20, True, None)
    assert (level.lag, level.seconds_until_level) == (0, 0.0)
    assert (silent.lag, silent.lag_s, silent.seconds_until_level) == (None, None, None)


def test_what_stands_is_never_level_and_has_no_rate() -> None:
    """A stopped partition, or a paused one, has records left: they are counted, and not copied some time soon."""
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=130)))
    rig.run(10)
    held = paused(rig.partition(), is_held=False)
    rig.state = attrs.evolve(rig.state, stage=PartitionStage.STOPPED)
    stopped, flow = rig.partition(), rig.flow()

    for view in (held, stopped):
        assert (view.lag, view.lag_is_least, view.seconds_until_level) == (20, False, None)
        assert (view.record_rate, view.byte_rate) == (0.0, 0.0)
    assert (flow.lag, flow.seconds_until_level) == (20, None)


def test_a_history_in_question_leaves_what_the_source_has_beyond_it() -> None:
    """Some of what was copied may be lost; the records of another topic of the name say nothing."""
    state = attrs.evolve(STATE, log=LogOffsets(high_watermark=130), stage=PartitionStage.STOPPED, is_questioned=True)
    rewound = MeasuresRig(attrs.evolve(state, ended=Ended.TARGET_REWOUND)).partition()
    recreated = MeasuresRig(attrs.evolve(state, ended=Ended.RECREATED, failure=RECREATED)).partition()

    assert (rewound.lag, rewound.lag_is_least) == (130 - STATE.position, True)
    assert recreated.lag is None


@pytest.mark.parametrize("is_lost_first", [False, True])
def test_what_an_earlier_daemon_copied_is_not_counted(is_lost_first: bool) -> None:
    """The first resume finds 500 records of the daemon before: they are not this one's."""
    rig = MeasuresRig()
    if is_lost_first:
        rig.measures.lose(rig.plan(is_unsure=True), "its Python worker was killed")
    rig.run(3, plan=rig.plan(is_unsure=True), resumed_records=500)

    assert rig.partition().records == rig.flow().records == 3


def test_times_and_rates_are_those_of_the_window() -> None:
    """A partition shows what its epochs measured, and a minute later only that it was once."""
    rig = MeasuresRig()
    took = MeasuredTime(30, 300, 5, 20, 12)
    rig.run(30, age=took, latency=took)
    busy = rig.partition()
    rig.clock.advance(60.0)
    idle = rig.partition()

    assert (busy.record_rate, busy.byte_rate) == (1.0, 10.0)
    assert busy.latency == busy.age == TimesView(12, 5, 20, 10.0)
    assert (idle.record_rate, idle.latency) == (0.0, TimesView(12))


def test_lag_in_seconds_begins_when_something_is_left() -> None:
    """Nothing came for an hour; then the source is ahead, and the lag in time is not an hour."""
    rig = MeasuresRig(attrs.evolve(STATE, last_timestamp_ms=ManualClock(1_000.0).wall_ms()))
    rig.run()
    rig.clock.advance(3_600.0)
    rig.run()
    none = rig.partition()
    rig.state = attrs.evolve(rig.state, log=LogOffsets(high_watermark=150))
    rig.run()
    rig.clock.advance(2.0)

    assert (none.lag, none.lag_s) == (0, 0.0)
    assert (rig.partition().lag, rig.partition().lag_s) == (50, 7.0)
    assert rig.flow().lag_s == 7.0


def test_a_still_partition_is_shown_again_until_something_happens() -> None:
    """
    At its end a partition's view is created again after an epoch, or after five seconds; one that lags, every time.
    """
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=STATE.position)))
    rig.run(10)
    first, again = rig.partition(), rig.partition()
    rig.run(20)
    after_an_epoch = rig.partition()
    rig.clock.advance(5.0)
    later = rig.partition()
    rig.state = attrs.evolve(rig.state, log=LogOffsets(high_watermark=rig.state.position + 1))
    rig.run()
    lagging = rig.partition()

    assert again is first
    assert after_an_epoch.records == first.records + 20
    assert later is not after_an_epoch
    assert rig.partition() is not lagging


def test_what_is_gone_is_measured_no_more() -> None:
    """
    Topics come and go for weeks, under ever new names.

    What was measured of them would stay, and the more there were, the older would the views of the others become.
    """
    rig = MeasuresRig()
    rig.run(10)
    behind = attrs.evolve(rig.state, log=LogOffsets(high_watermark=1_000))
    for number in range(10_000):
        rig.measures.look(attrs.evolve(behind, source=TopicPartition(f"t{number}", 0)))
    rig.measures.keep({SOURCE})
    first = rig.partition()
    rig.clock.advance(6.0)

    assert len(rig.measures._partitions) == 1
    assert not rig.measures._lagging
    assert rig.partition() is not first
    assert rig.partition().records == 10


def test_of_many_old_views_a_few_are_made_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Views of partitions that stand still grow old together; each look makes some again, those that moved always."""
    monkeypatch.setattr(measures, "_RENEWALS", 2)
    clock = ManualClock(now_s=1_000.0)
    found = FlowMeasures(clock)
    states = [attrs.evolve(STATE, source=TopicPartition("t", number)) for number in range(5)]
    for state in states:
        found._partition(state.source).window.note(1_000.0, 1, 100, age=None, latency=None)

    def look() -> tuple[PartitionView, ...]:
        return found.partitions(states, {})

    first = look()
    clock.advance(15.0)
    second = look()
    states[4] = attrs.evolve(states[4], position=100, downstream=98)
    third = look()

    assert [new is old for new, old in zip(second, first, strict=True)] == [False, False, True, True, True]
    assert [new is old for new, old in zip(third, second, strict=True)] == [True, True, False, False, False]


@pytest.mark.parametrize("retention", [None, Retention(60_000, None), Retention(60_000, 10_000)])
def test_an_idle_partition_is_shown_as_it_is_until_something_happens(retention: Retention | None) -> None:
    """Once its rates are 0, neither time, nor a look without news, nor the same configs make another view of it."""
    rig = MeasuresRig()
    rig.run(10)
    rig.clock.advance(61.0)
    rig.measures.retention = {} if retention is None else {"t": retention}
    rig.measures.look(rig.state)
    rig.clock.advance(31.0)
    first = rig.partition()
    rig.clock.advance(3_600.0)
    rig.measures.look(rig.state)
    rig.measures.retention = {} if retention is None else {"t": attrs.evolve(retention)}
    later = rig.partition()
    rig.run(5)

    assert (first.record_rate, first.lag) == (0.0, 0)
    assert later is first
    assert rig.partition().records == first.records + 5


def test_time_until_loss_by_time_and_by_size() -> None:
    """Retention by time counts from what waits; retention by size from how fast the source's log fills."""
    rig = MeasuresRig()
    rig.measures.retention = {"t": Retention(60_000, None)}
    rig.run(10)
    by_time = rig.partition().seconds_until_loss
    rig.measures.retention = {"t": Retention(None, 10_000)}
    unwatched = rig.partition().seconds_until_loss
    for _ in range(12):  # 20 records a second come, of 10 bytes each
        rig.state = attrs.evolve(rig.state, log=LogOffsets(high_watermark=rig.state.log.high_watermark + 100))
        rig.run(100)

    assert by_time == 60.0
    assert unwatched is None
    assert rig.partition().seconds_until_loss == pytest.approx(10_000 / 200, rel=0.1)
    assert rig.flow().seconds_until_loss == rig.partition().seconds_until_loss


def test_what_a_copy_task_took() -> None:
    """CPU, requests and throttling add up, memory is the last; each epoch is remembered, a lost one with its cause."""
    rig = MeasuresRig()
    rig.run(30)
    rig.run(10)
    rig.measures.lose(rig.plan(), "its Python worker was killed")
    task = rig.task()

    assert (task.cpu_s, task.rss_bytes, task.fetches, task.produces, task.retries) == (0.5, 77, 6, 4, 2)
    assert (task.throttled_ms, rig.flow().throttled_ms, task.epochs_ended, task.lost_epochs) == (80, 80, 2, 1)
    assert (task.elapsed_s, task.boundary_s) == (pytest.approx(9.8), pytest.approx(0.2))
    assert [(it.epoch, it.records, it.outcome) for it in task.epochs] == [
        (0, 30, "ok"),
        (1, 10, "ok"),
        (2, 0, "its Python worker was killed"),
    ]


def test_only_the_last_epochs_are_remembered() -> None:
    """A copy task runs for years."""
    rig = MeasuresRig()
    for _ in range(100):
        rig.run()

    assert [it.epoch for it in rig.task().epochs] == list(range(70, 100))


def test_histograms_go_on_and_quantiles_forget() -> None:
    """The histogram holds all since the start, the quantiles those of the last minute."""
    rig = MeasuresRig()
    slow = Histogram(counts=(*([0] * len(HISTOGRAM_BOUNDS_MS)), 5), total_ms=5e8, min_ms=1e8, max_ms=1e8)
    quick = Histogram(counts=(5, *([0] * len(HISTOGRAM_BOUNDS_MS))), total_ms=1.0, min_ms=0.2, max_ms=0.2)
    for latency in (slow, quick):
        rig.measures.account(
            rig.plan(), EpochOutcome(FLOW, 0, 0, (PartitionOutcome(SOURCE, 1, 1, False, records=5),), latency), 5.0
        )
        rig.clock.advance(61.0)
    rig.measures.account(
        rig.plan(), EpochOutcome(FLOW, 0, 0, (PartitionOutcome(SOURCE, 1, 1, False, records=5),), quick), 5.0
    )

    assert rig.flow().latency.count == 15
    assert rig.flow().latency_p99_ms == 0.2


def test_the_newest_heartbeat_of_each_topic() -> None:
    """A heartbeats topic tells when its last heartbeat was written, however many partitions it has."""
    rig = MeasuresRig()
    rig.measures.heartbeats = frozenset({"heartbeats", "C.heartbeats"})
    states = [
        PartitionState(TopicPartition(topic, number), f"A.{topic}", 1, 1, last_timestamp_ms=at)
        for topic, number, at in (
            ("heartbeats", 0, 500),
            ("heartbeats", 1, 700),
            ("C.heartbeats", 0, -1),
            ("t", 0, 900),
        )
    ]
    view = FlowView(FLOW, FlowState.RUNNING, partitions=rig.measures.partitions(states, {}))

    assert rig.measures.flow(view).copied_heartbeats == (CopiedHeartbeatsView("A.heartbeats", 700),)


def test_how_long_it_takes_to_catch_up() -> None:
    """Unknown at first, then right, and 0 once it is level; the flow's is that of all that are copied."""
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=10_100)))
    rig.run(100)
    first = rig.flow().seconds_until_level
    found = []
    for _ in range(4):
        rig.state = attrs.evolve(rig.state, log=LogOffsets(high_watermark=rig.state.log.high_watermark + 100))
        rig.run(600)
        found.append((rig.partition().seconds_until_level, rig.flow().seconds_until_level))
    assert first is None
    assert found == [(pytest.approx(left / 100),) * 2 for left in (9_400, 8_900, 8_400, 7_900)]

    (view,) = rig.measures.partitions([rig.state], {SOURCE: 0})
    paused_view = attrs.evolve(view, stage=PartitionStage.PAUSED)
    other = attrs.evolve(view, source=TopicPartition("t", 1), lag=0)
    unknown = attrs.evolve(other, lag=None)
    each = ((paused_view,), (paused_view, other), (unknown,))
    flows = [FlowView(FLOW, FlowState.RUNNING, partitions=partitions) for partitions in each]
    assert [rig.measures.flow(it).seconds_until_level for it in flows] == [None, 0.0, None]

    rig.run(7_900)
    assert (rig.partition().seconds_until_level, rig.flow().seconds_until_level) == (0.0, 0.0)


@pytest.mark.parametrize("lag_before", [0, 5_000])
def test_how_long_it_takes_to_catch_up_with_what_came_in_a_pause(lag_before: int) -> None:
    """How fast a backlog grew while the flow was paused, and for how long, tells nothing of how fast it shrinks."""
    rig = MeasuresRig(attrs.evolve(STATE, log=LogOffsets(high_watermark=1_100 + lag_before)))
    for _ in range(2):
        rig.run(500)
    for produced in (2_000, 10_000, 8_000, 0):
        rig.rest(produced)
    rig.clock.advance(20.0)
    rig.run(100)  # it has to find its pace
    found = []
    for _ in range(4):
        rig.run(500)
        found.append(rig.flow().seconds_until_level)
    left = [19_900 + lag_before - 500 * epochs for epochs in (1, 2, 3, 4)]

    assert found == [pytest.approx(it / 100) for it in left]


def test_a_source_that_grows_after_a_rest_is_not_said_to_grow_slowly() -> None:
    """Nothing comes for an hour. What comes then is not spread over that hour: retention is seen to come near."""

    def until_loss(*, is_looked_at: bool) -> float:
        rig = MeasuresRig()
        rig.measures.retention = {"t": Retention(None, 1_000_000)}
        rig.run(30)
        plan = rig.plan()
        for _ in range(720):
            rig.clock.advance(5.0)
            if is_looked_at:
                rig.measures.look(rig.state)
            else:
                rig.measures.rest(plan, ())
        for _ in range(2):
            rig.rest(5_000)
        return rig.partition().seconds_until_loss or 0.0

    looked, rested = until_loss(is_looked_at=True), until_loss(is_looked_at=False)

    assert looked * 0.7 < rested < looked * 1.3
