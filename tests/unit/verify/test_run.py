"""What is refused before anything is compared, without clusters."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, cast

import pytest

from mm2py.model.flow import TopicPartition
from mm2py.verify.run import EmptyRangeError, Moment, Verification, VerifyRequest
from mm2py.verify.verdicts import PartitionBounds
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS


def _look(number: int, start: int, end: int, since: int | None, until: int | None) -> PartitionBounds:
    tp = TopicPartition("orders", number)
    return PartitionBounds(tp, "A.orders", start, end, 0, 0, asked_from=since, asked_to=until)


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [
        (Moment(offset=9), None, False),
        (Moment(offset=50), None, True),
        (None, Moment(offset=3), True),
        (None, Moment(offset=4), False),
        (Moment(timestamp_ms=1), None, False),
        (None, None, False),
    ],
)
async def test_offsets_that_no_partition_has_are_refused(
    start: Moment | None, end: Moment | None, is_refused: bool
) -> None:
    """They were equal, without a record compared. Nothing may have come since a time, and an empty topic is equal."""
    verification = Verification(SETTINGS, VerifyRequest(start=start, end=end), cast("Any", None), clock=LoopClock())
    # Nothing has come since the time.
    since, until = (50 if start and start.timestamp_ms else start and start.offset), end and end.offset
    refused = pytest.raises(EmptyRangeError, match=r"A->B: .* they begin at 3 and end at 50")
    with refused if is_refused else nullcontext():
        verification._check_range([_look(0, 3, 10, since, until), _look(1, 20, 50, since, until)])
    verification._check_range([_look(0, 0, 0, since, until)])


async def test_a_partition_that_cannot_be_looked_at_may_have_the_range() -> None:
    """It is reported, and what is reported so is not equal: nobody is told to correct the range."""
    asked = VerifyRequest(start=Moment(offset=1000))
    verification = Verification(SETTINGS, asked, cast("Any", None), clock=LoopClock())
    verification._cannot_tell(TopicPartition("orders", 1), TopicPartition("A.orders", 1), "it has no leader")
    verification._check_range([_look(0, 0, 10, 1000, None)])
