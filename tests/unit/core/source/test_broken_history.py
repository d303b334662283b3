"""What follows when the source or the target is not what a position is about."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.config.connector import BrokenHistorySettings
from mm2py.core.source.broken_history import (
    Finding,
    GoOn,
    HistoryBreak,
    Observation,
    RecreateRemote,
    Stop,
    decide,
    diagnose,
    policy_of,
    position_after,
    reset,
)
from mm2py.core.source.progress import PartitionState, Repair, stop
from mm2py.model.epoch import RECREATED, Ended, LeaderMark, LogOffsets, PartitionFailure, ProducerMark
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position


TP = TopicPartition("t", 0)
#: 100 records copied, upstream 1000 to 1099, downstream 0 to 99.
STATE = PartitionState(
    TP, "A.t", 1100, 99, is_unsure=False, topic_id="s1", remote_topic_id="r1", producer=ProducerMark(7, 0, 100),
    leader=LeaderMark(4, 1050), log=LogOffsets(high_watermark=1130),
)  # fmt: skip
LOOK = Observation(
    "s1", log_start=1000, log_end=1130, remote_topic_id="r1", remote_end=100, history_end=1130, history_epoch=4
)
OTHER_SOURCE = attrs.evolve(LOOK, topic_id="s2", log_start=0, log_end=20, history_end=-1)
_SOUGHT = Repair(1, 1100, 99, "r1", None, is_rebuilt=True, topic_id="s1", left=30)
#: Such a source, after it was compared with the target in vain.
COMPARED = attrs.evolve(
    STATE, position=0, downstream=None, topic_id="s2", producer=None, leader=None, ended=Ended.UNPROVEN,
    repair=_SOUGHT,
)  # fmt: skip
OTHER_TARGET = attrs.evolve(LOOK, remote_topic_id="r2", remote_end=0)


def state(**changes: object) -> PartitionState:
    return attrs.evolve(STATE, **changes)


def look(**changes: object) -> Observation:
    return attrs.evolve(LOOK, **changes)


def found(before: PartitionState, seen: Observation) -> Finding:
    finding = diagnose(before, seen)
    assert finding is not None
    return finding


def act(before: PartitionState, seen: Observation, **policies: str) -> object:
    return decide(found(before, seen), before, seen, BrokenHistorySettings(**policies))


@pytest.mark.parametrize(
    ("before", "seen"),
    [
        pytest.param(STATE, LOOK, id="all is well"),
        pytest.param(STATE, look(log_start=1100), id="the source's log begins right at the position"),
        pytest.param(STATE, look(log_end=1100, history_end=1100), id="nothing new at the source"),
        pytest.param(STATE, look(remote_end=150), id="the target holds more than is known"),
        pytest.param(STATE, look(history_end=None), id="the history cannot be asked"),
        pytest.param(STATE, look(topic_id=None, remote_topic_id=None), id="brokers that have no topic ids"),
        pytest.param(state(downstream=None), look(log_start=1100, remote_end=0), id="Java's, of which nothing is left"),
        pytest.param(state(downstream=None, is_transformed=True), look(remote_end=0), id="a transform kept nothing"),
        pytest.param(
            state(position=1000, downstream=None, repair=Repair(0, 1100, None, "r1", None, is_start=True)),
            look(remote_end=0),
            id="a start that is searched for",
        ),
        pytest.param(state(downstream=-1), look(remote_end=0), id="nothing copied yet"),
    ],
)
def test_nothing_is_wrong(before: PartitionState, seen: Observation) -> None:
    """Both clusters are what the position is about."""
    assert diagnose(before, seen) is None


@pytest.mark.parametrize(
    ("before", "seen", "kind", "records", "diverges_at"),
    [
        pytest.param(STATE, OTHER_SOURCE, HistoryBreak.RECREATED, 30, None, id="re-created, with records not copied"),
        pytest.param(STATE, OTHER_TARGET, HistoryBreak.REMADE, 100, None, id="another remote topic"),
        pytest.param(
            STATE, attrs.evolve(OTHER_SOURCE, remote_topic_id="r2"), HistoryBreak.RECREATED, 30, None, id="both"
        ),
        pytest.param(STATE, look(remote_end=60), HistoryBreak.REWOUND, 40, None, id="the target's end is gone"),
        pytest.param(
            STATE, look(log_end=1500, history_end=1080), HistoryBreak.TRUNCATED, 20, 1080, id="grown past the position"
        ),
        pytest.param(
            STATE, look(history_end=1080, history_epoch=3), HistoryBreak.TRUNCATED, 50, 1050, id="no such epoch"
        ),
        pytest.param(
            STATE, look(history_end=1020, history_epoch=3), HistoryBreak.TRUNCATED, 80, 1020, id="an older one's end"
        ),
        pytest.param(
            state(leader=None), look(log_end=1090, history_end=None), HistoryBreak.TRUNCATED, 10, None, id="shorter"
        ),
        pytest.param(STATE, look(history_end=-1), HistoryBreak.TRUNCATED, 0, None, id="a log without the epoch"),
        pytest.param(STATE, look(log_start=1120), HistoryBreak.EXPIRED, 20, None, id="retention was faster"),
        pytest.param(
            state(position=1060, downstream=None, repair=Repair(1, 1100, 99, "r1", 1060)), look(remote_end=60),
            HistoryBreak.REWOUND, 40, None, id="after a search in vain",
        ),
        pytest.param(
            state(downstream=None, remote_topic_id=None), look(remote_end=0), HistoryBreak.REWOUND, 100, None,
            id="a position of Java's, and an empty remote topic",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong(
    before: PartitionState, seen: Observation, kind: HistoryBreak, records: int, diverges_at: int | None
) -> None:
    """Each kind is recognised, with the number of records concerned and where histories part."""
    finding = found(before, seen)

    assert (finding.kind, finding.records, finding.diverges_at) == (kind, records, diverges_at)


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        ("earliest", GoOn(0, 99, lost=30)),
        ("latest", GoOn(20, 99, lost=50)),
        ("re-create", RecreateRemote()),
    ],
)
def test_after_a_source_topic_was_recreated(policy: str, wanted: object) -> None:
    """The new topic goes behind the old one's records, or into a new remote topic, or not at all."""
    assert act(COMPARED, OTHER_SOURCE, on_source_recreated=policy) == wanted


