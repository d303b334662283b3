"""What the source group does while paused, what it reports of a drain, and what it follows, without clusters."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.source.group import SourceGroup, SourceLife
from mm2py.connectors.source.partitions import SourceTasks
from mm2py.core.topics.topology import CreateTopic
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Wanted
from mm2py.model.herder.share import ALL_SLOTS, NO_SHARE, Share, whole_share
from mm2py.model.state import FlowState, FlowView
from mm2py.model.topic import TopicsView
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.telemetry.events import FlowDrained, FlowFailed, TaskRestarted
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster, MixedClustersError
from tests.support.clocks import LoopClock
from tests.support.flow_rig import DRAIN_S, EPOCH_S, source_context
from tests.support.source_tasks import MARK, Answer, PretendedEpochs, copied, mirrored, positions


WHOLE = whole_share(2)
OWNERS_PART = Share(is_owner=True, tasks=frozenset({0}), slots=frozenset(range(512)))
ALL_BUT_A_RECORD_TASK = Share(tasks=frozenset({1}), slots=ALL_SLOTS)
OTHER_PART = attrs.evolve(OWNERS_PART, is_owner=False)


class Watch:
    """Looks at something every second."""

    name = "watch"

    def __init__(self) -> None:
        self.looks = 0

    async def run(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.looks += 1

    async def finish(self) -> None:
        return


async def test_a_paused_group_keeps_watch_and_looks_at_topics_when_it_goes_on() -> None:
    """How far the source has gone on is known in a pause too; what changed there meanwhile is found out behind it."""
    clock, refreshes = LoopClock(), list[float]()
    events = EventLog(clock)
    context = source_context(clock, events)
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    life = SimpleNamespace(
        writer=SimpleNamespace(run=asyncio.Event().wait),
        topics=SimpleNamespace(want_refresh=lambda: refreshes.append(clock.monotonic())),
    )
    watch = Watch()
    group.requests.want(Wanted.PAUSED)
    async with asyncio.TaskGroup() as tasks:
        resting = tasks.create_task(group._rest(cast("SourceLife", life), [cast("Any", watch)]))
        await asyncio.sleep(60.5)
        state, looks = group.state, watch.looks
        group.requests.want(Wanted.RUNNING)

    assert (state, looks) == (FlowState.PAUSED, 60)
    assert resting.result()
    assert refreshes == [60.5]


@pytest.mark.parametrize(
    ("share", "applied", "wanted", "state", "expected"),
    [
        (WHOLE, WHOLE, Wanted.RUNNING, FlowState.RUNNING, True),
        (WHOLE, NO_SHARE, Wanted.RUNNING, FlowState.STARTING, True),
        (OWNERS_PART, OWNERS_PART, Wanted.RUNNING, FlowState.RUNNING, True),
        (OWNERS_PART, OWNERS_PART, Wanted.RUNNING, FlowState.DRAINED, True),
        (OTHER_PART, OTHER_PART, Wanted.RUNNING, FlowState.RUNNING, False),
        (ALL_BUT_A_RECORD_TASK, ALL_BUT_A_RECORD_TASK, Wanted.RUNNING, FlowState.RUNNING, False),
        (ALL_BUT_A_RECORD_TASK, ALL_BUT_A_RECORD_TASK, Wanted.PAUSED, FlowState.PAUSED, False),
        (NO_SHARE, NO_SHARE, Wanted.RUNNING, FlowState.STANDBY, False),
        (NO_SHARE, WHOLE, Wanted.RUNNING, FlowState.DRAINING, False),
        (WHOLE, WHOLE, Wanted.PAUSED, FlowState.PAUSED, True),
        (WHOLE, NO_SHARE, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, NO_SHARE, Wanted.STOPPED, FlowState.STOPPED, False),
        (OWNERS_PART, OWNERS_PART, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, OTHER_PART, Wanted.PAUSED, FlowState.PAUSED, False),
        (WHOLE, WHOLE, Wanted.RUNNING, FlowState.RESTARTING, True),
        (WHOLE, NO_SHARE, Wanted.RUNNING, FlowState.RESTARTING, False),
    ],
)
def test_when_all_that_is_copied_is_followed(
    share: Share, applied: Share, wanted: Wanted, state: FlowState, *, expected: bool
) -> None:
    """It copies all itself, or owns the flow and reads what others store, or has read all before it rested."""
    clock = LoopClock()
    context = source_context(clock, EventLog(clock))
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    group.requests.give(share)
    group.requests.want(wanted)
    group.state, group._applied = state, applied

    assert group.follows_all is expected


async def test_what_was_read_before_a_stop_does_not_count_after_it() -> None:
    """
    A node has read where records went and the connector stops; an operator sets offsets back at another node, and
    resumes it. A round of checkpoints that comes before the next life has read that would lead to the former copy.
    """
    clock = LoopClock()
    context = source_context(clock, EventLog(clock))
    translations = Translations(flow_runs=1, partition_runs=1)
    group = SourceGroup(context, PretendedEpochs(), translations)
    translations.adopt({}, {})
    group.state, group._applied = FlowState.RUNNING, WHOLE
    follows = [group.follows_all]
    group.requests.want(Wanted.STOPPED)
    async with asyncio.TaskGroup() as tasks:
        standing = tasks.create_task(group._stand_still())
        await asyncio.sleep(1)
        follows.append(group.follows_all)
        group.requests.want(Wanted.RUNNING)
        follows.append(group.follows_all)
        await standing
        follows.append(group.follows_all)

    assert follows == [True, False, False, False]


async def test_a_life_counts_what_a_former_one_has_read_once_it_has_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a node had no part in the flow, others have written; before the first life there is nothing to count."""
    clock = LoopClock()
    translations = Translations(flow_runs=1, partition_runs=1)
    group = SourceGroup(source_context(clock, EventLog(clock)), PretendedEpochs(), translations)
    follows = list[tuple[str, bool]]()

    async def done() -> None:
        return

    async def read() -> None:
        follows.append(("before", group.follows_all))

    async def adopt(_: object) -> SimpleNamespace:
        translations.adopt({}, {})
        return SimpleNamespace(is_settled=True)

    async def fence() -> None:
        follows.append(("after", group.follows_all))
        raise ValueError("boom")

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[list[object]]:
        yield [SimpleNamespace(refuse_mixed_servers=done, metadata=SimpleNamespace(cluster_id=it)) for it in "AB"]

    async def nothing_open(*_: object) -> None:
        return

    life = SimpleNamespace(
        positions=SimpleNamespace(read=read, runs=()),
        tasks=SimpleNamespace(holders=SimpleNamespace(share=WHOLE)),
        topics=SimpleNamespace(refresh_once=done),
        keeper=SimpleNamespace(adopt=adopt),
        writer=SimpleNamespace(fence=fence),
    )
    monkeypatch.setattr("mm2py.connectors.source.group.end_open_transactions", nothing_open)
    group._connected, group._make_life = connected, lambda *_: life  # type: ignore[assignment,method-assign]
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            await group._live()

    assert follows == [("before", True), ("after", True), ("before", False), ("after", True)]


