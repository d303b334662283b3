"""Group offsets at the target: which groups are written or left alone, and what is reported."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from typing import Any

import attrs
import pytest

from mm2py.connectors.checkpoint.group_offsets import GroupOffsets
from mm2py.core.checkpoint.checkpoints import AtTarget
from mm2py.errors import BrokerConnectionError
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.telemetry.events import GroupOffsetsSynced, GroupSyncResumed, GroupSyncSkipped
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.consumer_groups import Groups
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import DESCRIBE, OFFSET_COMMIT, OFFSET_FETCH, FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_rig import FLOW, SETTINGS, changed, checkpoint_context


REMOTE = TopicPartition("A.foo", 0)
OTHER = TopicPartition("A.foo", 1)
#: The remote topic's id, and that of the one that has its name afterwards.
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


class Target(FakeBrokers):
    """A target's coordinators; some requests fail, and things happen right before others."""

    def __init__(self) -> None:
        super().__init__()
        self.latency_s = 0.0
        self.topics = {REMOTE.topic: FakeTopic([FakePartition(), FakePartition()])}
        self.failing: dict[int, ErrorCode] = {}
        self.before: dict[int, Callable[[], None]] = {}

    def answer(self, node_id: int, request: Any) -> Any:
        self.before.get(request.API_KEY, lambda: None)()
        self.errors = {"g": int(self.failing[request.API_KEY])} if request.API_KEY in self.failing else {}
        return super().answer(node_id, request)

    def have(self, offset: int, **more: Any) -> None:
        """Have the group, which stands at *offset*."""
        self.group("g", {REMOTE: offset}, **more)

    @property
    def commits(self) -> list[tuple[str, dict[TopicPartition, int]]]:
        """What was to be committed, for which group."""
        return [
            (
                request.consumer_group,
                {TopicPartition(topic, number): at for topic, rows in request.topics for number, at, _ in rows},
            )
            for _, request in self.requests_of(OFFSET_COMMIT)
        ]


@attrs.frozen
class SkippingClock(LoopClock):
    """Passes over the time in which a node is frozen."""

    skipped: list[float] = attrs.field(factory=list)

    def monotonic(self) -> float:
        return super().monotonic() + sum(self.skipped)

    def skip(self, seconds: float) -> None:
        self.skipped.append(seconds)


@attrs.define
class GroupOffsetsRig:
    """Group offsets on a fake target."""

    target: Target
    groups: Groups
    events: EventLog
    clock: SkippingClock
    last: dict[TopicPartition, int] = attrs.field(factory=dict)
    end: int = 1_000
    may_rewind: bool = False
    may_write: bool = True

    def __attrs_post_init__(self) -> None:
        checkpoints = attrs.evolve(SETTINGS.checkpoint_connector, sync_rewinds=self.may_rewind)
        self.offsets = GroupOffsets(
            checkpoint_context(self.clock, self.events, changed(SETTINGS, checkpoint_connector=checkpoints)),
            self.groups,
            last_of=lambda _group: self.last,
            ends_of=self.ends_of,
            may_write=lambda: self.may_write,
        )

    offsets: GroupOffsets = attrs.field(init=False)

    async def ends_of(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self.end)

    async def sync(self, offset: int = 100, **more: int) -> frozenset[str]:
        """Sync one round of a group `g`, and of others by name, each with its own offset."""
        return await self.offsets.sync_once(
            {name: {REMOTE: CommittedOffset(wanted)} for name, wanted in {"g": offset, **more}.items()}
        )

    @property
    def state(self) -> AtTarget:
        return self.offsets.states["g"].state


@pytest.fixture
async def rig() -> AsyncIterator[GroupOffsetsRig]:
    clock, target = SkippingClock(), Target()
    async with Cluster(attrs.evolve(target.endpoint, alias="B"), clock, opener=target.open) as cluster:
        yield GroupOffsetsRig(target, Groups(cluster), EventLog(clock), clock)


async def test_a_group_that_does_not_exist_is_written(rig: GroupOffsetsRig) -> None:
    """New at the target: all its offsets are committed (testSyncOffset, new)."""
    settled = await rig.sync(100)

    assert rig.target.commits == [("g", {REMOTE: 100})]
    assert settled == {"g"}
    assert rig.events.of(GroupOffsetsSynced) == (GroupOffsetsSynced(FLOW, "g", 1),)
    assert rig.offsets.states["g"].written_ms == rig.clock.wall_ms()


