"""Rounds of checkpoints: what is read, what is written when, and what one group's failure means."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import attrs
import pytest

from mm2py.config.settings import FlowSettings
from mm2py.connectors.checkpoint import checkpoints
from mm2py.connectors.checkpoint.checkpoints import Checkpoints
from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.connectors.offsets.translations import CopiedTopics
from mm2py.connectors.reach import Reach
from mm2py.core.offsets.translation import Precision, Untranslated
from mm2py.model.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.policy.replication import DefaultReplicationPolicy
from mm2py.telemetry.events import CheckpointsRead, CheckpointsUnreadable, CheckpointsWritten, StepFailed
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topic_log import LogRecord, TopicLog
from tests.support.checkpointing import Shift
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import FETCH, OFFSET_FETCH, FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_rig import SETTINGS, changed, checkpoint_context


TOPIC = "A.checkpoints.internal"
HERE, THERE = TopicPartition("foo", 0), TopicPartition("A.foo", 0)
#: `B.bar` on A came from `bar` on B.
ABROAD, HOME = TopicPartition("B.bar", 0), TopicPartition("bar", 0)
#: The ids of a topic, and of the one that has its name afterwards.
OLD, NEW = "AAAAAAAAAAAAAAAAAAAAAQ", "AAAAAAAAAAAAAAAAAAAAAg"


@attrs.define(eq=False)
class CheckpointsRig:
    """A flow's checkpoints on fake brokers; the source holds groups, the target logs of a hundred records."""

    source: FakeBrokers
    target: FakeBrokers
    events: EventLog
    clock: LoopClock
    here: Cluster
    there: Cluster
    forward: Shift
    back: Shift
    made: Checkpoints = attrs.field(init=False)
    reach: Reach = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.choose()

    def choose(self, settings: FlowSettings = SETTINGS) -> None:
        """Make the checkpoints, with classes of one's own."""
        context = checkpoint_context(self.clock, self.events, settings)
        self.reach = context.reach
        self.made = Checkpoints(
            context,
            self.here,
            self.there,
            forward=self.forward,
            back=self.back,
            latencies=CheckpointLatencies(self.clock),
        )

    async def append(self, *records: tuple[bytes, bytes]) -> None:
        """Append records to the checkpoints topic, as another client does."""
        await TopicLog(self.there, TOPIC).append([LogRecord(key, value, partition=0) for key, value in records])

    async def written(self) -> list[LogRecord]:
        return await TopicLog(self.there, TOPIC).read_all()

    async def offsets(self) -> list[tuple[str, int, int]]:
        found = [decode_checkpoint(record.key, record.value) for record in await self.written()]
        return [(it.group, it.upstream, it.downstream) for it in found]


@pytest.fixture
async def rig() -> AsyncIterator[CheckpointsRig]:
    clock = LoopClock()
    source, target = FakeBrokers(), FakeBrokers()
    hundred = {topic: FakeTopic([FakePartition(end=100)]) for topic in (THERE.topic, HOME.topic)}
    target.topics = {TOPIC: FakeTopic([FakePartition()]), **hundred}
    source.group("g", {HERE: 40}, at=0)
    source.group("h", {HERE: 10}, at=1)
    async with (
        Cluster(attrs.evolve(source.endpoint, alias="A"), clock, opener=source.open) as here,
        Cluster(attrs.evolve(target.endpoint, alias="B"), clock, opener=target.open) as there,
    ):
        forward, back = Shift({HERE.topic: -5}), Shift({ABROAD.topic: 3})
        yield CheckpointsRig(source, target, EventLog(clock), clock, here, there, forward, back)


async def test_a_round_writes_what_is_due(rig: CheckpointsRig) -> None:
    """One record per group and partition, in partition 0, stamped with the round's beginning; then nothing twice."""
    await rig.made.read()
    await rig.clock.sleep(7)
    begun = rig.clock.wall_ms()
    found = await rig.made.emit_once(["g", "h"])
    await rig.made.emit_once(["g", "h"])

    assert await rig.offsets() == [("g", 40, 35), ("h", 10, 5)]
    assert {(record.partition, record.timestamp_ms) for record in await rig.written()} == {(0, begun)}
    assert found.wanted == {"g": {THERE: CommittedOffset(35, "m")}, "h": {THERE: CommittedOffset(5, "m")}}
    assert [(event.groups, event.checkpoints) for event in rig.events.of(CheckpointsWritten)] == [(2, 2)]


