"""Live updates: what viewers are told, when, and who is let go."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest

from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Overrides
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import (
    FlowState,
    FlowView,
    GroupOffsetsView,
    MirrorView,
    PartitionStage,
    PartitionView,
)
from mm2py.model.topic import MissingTopic
from mm2py.rest.page.history import History
from mm2py.rest.page.stream import MOST_VIEWERS, QUEUED_TICKS, LiveStream, Viewer
from mm2py.rest.page.view import elsewhere_rows
from mm2py.telemetry.events import ClusterRecovered
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.recent import RecentEvents
from tests.support.clocks import LoopClock, ManualClock


FLOW, OTHER = Flow("A", "B"), Flow("B", "A")


def _partition(number: int, position: int = 0) -> PartitionView:
    return PartitionView(
        TopicPartition("orders", number), "A.orders", 0, PartitionStage.COPYING, position, None, 0, 0, 0, 0.0
    )


@attrs.define
class Node:
    """A node whose view the test decides, and how often it was read."""

    flows: list[FlowView] = attrs.field(factory=lambda: [FlowView(FLOW, FlowState.RUNNING)])
    overrides: dict[Flow, Overrides] = attrs.field(factory=dict)
    looks: int = 0

    def view(self) -> MirrorView:
        self.looks += 1
        return MirrorView(self.looks, is_ready=True, flows=tuple(self.flows))

    def change(self, **facts: Any) -> None:
        self.flows[0] = attrs.evolve(self.flows[0], **facts)


@attrs.define
class LiveStreamRig:
    """A stream with what is around it."""

    node: Node = attrs.field(factory=Node)
    events: EventLog = attrs.field(factory=lambda: EventLog(ManualClock()))
    stream: LiveStream = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        recent = RecentEvents(self.events, ManualClock())
        self.stream = LiveStream(
            self.node.view,
            self.node.overrides.get,
            recent=recent,
            history=History(),
            clock=LoopClock(),
        )


@pytest.fixture
async def rig() -> LiveStreamRig:
    return LiveStreamRig()


async def told(viewer: Viewer) -> list[tuple[str, Any]]:
    """Return the messages that wait for a viewer."""
    async with asyncio.timeout(5):
        text = (await viewer.next() or b"").decode()
    found = []
    for message in filter(None, text.split("\n\n")):
        fields = dict(line.split(": ", 1) for line in message.splitlines() if not line.startswith(":"))
        if fields:
            found.append((fields["event"], json.loads(fields["data"])))
    return found


def kinds(messages: list[tuple[str, Any]]) -> list[str]:
    return [kind for kind, _ in messages]


@asynccontextmanager
async def running(rig: LiveStreamRig) -> AsyncIterator[None]:
    """Tick during the block."""
    async with asyncio.TaskGroup() as tasks:
        ticking = tasks.create_task(rig.stream.run(), name="stream")
        yield
        ticking.cancel()


async def test_a_viewer_begins_with_a_snapshot(rig: LiveStreamRig) -> None:
    """All flows, the chosen one with its partitions and its past, and what happened lately."""
    rig.node.change(partitions=(_partition(0), _partition(1)))
    rig.events.emit(ClusterRecovered(FLOW, "B", 1.0, 1))

    messages = await told(rig.stream.join(FLOW))

    assert kinds(messages) == ["overview", "flow", "history", "event"]
    overview, flow, _, _ = (value for _, value in messages)
    assert [one["flow"] for one in overview["flows"]] == ["A->B"]
    assert [row[1] for row in flow["partitions"]["set"]] == [0, 1]
    assert flow["partitions"]["all"] is True


async def test_topics_of_other_nodes_have_rows(rig: LiveStreamRig) -> None:
    """How many partitions each node copies, and only for who looks at the flow; what changed follows."""
    stock = [TopicPartition("stock", number) for number in range(3)]
    first = {it: Elsewhere("A.stock", node) for it, node in zip(stock, "bcb", strict=True)}
    rig.stream.elsewhere = {FLOW: elsewhere_rows(first)}
    viewer = rig.stream.join(FLOW)
    begun = await told(viewer)
    rig.stream.elsewhere = {FLOW: elsewhere_rows({stock[0]: Elsewhere("A.stock")})}
    rig.stream.tick()
    moved = await told(viewer)
    rig.stream.elsewhere = {}
    rig.stream.tick()
    gone = await told(viewer)

    assert rig.stream.flows == (FLOW,)
    assert dict(begun)["flow"]["elsewhere"]["set"] == [["stock", "A.stock", [["b", 2], ["c", 1]]]]
    assert dict(moved)["flow"]["elsewhere"]["set"] == [["stock", "A.stock", [["", 1]]]]
    assert dict(gone)["flow"]["elsewhere"] == {"all": False, "set": [], "gone": ["stock"]}


async def test_topics_that_the_target_lacks_have_rows(rig: LiveStreamRig) -> None:
    """With the reason, until they are there."""
    why = PartitionFailure("replication.factor 2 > 1 broker", "lower it")
    rig.node.change(missing_topics=(MissingTopic("stock", "A.stock", 0, 3, why),))
    viewer = rig.stream.join(FLOW)
    begun = await told(viewer)
    rig.node.change(missing_topics=())
    rig.stream.tick()
    gone = await told(viewer)

    assert dict(begun)["flow"]["missing"]["set"] == [["stock", "A.stock", 3, why.message, why.hint]]
    assert dict(gone)["flow"]["missing"] == {"all": False, "set": [], "gone": ["stock"]}


async def test_only_what_changed_follows(rig: LiveStreamRig) -> None:
    """A row that is as it was is not sent again; one that is gone is named."""
    rig.node.change(partitions=(_partition(0), _partition(1), _partition(2)))
    viewer = rig.stream.join(FLOW)
    await told(viewer)
    rig.node.change(partitions=(_partition(0), _partition(1, position=7)))
    rig.stream.tick()

    messages = dict(await told(viewer))

    assert [row[:2] for row in messages["flow"]["partitions"]["set"]] == [["orders", 1]]
    assert messages["flow"]["partitions"]["gone"] == ["orders-2"]
    assert "groups" not in messages["flow"]


async def test_consumer_groups_follow_too(rig: LiveStreamRig) -> None:
    """Groups are rows by their names, whatever those are."""
    viewer = rig.stream.join(FLOW)
    await told(viewer)
    rig.node.change(consumer_groups=(GroupOffsetsView("<b>&\n", why="no offsets"),))
    rig.stream.tick()

    messages = dict(await told(viewer))

    assert [row["group"] for row in messages["flow"]["groups"]["set"]] == ["<b>&\n"]


async def test_nothing_new_is_a_heartbeat(rig: LiveStreamRig) -> None:
    """Where nothing changed, a comment says that the daemon is there."""
    viewer = rig.stream.join()
    await viewer.next()
    rig.stream.tick()
    await viewer.next()
    rig.stream.tick()

    assert await viewer.next() == b": still here\n\n"


async def test_all_viewers_share_one_look(rig: LiveStreamRig) -> None:
    """However many pages are open, a second costs one snapshot, and all are sent the same bytes."""
    viewers = [rig.stream.join(FLOW) for _ in range(10)]
    for viewer in viewers:
        await viewer.next()
    rig.node.looks = 0
    rig.node.change(records=5)
    rig.stream.tick()

    assert rig.node.looks == 1
    assert len({viewer.waiting[0] for viewer in viewers}) == 1


async def test_without_viewers_nothing_is_done(rig: LiveStreamRig) -> None:
    """An hour without an open page takes no snapshot of the node; with one it is one a second."""
    async with running(rig):
        await asyncio.sleep(3600)
        before = rig.node.looks
        viewer = rig.stream.join(only_events=False)
        for _ in range(5):
            await viewer.next()
        during = rig.node.looks
        rig.stream.leave(viewer)
        await asyncio.sleep(3600)

    assert before == 0
    assert during == 5
    assert rig.node.looks - during <= 1


async def test_a_slow_viewer_is_let_go_alone(rig: LiveStreamRig) -> None:
    """What waits for one that does not read is bounded; others are told everything."""
    slow, quick = rig.stream.join(), rig.stream.join()
    for number in range(QUEUED_TICKS + 2):
        rig.node.change(records=number)
        rig.stream.tick()
        await quick.next()

    assert (slow.is_slow, await slow.next()) == (True, None)
    assert (quick.is_over, rig.stream.viewers) == (False, 1)


async def test_the_end_is_said(rig: LiveStreamRig) -> None:
    """When the daemon stops, streams end with a word, those that come later at once."""
    viewer = rig.stream.join()
    await told(viewer)
    rig.stream.close()
    late = rig.stream.join()

    assert kinds(await told(viewer)) == ["end"]
    assert kinds(await told(late)) == ["overview", "end"]
    assert (await viewer.next(), await late.next()) == (None, None)


async def test_a_flow_goes_away_and_comes_back(rig: LiveStreamRig) -> None:
    """A reload may remove the flow that an open page shows, and the next one add it again."""
    viewer = rig.stream.join(FLOW)
    await told(viewer)
    before, rig.node.flows = rig.node.flows, [FlowView(OTHER, FlowState.RUNNING)]
    rig.stream.tick()
    without = dict(await told(viewer))
    rig.node.flows = before
    rig.stream.tick()

    assert [flow["flow"] for flow in without["overview"]["flows"]] == [str(OTHER)]
    assert kinds(await told(viewer)) == ["overview", "point"]


async def test_a_flow_of_another_node_is_refused(rig: LiveStreamRig) -> None:
    """There is nothing to show, and no viewer is kept for it."""
    with pytest.raises(LookupError):
        rig.stream.join(Flow("X", "Y"))

    assert rig.stream.viewers == 0


async def test_events_alone(rig: LiveStreamRig) -> None:
    """Who follows events is told nothing else, those of one flow where one is named, each once."""
    viewer = rig.stream.join(FLOW, only_events=True)
    await viewer.next()
    rig.node.looks = 0
    rig.events.emit(ClusterRecovered(FLOW, "B", 1.0, 1))
    rig.events.emit(ClusterRecovered(OTHER, "B", 1.0, 1))
    rig.stream.tick()
    first = await told(viewer)
    rig.stream.tick()

    assert [(kind, value["flow"]) for kind, value in first] == [("event", "A->B")]
    assert await told(viewer) == []
    assert rig.node.looks == 0


async def test_places_are_limited(rig: LiveStreamRig) -> None:
    """Each viewer holds a connection."""
    for _ in range(MOST_VIEWERS):
        rig.stream.join()

    assert rig.stream.is_full
