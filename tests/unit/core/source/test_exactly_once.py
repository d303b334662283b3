"""Where a partition stands once its transactional producer was opened again."""

from __future__ import annotations

import pytest

from mm2py.core.source.exactly_once import Standing, judge
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position


@pytest.mark.parametrize(
    ("committed", "expected"),
    [(None, Standing.AS_KNOWN), (100, Standing.AS_KNOWN), (101, Standing.AHEAD), (99, Standing.BEHIND)],
    ids=["never-written", "the-same", "answer-was-lost", "set-back"],
)
def test_the_committed_position_is_the_truth(committed: int | None, expected: Standing) -> None:
    """A position in memory is compared with the committed one, if there is one."""
    position = None if committed is None else Position(TopicPartition("t", 0), committed)

    assert judge(100, position) is expected