async def test_an_empty_group_goes_forward_and_never_back(rig: GroupOffsetsRig) -> None:
    """Idle at the target: forward is written, what is ahead stays (testSyncOffset, idle and ahead)."""
    rig.target.have(50)
    await rig.sync(100)
    await rig.sync(100)
    await rig.sync(70)

    assert rig.target.commits == [("g", {REMOTE: 100})]
    assert rig.state is AtTarget.IDLE


async def test_a_group_may_be_set_back_where_the_settings_say_so(rig: GroupOffsetsRig) -> None:
    """sync.group.offsets.rewind.enabled follows a group that was reset at the source."""
    rewinding = GroupOffsetsRig(rig.target, rig.groups, rig.events, rig.clock, may_rewind=True)
    rig.target.have(50)
    await rewinding.sync(20)

    assert rig.target.committed("g") == {REMOTE: 20}


async def test_an_active_group_is_left_alone_and_said_so_once(rig: GroupOffsetsRig) -> None:
    """Members at the target: nothing is even tried; once they have left, it goes on."""
    rig.target.have(50, members=1)
    settled = await rig.sync(100)
    await rig.clock.sleep(60)
    await rig.sync(110)
    rig.target.group("g")
    await rig.sync(120)

    assert settled == frozenset()
    assert rig.target.commits == [("g", {REMOTE: 120})]
    assert [(event.group, event.state) for event in rig.events.of(GroupSyncSkipped)] == [("g", "active")]
    assert rig.events.of(GroupSyncResumed) == (GroupSyncResumed(FLOW, "g", "active", 60.0),)


@pytest.mark.parametrize("failure", [DESCRIBE, OFFSET_FETCH], ids=["described", "fetched"])
@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.GROUP_AUTHORIZATION_FAILED])
async def test_a_group_that_cannot_be_looked_at_is_left_alone(
    rig: GroupOffsetsRig, failure: int, code: ErrorCode
) -> None:
    """
    KAFKA-19794: a look that fails says nothing about the group.

    MirrorMaker takes a group whose description failed for a new one and writes all its offsets, backwards too.
    """
    rig.target.have(500)
    rig.target.failing[failure] = code
    settled = await rig.sync(100)

    assert rig.target.commits == []
    assert rig.target.committed("g") == {REMOTE: 500}
    assert (settled, rig.state) == (frozenset(), AtTarget.UNKNOWN)
    (skipped,) = rig.events.of(GroupSyncSkipped)
    assert code.name in skipped.reason
    asked = "DESCRIBE on group g" + (" and on its topics" if failure == OFFSET_FETCH else "")
    is_refused = code == ErrorCode.GROUP_AUTHORIZATION_FAILED
    assert skipped.hint.startswith(f"grant the mirror's principal {asked} of cluster" if is_refused else "")


async def test_one_group_s_failure_does_not_keep_others_from_being_written(rig: GroupOffsetsRig) -> None:
    """An active group beside an idle one: the idle one is written all the same."""
    rig.target.have(50, members=3)
    settled = await rig.sync(100, other=7, third=8)

    assert sorted(rig.target.commits) == [("other", {REMOTE: 7}), ("third", {REMOTE: 8})]
    assert settled == {"other", "third"}


async def test_a_consumer_that_joins_between_look_and_write_wins(rig: GroupOffsetsRig) -> None:
    """
    A race that the broker decides.

    The group is empty at both looks; then a consumer joins; then the commit arrives and is refused. Nothing is
    written, and the group counts as active.
    """
    rig.target.have(50)

    def join() -> None:
        rig.target.group("g", members=1)

    rig.target.before[OFFSET_COMMIT] = join
    await rig.sync(100)

    assert rig.target.committed("g") == {REMOTE: 50}
    assert rig.state is AtTarget.ACTIVE


async def test_offsets_that_moved_since_the_first_look_are_seen_by_the_second(rig: GroupOffsetsRig) -> None:
    """
    A consumer comes and goes between the look at all groups and the look at this one.

    The first look finds 50 and no members. A consumer reads to 500, commits and leaves. The second look
    finds 500, and nothing is written over it.
    """
    rig.target.have(50)
    looks = iter([50, 500])

    def look() -> None:
        rig.target.commit("g", {REMOTE: next(looks)})

    rig.target.before[OFFSET_FETCH] = look
    await rig.sync(100)

    assert rig.target.commits == []
    assert rig.target.committed("g") == {REMOTE: 500}


