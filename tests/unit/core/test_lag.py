"""What a lag in records means in time."""

from __future__ import annotations

import pytest

from mm2py.core.lag import Growth, Retention, lag_s, least_lag, seconds_until_loss, tells_end
from mm2py.core.source.progress import PartitionState, Repair
from mm2py.model.epoch import RECREATED, Ended, LogOffsets, PartitionFailure, PartitionOutcome
from mm2py.model.flow import TopicPartition
from mm2py.model.state import PartitionStage


@pytest.mark.parametrize(
    ("lag", "last_copied_s", "caught_up_s", "waited_s"),
    [
        pytest.param(0, None, None, 0.0, id="nothing waits"),
        pytest.param(0, 900.0, None, 0.0, id="nothing waits although the last one is old"),
        pytest.param(5, None, None, None, id="nothing is known"),
        pytest.param(5, 12.0, None, 12.0, id="as old as the last one copied"),
        pytest.param(5, None, 3.0, 3.0, id="since there was nothing to copy"),
        pytest.param(5, 36_000.0, 3.0, 3.0, id="after a break it has not waited for as long as the break"),
        pytest.param(5, 12.0, 500.0, 12.0, id="in a stream it has not waited since the last time all was copied"),
        pytest.param(5, -2.0, None, 0.0, id="the producer's clock is ahead"),
    ],
)
def test_lag_in_seconds(
    lag: int, last_copied_s: float | None, caught_up_s: float | None, waited_s: float | None
) -> None:
    """A lag in time is the least of what bounds it, and unknown where nothing does."""
    assert lag_s(lag, last_copied_s=last_copied_s, caught_up_s=caught_up_s) == waited_s


@pytest.mark.parametrize(
    ("retention", "lag", "waited_s", "growth", "left_s"),
    [
        pytest.param(None, 9, 60.0, None, None, id="configs unknown"),
        pytest.param(Retention(1_000, None, deletes=False), 9, 60.0, None, None, id="compacted alone"),
        pytest.param(Retention(None, None), 9, 60.0, None, None, id="kept for ever"),
        pytest.param(Retention(3_600_000, None), 9, 60.0, None, 3_540.0, id="by time"),
        pytest.param(Retention(3_600_000, None), 0, 0.0, None, 3_600.0, id="a record that comes now"),
        pytest.param(Retention(3_600_000, None), 9, 4_000.0, None, 0.0, id="overdue"),
        pytest.param(Retention(3_600_000, None), 9, None, None, None, id="unknown how old"),
        pytest.param(Retention(None, 1_000), 9, 60.0, None, None, id="unknown how large"),
        pytest.param(Retention(None, 1_000), 9, 60.0, Growth(10.0, None), None, id="unknown how fast"),
        pytest.param(Retention(None, 1_000), 9, 60.0, Growth(10.0, 7.0), 13.0, id="by size"),
        pytest.param(Retention(None, 1_000), 200, 60.0, Growth(10.0, 7.0), 0.0, id="full already"),
        pytest.param(Retention(None, 1_000), 9, 60.0, Growth(10.0, 0.0), None, id="nothing comes that could fill it"),
        pytest.param(Retention(100_000, 1_000), 9, 60.0, Growth(10.0, 7.0), 13.0, id="size comes first"),
        pytest.param(Retention(70_000, 1_000), 9, 60.0, Growth(10.0, 7.0), 10.0, id="time comes first"),
    ],
)
def test_seconds_until_loss(
    retention: Retention | None, lag: int, waited_s: float | None, growth: Growth | None, left_s: float | None
) -> None:
    """The source may delete a record once it is old enough, or once what follows fills its space."""
    found = seconds_until_loss(retention, lag=lag, waited_s=waited_s, growth=growth)

    assert found == (None if left_s is None else pytest.approx(left_s))


@pytest.mark.parametrize(
    ("configs", "retention"),
    [
        ({"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"}, Retention(1_000, None)),
        ({"cleanup.policy": "compact", "retention.ms": "1000", "retention.bytes": "-1"}, Retention(1_000, None, False)),
        ({"cleanup.policy": "compact,delete", "retention.ms": "-1", "retention.bytes": "9"}, Retention(None, 9)),
        ({"cleanup.policy": "delete", "retention.ms": None, "retention.bytes": "9"}, None),
        ({}, None),
    ],
)
def test_retention_is_read_from_configs(configs: dict[str, str | None], retention: Retention | None) -> None:
    """Minus one is no bound; what configs do not tell is unknown."""
    assert Retention.of(configs) == retention


@pytest.mark.parametrize(
    ("told", "left", "fetches", "stage", "is_unsure", "is_told"),
    [
        pytest.param(500, 9, 1, PartitionStage.COPYING, False, True, id="in an answer"),
        pytest.param(500, 9, 1, PartitionStage.STOPPED, True, True, id="in an answer, whatever became of it"),
        pytest.param(
            -1, 0, 1, PartitionStage.COPYING, False, True, id="nothing is new, says a fetch session's silence"
        ),
        pytest.param(-1, 0, 0, PartitionStage.COPYING, False, False, id="it was not asked about"),
        pytest.param(-1, 9, 1, PartitionStage.COPYING, False, False, id="it was left out, for want of room"),
        pytest.param(-1, 0, 1, PartitionStage.COPYING, True, False, id="it is not read before the target is known"),
        pytest.param(-1, 0, 1, PartitionStage.BACKING_OFF, False, False, id="its broker is away"),
    ],
)
def test_whether_an_epoch_told_where_a_log_ends(
    told: int, left: int, fetches: int, stage: PartitionStage, *, is_unsure: bool, is_told: bool
) -> None:
    """What is only not known to be otherwise does not make an old end a new one."""
    source = TopicPartition("t", 0)
    outcome = PartitionOutcome(source, 100, 99, is_unsure=is_unsure, log=LogOffsets(high_watermark=told))
    state = PartitionState(
        source, "A.t", 100, 99, is_unsure=is_unsure, stage=stage, log=LogOffsets(high_watermark=100 + left)
    )

    assert tells_end(outcome, state, fetches=fetches) is is_told
    if told < 0:
        assert tells_end(None, state, fetches=fetches) is is_told


_COMPARED = Repair(1, 500, 500, None, None, is_rebuilt=True)


@pytest.mark.parametrize(
    ("ended", "failure", "repair", "is_questioned", "lag"),
    [
        pytest.param(Ended.OUT_OF_RANGE, None, None, True, 10, id="the source's log is another than expected"),
        pytest.param(Ended.RECREATED, RECREATED, None, True, None, id="the topic was created again"),
        pytest.param(Ended.RECREATED, RECREATED, _COMPARED, False, None, id="and is being compared"),
        pytest.param(Ended.UNPROVEN, PartitionFailure("differs"), _COMPARED, True, None, id="and is no rebuilt one"),
        pytest.param(Ended.UNPROVEN, RECREATED, None, True, None, id="and stopped for that"),
    ],
)
def test_the_lag_of_another_topic_is_unknown(
    ended: Ended, failure: PartitionFailure | None, repair: Repair | None, *, is_questioned: bool, lag: int | None
) -> None:
    """What is left of a topic that was created again is decided by an operator, compared with its copy or not."""
    state = PartitionState(
        TopicPartition("t", 0), "A.t", 0, None, log=LogOffsets(high_watermark=10), ended=ended, failure=failure,
        repair=repair, is_questioned=is_questioned,
    )  # fmt: skip

    assert least_lag(state) == lag
    assert state.lag is None
