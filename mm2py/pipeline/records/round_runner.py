"""
What runs the rounds of a record task in one life of Spark: a streaming query, or plain jobs.

Each round has a number and a sealed plan for each of its stretches. What became of a stretch is noted in a folder of
the daemon's, where a Spark task can see that: it counts though the round as a whole may fail.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from mm2py.clock import Clock
from mm2py.model.epoch import EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.records.mailbox import Mailbox
from mm2py.pipeline.records.outcome import Answer, Failed, StretchOutcome
from mm2py.pipeline.sealing import seal
from mm2py.pipeline.session import SparkSession


_STOP_WITHIN_S: Final = 10.0
#: What a round may take beyond an epoch: where a broker is away, a stretch waits for half a minute to be read and as
#: long to be written, and a transform is somebody's own code.
ROUND_SLACK_S: Final = 300.0
#: Words that tell a round apart that was given up.
_LATE: Final = "the round was not done in time and was stopped"


class RoundRunner(ABC):
    """Runs the rounds of one transform in one life of Spark, one at a time."""

    def __init__(self, session: SparkSession, transform: Transform, folder: Path, key_file: str | None) -> None:
        self.session = session
        self.transform = transform
        self.folder = folder
        self.mailbox = Mailbox(str(folder))
        #: Is told that a round was not done in time: after which time it was due, and how much more it had.
        self.on_late: Callable[[EpochPlan, float, float], None] = lambda _plan, _due_s, _slack_s: None
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

    def noted(self, number: int, source: TopicPartition) -> StretchOutcome | None:
        """Give what became of one stretch of a plan that failed as a whole."""
        return self.mailbox.noted(number, source)

    async def stop(self) -> None:
        """Stop it, whatever it is doing."""
        try:
            async with asyncio.timeout(_STOP_WITHIN_S):
                await self.session.begin(self._end)
        except (TimeoutError, Py4JError, OSError, PySparkException):
            return

    @staticmethod
    def _due_s(plan: EpochPlan) -> float:
        """Give the time by which a round should be done."""
        return (plan.epoch_ms + plan.drain_ms) / 1000

    def _give_up(self, plan: EpochPlan, number: int, answer: Answer | None = None) -> Failed:
        """Give up a round that has been due for too long; whoever asked for it stops it."""
        self.on_late(plan, self._due_s(plan), ROUND_SLACK_S)
        return Failed(_LATE, number, answer)

    def _next_round(self, plan: EpochPlan) -> tuple[int, list[bytes]]:
        """Begin a round: give its number, and the sealed plan of each stretch."""
        self.mailbox.forget(*self._noted)
        self._number += 1
        self._noted = (self._number, [one.source for one in plan.partitions])
        return self._number, [seal(attrs.evolve(plan, partitions=(one,)), self._key_file) for one in plan.partitions]