async def test_the_topic_s_checkpoints_are_continued(rig: CheckpointsRig) -> None:
    """Own records are read, the latest of each counts, malformed ones are passed over (testReadCheckpointsTopic)."""
    old = [Checkpoint("g", THERE, upstream, downstream) for upstream, downstream in ((10, 10), (38, 37))]
    await rig.append(*(encode_checkpoint(it) for it in old), (b"rubbish", b"rubbish"), (b"\x00\x01x", b"\x00\x09"))
    rig.forward.precision = Precision.COARSE
    await rig.made.read()
    await rig.made.emit_once(["g"])

    assert rig.events.of(CheckpointsRead) == (CheckpointsRead(SETTINGS.flow, TOPIC, 1, 2),)
    assert len(await rig.written()) == 4
    assert rig.made.last_of("g") == {THERE: 37}


async def test_a_checkpoint_that_is_known_to_be_wrong_is_corrected(rig: CheckpointsRig) -> None:
    """
    A remote topic was created again and filled from a later offset of the source on, past the end that it had before.

    Until the group had read on so far at the source, records would be skipped at the target.
    """
    await rig.append(encode_checkpoint(Checkpoint("g", THERE, 38, 38)))
    await rig.made.read()
    await rig.made.emit_once(["g"])
    await rig.made.emit_once(["g"])

    assert await rig.offsets() == [("g", 38, 38), ("g", 40, 35)]
    assert rig.made.last_of("g") == {THERE: 35}


async def test_a_topic_that_may_not_be_read_means_caution(rig: CheckpointsRig) -> None:
    """Said once, and only exact translations are written (testReadCheckpointsTopicError)."""

    def refuse(_node: int, request: Any) -> Any:
        rows = [(number, int(ErrorCode.TOPIC_AUTHORIZATION_FAILED), 0, 0, 0, [], -1, b"") for number in (0,)]
        return request.RESPONSE_TYPE(0, 0, 0, [(TOPIC, rows)])

    await rig.append(encode_checkpoint(Checkpoint("old", THERE, 1, 1)))
    rig.target.script(FETCH, refuse)
    is_read = await rig.made.read()
    rig.forward.precision = Precision.COARSE
    await rig.made.emit_once(["g"])
    estimated = await rig.offsets()
    rig.forward.precision = Precision.EXACT
    await rig.made.emit_once(["g"])

    assert not is_read
    assert len(rig.events.of(CheckpointsUnreadable)) == 1
    assert estimated == [("old", 1, 1)]
    assert await rig.offsets() == [("old", 1, 1), ("g", 40, 35)]


async def test_what_was_copied_to_a_topic_that_is_gone_is_not_translated_to_the_next(rig: CheckpointsRig) -> None:
    """
    A remote topic is created again, and filled. A round comes before the flow has noticed: its checkpoint would lead
    into the new topic. The first of that one is due then, however much further the former was, and by an estimate, too;
    a restart in between changes nothing.
    """
    rig.forward.copied = {HERE.topic: CopiedTopics(None, OLD)}
    await rig.made.read()
    found = [await rig.made.emit_once(["g"])]
    rig.target.topics[THERE.topic] = FakeTopic([FakePartition(end=100)], NEW)
    found += [await rig.made.emit_once(["g"])]
    rig.forward.copied = {HERE.topic: CopiedTopics(None, NEW)}
    rig.forward.by_topic, rig.forward.precision = {HERE.topic: -30}, Precision.END
    rig.choose()
    await rig.made.read()
    found += [await rig.made.emit_once(["g"])]

    assert await rig.offsets() == [("g", 40, 35), ("g", 40, 10)]
    assert [it.wanted for it in found] == [{"g": {THERE: CommittedOffset(at, "m")}} if at else {} for at in (35, 0, 10)]
    assert [it.wanted["g"][THERE].topic_id for it in found if it.wanted] == [OLD, NEW]
    assert found[1].views["g"][0].why == Untranslated.OTHER_TOPIC.value


