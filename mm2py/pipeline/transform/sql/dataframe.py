"""
From the records of a plan to what a transform makes of them, as Spark's DataFrames.

A transform may drop records and change keys, values, timestamps and headers, one record at a time. What would put
records of several partitions together, or into another order, is refused before anything runs: their offsets could
not be translated.
"""

from __future__ import annotations

import functools
import importlib
import re
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.logger import PySparkLogger
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from mm2py.errors import Mm2Error, Verdict, shortened
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.internals import map_in_arrow, physical_plan
from mm2py.pipeline.transform.columns import NAMES, SCHEMA, SCHEMA_TYPES
from mm2py.pipeline.transform.failures import TRACEBACK, raised_in
from mm2py.pipeline.transform.sql.spark_task import END, OUTCOME, read_ranges, write_ranges


#: They print each refusal once more, with a stack, in a form of their own.
_SPARK_LOGGERS: Final = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")
#: What a statement calls the records.
VIEW: Final = "records"
_BYTES: Final = frozenset({"binary", "string"})
_TAKEN: Final = {
    "topic": frozenset({"string"}),
    "partition": frozenset({"int"}),
    "offset": frozenset({"bigint"}),
    "timestamp": frozenset({"timestamp"}),
    "key": _BYTES,
    "value": _BYTES,
}
_HEADERS: Final = "array<struct<key: string, value: binary>>"
#: As Spark itself writes that.
_HEADERS_TYPE: Final = "array<struct<key:string,value:binary>>"
_HEADERS_TYPES: Final = frozenset({_HEADERS_TYPE, "array<struct<key:string,value:string>>", "array<void>", "void"})
_REORDERS: Final = re.compile(
    r"^[\s:+\-|*()\d]*(?P<what>Exchange|ShuffleQueryStage|Sort\b|Coalesce|Union|TakeOrdered\w*|CollectLimit|GlobalLimit"
    r"|LocalLimit|\w*Aggregate|Window|Generate|Expand|CartesianProduct|SortMergeJoin|ShuffledHashJoin)",
    re.MULTILINE,
)
#: The steps of a plan that take one record after the other, in Spark's JVM: none can see where a range ends.
_ROW_BY_ROW: Final = re.compile(r"^[\s+\-*()\d]*(Project|Filter|Scan ExistingRDD)\b.*$")
#: A module may end what it takes for a process of its own, a function too. That must not end the daemon.
_OF_USERS_CODE: Final = (Exception, SystemExit)
_OF_QUERY: Final = re.compile(r"\s*;?\s*line \d+ pos \d+.*", re.DOTALL)


@attrs.define(eq=False)
class TransformRefusedError(Mm2Error):
    """A transform that cannot be run, whatever the records are; `column` where one is to blame."""

    verdict: ClassVar[Verdict] = Verdict.RESTART_TASK
    hint: ClassVar[str] = "correct it and reload, or restart if a function's code changed; see mm2py docs transforms"

    transform: str
    problem: str = attrs.field(converter=shortened)
    column: str = ""

    def __str__(self) -> str:
        return f"{self.transform}: {self.problem}"


def silence_loggers() -> None:
    """Keep PySpark from printing errors that we report."""
    for name in _SPARK_LOGGERS:
        PySparkLogger.getLogger(name).disabled = True


def _nothing(session: SparkSession) -> DataFrame:
    # Of what Spark knows to be empty, or to be in order, it leaves out the very steps that are looked for.
    return session.createDataFrame(session.sparkContext.emptyRDD(), SCHEMA)


def held(session: SparkSession, records: pa.Table) -> DataFrame:
    """Return records that are in this process's memory; for none of them, Spark does all that it does for others."""
    return session.createDataFrame(records, SCHEMA) if len(records) else _nothing(session)


def records_of_job(
    session: SparkSession, reads: tuple[str, ...], carried: tuple[str, ...], *, has_row_ids: bool
) -> DataFrame:
    """Return the records of a job's ranges; only the columns *reads* have their values, and *carried* is put aside."""
    schema = ", ".join(f"{name} {SCHEMA_TYPES[name]}" for name in reads)
    read = functools.partial(read_ranges, reads, carried, has_row_ids=has_row_ids)
    records = map_in_arrow(_one_row(session), read, schema)
    return records.select(*(f.col(name) if name in reads else _unread(name) for name in NAMES))


def written(made: DataFrame, carried: tuple[str, ...], *, has_row_ids: bool) -> DataFrame:
    """Write what was *made* of a job's records, with the columns that were *carried*; return the outcomes."""
    types = dict(made.dtypes)
    end = [(f.lit(END) if name == "offset" else f.lit(None)).cast(types[name]).alias(name) for name in made.columns]
    # Spark reads the two partitions of a union in order where it makes one of them.
    whole = made.unionAll(_one_row(made.sparkSession).select(*end)).coalesce(1)
    write = functools.partial(write_ranges, carried, has_row_ids=has_row_ids)
    return map_in_arrow(whole, write, f"{OUTCOME} BINARY")


def _one_row(session: SparkSession) -> DataFrame:
    return session.range(0, 1, 1, 1)