async def test_a_life_begins_once_no_lost_epoch_can_write() -> None:
    """
    An epoch is lost, and its worker may go on to the end of it; the flow is restarted, or its settings change. What is
    planned then could be written by both.
    """
    clock, epochs, begun = LoopClock(), PretendedEpochs(), list[float]()
    group = SourceGroup(source_context(clock, EventLog(clock)), epochs, Translations(flow_runs=1, partition_runs=1))

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[list[object]]:
        begun.append(clock.monotonic())
        raise ValueError("boom")
        yield []

    group._connected = connected  # type: ignore[assignment,method-assign]
    epochs.lost.note(group.flow, 12.0)
    epochs.lost.note(group.flow, 7.0)
    epochs.lost.note(Flow("A", "C"), 99.0)
    for _ in range(2):
        with pytest.raises(ValueError, match="boom"):
            await group._live()

    assert begun == [12.0, 12.0]


async def test_nothing_begins_with_servers_of_two_clusters() -> None:
    """Which cluster is written to would be up to chance, so the flow fails before it reads a position."""
    clock = LoopClock()
    events = EventLog(clock)
    group = SourceGroup(source_context(clock, events), PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    error = MixedClustersError("B", "b1:9092 is of x, b2:9092 is of y")

    async def are_of_one() -> None:
        return

    async def are_mixed() -> None:
        raise error

    @asynccontextmanager
    async def connected(*_: object) -> AsyncIterator[list[object]]:
        yield [SimpleNamespace(refuse_mixed_servers=it) for it in (are_of_one, are_mixed)]

    group._connected = connected  # type: ignore[assignment]
    running = asyncio.create_task(group.run())
    await asyncio.sleep(10)
    running.cancel()

    assert group.state is FlowState.FAILED
    assert [(event.error, event.hint) for event in events.of(FlowFailed)] == [(str(error), error.hint)]


async def _forever(*_: object, **__: object) -> None:
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("lost_epoch", "drained_after_s", "has_lost"),
    [
        pytest.param(1, EPOCH_S * 1.5, True, id="in the drain"),
        pytest.param(0, EPOCH_S * 1.5, True, id="right before"),
        pytest.param(0, EPOCH_S * 4 + DRAIN_S, False, id="long before"),
    ],
)
async def test_a_drain_that_lost_an_epoch_does_not_pass_for_a_clean_one(
    lost_epoch: int, drained_after_s: float, has_lost: bool
) -> None:
    """The target may hold more than the positions say, until an epoch has found out."""

    group, life = _losing(lost_epoch)
    async with asyncio.TaskGroup() as running:
        running.create_task(group._copy(life, [], is_settled=True))
        await asyncio.sleep(drained_after_s)
        group.requests.drain(within_s=EPOCH_S)
    (drained,) = group._events.of(FlowDrained)

    assert group.has_lost is has_lost
    assert drained.positions_written is not has_lost


