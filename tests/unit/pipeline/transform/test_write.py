"""What a transform gave back is checked before it is written."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.model.epoch import CopyLimits, Ended, EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.transform import Errors, Predicate, Step, Transform
from mm2py.pipeline.transform.columns import to_arrow
from mm2py.pipeline.transform.record import Chunk
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.validation import first_unsound
from mm2py.pipeline.transform.write import RangeWriter
from mm2py.wire.batches.record_columns import RecordColumns
from tests.support.clocks import LoopClock
from tests.support.copy_rig import worker_of
from tests.support.in_process import InProcessCluster


def chunk(*offsets: int | None, stray: tuple[int, str] | None = None) -> Chunk:
    nothing = [None] * len(offsets)
    return Chunk(offsets, [0] * len(offsets), nothing, nothing, [()] * len(offsets), stray)


@pytest.mark.parametrize(
    ("given", "sound"),
    [
        pytest.param(chunk(), 0, id="no rows"),
        pytest.param(chunk(10, 11, 19), 3, id="in order, with gaps"),
        pytest.param(chunk(9, 10), 0, id="from before the range"),
        pytest.param(chunk(10, 20), 1, id="from after the range"),
        pytest.param(chunk(10, 12, 11, 13), 2, id="out of order"),
        pytest.param(chunk(10, 10), 1, id="twice"),
        pytest.param(chunk(10, None, 12), 1, id="no offset"),
        pytest.param(chunk(10, 11, 12, stray=(1, "topic")), 1, id="of another topic"),
        pytest.param(chunk(10, 9, 12, stray=(2, "topic")), 1, id="out of order first"),
    ],
)
def test_rows_until_the_first_that_will_not_do(given: Chunk, sound: int) -> None:
    """Rows are taken up to the first that is not next in the range or belongs elsewhere."""
    assert first_unsound(given, after=9, before=20) == sound


_MASK = Step("mask", "MaskField$Value", {"fields": "iban", "replacement": ""})
_TOPIC_FIELD = Step("topic", "InsertField$Value", {"topic.field": "t"})
_ROUTER = Step("route", "RegexRouter", {"regex": r"(.*)\.(.*)", "replacement": "$2-of-$1"})
_REMOTE = TopicPartition("A.orders", 0)


def _filter(pattern: str, *, is_negated: bool = False) -> Step:
    return Step("filter", "Filter", {}, Predicate("TopicNameMatches", {"pattern": pattern}), is_negated)


async def _written(
    *values: bytes, errors: Errors | None = None, steps: tuple[Step, ...] = (_MASK,), **plan: Any
) -> tuple[RangeOutcome, list[bytes | None]]:
    """Write records with *values* from offset 10 on, behind a step that masks; give what the target holds, too."""
    source, target = InProcessCluster.of("A", "orders"), InProcessCluster.of("B", "A.orders")
    count = len(values)
    columns = RecordColumns(
        list(range(10, 10 + count)), [1_000] * count, [0] * count, [None] * count, list(values), [()] * count
    )
    one = PartitionPlan(TopicPartition("orders", 0), "A.orders", 10, -1, is_unsure=False, until=10 + count)
    one = attrs.evolve(one, **plan)
    transform = Transform("transforms", steps=steps, errors=errors or Errors())
    epoch = EpochPlan(
        Flow("A", "B"), 0, 0, source.endpoint, target.endpoint, (one,), CopyLimits(), 1_000, 500, transform=transform,
        names_by_policy={"orders": "A.orders"},
    )  # fmt: skip
    outcome = await RangeWriter(epoch, one, worker_of(source, target), LoopClock()).write(
        [to_arrow(TopicPartition("orders", 0), columns)]
    )
    return outcome, [record.value for record in target.partitions[_REMOTE].records()]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((_filter(r"[^.]+\.ord.*", is_negated=True),), [b"{}"]),
        ((_filter(r".*\.orders"),), []),
        ((_filter("orders"),), [b"{}"]),
        ((_TOPIC_FIELD,), [b'{"t":"A.orders"}']),
        ((_ROUTER, _TOPIC_FIELD, _filter("A.orders")), [b'{"t":"orders-of-A"}']),
    ],
)
async def test_connects_transforms_see_the_name_that_the_policy_gives(
    steps: tuple[Step, ...], found: list[bytes]
) -> None:
    """As in Java, where the source task names the topic before the chain begins; a router's name counts after it."""
    assert (await _written(b"{}", steps=steps))[1] == found


async def test_a_stretch_goes_to_its_remote_partition() -> None:
    """The position moves over all of it, and the outcome says where its records went."""
    outcome, found = await _written(b'{"iban":"DE"}', b'{"n":1}')

    assert found == [b'{"iban":""}', b'{"n":1,"iban":null}']
    told = outcome.partition
    assert (told.position, told.downstream, told.records, told.ended) == (12, 1, 2, Ended.OK)
    assert [(run.upstream, run.downstream, run.length) for run in told.runs] == [(10, 0, 2)]
    assert told.producer is not None
    assert told.producer.sequence == 2


@pytest.mark.parametrize("is_tolerated", [False, True])
async def test_a_record_that_a_step_cannot_take_ends_the_stretch_or_is_left_out(*, is_tolerated: bool) -> None:
    """What is before it is written; what is behind it, only where it is left out."""
    outcome, found = await _written(b"{}", b"no json", b"{}", errors=Errors(are_tolerated=is_tolerated))

    assert len(found) == (2 if is_tolerated else 1)
    told = outcome.partition
    assert (told.position, told.ended) == ((13, Ended.OK) if is_tolerated else (11, Ended.FAILED))
    assert [bad.offset for bad in outcome.left_out] == ([11] if is_tolerated else [])


async def test_a_record_that_is_too_large_ends_the_stretch_before_it() -> None:
    """The first failure is reported, although a later record fails, too."""
    large = b'{"x":"%s"}' % (b"y" * 5_000)
    outcome, found = await _written(b"{}", large, b"no json", max_message_bytes=1_000)

    told = outcome.partition
    assert (len(found), told.position, told.ended) == (1, 11, Ended.FAILED)
    assert told.failure is not None
    assert (told.failure.error, told.failure.offset) == ("RecordTooLargeError", 11)
