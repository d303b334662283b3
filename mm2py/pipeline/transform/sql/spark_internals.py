"""
What transforms use of PySpark's private parts, as there is no public way to it in 4.3.

Check this file when the version of PySpark is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


#: How Spark calls the scan of an RDD in its plans.
_SCAN: Final = "LogicalRDD"


def make_current(session: SparkSession) -> None:
    """Have this thread's PySpark functions use *session*: threads change here, and Spark keeps it by thread."""
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001


def map_in_arrow(
    frame: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: str
) -> DataFrame:
    """Do what `DataFrame.mapInArrow` does, which asks for pandas to be installed and does not use it."""
    made = UserDefinedFunction(function, schema, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column: Any = made(*(frame[name] for name in frame.columns))
    return DataFrame(frame._jdf.mapInArrow(column._jc, False, None), frame.sparkSession)  # noqa: FBT003, SLF001 - py4j


def physical_plan(frame: DataFrame) -> str:
    """Return Spark's plan as text: `DataFrame.explain` prints it and leaves out its names."""
    return str(frame._jdf.queryExecution().sparkPlan().toString())  # noqa: SLF001


def is_deterministic(frame: DataFrame) -> bool:
    """Whether a plan has no random values: analysis has chosen their seeds."""
    return bool(frame._jdf.queryExecution().analyzed().deterministic())  # noqa: SLF001


def column_ids(frame: DataFrame) -> dict[str, int]:
    """Return Spark's ids of a frame's columns: a column that passes through a plan unchanged keeps its id."""
    return {column.name(): column.exprId().id() for column in _all(frame._jdf.queryExecution().analyzed().output())}  # noqa: SLF001


def used_columns(frame: DataFrame) -> set[int] | None:
    """Return the ids of the columns that a plan over one RDD uses; None if that is not certain."""
    # The optimizer has left out by now what nothing needs that is given.
    plan = frame._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
    steps, scans = _parts(plan)
    if len(scans) != 1 or not plan.subqueriesAll().isEmpty():
        return None
    return {column.exprId().id() for step in steps for column in _all(step.references().toSeq())}


def _parts(plan: Any) -> tuple[list[Any], list[Any]]:
    """Return the steps of a plan, and at the end of them the scans of RDDs."""
    children = _all(plan.children())
    steps, scans = ([plan], []) if children else ([], [plan] if plan.nodeName() == _SCAN else [])
    for child in children:
        further, ends = _parts(child)
        steps += further
        scans += ends
    return steps, scans


def _all(sequence: Any) -> list[Any]:
    return [sequence.apply(at) for at in range(sequence.size())]
