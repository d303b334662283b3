"""What moving a consumer group to the target would mean."""

from __future__ import annotations

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.group import OffsetAtTarget
from mm2py.model.group_move import GroupMove, PartitionMove, by_source, moves_of
from mm2py.model.state import GroupOffsetsView, GroupOffsetView, PartitionStage, PartitionView


_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _offset(
    source: TopicPartition = _T0,
    *,
    upstream: int = 90,
    downstream: int | None = 0,
    is_exact: bool = True,
    is_back: bool = False,
    behind: int | None = None,
    at: OffsetAtTarget = OffsetAtTarget.COMMITTED,
) -> GroupOffsetView:
    remote = TopicPartition(f"A.{source.topic}", source.partition)
    return GroupOffsetView(
        source, remote, upstream, downstream, 0, is_exact, behind=behind, at_target=at, is_back=is_back
    )


def _partition(source: TopicPartition = _T0, *, position: int, end: int | None) -> PartitionView:
    return PartitionView(
        source, f"A.{source.topic}", 0, PartitionStage.PAUSED, position, None, None, 0, 0, 0.0, end_offset=end
    )


def _moved(
    offsets: list[GroupOffsetView], *partitions: PartitionView, due_ms: int | None = None, why: str = ""
) -> GroupMove | None:
    group = GroupOffsetsView("g", tuple(offsets), sync_due_ms=due_ms, unsynced_why=why)
    [(_, move, _)] = moves_of([group], by_source(partitions))
    return move


@pytest.mark.parametrize(
    ("offset", "partition", "move"),
    [
        pytest.param(_offset(upstream=90), _partition(position=100, end=100), GroupMove(), id="all is copied"),
        pytest.param(
            _offset(upstream=6237), _partition(position=5024, end=6237), GroupMove(again=1213), id="it read further"
        ),
        pytest.param(
            _offset(upstream=90), _partition(position=100, end=150), GroupMove(missing=50), id="the mirror is behind"
        ),
        pytest.param(
            _offset(upstream=120), _partition(position=100, end=150), GroupMove(again=20, missing=30), id="both"
        ),
        pytest.param(
            _offset(upstream=120, is_exact=False),
            _partition(position=100, end=150),
            GroupMove(again=20, missing=30),
            id="at the end of what is known",
        ),
        pytest.param(
            _offset(upstream=90, is_exact=False),
            _partition(position=100, end=100),
            GroupMove(unknown=1),
            id="estimated",
        ),
        pytest.param(
            _offset(upstream=90, is_exact=False, behind=7),
            _partition(position=100, end=104),
            GroupMove(again=7, missing=4, is_again_at_most=True),
            id="a reader that keeps up, as of the last translation",
        ),
        pytest.param(
            _offset(upstream=90, is_exact=False, behind=0),
            _partition(position=100, end=100),
            GroupMove(),
            id="at a sync",
        ),
        pytest.param(_offset(upstream=90), _partition(position=100, end=None), GroupMove(unknown=1), id="end unknown"),
        pytest.param(
            _offset(upstream=90, downstream=None),
            _partition(position=100, end=100),
            GroupMove(unknown=1),
            id="no offset",
        ),
    ],
)
def test_a_partition(offset: GroupOffsetView, partition: PartitionView, move: GroupMove) -> None:
    """It counts from where the mirror is, not from what is left to read at the target."""
    assert _moved([offset], partition) == move


def test_a_group_is_the_sum_of_its_partitions() -> None:
    offsets = [_offset(_T0, upstream=120), _offset(_T1, upstream=5)]

    move = _moved(offsets, _partition(_T0, position=100, end=150), _partition(_T1, position=7, end=9))

    assert move == GroupMove(again=20, missing=32)
    assert move.text(0) == "would read 20 again, would miss 32 until they are copied"


def test_topics_that_came_from_the_target_are_whole_there() -> None:
    assert _moved([_offset(is_exact=False, is_back=True)]) == GroupMove()


def test_how_far_another_node_has_copied_is_unknown_here() -> None:
    """Its partitions are not among this node's: only an exact translation says that nothing is read again."""
    assert _moved([_offset()]) == GroupMove()
    assert _moved([_offset(is_exact=False)]) == GroupMove(unknown=1)
    assert _moved([_offset(is_exact=False, behind=3)]) == GroupMove(again=3, is_again_at_most=True)


_UNSYNCED = "sync.group.offsets.enabled is false"


@pytest.mark.parametrize(
    ("at", "due_ms", "why", "text"),
    [
        pytest.param(OffsetAtTarget.COMMITTED, None, _UNSYNCED, "ready", id="committed"),
        pytest.param(
            OffsetAtTarget.UNCOMMITTED, None, _UNSYNCED, f"not committed at the target: {_UNSYNCED}", id="not synced"
        ),
        pytest.param(OffsetAtTarget.UNCOMMITTED, 43_000, "", "committed in at most 43 s", id="due"),
        pytest.param(OffsetAtTarget.UNCOMMITTED, -5_000, "", "committed in at most 1 s", id="overdue"),
        pytest.param(OffsetAtTarget.IN_USE, 43_000, "", "in use at the target", id="in use"),
        pytest.param(OffsetAtTarget.MOVED, 43_000, "", "moved", id="it has read on there"),
        pytest.param(OffsetAtTarget.UNKNOWN, 43_000, "", "unknown for 1 partition", id="the target does not answer"),
    ],
)
def test_a_group_is_ready_only_where_it_has_committed_at_the_target(
    at: OffsetAtTarget, due_ms: int | None, why: str, text: str
) -> None:
    move = _moved([_offset(at=at)], _partition(position=100, end=100), due_ms=due_ms, why=why)

    assert move is not None
    assert move.text(0) == text


def test_a_partition_s_words_are_its_own() -> None:
    """Three partitions of a group; only the group's words are about all of them."""
    third = TopicPartition("t", 2)
    offsets = (
        _offset(_T0),
        _offset(_T1, at=OffsetAtTarget.UNCOMMITTED),
        _offset(third, is_exact=False),
    )
    partitions = [_partition(one, position=100, end=100) for one in (_T0, _T1, third)]
    [(_, move, each)] = moves_of([GroupOffsetsView("g", offsets, sync_due_ms=9_500)], by_source(partitions))

    assert [one.text(0) for one in each] == ["ready", "committed in at most 10 s", "unknown"]
    assert move is not None
    assert move.text(0) == "unknown for 1 partition, committed in at most 10 s"


def test_words() -> None:
    assert GroupMove().words == "ready"
    assert GroupMove(again=3, is_again_at_most=True).words == "would read at most 3 again"
    assert PartitionMove(unknown=1).words == "unknown"
    assert GroupMove(missing=4, unknown=2).words == "would miss 4 until they are copied, unknown for 2 partitions"


def test_a_group_without_offsets_has_nothing_to_move() -> None:
    assert _moved([]) is None
