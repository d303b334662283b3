"""
What Spark's analysis finds out about statements.

What one does not look at does not cross to Spark, and what it leaves as it is does not come back. Those that take one
record after the other may have several ranges at once.
"""

from __future__ import annotations

import asyncio

import pytest

from mm2py.clock import SystemClock
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.columns import NAMES
from mm2py.pipeline.transform.sql.column_pruning import Crossing, crossing_of
from mm2py.pipeline.transform.sql.dataframe import analysed
from mm2py.pipeline.transform.sql.query import Sql
from mm2py.telemetry.journal import EventLog


_ALWAYS = ("offset", "timestamp", "key", "value", "headers")

#: Statements, with the columns that are read beside the usual ones, and those that are given.
_STATEMENTS = {
    "SELECT * FROM records": ((), _ALWAYS),
    "SELECT * FROM records WHERE get_json_object(CAST(value AS STRING), '$.a') = 'b'": ((), _ALWAYS),
    "SELECT topic, partition, offset, timestamp, key, value, headers FROM records": ((), _ALWAYS),
    "SELECT * FROM records r WHERE r.topic LIKE 'orders%'": (("topic",), _ALWAYS),
    "SELECT * FROM (SELECT * FROM records WHERE partition > 3) WHERE timestamp_type = 0": (
        ("partition", "timestamp_type"),
        _ALWAYS,
    ),
    "WITH r AS (SELECT *, concat(topic, partition) AS place FROM records) SELECT * EXCEPT (place, value), "
    "place || CAST(value AS STRING) AS value FROM r": (("topic", "partition"), _ALWAYS),
    "SELECT * EXCEPT (topic), concat(topic, 'x') AS topic FROM records": (
        ("topic",),
        ("topic", *_ALWAYS),
    ),
    "SELECT * EXCEPT (partition), 1 AS partition FROM records": ((), ("partition", *_ALWAYS)),
    "SELECT r.* FROM records r JOIN (VALUES ('DE')) AS c(name) ON r.topic = c.name": (("topic",), _ALWAYS),
    # If it is not certain which columns are used, everything is read.
    "SELECT * FROM records WHERE topic = (SELECT name FROM VALUES ('a') AS c(name))": (NAMES, _ALWAYS),
    "SELECT /*+ BROADCAST(s) */ r.* FROM records r JOIN records s ON r.key = s.key": (NAMES, _ALWAYS),
}
#: Those that may do more than to take one record after the other.
_ALONE = {
    "SELECT r.* FROM records r JOIN (VALUES ('DE')) AS c(name) ON r.topic = c.name",
    "SELECT * FROM records WHERE topic = (SELECT name FROM VALUES ('a') AS c(name))",
    "SELECT /*+ BROADCAST(s) */ r.* FROM records r JOIN records s ON r.key = s.key",
    "hanging",
}


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[Crossing, bool]]:
    """Return what one Spark finds out about all of them."""
    return asyncio.run(_found())


async def _found() -> dict[str, tuple[Crossing, bool]]:
    clock = SystemClock()
    host = SparkHost({"spark.master": "local[1]"}, copy_tasks=1, clock=clock, events=EventLog(clock))
    transforms = [Transform(text, sql=text) for text in _STATEMENTS]
    transforms += [Transform(name, function=f"tests.support.transforms:{name}") for name in ("masked", "hanging")]
    try:
        with Sql(await host.session()).use() as session:
            found = {it.name: analysed(session, it) for it in transforms}
            return {name: (crossing_of(it), it.is_row_by_row) for name, it in found.items()}
    finally:
        await host.stop(within_s=10)


@pytest.mark.parametrize("text", _STATEMENTS)
def test_only_what_is_looked_at_is_read(found: dict[str, tuple[Crossing, bool]], text: str) -> None:
    """Topic and partition are returned only if the statement may have changed them."""
    further, given = _STATEMENTS[text]

    assert found[text][0].gives == given
    assert found[text][0].reads == tuple(name for name in NAMES if name in {*further, *_ALWAYS})


def test_functions(found: dict[str, tuple[Crossing, bool]]) -> None:
    """A function is analysed as well."""
    assert found["masked"][0] == Crossing(_ALWAYS, _ALWAYS)


def test_what_is_more_than_row_by_row_has_each_range_alone(found: dict[str, tuple[Crossing, bool]]) -> None:
    """Joins, subqueries and Python of users could see where a range ends."""
    assert {name for name, (_, is_row_by_row) in found.items() if not is_row_by_row} == _ALONE


def test_several_ranges_are_told_apart_by_their_places(found: dict[str, tuple[Crossing, bool]]) -> None:
    """Topic, partition and offset are read and returned in addition, unless a statement changes them."""
    kept, changed = found["masked"][0], found["SELECT * EXCEPT (topic), concat(topic, 'x') AS topic FROM records"][0]

    assert kept.keeps_places
    assert kept.with_places() == Crossing(("topic", "partition", *_ALWAYS), ("topic", "partition", *_ALWAYS))
    assert not changed.keeps_places
