"""
Which columns cross to Spark's JVM and back.

Each value of each row is copied several times on its way. Topic and partition of a record are known where it is read
and where it is written; they and its timestamp's type travel only where a transform looks at them or changes them.
"""

from __future__ import annotations

from typing import Any

import attrs
from pyspark.sql import SparkSession

from mm2py.model.transform import Transform
from mm2py.pipeline.transform.columns import NAMES
from mm2py.pipeline.transform.sql import dataframe as frames


#: What the sink knows without being told.
_KNOWN_THERE = frozenset({"topic", "partition"})
#: How Spark calls those of `frames.nothing` in its plans.
_SCAN = "LogicalRDD"
#: What it does not use.
_UNUSED_THERE = "timestamp_type"


@attrs.frozen
class Crossing:
    """The columns that the source `reads` for a transform, and those that it `gives` to the sink."""

    reads: tuple[str, ...] = NAMES
    gives: tuple[str, ...] = NAMES


def crossing_of(session: SparkSession, transform: Transform) -> Crossing:
    """Find out by Spark's own analysis of *transform*. Raise `TransformRefusedError`."""
    if not transform.uses_spark:
        return Crossing()
    records = frames.nothing(session)
    made = frames.transformed(session, transform, records)
    before, after = _ids(records), _ids(made)
    gives = tuple(
        name for name in NAMES if name != _UNUSED_THERE and (name not in _KNOWN_THERE or after[name] != before[name])
    )
    # The optimizer has left out by now what nothing needs that is given.
    plan = made.select(*gives)._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - there is no public way to the plan
    steps, scans = _parts(plan)
    if len(scans) != 1 or not plan.subqueriesAll().isEmpty():
        return Crossing(NAMES, gives)
    used = {column.exprId().id() for step in steps for column in _all(step.references().toSeq())}
    # Without a column there are no rows.
    return Crossing(tuple(name for name in NAMES if before[name] in used or name == "offset"), gives)


def _ids(frame: Any) -> dict[str, int]:
    """Return the columns of a frame by what Spark tells them apart by: one that passes through a plan keeps it."""
    return {column.name(): column.exprId().id() for column in _all(frame._jdf.queryExecution().analyzed().output())}  # noqa: SLF001


def _parts(plan: Any) -> tuple[list[Any], list[Any]]:
    """Return the steps of a plan, and at the end of them the scans of the records."""
    children = _all(plan.children())
    steps, scans = ([plan], []) if children else ([], [plan] if plan.nodeName() == _SCAN else [])
    for child in children:
        further, ends = _parts(child)
        steps += further
        scans += ends
    return steps, scans


def _all(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