async def test_offsets_that_moved_right_before_a_commit_are_left_to_the_next_round(rig: GroupOffsetsRig) -> None:
    """
    Another node owns the flow by now, or a consumer came and went, after the last judgement.

    Both looks find 50. Then 500 is committed; a commit of 100 would set that back. The next round finds 500.
    """
    rig.target.have(50)
    looks = iter([50, 50, 500, 500, 500])

    def look() -> None:
        rig.target.commit("g", {REMOTE: next(looks)})

    rig.target.before[OFFSET_FETCH] = look
    settled = await rig.sync(100)
    commits = list(rig.target.commits)
    await rig.sync(100)

    assert settled == frozenset()
    assert commits == rig.target.commits == []
    assert rig.target.committed("g") == {REMOTE: 500}
    assert rig.state is AtTarget.IDLE


async def test_nothing_is_sent_once_another_node_may_own_the_flow(rig: GroupOffsetsRig) -> None:
    """
    A frozen owner thaws in the middle of a round.

    It has judged the group, and freezes before it commits; meanwhile another node becomes the owner. No attempt of the
    commit is sent, the repeated one neither; nothing is reported, as it will learn who owns the flow.
    """
    rig.target.have(50)
    rig.may_write = False
    settled = await rig.sync(100)
    rig.may_write = True
    rig.target.failing[OFFSET_COMMIT] = ErrorCode.NOT_COORDINATOR

    def freeze() -> None:
        rig.may_write = False

    rig.target.before[OFFSET_COMMIT] = freeze
    await rig.sync(100)

    assert settled == frozenset()
    assert len(rig.target.commits) == 1
    assert rig.target.committed("g") == {REMOTE: 50}
    assert rig.events.of(GroupSyncSkipped) == rig.events.of(GroupOffsetsSynced) == ()


async def test_a_node_that_is_frozen_amid_its_write_does_not_repeat_it(rig: GroupOffsetsRig) -> None:
    """Its connection is lost meanwhile, so it does not know whether 100 was written; another node has written 500."""
    rig.target.have(50)

    def freeze() -> None:
        if rig.target.committed("g") == {REMOTE: 50}:
            rig.clock.skip(10)
            rig.target.commit("g", {REMOTE: 500})
            raise BrokerConnectionError("B", "0", "it was closed")

    rig.target.before[OFFSET_COMMIT] = freeze
    await rig.sync(100)

    assert rig.target.committed("g") == {REMOTE: 500}


async def test_partitions_without_an_offset_are_written_beside_others_that_stay(rig: GroupOffsetsRig) -> None:
    """Per partition: absent at the target is written, ahead stays."""
    rig.target.have(500)
    await rig.offsets.sync_once({"g": {REMOTE: CommittedOffset(100), OTHER: CommittedOffset(7)}})

    assert rig.target.commits == [("g", {OTHER: 7})]


async def test_a_plain_group_is_watched_for_a_round_first(rig: GroupOffsetsRig) -> None:
    """Offsets that are not ours, in a group without members: perhaps a consumer assigns partitions to itself."""
    rig.target.have(50, protocol="")
    await rig.sync(100)
    states = [rig.state]
    rig.target.commit("g", {REMOTE: 60})
    await rig.sync(100)
    states.append(rig.state)
    rig.target.commit("g", {REMOTE: 70})
    await rig.sync(100)
    states.append(rig.state)
    commits = list(rig.target.commits)
    await rig.sync(100)
    states.append(rig.state)

    assert states == [AtTarget.WATCHED, AtTarget.IN_USE, AtTarget.IN_USE, AtTarget.IDLE]
    assert commits == []
    assert rig.target.commits == [("g", {REMOTE: 100})]
    assert [event.state for event in rig.events.of(GroupSyncSkipped)] == ["in_use"]


async def test_what_we_wrote_ourselves_is_no_sign_of_use(rig: GroupOffsetsRig) -> None:
    """A group that only the sync has ever written goes on round after round, and at once after a restart."""
    for offset in (100, 110, 120):
        await rig.sync(offset)
    after_restart = GroupOffsetsRig(rig.target, rig.groups, rig.events, rig.clock, last={REMOTE: 120})
    await after_restart.sync(130)

    assert [offsets[REMOTE] for _, offsets in rig.target.commits] == [100, 110, 120, 130]