async def test_an_offset_of_a_topic_that_is_gone_is_not_translated_as_the_next_s(rig: CheckpointsRig) -> None:
    """
    A source topic is deleted after a group's offset in it was read, and created again; another node copies that one,
    and its translations are known before the round goes on.
    """
    rig.source.topics = {HERE.topic: FakeTopic([FakePartition(end=100)], OLD)}
    await rig.made.read()

    def create_again(node: int, request: Any) -> Any:
        answer = rig.source.plainly(node, request)
        rig.source.topics = {HERE.topic: FakeTopic([FakePartition(end=100)], NEW)}
        rig.forward.copied = {HERE.topic: CopiedTopics(NEW, None)}
        return answer

    await rig.made.emit_once(["g"])
    rig.source.script(OFFSET_FETCH, create_again)
    found = [await rig.made.emit_once(["g"]), await rig.made.emit_once(["g"])]

    assert [it.wanted for it in found] == [{}, {"g": {THERE: CommittedOffset(35, "m")}}]


async def test_one_group_s_failure_is_its_own(rig: CheckpointsRig) -> None:
    """A group whose offsets may not be read is reported once, and each time counted; the others are written."""
    await rig.made.read()
    rig.source.errors = {"g": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    await rig.made.emit_once(["g", "h"])
    await rig.made.emit_once(["g", "h"])
    told = rig.events.of(StepFailed)
    rig.source.errors = {}
    await rig.made.emit_once(["g", "h"])

    assert [event.step for event in told] == ["read the offsets of group g"]
    assert {step.step: step.failures for step in rig.reach.steps() if step.failures} == {
        "read the offsets of groups": 2
    }
    assert await rig.offsets() == [("h", 10, 5), ("g", 40, 35)]


class ChoosyFilter:
    """A filter of one's own that does not expect every name."""

    def takes_topic(self, topic: str) -> bool:
        return {HERE.topic: True}[topic]


class ChoosyPolicy(DefaultReplicationPolicy):
    """A policy of one's own, likewise."""

    def topic_source(self, topic: str) -> str | None:
        return {HERE.topic: None}[topic]


CHOOSY_FILTER = changed(
    SETTINGS, topics=attrs.evolve(SETTINGS.source_connector.topics, filter_class=f"{__name__}.ChoosyFilter")
)
CHOOSY_POLICY = changed(
    SETTINGS, policy=attrs.evolve(SETTINGS.source_connector.policy, class_name=f"{__name__}.ChoosyPolicy")
)


@pytest.mark.parametrize("settings", [CHOOSY_FILTER, CHOOSY_POLICY], ids=["filter", "policy"])
async def test_a_custom_class_that_fails_for_a_topic_spares_the_others(
    rig: CheckpointsRig, settings: FlowSettings
) -> None:
    """A group reads a topic that it does not expect: that is reported, once, and what it expects is translated."""
    rig.choose(settings)
    await rig.made.read()
    rig.source.commit("g", {TopicPartition("other", 0): 7})
    await rig.made.emit_once(["g", "h"])
    await rig.made.emit_once(["g", "h"])

    assert await rig.offsets() == [("g", 40, 35), ("h", 10, 5)]
    assert ["Choosy" in event.error for event in rig.events.of(StepFailed)] == [True]


async def test_a_group_that_is_gone_is_measured_no_more(rig: CheckpointsRig) -> None:
    """Programs that read under a new name at each start would leave what was measured of each of them for good."""
    await rig.made.read()
    found = await rig.made.emit_once(["g", "h"])
    without = await rig.made.emit_once(["h"])
    again = await rig.made.emit_once(["g", "h"])

    assert found.views["g"][0].latency is not None
    assert without.views["h"][0].latency is not None
    assert again.views["g"][0].latency is None


async def test_of_groups_that_are_gone_the_newest_are_remembered(
    rig: CheckpointsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A hundred thousand programs read under names of their own, one after the other.

    All their checkpoints would stay in memory. One that is there again soon must not go back behind its own.
    """
    monkeypatch.setattr(checkpoints, "_GONE", 2)
    names = [f"console-{number}" for number in range(6)]
    await rig.made.read()
    for name in names:
        rig.source.group(name, {HERE: 40})
        await rig.made.emit_once(["g", name])
    rig.source.commit("g", {HERE: 50})
    rig.forward.precision, rig.forward.by_topic = Precision.COARSE, {HERE.topic: -9}
    await rig.made.emit_once(["g", names[-2]])

    assert [name for name in names if rig.made.last_of(name)] == names[-3:]
    assert rig.made.last_of("g") == {THERE: 41}
    assert rig.made.last_of(names[-2]) == {THERE: 35}


async def test_a_group_that_has_read_for_long_is_among_the_newest_once_it_is_gone(
    rig: CheckpointsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was there before all those that read once, and is away for a moment: it must not go back after that."""
    monkeypatch.setattr(checkpoints, "_GONE", 2)
    await rig.made.read()
    for number in range(6):
        name = f"console-{number}"
        rig.source.group(name, {HERE: 40})
        rig.source.commit("g", {HERE: 40 + number})
        await rig.made.emit_once(["g", name])
    await rig.made.emit_once([])

    assert [name for name in ("g", "console-4", "console-5") if rig.made.last_of(name)] == ["g", "console-5"]


async def test_of_partitions_that_a_group_no_longer_reads_the_newest_are_remembered(
    rig: CheckpointsRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that reads all topics of a pattern would leave each of them in memory, however long it is deleted."""
    monkeypatch.setattr(checkpoints, "_GONE", 2)
    topics = [f"foo-{number}" for number in range(6)]
    rig.target.topics |= {f"A.{topic}": FakeTopic([FakePartition(end=100)]) for topic in topics}
    rig.forward.by_topic = dict.fromkeys([HERE.topic, *topics], 0)
    await rig.made.read()
    for topic in topics:
        rig.source.group("g").offsets.clear()
        rig.source.commit("g", {HERE: 40, TopicPartition(topic, 0): 7})
        await rig.made.emit_once(["g"])
    rig.source.errors = {"g": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    await rig.made.emit_once(["g"])

    assert [remote.topic for remote in rig.made.last_of("g")] == ["A.foo", *(f"A.{topic}" for topic in topics[-3:])]


async def test_a_refusal_of_a_group_that_is_gone_is_forgotten(rig: CheckpointsRig) -> None:
    """Each group that may not be read is reported once; one of its name that comes later, too."""
    await rig.made.read()
    rig.source.errors = {"g": int(ErrorCode.GROUP_AUTHORIZATION_FAILED)}
    for groups in (["g", "h"], ["g", "h"], ["h"], ["g", "h"]):
        await rig.made.emit_once(groups)

    assert [event.step for event in rig.events.of(StepFailed)] == ["read the offsets of group g"] * 2


async def test_a_target_log_that_cannot_be_asked_about_is_left_out(rig: CheckpointsRig) -> None:
    """No end, no checkpoint: it could point beyond it. The group's view says why."""
    await rig.made.read()
    del rig.target.topics[THERE.topic]
    found = await rig.made.emit_once(["g"])

    assert await rig.offsets() == []
    assert found.wanted == {}
    assert "did not return" in found.views["g"][0].why


def _read_abroad(rig: CheckpointsRig, *, members: int = 1) -> None:
    rig.source.group("g", members=members).offsets.clear()
    rig.source.commit("g", {ABROAD: 20})


async def test_what_a_group_reads_abroad_is_carried_home_once(rig: CheckpointsRig) -> None:
    """
    Failback, and an operator who resets the group at home afterwards.

    The group reads `B.bar` on A, so its offset is to be moved to `bar` on B. It reads on while that is written, so it
    is to be moved again; once that is done, and the group has no members any more, it is not wanted any longer.
    """
    await rig.made.read()
    _read_abroad(rig)
    first = await rig.made.emit_once(["g"])
    rig.source.commit("g", {ABROAD: 30})
    second = await rig.made.emit_once(["g"])
    rig.made.note_settled(first, ["g"])
    third = await rig.made.emit_once(["g"])
    rig.made.note_settled(third, ["g"])
    rig.source.group("g")
    fourth = await rig.made.emit_once(["g"])

    assert [found.wanted.get("g", {}).get(HOME) for found in (first, second, third, fourth)] == [
        CommittedOffset(23, "m"),
        CommittedOffset(33, "m"),
        CommittedOffset(33, "m"),
        None,
    ]
    assert await rig.offsets() == [("g", 20, 23), ("g", 30, 33)]


async def test_where_the_log_begins_is_not_what_a_group_has_read(rig: CheckpointsRig) -> None:
    """
    What a group reads next is gone at home, and held abroad. It is put to where the log at home begins, so that a
    consumer there is not reset; but that is not carried abroad, where the group would skip what it has not read.
    """
    await rig.made.read()
    _read_abroad(rig)
    rig.target.topics[HOME.topic].partitions[0].start = 50
    there = await rig.made.emit_once(["g"])
    back = there.wanted["g"][HOME]
    rig.source.group("h").offsets[HERE.topic, HERE.partition] = back.offset, back.metadata
    found = await rig.made.emit_once(["h"])
    rig.source.commit("h", {HERE: 60})
    then = await rig.made.emit_once(["h"])

    assert (back.offset, found.wanted) == (50, {})
    assert "not read up to it" in found.views["h"][0].why
    assert then.wanted == {"h": {THERE: CommittedOffset(55, "m")}}


async def test_what_a_router_renamed_is_carried_home_to_the_topic_it_came_from(rig: CheckpointsRig) -> None:
    """
    The flow home knows better than the name: a router of it made `B.bar` out of `born`.

    So it is `born` on B that gets the group's offset, and that the topic filter is asked about.
    """
    born = TopicPartition("born", 0)
    rig.target.topics[born.topic] = rig.target.topics.pop(HOME.topic)
    rig.back.came_from = {ABROAD: born}
    await rig.made.read()
    _read_abroad(rig)
    found = await rig.made.emit_once(["g"])

    assert found.wanted == {"g": {born: CommittedOffset(23, "m")}}
    assert await rig.offsets() == [("g", 20, 23)]


async def test_a_group_that_leaves_amid_a_round_is_carried_home(rig: CheckpointsRig) -> None:
    """It commits and leaves right after its offsets were read; whether it had members is asked before that."""
    await rig.made.read()
    _read_abroad(rig)
    first = await rig.made.emit_once(["g"])
    rig.made.note_settled(first, ["g"])

    def leaves(node: int, request: Any) -> Any:
        before = rig.source.plainly(node, request)
        rig.source.group("g", {ABROAD: 30})
        return before

    rig.source.script(OFFSET_FETCH, leaves)
    await rig.made.emit_once(["g"])
    found = await rig.made.emit_once(["g"])

    assert found.wanted == {"g": {HOME: CommittedOffset(33, "m")}}


async def test_what_is_not_all_known_yet_is_carried_home_again(rig: CheckpointsRig) -> None:
    """An offset past what is known to be copied is settled only once it is translated in full."""
    await rig.made.read()
    _read_abroad(rig)
    rig.back.precision = Precision.END
    early = await rig.made.emit_once(["g"])
    rig.made.note_settled(early, ["g"])
    rig.back.precision = Precision.EXACT
    later = await rig.made.emit_once(["g"])

    assert HOME in later.wanted["g"]


async def test_nothing_is_written_before_translations_are_ready(rig: CheckpointsRig) -> None:
    """While what was copied before is still being read there is no checkpoint (testCheckpointStoreInitialized)."""
    await rig.made.read()
    rig.forward.why_not = Untranslated.NOT_READY
    found = await rig.made.emit_once(["g"])
    rig.forward.why_not = None
    later = await rig.made.emit_once(["g"])

    assert (found.is_ready, found.wanted) == (False, {})
    assert later.is_ready
    assert await rig.offsets() == [("g", 40, 35)]


async def test_no_group_waits_for_the_leader_of_another_one_s_topic(rig: CheckpointsRig) -> None:
    """
    A broker of the target with the only replica of a remote partition is down for hours.

    Groups that read it have no new checkpoints for it meanwhile; all others have theirs as ever.
    """
    lost, remote = TopicPartition("lost", 0), TopicPartition("A.lost", 0)
    rig.target.topics[remote.topic] = FakeTopic([FakePartition(leader=-1)])
    rig.source.commit("h", {lost: 10})
    rig.forward.by_topic = {HERE.topic: -5, lost.topic: 0}
    await rig.made.read()
    await rig.made.emit_once(["g", "h"])
    rig.source.commit("g", {HERE: 50})
    begun = rig.clock.monotonic()
    await rig.made.emit_once(["g", "h"])

    assert rig.clock.monotonic() - begun < 1
    assert await rig.offsets() == [("g", 40, 35), ("h", 10, 5), ("g", 50, 45)]
