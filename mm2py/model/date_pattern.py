"""
Java's date patterns, ``yyyyMMdd``, in UTC: what SimpleDateFormat makes of a timestamp.

Names of months and days, and the weeks (from Sunday on; the one with 1 January is the first), are those of Java's
Locale.US. Timestamps are in milliseconds and not before the epoch: a record has none that is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from itertools import accumulate
from typing import Final

import attrs


_LETTERS: Final = "GyMdkHmsSEDFwWahKzZYuXL"
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
DAY_MS: Final = 24 * _HOUR_MS
#: Days of 400 years, after which the calendar begins anew, and from March of the year 0 to the epoch.
_ERA_DAYS: Final = 146_097
_EPOCH_DAYS: Final = 719_468
_TOKEN: Final = re.compile(r"''|'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<text>[^'A-Za-z]+)")
_SHORT: Final = 3
_LONG: Final = 4
_MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
_DAYS: Final = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_BEFORE_MONTH: Final = (0, *accumulate((31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30)))
_WEEK: Final = 7
#: 22 November 2026, about noon.
_SOME_DAY_MS: Final = 1_795_349_109_042
_HALF_DAY: Final = 12


class DatePatternError(ValueError):
    """A pattern that Java would not take either."""


@attrs.frozen
class _Moment:
    """A timestamp taken apart; `weekday` is 0 for Sunday, `day_of_year` begins with 0."""

    year: int
    month: int
    day: int
    weekday: int
    day_of_year: int
    ms: int

    @property
    def hour(self) -> int:
        return self.ms // _HOUR_MS

    @property
    def week(self) -> tuple[int, int]:
        """Give the year that the week belongs to, and its number there."""
        left = 365 + _is_leap(self.year) - self.day_of_year
        if self.weekday + left < _WEEK:
            return self.year + 1, 1  # 1 January lies in the same week
        return self.year, (self.day_of_year + (self.weekday - self.day_of_year) % _WEEK) // _WEEK + 1


_Part = Callable[[_Moment], str]


class DatePattern:
    """One pattern. Raise `DatePatternError` where it is none."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._parts: list[_Part] = []
        letters = set()
        at = 0
        while at < len(pattern):
            found = _TOKEN.match(pattern, at)
            if found is None:
                raise DatePatternError(f"unterminated quote in {pattern!r}")
            at = found.end()
            if (run := found["letters"]) is not None:
                self._parts.append(_part_of(run, pattern))
                letters.add(run[0])
            else:
                text = found["text"] if found["text"] is not None else (found["quoted"] or "").replace("''", "'")
                self._parts.append(partial(_constant, text if found[0] != "''" else "'"))
        #: Timestamps of one stretch of so many milliseconds, counted from the epoch on, have one name.
        self.width_ms = _width(letters)

    @property
    def example(self) -> str:
        """Give the text of some timestamp, to see what names look like."""
        return self.format(_SOME_DAY_MS)

    def format(self, timestamp_ms: int) -> str:
        """Give the text of a timestamp."""
        moment = _moment(timestamp_ms)
        return "".join(part(moment) for part in self._parts)


def _width(letters: set[str]) -> int:
    if "S" in letters:
        return 1
    if "s" in letters:
        return _SECOND_MS
    if "m" in letters:
        return _MINUTE_MS
    return _HOUR_MS if letters & set("HkKha") else DAY_MS


def _moment(timestamp_ms: int) -> _Moment:
    days, ms = divmod(timestamp_ms, DAY_MS)
    # Years that begin with March have their leap day at the end.
    era, of_era = divmod(days + _EPOCH_DAYS, _ERA_DAYS)
    year = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    since_march = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * since_march + 2) // 153
    day = since_march - (153 * shifted + 2) // 5 + 1
    month = shifted + 3 if shifted < 10 else shifted - 9  # noqa: PLR2004 - January and February
    year += era * 400 + (month <= 2)  # noqa: PLR2004
    day_of_year = _BEFORE_MONTH[month - 1] + day - 1 + (month > 2 and _is_leap(year))  # noqa: PLR2004
    return _Moment(year, month, day, (days + 4) % _WEEK, day_of_year, ms)


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


# The letters.


def _constant(text: str, _moment: _Moment) -> str:
    return text


def _part_of(run: str, pattern: str) -> _Part:
    letter, count = run[0], len(run)
    if letter not in _LETTERS:
        raise DatePatternError(
            f"{letter!r} is no letter of date patterns, in {pattern!r}; letters that are meant as they "
            "stand go between single quotes"
        )
    if letter in _FIXED:
        return partial(_constant, _FIXED[letter](count))
    if letter in {"y", "Y"}:
        return partial(_year, count, letter == "Y")
    if letter in {"M", "L"} and count >= _SHORT:
        return partial(_name, _MONTHS, count, lambda it: it.month - 1)
    if letter == "E":
        return partial(_name, _DAYS, count, lambda it: it.weekday)
    if letter == "a":
        return lambda it: "AM" if it.hour < _HALF_DAY else "PM"
    return partial(_number, count, _NUMBERS[letter])


def _year(count: int, is_of_week: bool, moment: _Moment) -> str:  # noqa: FBT001
    year = moment.week[0] if is_of_week else moment.year
    return f"{year % 100:02}" if count == 2 else str(year).zfill(count)  # noqa: PLR2004 - as Java: 2026 becomes 26


def _name(names: tuple[str, ...], count: int, of: Callable[[_Moment], int], moment: _Moment) -> str:
    name = names[of(moment)]
    return name if count >= _LONG else name[:_SHORT]


def _number(count: int, of: Callable[[_Moment], int], moment: _Moment) -> str:
    return str(of(moment)).zfill(count)


def _iso_zone(count: int) -> str:
    if count > 3:  # noqa: PLR2004 - hours, minutes, with a colon
        raise DatePatternError(f"X may come three times at most, found {'X' * count!r}")
    return "Z"


#: What no timestamp changes: the era, and the zone.
_FIXED: Final[Mapping[str, Callable[[int], str]]] = {
    "G": lambda _: "AD",
    "z": lambda count: "Coordinated Universal Time" if count >= _LONG else "UTC",
    "Z": lambda _: "+0000",
    "X": _iso_zone,
}
_NUMBERS: Final[Mapping[str, Callable[[_Moment], int]]] = {
    "M": lambda it: it.month,
    "L": lambda it: it.month,
    "d": lambda it: it.day,
    "D": lambda it: it.day_of_year + 1,
    "u": lambda it: it.weekday or _WEEK,
    "F": lambda it: (it.day - 1) // _WEEK + 1,
    "w": lambda it: it.week[1],
    "W": lambda it: (it.day - 1 + (it.weekday - it.day + 1) % _WEEK) // _WEEK + 1,
    "H": lambda it: it.hour,
    "k": lambda it: it.hour or 24,
    "K": lambda it: it.hour % _HALF_DAY,
    "h": lambda it: it.hour % _HALF_DAY or _HALF_DAY,
    "m": lambda it: it.ms // _MINUTE_MS % 60,
    "s": lambda it: it.ms // _SECOND_MS % 60,
    "S": lambda it: it.ms % 1_000,
}
