"""How long checkpoints take."""

from __future__ import annotations

from mm2py.connectors.checkpoint.latencies import CheckpointLatencies
from mm2py.model.flow import TopicPartition
from mm2py.model.state import TimesView
from tests.support.clocks import LoopClock


REMOTE = TopicPartition("A.t", 0)


async def test_checkpoint_latency_is_each_group_s_own() -> None:
    """The time until a checkpoint was written is kept group by group, and partition by partition."""
    latencies = CheckpointLatencies(LoopClock())
    latencies.note("g", REMOTE, 40)
    latencies.note("h", REMOTE, 9)

    assert latencies.of("g", REMOTE) == TimesView(40, 40, 40, 40.0)
    assert latencies.of("h", REMOTE) == TimesView(9, 9, 9, 9.0)
    assert latencies.of("i", REMOTE) is None
    assert latencies.of("g", TopicPartition("A.t", 1)) is None


async def test_groups_that_are_not_followed_are_forgotten() -> None:
    """Many programs read under a new name each time."""
    latencies = CheckpointLatencies(LoopClock())
    latencies.note("g", REMOTE, 40)
    latencies.note("h", REMOTE, 9)

    latencies.follow(["h", "i"])

    assert [latencies.of(group, REMOTE) is None for group in "gh"] == [True, False]
