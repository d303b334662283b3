"""
How a streaming query is told what to do, and tells what it did.

Spark runs a query's planning and committing in processes of its own, on the driver's machine, below its JVM. The
daemon puts one plan at a time into a folder of its private directory; the query takes it for the next micro-batch, and
puts back what became of it. Every plan has a number, and so has its answer.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.results import Answer, RangeOutcome


_NUMBER: Final = struct.Struct(">q")
_PLAN, _ANSWER, _FRESH = "plan", "answer", ".new"


@attrs.frozen
class Mailbox:
    """A folder with a plan and an answer in it."""

    folder: str

    def post(self, number: int, payload: bytes) -> None:
        """Put the plan of that number there."""
        self._write(_PLAN, _NUMBER.pack(number) + payload)

    def plan(self) -> tuple[int, bytes] | None:
        """Return the plan that is there, and its number."""
        found = self._read(_PLAN)
        return None if found is None else (_NUMBER.unpack_from(found)[0], found[_NUMBER.size :])

    def number(self) -> int:
        """Return the number of the plan that is there; 0 where there is none."""
        return self._number_of(_PLAN)

    def answer(self, number: int, outcomes: Sequence[RangeOutcome], *, is_whole: bool) -> None:
        """Report what became of the plan of that number."""
        self._write(_ANSWER, _NUMBER.pack(number) + pickle.dumps(Answer(number, tuple(outcomes), is_whole)))

    def note(self, number: int, source: TopicPartition, outcome: RangeOutcome) -> None:
        """
        Report what became of one stretch, where this folder can be seen: it counts though its micro-batch may fail.
        """
        with suppress(OSError):
            self._write(f"{number}-{source}", pickle.dumps(outcome))

    def noted(self, number: int, source: TopicPartition) -> RangeOutcome | None:
        """Return what became of one stretch."""
        found = self._read(f"{number}-{source}")
        outcome: RangeOutcome | None = None if found is None else pickle.loads(found)  # noqa: S301 - as above
        return outcome

    def forget(self, number: int, sources: Iterable[TopicPartition]) -> None:
        """Remove what `note` left of a plan."""
        for source in sources:
            with suppress(OSError):
                os.unlink(os.path.join(self.folder, f"{number}-{source}"))  # noqa: PTH108, PTH118

    def take_answer(self, number: int) -> Answer | None:
        """Return the answer to the plan of that number, if it is there."""
        if self._number_of(_ANSWER) != number:
            return None
        found = self._read(_ANSWER) or b""
        answer: Answer = pickle.loads(found[_NUMBER.size :])  # noqa: S301 - our own process wrote it
        return answer

    def _number_of(self, name: str) -> int:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:  # noqa: PTH118, PTH123
                return int(_NUMBER.unpack(file.read(_NUMBER.size))[0])
        except FileNotFoundError:
            return 0

    def _write(self, name: str, content: bytes) -> None:
        path = os.path.join(self.folder, name)  # noqa: PTH118
        with open(path + _FRESH, "wb") as file:  # noqa: PTH123
            file.write(content)
        os.replace(path + _FRESH, path)  # noqa: PTH105

    def _read(self, name: str) -> bytes | None:
        try:
            with open(os.path.join(self.folder, name), "rb") as file:  # noqa: PTH118, PTH123
                return file.read()
        except FileNotFoundError:
            return None