@pytest.mark.parametrize("policy", ["fail", "earliest", "latest", "re-create"])
def test_a_recreated_topic_is_compared_first(policy: str) -> None:
    """It may have been rebuilt from the target; what was stored stays so until that is known."""
    first = act(STATE, OTHER_SOURCE, on_source_recreated=policy)
    assert isinstance(first, GoOn)
    begun = reset(STATE, first, OTHER_SOURCE, now=5.0)

    assert first == GoOn(0, None, repair=COMPARED.repair)
    assert (begun.topic_id, begun.plan.is_rebuilt, begun.written) == ("s2", True, STATE.written)
    assert found(begun, OTHER_SOURCE).records == 30
    assert stop(begun, PartitionFailure("no"), now=9.0, jitter=0.0).topic_id == "s1"


@pytest.mark.parametrize("ended", [Ended.OUT_OF_RANGE, Ended.RECREATED])
@pytest.mark.parametrize("policy", ["fail", "earliest", "latest", "re-create"])
def test_a_comparison_that_was_cut_short_is_begun_again(policy: str, ended: Ended) -> None:
    """The source has removed what was being read, or was created once more: nothing was found out, but not for ever."""
    before, acts = attrs.evolve(COMPARED, ended=ended), []
    seen = attrs.evolve(OTHER_SOURCE, topic_id="s3", log_start=5)
    while isinstance(again := act(before, seen, on_source_recreated=policy), GoOn) and again.repair is not None:
        acts.append(again)
        before = attrs.evolve(reset(before, again, seen, now=5.0), ended=ended)

    assert acts == [GoOn(5, None, repair=attrs.evolve(_SOUGHT, attempt=it)) for it in range(2, 6)]


@pytest.mark.parametrize(
    ("before", "seen"),
    [
        pytest.param(STATE, {"log_end": 0}, id="a new topic without records"),
        pytest.param(STATE, {"remote_topic_id": "r2"}, id="another remote topic"),
        pytest.param(state(is_transformed=True), {}, id="transformed"),
    ],
)
def test_what_cannot_be_compared(before: PartitionState, seen: dict[str, Any]) -> None:
    assert isinstance(act(before, attrs.evolve(OTHER_SOURCE, **seen), on_source_recreated="fail"), Stop)


@pytest.mark.parametrize(
    ("before", "why"),
    [
        (
            attrs.evolve(COMPARED, failure=PartitionFailure("upstream offset 3 is not there")),
            "upstream offset 3 is not there",
        ),
        (state(is_transformed=True), "what a transform may have changed cannot be compared"),
    ],
    ids=["compared in vain", "transformed"],
)
def test_the_failure_says_why_a_topic_does_not_count_as_rebuilt(before: PartitionState, why: str) -> None:
    """An operator who decides what follows must know what is not proven."""
    stopped = act(before, OTHER_SOURCE, on_source_recreated="fail")

    assert isinstance(stopped, Stop)
    assert stopped.failure.message.endswith(f"; it is not proven to be rebuilt from A.t: {why}")
    assert stopped.failure.hint == RECREATED.hint