def _unread(name: str) -> Column:
    return f.lit(None).cast(SCHEMA_TYPES[name]).alias(name)


def transformed(session: SparkSession, transform: Transform, records: DataFrame) -> DataFrame:
    """Return what *transform* makes of *records*, in our columns. Raise `TransformRefusedError`."""
    if not transform.uses_spark:
        return records
    try:
        if transform.sql:
            records.createOrReplaceTempView(VIEW)
            made = session.sql(transform.sql)
        else:
            made = _function(transform)(records)
            if not isinstance(made, DataFrame):
                raise TransformRefusedError(
                    transform.name, f"{transform.function} gave {type(made).__name__}, not a DataFrame of Spark"
                )
        return _in_our_columns(transform, made)
    except PySparkException as error:
        raise TransformRefusedError(transform.name, words_of(error), _column_in(error)) from error


@attrs.frozen
class Analysed:
    """What a transform makes of *records*, which are none, and Spark's plan for that."""

    records: DataFrame
    made: DataFrame
    plan: str

    @property
    def is_row_by_row(self) -> bool:
        """Whether the transform cannot tell the records of one range from those of several, one after another."""
        return all(_ROW_BY_ROW.match(line) for line in self.plan.splitlines() if line.strip())


def analysed(session: SparkSession, transform: Transform) -> Analysed:
    """Have Spark analyse *transform*, without a record. Raise `TransformRefusedError` if it cannot be run."""
    records = _nothing(session)
    made = transformed(session, transform, records)
    try:
        plan = physical_plan(made)
    except (PySparkException, Py4JJavaError) as error:
        raise TransformRefusedError(transform.name, words_of(error)) from error
    found = _REORDERS.search(plan)
    if found is not None:
        problem = (
            f"it puts records together or in another order ({found['what'].strip()}); they are transformed one by one"
        )
        raise TransformRefusedError(transform.name, problem)
    return Analysed(records, made, plan)


def words_of(error: Exception) -> str:
    """Return what is wrong in one line, without the plan and the stack that Spark adds."""
    text = str(getattr(error, "desc", "") or getattr(error, "_desc", "") or error)
    if TRACEBACK in text:
        return ": ".join(raised_in(text))
    first = _OF_QUERY.sub("", text.strip()).strip()
    return " ".join((first.splitlines() or [type(error).__name__])[0].split())


def _column_in(error: PySparkException) -> str:
    try:
        named = str((error.getMessageParameters() or {}).get("objectName", ""))
    except (AttributeError, TypeError, Py4JJavaError):
        return ""
    return named.replace("`", "").rpartition(".")[2]


def _function(transform: Transform) -> Callable[[DataFrame], Any]:
    module, _, name = transform.function.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except _OF_USERS_CODE as error:
        problem = f"{transform.function} cannot be imported: {type(error).__name__}: {error}"
        raise TransformRefusedError(transform.name, problem) from error
    if not callable(found):
        raise TransformRefusedError(transform.name, f"{transform.function} is no function")

    def call(records: DataFrame) -> Any:
        try:
            return found(records)
        except PySparkException:
            raise
        except _OF_USERS_CODE as error:
            problem = f"{transform.function} raised {type(error).__name__}: {error}"
            raise TransformRefusedError(transform.name, problem) from error

    return call


def _in_our_columns(transform: Transform, made: DataFrame) -> DataFrame:
    """Check what came out, and give it in our order and types."""
    types: dict[str, list[str]] = {}
    for name, kind in made.dtypes:
        types.setdefault(name.lower(), []).append(kind)
    for name in NAMES:
        if name == "timestamp_type":
            continue
        _judge_column(transform, name, types.get(name, []))
    for name in types:
        if name not in NAMES:
            known = ", ".join(NAMES)
            raise TransformRefusedError(transform.name, f"column {name} is none of a record's: {known}", name)
    columns = [f.col(name) for name in NAMES[:4]]
    columns += [f.lit(0).alias("timestamp_type")]
    columns += [_as(types, name, "binary") for name in ("key", "value")]
    return made.select(*columns, _as(types, "headers", _HEADERS_TYPE))


def _as(types: dict[str, list[str]], name: str, kind: str) -> Column:
    # A column that is cast is another one, even if it was of that type.
    column = f.col(name)
    return column if types[name] == [kind] else column.cast(kind).alias(name)


def _judge_column(transform: Transform, name: str, found: list[str]) -> None:
    taken = _HEADERS_TYPES if name == "headers" else _TAKEN[name]
    if not found:
        raise TransformRefusedError(
            transform.name, f"column {name} is missing: select it, or SELECT * EXCEPT (…) what is changed", name
        )
    if len(found) > 1:
        raise TransformRefusedError(
            transform.name,
            f"column {name} is there {len(found)} times: write SELECT * EXCEPT ({name}), … AS {name}",
            name,
        )
    if found[0] not in taken:
        wanted = " or ".join(sorted(taken)) if name != "headers" else _HEADERS
        raise TransformRefusedError(transform.name, f"column {name} is {found[0]}, which should be {wanted}", name)
