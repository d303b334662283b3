"""Problems and notes in the settings, and the error that carries all of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import attrs

from mm2py.config.providers import Stamps
from mm2py.errors import Mm2Error, Verdict


@attrs.frozen
class Problem:
    """A problem or note: its line, its key, what is wrong, and what to try."""

    where: str
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{hint}" if place else f"{self.message}{hint}"


def in_order(problems: Iterable[Problem], named: Iterable[str]) -> tuple[Problem, ...]:
    """Return *problems* file by file, as the user *named* the files."""
    places = {name: number for number, name in enumerate(named)}

    def place(problem: Problem) -> int:
        name = problem.where if problem.where in places else problem.where.rpartition(":")[0]
        return places.get(name, -1)

    return tuple(sorted(problems, key=place))


@attrs.define(eq=False)
class ConfigError(Mm2Error):
    """The settings are invalid. It has all problems, not only the first, and notes, one of which may name the cause."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW

    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...] = ()
    #: The files that references such as ``${file:…}`` read, as they were then; missing ones too.
    provided: Stamps = attrs.field(factory=dict)

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
