"""How limits cut what a record task takes at once."""

from __future__ import annotations

from mm2py.model.epoch import PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.rates import Metered, RateShare, Unit
from mm2py.pipeline.transform.limits import Limits
from mm2py.pipeline.transform.offset_ranges import Pace


_RECORDS = Metered("", Unit.RECORDS)
_BYTES_OF_T = Metered("t", Unit.BYTES)


def _offset_range(topic: str, partition: int = 0, until: int = 100_000) -> PartitionPlan:
    return PartitionPlan(TopicPartition(topic, partition), f"A.{topic}", 0, None, is_unsure=False, until=until)


def _ends(
    limits: Limits, offset_ranges: list[PartitionPlan], now: float, pace: Pace | None = None
) -> dict[str, int | None]:
    return {str(one.source): one.until for one in limits.within(offset_ranges, pace or Pace(), now)}


def test_without_limits_stretches_stay() -> None:
    """Nothing is cut, nothing told."""
    limits = Limits((), now=5.0)

    assert _ends(limits, [_offset_range("t")], 5.0) == {"t-0": 100_000}
    assert limits.uses(5.0) == ()


def test_a_flow_s_limit_is_shared_by_its_stretches() -> None:
    """Two partitions get half each of what comes in half a second; a short one gets no more than it has."""
    limits = Limits([RateShare(_RECORDS, 1_000)], now=5.0)

    assert _ends(limits, [_offset_range("t"), _offset_range("u", until=10)], 5.0) == {"t-0": 250, "u-0": 10}


def test_a_topic_in_debt_waits_and_others_do_not() -> None:
    """What was taken beyond the limit is waited for; from then on it goes on."""
    limits = Limits([RateShare(_BYTES_OF_T, 1_000)], now=0.0)
    limits.charge(TopicPartition("t", 0), offsets=10, size_bytes=3_000, now=0.0)

    assert _ends(limits, [_offset_range("t"), _offset_range("u")], 1.0) == {"u-0": 100_000}
    assert "t-0" in _ends(limits, [_offset_range("t")], 3.1)
    (use,) = limits.uses(4.0)
    assert (use.used, round(use.waited_s, 3)) == (3_000, 2.0)


def test_bytes_become_records_by_what_those_weighed() -> None:
    """Ten bytes for each record written: a second's half thousand bytes are fifty records."""
    pace = Pace()
    pace.learn(TopicPartition("t", 0), offsets=100, size_bytes=1_000)
    limits = Limits([RateShare(_BYTES_OF_T, 1_000)], now=0.0)

    assert _ends(limits, [_offset_range("t")], 0.0, pace) == {"t-0": 50}


def test_a_stretch_has_at_least_one_record() -> None:
    """However small the limit is, and however many share it."""
    limits = Limits([RateShare(_RECORDS, 0.1)], now=0.0)
    assert _ends(limits, [_offset_range("t", number) for number in range(3)], 0.0) == {
        f"t-{number}": 1 for number in range(3)
    }
