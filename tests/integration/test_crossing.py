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


_COLUMNS = ("timestamp", "key", "value", "headers")
_WHOLE = ("offset", *_COLUMNS)

#: Statements, with the columns that are read, those that are given, and those that are carried past Spark's JVM.
_STATEMENTS = {
    "SELECT * FROM records": (("offset",), ("offset",), _COLUMNS),
    "SELECT * FROM records WHERE get_json_object(CAST(value AS STRING), '$.a') = 'b'": (
        ("offset", "value"),
        ("offset",),
        _COLUMNS,
    ),
    "SELECT topic, partition, offset, timestamp, key, value, headers FROM records": (
        ("offset",),
        ("offset",),
        _COLUMNS,
    ),
    "SELECT * EXCEPT (key), value AS key FROM records": (
        ("offset", "value"),
        ("offset", "key"),
        ("timestamp", "value", "headers"),
    ),
    "SELECT * EXCEPT (value, key, headers), string(key) AS key, upper(string(value)) AS value, array() AS headers "
    "FROM records": (
        ("offset", "timestamp", "key", "value"),
        _WHOLE,
        (),
    ),
    "SELECT * EXCEPT (offset), offset + 1 AS offset FROM records": (_WHOLE, _WHOLE, ()),
    "SELECT * FROM records WHERE offset % 2 = 0": (("offset",), ("offset",), _COLUMNS),
    "SELECT * EXCEPT (key), CAST(offset AS STRING) AS key FROM records": (
        ("offset",),
        ("offset", "key"),
        ("timestamp", "value", "headers"),
    ),
    "SELECT * FROM records r WHERE r.topic LIKE 'orders%'": (("topic", "offset"), ("offset",), _COLUMNS),
    "SELECT * FROM (SELECT * FROM records WHERE partition > 3) WHERE timestamp_type = 0": (
        ("partition", "offset", "timestamp_type"),
        ("offset",),
        _COLUMNS,
    ),
    "WITH r AS (SELECT *, concat(topic, partition) AS place FROM records) SELECT * EXCEPT (place, value), "
    "place || CAST(value AS STRING) AS value FROM r": (
        ("topic", "partition", "offset", "value"),
        ("offset", "value"),
        ("timestamp", "key", "headers"),
    ),
    "SELECT * EXCEPT (topic), concat(topic, 'x') AS topic FROM records": (
        ("topic", "offset"),
        ("topic", "offset"),
        _COLUMNS,
    ),
    "SELECT * EXCEPT (partition), 1 AS partition FROM records": (("offset",), ("partition", "offset"), _COLUMNS),
    "SELECT * EXCEPT (timestamp), current_timestamp() AS timestamp FROM records": (
        ("offset",),
        ("offset", "timestamp"),
        ("key", "value", "headers"),
    ),
    # What may be more than row by row has all of it in the JVM.
    "SELECT r.* FROM records r JOIN (VALUES ('DE')) AS c(name) ON r.topic = c.name": (("topic", *_WHOLE), _WHOLE, ()),
    # If it is not certain which columns are used, everything is read.
    "SELECT * FROM records WHERE topic = (SELECT name FROM VALUES ('a') AS c(name))": (NAMES, _WHOLE, ()),
    "SELECT /*+ BROADCAST(s) */ r.* FROM records r JOIN records s ON r.key = s.key": (NAMES, _WHOLE, ()),
}
#: Those that may do more than to take one record after the other.
_ALONE = {
    "SELECT r.* FROM records r JOIN (VALUES ('DE')) AS c(name) ON r.topic = c.name",
    "SELECT * FROM records WHERE topic = (SELECT name FROM VALUES ('a') AS c(name))",
    "SELECT /*+ BROADCAST(s) */ r.* FROM records r JOIN records s ON r.key = s.key",
    "hanging",
}

#: Those for which an offset must be the record's own.
_LOOK_AT_OFFSETS = {
    "SELECT * EXCEPT (offset), offset + 1 AS offset FROM records",
    "SELECT * FROM records WHERE offset % 2 = 0",
    "SELECT * EXCEPT (key), CAST(offset AS STRING) AS key FROM records",
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
    """Only what the statement may have changed is returned, topic and partition included; the rest is carried."""
    assert found[text][0] == Crossing(*_STATEMENTS[text], has_row_ids=text not in {*_ALONE, *_LOOK_AT_OFFSETS})


def test_a_timestamp_that_is_carried_is_read(found: dict[str, tuple[Crossing, bool]]) -> None:
    """Only one that a statement replaces may be more than Spark can hold."""
    unread = {text for text, (crossing, _) in found.items() if not crossing.reads_timestamps}

    assert unread == {"SELECT * EXCEPT (timestamp), current_timestamp() AS timestamp FROM records"}


def test_functions(found: dict[str, tuple[Crossing, bool]]) -> None:
    """A function is analysed as well."""
    carried = ("timestamp", "key", "headers")
    assert found["masked"][0] == Crossing(("offset", "value"), ("offset", "value"), carried, has_row_ids=True)


def test_what_is_more_than_row_by_row_has_each_range_alone(found: dict[str, tuple[Crossing, bool]]) -> None:
    """Joins, subqueries and Python of users could see where a range ends."""
    assert {name for name, (_, is_row_by_row) in found.items() if not is_row_by_row} == _ALONE


def test_several_ranges_are_told_apart_by_their_places(found: dict[str, tuple[Crossing, bool]]) -> None:
    """Topic, partition and offset are read and returned in addition, unless a statement changes them."""
    kept = found["SELECT * EXCEPT (key), CAST(offset AS STRING) AS key FROM records"][0]
    changed = found["SELECT * EXCEPT (topic), concat(topic, 'x') AS topic FROM records"][0]

    assert kept.keeps_places
    places = ("topic", "partition", "offset")
    assert kept.with_places() == Crossing(places, (*places, "key"), kept.carried)
    assert not changed.keeps_places
