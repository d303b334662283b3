"""What moving a consumer group to the target would mean."""

from __future__ import annotations

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.model.group_move import GroupMove, moves_of
from mm2py.model.state import GroupOffsetsView, GroupOffsetView, PartitionStage, PartitionView


_T0, _T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def _offset(
    source: TopicPartition = _T0, *, upstream: int, downstream: int | None = 0, is_exact: bool = True
) -> GroupOffsetView:
    remote = TopicPartition(f"A.{source.topic}", source.partition)
    return GroupOffsetView(source, remote, upstream, downstream, 0, is_exact=is_exact)


def _partition(source: TopicPartition = _T0, *, position: int, end: int | None) -> PartitionView:
    return PartitionView(
        source, f"A.{source.topic}", 0, PartitionStage.PAUSED, position, None, None, 0, 0, 0.0, end_offset=end
    )


def _moved(offsets: list[GroupOffsetView], *partitions: PartitionView) -> GroupMove | None:
    [(_, move)] = moves_of([GroupOffsetsView("g", tuple(offsets))], partitions)
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
    assert move.text == "would read 20 again, would miss 32 until they are copied"


def test_topics_that_came_from_the_target_are_whole_there() -> None:
    assert _moved([_offset(upstream=90)]) == GroupMove()


def test_words() -> None:
    assert GroupMove().text == "ready"
    assert GroupMove(unknown=1).text == "unknown for 1 partition"
    assert GroupMove(missing=4, unknown=2).text == "would miss 4 until they are copied, unknown for 2 partitions"


def test_a_group_without_offsets_has_nothing_to_move() -> None:
    assert _moved([]) is None
