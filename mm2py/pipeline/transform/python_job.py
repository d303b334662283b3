"""
The rounds of a record task that has nothing but Connect's transforms: a plain Spark job each.

Such steps are Python of ours. Taking the records through Spark SQL, and the streaming query with its processes that
needs, would triple what a record costs and show Spark nothing that it could work on.
"""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError

from mm2py.clock import Clock
from mm2py.model.epoch import EpochPlan
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.patience import done_within
from mm2py.pipeline.spark.session import JOB_FAILED, SparkSession, collected, message_of
from mm2py.pipeline.transform.backend import TransformBackend, allowed_s
from mm2py.pipeline.transform.results import Answer, Failed, RangeOutcome
from mm2py.pipeline.transform.spark_task import transform_ranges


#: As many Spark tasks as a record task has slots for.
_TASKS: Final = 2

_sequence = itertools.count()


class StepJob(TransformBackend):
    """Runs a record task's rounds in one life of Spark; stands where a `Query` stands for transforms of Spark SQL."""

    def __init__(self, session: SparkSession, transform: Transform, scratch: Path, key_file: str | None) -> None:
        super().__init__(session, transform, scratch / f"steps-{next(_sequence)}", key_file)
        self._group = self.folder.name
        self._name = ""

    def start(self, name: str) -> None:
        self.folder.mkdir()
        self._name = name

    def dry_run(self, _records: Any) -> None:
        """Do nothing: a step tells by itself which record it cannot take."""

    async def run(self, plan: EpochPlan, clock: Clock) -> Answer | Failed:
        """Have *plan* done by a job."""
        number, payloads = self._next_round(plan)
        job = self.session.begin(self._collect, number, payloads)
        # How one ends that nobody awaits any more is of no interest.
        job.add_done_callback(lambda it: None if it.cancelled() else it.exception())
        try:
            if not await done_within(job, allowed_s(plan), clock):
                return self._give_up(plan, number)
            outcomes = job.result()
        except JOB_FAILED as error:
            return Failed(message_of(error), number, None)
        except (Py4JError, OSError, EOFError) as error:
            return Failed(f"Spark is gone ({type(error).__name__})", number, None)
        return Answer(number, tuple(outcomes), is_whole=True)

    def _collect(self, number: int, payloads: list[bytes]) -> list[RangeOutcome]:
        context = self.session.context
        context.setJobGroup(self._group, f"{self._name}, round {number}", interruptOnCancel=False)
        offset_ranges = context.parallelize(payloads, min(_TASKS, len(payloads)))
        function = functools.partial(transform_ranges, str(self.folder), number)
        return collected(offset_ranges.mapPartitions(function))

    def _end(self) -> None:
        self.session.context.cancelJobGroup(self._group)