_BEFORE = state(position=0, downstream=-1, leader=None, producer=None, log=LogOffsets())
_ALL_COPIED = state(log=LogOffsets())


@pytest.mark.parametrize(
    ("before", "seen", "goes_on"),
    [
        (_BEFORE, {}, True),
        (_BEFORE, {"is_untouched": False}, False),
        (attrs.evolve(_BEFORE, log=LogOffsets(high_watermark=3)), {}, False),
        (attrs.evolve(_BEFORE, downstream=None), {}, False),
        (_ALL_COPIED, {}, False),
        (_ALL_COPIED, {"remote_topic_id": "r2"}, True),
        (_ALL_COPIED, {"remote_topic_id": "r2", "is_untouched": False}, False),
        (_ALL_COPIED, {"remote_topic_id": None}, False),
        (STATE, {"remote_topic_id": "r2"}, False),
    ],
    ids=[
        "nothing",
        "another partition",
        "records not copied",
        "a position of Java's",
        "the remote topic emptied",
        "the remote topic deleted, too",
        "deleted, and another partition",
        "unknown ids",
        "deleted, and records not copied",
    ],
)
def test_a_topic_with_nothing_at_the_target_has_nothing_to_mix(
    before: PartitionState, seen: dict[str, Any], *, goes_on: bool
) -> None:
    """It was created with too few partitions, say, and again, before it got a record; or a test environment has removed
    its topics on both sides, and makes them again. A record that was not copied, or is in another partition of the
    remote topic, is for an operator to judge.
    """
    found = attrs.evolve(OTHER_SOURCE, remote_end=0, **{"is_untouched": True, **seen})

    assert isinstance(act(before, found, on_source_recreated="fail"), GoOn if goes_on else Stop)


def test_a_remote_topic_is_deleted_once() -> None:
    """Once the remote topic is another one, the new source topic is copied into it from its start."""
    seen = attrs.evolve(OTHER_SOURCE, remote_topic_id="r2", remote_end=0)

    assert act(STATE, seen, on_source_recreated="re-create") == GoOn(0, -1, lost=30)


def test_after_retention_was_faster() -> None:
    """Copying goes on at what is left, as the same producer; where more may be at the target it is looked for."""
    seen = look(log_start=1120)

    assert act(STATE, seen) == GoOn(1120, 99, lost=20)
    assert act(state(is_unsure=True), seen) == GoOn(1120, None, lost=20)
    assert act(state(is_unsure=True), attrs.evolve(seen, remote_end=115)) == GoOn(1120, None, lost=5)
    assert found(STATE, seen).message.endswith("before they were copied")
    assert found(state(is_unsure=True), seen).message.endswith("before they were known to be copied")
    assert act(STATE, seen, on_source_expired="latest") == GoOn(1130, 99, lost=30)


@pytest.mark.parametrize("policy", ["earliest", "latest", "fail"])
def test_what_was_deleted_on_purpose_is_no_loss(policy: str) -> None:
    """A topic without retention loses its first records by DeleteRecords alone: copying goes on at what is left."""
    seen = look(log_start=1120, is_kept=True)

    assert found(STATE, seen).kind is HistoryBreak.PURGED
    assert act(STATE, seen, on_source_expired=policy) == GoOn(1120, 99)


def test_what_arrives_late_takes_no_sequence_of_what_is_left() -> None:
    """
    A batch is sent, its answer does not come, and what it holds expires before it arrives.

    What is copied instead would get its sequences, and the broker take the one for the other. So the producer's next
    epoch is claimed first; the position names the former one, which that replaces.
    """
    before, seen = attrs.evolve(STATE, written=STATE.standing), look(log_start=1120)
    done = act(before, seen)
    assert isinstance(done, GoOn)
    stored = position_after(done, before, seen)
    after = attrs.evolve(reset(before, done, seen, now=5.0), written=stored)

    assert before.is_fenced
    assert stored.producer == STATE.producer
    assert not after.is_fenced


def test_after_a_truncation_of_the_source() -> None:
    """Copying goes on where histories part; without leader epochs that is unknown, and nothing is copied."""
    seen, unknown = look(log_end=1500, history_end=1080), look(log_end=1090, history_end=None)

    assert act(STATE, seen) == GoOn(1080, 99)
    assert act(STATE, seen, on_source_truncated="earliest") == GoOn(1000, 99, repeated=80)
    assert act(STATE, seen, on_source_truncated="latest") == GoOn(1500, 99, lost=420)
    assert isinstance(act(state(leader=None), unknown), Stop)
    assert act(state(leader=None), unknown, on_source_truncated="earliest") == GoOn(1000, 99, repeated=90)


