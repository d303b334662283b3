"""What a range's reader makes of what source brokers answer."""

from __future__ import annotations

from typing import cast

import pytest

from mm2py.model.epoch import CopyLimits, Ended, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.failures import TransformFailedError, unreadable_in
from mm2py.pipeline.transform.read import RangeReader
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from tests.support.batches import Content, build_batch
from tests.support.clocks import LoopClock
from tests.support.in_process import InProcessCluster


_SOURCE = TopicPartition("orders", 0)


@pytest.mark.parametrize(
    ("code", "ended"),
    [
        # Remote storage (KIP-405) that is broken for a while, for example.
        (ErrorCode.UNKNOWN_SERVER_ERROR, Ended.INTERRUPTED),
        (ErrorCode.CORRUPT_MESSAGE, Ended.FAILED),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Ended.FAILED),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Ended.OUT_OF_RANGE),
    ],
)
async def test_only_what_an_operator_has_to_mend_stops_a_partition(code: ErrorCode, ended: Ended) -> None:
    """The rest is tried again soon, as it is of topics without a transform."""
    source = InProcessCluster.of("A", "orders")
    source.partitions[_SOURCE].load(build_batch([Content(0, 1, b"k", b"v")]))
    source.fetch_fault = lambda _: code
    plan = PartitionPlan(_SOURCE, "A.orders", 0, None, is_unsure=False, until=1)
    with pytest.raises(TransformFailedError) as caught:
        async for _ in RangeReader(cast("Cluster", source), CopyLimits(), LoopClock(), within_s=20.0).read(plan):
            pass
    unreadable = unreadable_in(str(caught.value))

    assert unreadable is not None
    assert (unreadable.ended, unreadable.failure.error) == (ended, code.name)