@pytest.mark.parametrize("then", ["nothing", "it is resumed", "the node drains"])
async def test_a_group_has_stopped_once_no_lost_epoch_can_write(then: str) -> None:
    """What a lost epoch has sent arrives before an operator may alter offsets; a drain, or a resume, does not wait."""
    group, life = _losing(0)
    async with asyncio.TaskGroup() as running:
        copying = running.create_task(group._copy(life, [], is_settled=True))
        await asyncio.sleep(EPOCH_S * 1.1)
        (quiet_until,) = {state.quiet_until for state in life.tasks.ledger.states.values()}
        group.requests.want(Wanted.STOPPED)
        await asyncio.sleep(EPOCH_S * 0.1)
        if then == "it is resumed":
            group.requests.want(Wanted.RUNNING)
        elif then == "the node drains":
            group.requests.drain(within_s=EPOCH_S)
        begun = asyncio.get_running_loop().time()
        await copying
    took_s = asyncio.get_running_loop().time() - begun

    assert took_s == pytest.approx(quiet_until - begun if then == "nothing" else 0.0, abs=0.01)
    assert quiet_until - begun > 1


def _losing(lost_epoch: int) -> tuple[SourceGroup, SourceLife]:
    """Make a group, and a life of it in which an epoch is lost."""

    def script(plan: EpochPlan) -> Answer:
        return EpochLostError(plan.name, "Spark was shut down") if plan.epoch == lost_epoch else copied(plan)

    async def write(*, is_interval_over: bool) -> bool:
        return is_interval_over

    clock = LoopClock()
    events, epochs = EventLog(clock), PretendedEpochs(script)
    context = source_context(clock, events)
    group = SourceGroup(context, epochs, Translations(flow_runs=1, partition_runs=1))
    tasks, look = SourceTasks(context, epochs), mirrored(0)
    tasks.adopt(look, positions(look))
    life = SimpleNamespace(
        tasks=tasks,
        writer=SimpleNamespace(run=_forever, write=write),
        topics=SimpleNamespace(refresh_forever=_forever),
        keeper=SimpleNamespace(adopt=None),
    )
    group._watch_clusters_forever = _forever  # type: ignore[method-assign]
    return group, cast("SourceLife", life)