@pytest.mark.parametrize(
    ("before", "seen", "wanted"),
    [
        pytest.param(STATE, OTHER_TARGET, GoOn(1000, -1, repeated=100), id="an empty new topic: all again"),
        pytest.param(
            STATE, attrs.evolve(OTHER_TARGET, log_start=1040), GoOn(1040, -1, lost=40, repeated=60),
            id="of which the source has not all",
        ),
        pytest.param(
            STATE, look(remote_end=60), GoOn(1060, None, repair=Repair(1, 1100, 99, "r1", 1060)),
            id="where the last record should be",
        ),
        pytest.param(
            state(position=1060, downstream=None, repair=Repair(1, 1100, 99, "r1", 1060)), look(remote_end=60),
            GoOn(1000, None, repair=Repair(2, 1100, 99, "r1", 1060)), id="not there: from the source's start",
        ),
        pytest.param(
            STATE, look(remote_end=60, log_start=1070), GoOn(1070, 59, lost=10), id="the source begins behind it",
        ),
        pytest.param(
            state(position=1000, downstream=None, remote_topic_id="r2", repair=Repair(2, 1100, 99, "r1", 1010)),
            attrs.evolve(OTHER_TARGET, remote_end=10), GoOn(1000, 9, repeated=100), id="strays in a new topic",
        ),
        pytest.param(
            state(downstream=None), look(remote_end=0), GoOn(1000, -1, repeated=100), id="all that Java copied",
        ),
        pytest.param(state(downstream=-1, position=1000), OTHER_TARGET, GoOn(1000, -1), id="nothing was at stake"),
    ],
)  # fmt: skip
def test_what_the_target_lacks_is_copied_again(before: PartitionState, seen: Observation, wanted: GoOn) -> None:
    """From behind the target's last record where that is found in the source, else from the source's start."""
    assert act(before, seen) == wanted


def test_a_batch_that_got_in_is_not_taken_for_the_target_s_end() -> None:
    """If the target accepted a later batch first, what was copied ends before it, and its records are there twice."""
    strays = state(stray_from=60)
    seen = look(remote_end=110)

    assert found(strays, seen).records == 40
    assert act(strays, seen) == GoOn(1060, None, repeated=50, repair=Repair(1, 1100, 99, "r1", 1060, found_at=59))
    assert act(state(stray_from=0), seen) == GoOn(1000, 109, repeated=100)


def test_a_search_in_vain_stops() -> None:
    """A target whose last record is not in the source is not ours to repair."""
    searched = state(position=1000, downstream=None, repair=Repair(2, 1100, 99, "r1", 1060))

    assert isinstance(act(searched, look(remote_end=60)), Stop)
    assert act(searched, look(remote_end=60), on_target_rewound="continue") == GoOn(1100, 59, lost=40)


@pytest.mark.parametrize(
    ("seen", "key"),
    [
        (attrs.evolve(OTHER_SOURCE, log_end=0), "on_source_recreated"),
        (look(log_start=1120), "on_source_expired"),
        (look(history_end=1080), "on_source_truncated"),
        (look(remote_end=60), "on_target_rewound"),
        (OTHER_TARGET, "on_target_rewound"),
    ],
)
def test_fail_stops_and_names_the_way_out(seen: Observation, key: str) -> None:
    """Under `fail` nothing is copied, and the hint names the setting that decides."""
    stopped = act(STATE, seen, **{key: "fail"})
    setting, policy = policy_of(found(STATE, seen).kind, BrokenHistorySettings(**{key: "fail"}))

    assert isinstance(stopped, Stop)
    assert policy == "fail"
    assert setting in stopped.failure.hint
    assert setting.replace(".", "_") == f"copy_{key}"


def test_a_reset_is_about_what_was_seen() -> None:
    """
    Position, ids and numbers are those of the new history; the old leader epoch means nothing there.

    The producer stays in the position, so that its next epoch takes its place, and not another id: a batch of a lost
    epoch that arrives after the new topic's first records would be taken otherwise.
    """
    done = GoOn(0, 99, lost=30)
    after = reset(state(is_questioned=True), done, OTHER_SOURCE, now=5.0)

    assert STATE.producer is not None
    assert position_after(done, STATE, OTHER_SOURCE) == Position(TP, 0, 99, "s2", STATE.producer, "r1")
    slept = attrs.evolve(STATE, producer=None, written=STATE.standing)
    assert position_after(done, slept, OTHER_SOURCE).producer == STATE.producer
    assert after.standing == Position(TP, 0, 99, "s2", None, "r1")
    assert (after.is_questioned, after.is_unsure, after.retry_at, after.log) == (False, False, 5.0, LogOffsets(0, 20))