async def test_a_coordinator_that_cannot_write_is_reported_but_not_one_that_moves(rig: GroupOffsetsRig) -> None:
    """
    __consumer_offsets has too few replicas: groups are described and read as ever, and no commit succeeds.

    What was read counts for less time than the coordinator is asked again: that it was asked at all must not get lost.
    """
    rig.target.failing[OFFSET_COMMIT] = ErrorCode.COORDINATOR_NOT_AVAILABLE
    settled = [await rig.sync(100)]
    early = rig.events.of(GroupSyncSkipped)
    settled += [await rig.sync(110), await rig.sync(120), await rig.sync(130)]
    state = rig.state
    del rig.target.failing[OFFSET_COMMIT]
    settled.append(await rig.sync(140))

    assert early == ()
    assert state is AtTarget.REFUSED
    (skipped,) = rig.events.of(GroupSyncSkipped)
    assert "COORDINATOR_NOT_AVAILABLE" in skipped.reason
    assert "__consumer_offsets" in skipped.hint
    assert settled == [frozenset()] * 4 + [{"g"}]
    assert [event.state for event in rig.events.of(GroupSyncResumed)] == ["refused"]


async def test_a_group_that_is_gone_is_forgotten(rig: GroupOffsetsRig) -> None:
    """What is no longer wanted is no longer shown."""
    await rig.sync(100)
    await rig.offsets.sync_once({})

    assert rig.offsets.states == {}


async def test_an_offset_that_the_target_s_log_no_longer_holds_is_corrected(rig: GroupOffsetsRig) -> None:
    """The remote topic was deleted and created again; its group still has the old offset, far behind the end."""
    rig.target.have(900)
    await rig.sync(100)
    kept = rig.target.committed("g")
    rig.end = 120
    await rig.sync(100)

    assert kept == {REMOTE: 900}
    assert rig.target.committed("g") == {REMOTE: 100}


async def test_nothing_is_committed_for_a_topic_that_has_only_the_name(rig: GroupOffsetsRig) -> None:
    """
    A remote topic is deleted and created again.

    A round has translated a group's offset before that, and its sync comes after it. The next round knows of the new
    topic, of which less is copied.
    """
    wanted = {"g": {REMOTE: CommittedOffset(100, "", OLD), OTHER: CommittedOffset(7)}}
    rig.target.topics = {REMOTE.topic: FakeTopic([FakePartition(), FakePartition()], NEW)}
    settled = [await rig.offsets.sync_once(wanted)]
    settled += [await rig.offsets.sync_once(wanted)]
    before = rig.target.committed("g")
    settled += [await rig.offsets.sync_once({"g": {REMOTE: CommittedOffset(30, "", NEW)}})]

    assert settled == [frozenset(), frozenset(), {"g"}]
    assert before == {OTHER: 7}
    assert rig.target.committed("g")[REMOTE] == 30
    assert rig.events.of(GroupSyncSkipped) == ()


async def test_what_an_old_broker_took_for_the_next_topic_is_set_right(rig: GroupOffsetsRig) -> None:
    """
    A broker before 4.1 takes a topic's name. The topic is created again between the look at its id and the commit, so
    that the new one has the offset of the former. It is longer than that soon; and still nothing is set back else.
    """

    def create_again() -> None:
        rig.target.topics = {REMOTE.topic: FakeTopic([FakePartition(), FakePartition()], NEW)}

    rig.target.versions = {**rig.target.versions, OFFSET_COMMIT: (2, 9)}
    rig.target.topics = {REMOTE.topic: FakeTopic([FakePartition(), FakePartition()], OLD)}
    rig.target.before[OFFSET_COMMIT] = create_again
    await rig.offsets.sync_once({"g": {REMOTE: CommittedOffset(100, "", OLD)}})
    astray = rig.target.committed("g")
    for offset in (30, 20):
        await rig.offsets.sync_once({"g": {REMOTE: CommittedOffset(offset, "", NEW)}})

    assert astray == {REMOTE: 100}
    assert rig.target.committed("g") == {REMOTE: 30}
