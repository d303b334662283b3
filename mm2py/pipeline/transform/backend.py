"""
What runs the rounds of a record task in one life of Spark: a streaming query, or plain jobs.

Each round has a number and a sealed plan for each of its stretches. What became of a stretch is noted in a folder of
the daemon's, where a Spark task can see that: it counts though the round as a whole may fail.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mm2py.clock import Clock
from mm2py.errors import Mm2Error
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.spark.patience import done_within
from mm2py.pipeline.spark.sealing import seal
from mm2py.pipeline.spark.session import JOB_FAILED, SparkSession
from mm2py.pipeline.transform.mailbox import Mailbox
from mm2py.pipeline.transform.results import Answer, Failed, RangeOutcome


#: Spark waits for its planners, of which one may be about to start.
_STOP_WITHIN_S: Final = 60.0
#: What a round may take beyond an epoch: where a broker is away, a stretch waits for half a minute to be read and as
#: long to be written, and a transform is somebody's own code.
ROUND_SLACK_S: Final = 300.0
#: Words that tell a round apart that was given up.
_LATE: Final = "the round was not done in time and was stopped"


def allowed_s(plan: EpochPlan) -> float:
    """Return how long a round may take: once its transaction has been aborted, nothing of it can be committed."""
    terms = plan.transactions
    slack_s = ROUND_SLACK_S if terms is None else min(ROUND_SLACK_S, terms.timeout_ms / 1000)
    return _due_s(plan) + slack_s


def _due_s(plan: EpochPlan) -> float:
    """Return the time by which a round should be done."""
    return (plan.epoch_ms + plan.drain_ms) / 1000


@attrs.define(eq=False)
class RoundLateError(Mm2Error):
    """Spark, or a transform's own code, did not do something that a round needs in time."""

    what: str

    def __str__(self) -> str:
        return f"{self.what} was not done in time"


async def _nobody(_reason: str) -> None:
    return


class TransformBackend(ABC):
    """Runs the rounds of one transform in one life of Spark, one at a time."""

    def __init__(self, session: SparkSession, transform: Transform, folder: Path, key_file: str | None) -> None:
        self.session = session
        self.transform = transform
        self.folder = folder
        self.mailbox = Mailbox(str(folder))
        #: Is told that a round was not done in time: after which time it was due, and how much more it had.
        self.on_late: Callable[[EpochPlan, float, float], None] = lambda _plan, _due_s, _slack_s: None
        #: Ends a Spark that does not stop what runs here.
        self.end_hung: Callable[[str], Awaitable[None]] = _nobody
        self._key_file = key_file
        self._number = 0
        #: Which stretches may have left a note.
        self._noted: tuple[int, list[TopicPartition]] = (0, [])

    @abstractmethod
    def start(self, name: str) -> None:
        """Get ready; blocks. Raise `TransformRefusedError`."""

    @abstractmethod
    def dry_run(self, records: Any) -> None:
        """Transform *records* and write them nowhere; blocks. Raise what Spark raises."""

    @abstractmethod
    async def run(self, plan: EpochPlan, clock: Clock) -> Answer | Failed:
        """Have *plan* done."""

    @abstractmethod
    def _end(self) -> None:
        """End whatever runs; blocks."""

    def noted(self, number: int, source: TopicPartition) -> RangeOutcome | None:
        """Return what became of one stretch of a plan that failed as a whole."""
        return self.mailbox.noted(number, source)

    async def stop(self, clock: Clock) -> None:
        """Stop it, whatever it is doing, by ending Spark if need be: nothing of it goes on behind anybody's back."""
        ending = self.session.begin(self._try_end)
        if not await done_within(ending, _STOP_WITHIN_S, clock):
            await self.end_hung(f"it does not end a round of {self.transform.name}")

    def _try_end(self) -> None:
        with suppress(Py4JError, OSError, PySparkException):
            self._end()

    async def tried(self, records: Any, clock: Clock) -> str | None:
        """Transform *records* and write them nowhere; say what was raised. Raise `RoundLateError`."""
        job = self.session.begin(self._try, records)
        if not await done_within(job, ROUND_SLACK_S, clock):
            raise RoundLateError(f"trying transform {self.transform.name}")
        return job.result()

    def _try(self, records: Any) -> str | None:
        try:
            self.dry_run(records)
        except JOB_FAILED as error:
            return str(error)
        except (Py4JError, OSError):
            return None  # Spark is gone, which is no fault of a record
        return None

    def _give_up(self, plan: EpochPlan, number: int, answer: Answer | None = None) -> Failed:
        """Return up a round that has been due for too long; whoever asked for it stops it."""
        due_s = _due_s(plan)
        self.on_late(plan, due_s, allowed_s(plan) - due_s)
        return Failed(_LATE, number, answer, is_late=True)

    def _next_round(self, plan: EpochPlan) -> tuple[int, list[bytes]]:
        """Begin a round: give its number, and the sealed plan of each stretch."""
        self.mailbox.forget(*self._noted)
        self._number += 1
        self._noted = (self._number, [one.source for one in plan.partitions])
        return self._number, [seal(attrs.evolve(plan, partitions=(one,)), self._key_file) for one in plan.partitions]