async def test_a_loop_beside_copying_that_fails_counts_as_a_fall_of_the_group() -> None:
    """It is restarted on its own, and copying goes on; the metric and its alert would not show it otherwise."""
    clock = LoopClock()
    events = EventLog(clock)
    group = SourceGroup(source_context(clock, events), PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    left = [ValueError("boom"), ValueError("boom")]

    class Falling(Watch):
        async def run(self) -> None:
            if left:
                raise left.pop()

    await group._run_side(cast("Any", Falling()))

    assert (group.view().falls, group.view().restarts) == (2, 0)
    assert [event.task for event in events.of(TaskRestarted)] == ["A->B/source/watch"] * 2


async def test_nothing_is_written_to_a_remote_topic_that_is_created_again() -> None:
    """
    An operator deletes a remote topic, and right after the mirror has created it again the source gets a record.

    The partition was idle, so its epoch knows the leader of the former topic, which takes any sequence: the record
    would come before all that are copied again.
    """
    clock, doubtful = LoopClock(), list[TopicPartition]()
    context = source_context(clock, EventLog(clock))
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    clusters = [Cluster(ClusterEndpoint(alias, ("127.0.0.1:1",)), clock) for alias in "AB"]
    life = group._make_life(*clusters)
    look = mirrored(0, 1)
    other = mirrored(0, topic="u")
    look = attrs.evolve(look, places={**look.places, **other.places})
    life.tasks.adopt(look, positions(look))
    life.tasks.note_fenced([attrs.evolve(it.standing, producer=MARK) for it in life.tasks.ledger.unfenced()])
    copying = [task for task in range(2) if life.tasks.take_partitions(task)]

    def end_epochs() -> None:
        for task in copying:
            life.tasks.holders.put_back(task)

    asyncio.get_running_loop().call_later(1.0, end_epochs)

    async def create(*_: object) -> dict[str, None]:
        doubtful.extend(state.source for state in life.tasks.doubts.questions())
        return {}

    life.topics._creation.create = create  # type: ignore[assignment]
    await life.topics._act((CreateTopic("t", "A.t", 2),), TopicsView({}))

    assert copying
    assert doubtful == [TopicPartition("t", 0), TopicPartition("t", 1)]


async def test_what_is_shown_of_a_shared_flow_is_this_node_s_part_and_how_much_there_is() -> None:
    """It copies one of three partitions; how far behind is what it gains is unknown until it begins. While
    it stands by, others have what it had, and count it.
    """
    clock = LoopClock()
    context = source_context(clock, EventLog(clock))
    group = SourceGroup(context, PretendedEpochs(), Translations(flow_runs=1, partition_runs=1))
    tasks, everything = SourceTasks(context, PretendedEpochs()), mirrored(0, 1)
    everything = attrs.evolve(everything, places={**everything.places, **mirrored(0, topic="other").places})
    tasks.adopt(mirrored(0), positions(mirrored(0), 0))
    group._source_tasks, group._topics = tasks, cast("Any", SimpleNamespace(latest=everything))
    empty, group._applied = FlowView(group.flow, FlowState.RUNNING), tasks.holders.share
    copies, unlisted = group.show(empty), group.show(empty, has_partitions=False)
    group._applied = OWNERS_PART
    gains = [group.show(empty, has_partitions=has_partitions) for has_partitions in (True, False)]
    group.requests.give(NO_SHARE, "another node has it")
    group._enter(FlowState.STANDBY, "another node has it")
    stands_by = group.show(empty)
    group._enter(FlowState.STARTING)

    assert [it.source for it in copies.partitions] == [TopicPartition("t", 0)]
    assert (copies.topics, copies.mirrored, copies.partition_count, copies.unlisted) == (2, 3, 1, 0)
    assert (unlisted.topics, unlisted.mirrored, unlisted.partition_count, unlisted.unlisted) == (2, 3, 1, 1)
    assert [(it.partition_count, it.unlisted, it.lag) for it in gains] == [(3, 2, None), (3, 3, None)]
    assert (stands_by.topics, stands_by.mirrored, stands_by.partition_count) == (0, None, 0)
    assert group.show(empty) == stands_by
