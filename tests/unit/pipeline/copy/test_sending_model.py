"""Any sequence of events on the way to the target leaves each record there once, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from mm2py.model.epoch import Ended
from mm2py.wire.error_codes import ErrorCode
from tests.support.sending import Sender, drained, sender


REJECTIONS = {
    "reject": (ErrorCode.NOT_ENOUGH_REPLICAS, False),
    "reject after append": (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
}
STEPS = ["put", "put", "process", "process", "deliver", "drop", "move", "wait", *REJECTIONS]


async def take(s: Sender, step: str, number: int, count: int, failing: list[tuple[int, bool]]) -> None:
    """Let one thing happen: to a partition, to a connection, or to the next batch that a broker takes."""
    lines = [c for c in s.target.connections if not c.is_closed]
    if step == "put":
        s.put(s.copies[number], count)
    elif step == "wait":
        await asyncio.sleep(count * 0.05)
    elif step == "move":
        s.target.partitions[s.copies[number].remote].leader = count % 2
    elif step in REJECTIONS:
        failing.append(REJECTIONS[step])
    elif lines:
        line = lines[number % len(lines)]
        {"process": line.process, "deliver": line.deliver, "drop": line.close}[step]()


@settings(deadline=None, max_examples=120)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 2), st.integers(1, 4)), max_size=60))
async def test_log_holds_every_record_once_and_in_order(steps: Sequence[tuple[str, int, int]]) -> None:
    """
    Whatever brokers, leaders and connections do, each record is in the target's log once, in order.

    And at every moment the position is behind records that the log holds: it advances by acknowledgements only.
    """
    async with sender(partitions=3, brokers=2) as s:
        s.target.is_manual = True
        failing: list[tuple[int, bool]] = []
        s.target.produce_fault = lambda _tp, _raw: failing.pop() if failing else None
        for step in steps:
            await take(s, *step, failing)
            for copy in s.copies:
                assert s.values(copy.remote.partition)[: copy.position] == list(range(copy.position))
        await asyncio.sleep(0.01)
        failing.clear()
        s.target.is_manual = False
        for line in s.target.connections:
            line.close("reset by peer")
        if s.sender.buffered_bytes:
            await drained(s.sender)
        for copy in s.copies:
            wanted = copy.fetching.position.offset

            assert s.values(copy.remote.partition) == list(range(wanted))
            assert (copy.position, copy.outcome().is_unsure, copy.ended) == (wanted, False, Ended.OK)
            assert [(run.upstream, run.downstream, run.length) for run in copy.runs] == [(0, 0, wanted)][: wanted > 0]
