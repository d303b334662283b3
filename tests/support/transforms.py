"""Functions that tests name as transforms."""

from __future__ import annotations

import pickle
import threading
import time
from collections.abc import Iterable
from typing import Any

from mm2py.pipeline.spark.worker import exhaust
from mm2py.pipeline.transform.results import RangeOutcome, unmoved
from mm2py.pipeline.transform.spark_task import range_plan


#: `stuck` waits for it.
released = threading.Event()


def stuck(records: Any) -> Any:
    """Do not come back before `released` says so."""
    released.wait()
    return records


def looking(records: Any) -> Any:
    """Look at the records before there are any: a transform is made once, and not for them."""
    records.count()
    return records


def hanging(records: Any) -> Any:
    """Never come back from the first record."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    def wait(_value: bytes) -> bytes:
        threading.Event().wait()
        return b""

    # Spark takes Arrow for these where it can, and warns where pandas is missing.
    return records.withColumn("value", f.udf(wait, "binary", useArrow=False)("value"))


def masked(records: Any) -> Any:
    """Replace digits in values by x; tombstones stay."""
    from pyspark.sql import functions as f  # noqa: PLC0415 - only where Spark is

    return records.withColumn("value", f.regexp_replace(f.col("value").cast("string"), "[0-9]", "x").cast("binary"))


def first_range_fails(rows: Iterable[object]) -> list[tuple[bytes]]:
    """Fail at once where the job is that of partition 0; take half a second more for any other, and do nothing."""
    plan = range_plan()
    exhaust(rows)
    if plan.partitions[0].source.partition == 0:
        time.sleep(0.5)
        message = "it cannot be transformed"
        raise ValueError(message)
    time.sleep(1.0)
    return [(pickle.dumps([RangeOutcome(unmoved(one)) for one in plan.partitions]),)]
