"""
What is used of PySpark's private parts, as there is no public way to it in 4.3.

Check this file when the version of PySpark is raised, and `mm2py.pipeline.spark.fork_server`, which replaces a function
of PySpark's in a process of its own.

py4j keeps each method that was called in its object, and the object in the method. Only Python's garbage collector
finds such a circle, and the more a process holds, the more rarely it looks at what has been there for some seconds. So
the JVM would keep the plans and RDDs of hundreds of epochs that are over: `release_unused`.
"""

from __future__ import annotations

import signal
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, TypeVar

from py4j.java_gateway import JavaMember, JavaObject, is_magic_member
from py4j.protocol import Py4JError
from pyspark import RDD, SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.udf import UserDefinedFunction
from pyspark.traceback_utils import SCCallSiteSync
from pyspark.util import PythonEvalType


if TYPE_CHECKING:
    import pyarrow as pa


T = TypeVar("T")

#: How Spark calls the scan of an RDD in its plans.
_SCAN: Final = "LogicalRDD"


class LaunchArguments(UserDict[str, Any]):
    """
    What Spark's JVM is launched with, in the place of a plain dict.

    A process manager sends SIGTERM to all processes of a service, and the daemon needs Spark for its drain. PySpark
    itself adds that the JVM ignores SIGINT; here it ignores SIGTERM as well, and with it all that it starts. It ends
    at a SIGHUP, which `processes.end_launched` sends, even if this process ignores that, as under nohup.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        super().__setitem__(name, _ignore_ends if name == "preexec_fn" else value)


def _ignore_ends() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def release_unused() -> None:
    """Have objects of the JVM released with their last use, in all of this process."""
    JavaObject.__getattr__ = _method


def _method(self: Any, name: str) -> Any:
    """Return a method as py4j's own `__getattr__` does, without keeping it. It serves no fields, as PySpark has it."""
    if is_magic_member(name):
        raise AttributeError(name)
    return JavaMember(name, self, self._target_id, self._gateway_client)


def collected(rows: RDD[T]) -> list[T]:
    """
    Return what *rows* hold, as their own `collect` does, but through the gateway.

    That one opens a socket for each job, and its name stays in the JVM (`File.deleteOnExit`) for as long as that lives.
    """
    with SCCallSiteSync(rows.context):
        pickled = _taken(rows._jrdd.collect())  # noqa: SLF001
    batches = rows.context.serializer.serializer
    return [row for batch in pickled for row in batches.loads(bytes(batch))]


def _taken(java_list: Any) -> list[Any]:
    """Return what is in a Java list, which is released: unlike other objects it holds a method of its own."""
    found = [java_list.get(at) for at in range(java_list.size())]
    java_list._detach()  # noqa: SLF001
    return found


def is_stopped(context: SparkContext) -> bool:
    """Whether the context was stopped; Python's own does not notice. It blocks while the JVM does not answer."""
    try:
        return bool(context._jsc.sc().isStopped())  # noqa: SLF001
    except (Py4JError, OSError, AttributeError):
        return True


def executors(context: SparkContext) -> tuple[bool, bool]:
    """
    Return whether a standalone cluster has no executor for *context*, which has jobs to do, and whether an executor is
    decommissioned: it takes no more tasks, and ends when those that it has are over. It blocks as above.
    """
    if is_stopped(context) or context.master.startswith("local"):
        return False, False
    try:
        spark = context._jsc.sc()  # noqa: SLF001
        # The driver is one of them.
        is_alone = bool(spark.getExecutorMemoryStatus().size() == 1)
        has_jobs = bool(context.statusTracker().getActiveJobsIds())
        is_decommissioned = bool(spark.schedulerBackend().executorsPendingDecommission().size())
    except (Py4JError, OSError, AttributeError):
        return False, False
    return is_alone and has_jobs and context.master.startswith("spark://"), is_decommissioned


def reason_of(error: PySparkException) -> str:
    """Return an error's message; as text it would ask the JVM whether to show its stack."""
    return str(getattr(error, "_desc", "") or error)


def silence_accumulators(context: SparkContext) -> None:
    """Have no traceback printed when the JVM goes away, which is an event here."""
    context._accumulatorServer.handle_error = lambda *_: None  # noqa: SLF001


def end_accumulators(context: SparkContext) -> None:
    """End what PySpark does for a JVM in a thread of this process, which outlives it with its sockets."""
    server = context._accumulatorServer  # noqa: SLF001
    if server is not None:
        with suppress(OSError):  # it ends first, and then removes its socket: not from a read-only file system
            server.shutdown()


def forget_gateway() -> None:
    """Let go of a JVM that died: PySpark keeps one in class attributes, for the whole process."""
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    SparkContext._active_spark_context = None  # noqa: SLF001


def plan(frame: DataFrame) -> None:
    """Have Spark plan a statement without running it."""
    frame._jdf.queryExecution().executedPlan()  # noqa: SLF001


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
