"""What is wrong or odd in the settings, and the error that carries all of it at once."""

from __future__ import annotations

from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error, Verdict


@attrs.frozen
class Problem:
    """One thing to mend or to know: where it is written, which key, what is the matter, what to try."""

    where: str
    key: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        place = ": ".join(part for part in (self.where, self.key) if part)
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: {self.message}{hint}" if place else f"{self.message}{hint}"


@attrs.define(eq=False)
class ConfigError(Mm2Error):
    """The settings cannot be used. All problems are here, not only the first."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW

    problems: tuple[Problem, ...]

    def __str__(self) -> str:
        return "\n".join(str(problem) for problem in self.problems)
