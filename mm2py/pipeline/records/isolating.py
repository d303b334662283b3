"""
Which record does a transform fail on?

Spark tells what was raised, but not at which record. So the stretch is transformed again without writing anything, in
halves, until one record is left. It holds the same records each time, and a transform looks at one at a time, so the
first record that fails alone is the one.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

import attrs
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException

from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.pipeline.records.outcome import BadRecord
from mm2py.pipeline.records.query import Query


_RAISED: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Warning)?): (?P<words>.*)$")
_CONDITION: Final = re.compile(r"\[(?P<kind>[A-Z][A-Z_.]+)\]\s*(?P<words>.*?)(?:\s+SQLSTATE: \w+)?\s*$")
_TRACEBACK: Final = "Traceback (most recent call last):"


class Isolation:
    """Looks for records that fail in the stretches of a plan."""

    def __init__(self, query: Query, plan: EpochPlan) -> None:
        self._query = query
        self._plan = plan

    async def first_bad(self, one: PartitionPlan) -> BadRecord | None:
        """Give the first record of *one*'s stretch that the transform fails on; None where it takes all of them."""
        low, high = one.position, one.until if one.until is not None else one.position
        words = await self._fails(one, low, high)
        if words is None:
            return None
        # The first bad record lies in [low, high); all before low are good.
        while high - low > 1:
            middle = (low + high) // 2
            found = await self._fails(one, low, middle)
            if found is None:
                low = middle
            else:
                words, high = found, middle
        kind, message = raised_in(words)
        return BadRecord(low, self._query.transform.name, kind, message)

    async def takes(self, one: PartitionPlan, offset: int) -> bool:
        """Say whether the transform takes the record at *offset* by now."""
        return await self._fails(one, offset, offset + 1) is None

    async def _fails(self, one: PartitionPlan, low: int, high: int) -> str | None:
        stretch = attrs.evolve(one, position=low, until=high)
        plan = attrs.evolve(self._plan, partitions=(stretch,))
        return await asyncio.to_thread(self._dry_run, plan)

    def _dry_run(self, plan: EpochPlan) -> str | None:
        try:
            self._query.dry_run(plan).write.format("noop").mode("overwrite").save()
        except (PySparkException, Py4JJavaError) as error:
            return str(error)
        except (Py4JError, OSError):
            return None  # Spark is gone, which is no fault of a record
        return None


def raised_in(words: str) -> tuple[str, str]:
    """Give the name and the message of what was raised, from Spark's words about a failed job."""
    if _TRACEBACK in words:
        lines = words[words.rindex(_TRACEBACK) :].splitlines()[1:]
        for line in lines:
            found = None if not line or line[0].isspace() else _RAISED.match(line.strip())
            if found is not None:
                return found["kind"], found["words"].strip()
    for line in words.splitlines():
        found = _CONDITION.search(line)
        if found is not None:
            return found["kind"], found["words"].strip()
    return "Exception", " ".join(words.split())[:300]
