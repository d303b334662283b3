"""Java's date patterns in UTC. What Java itself makes of many more is asked in tests/integration."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from mm2py.model.date_pattern import DatePattern, DatePatternError


_AT = int(datetime(2026, 11, 22, 7, 5, 9, 42_000, UTC).timestamp() * 1000)
_NEW_YEAR = int(datetime(2024, 12, 31, 23, 59, 59, 999_000, UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyyMMdd", "20261122"),
        ("yy-M-d", "26-11-22"),
        ("YYYY-ww", "2026-48"),
        ("EEE.dd.MMM.yyyy", "Sun.22.Nov.2026"),
        ("EEEE-MMMM", "Sunday-November"),
        ("D-u-F-W", "326-7-4-4"),
        ("yyyyMMdd'T'HHmmss.SSS", "20261122T070509.042"),
        ("h-a-K-k", "7-AM-7-7"),
        ("G-z-Z-X", "AD-UTC-+0000-Z"),
        ("'it''s' ''yy''", "it's '26'"),
        ("", ""),
    ],
)
def test_what_letters_mean(pattern: str, text: str) -> None:
    """Each letter is what SimpleDateFormat makes of it; between quotes stands what is meant as it stands."""
    assert DatePattern(pattern).format(_AT) == text


def test_the_last_days_of_a_year_may_be_of_the_next_one_s_first_week() -> None:
    """YYYY is the year of the week, which is not that of the day."""
    assert DatePattern("yyyy YYYY w DDD").format(_NEW_YEAR) == "2024 2025 1 366"


def test_years_beyond_what_python_knows() -> None:
    """A clock that is very wrong makes a name, too."""
    assert DatePattern("yyyyMMdd").format(2**63 - 1) == "2922789940817"


@pytest.mark.parametrize(
    ("pattern", "width_ms"),
    [
        ("yyyy", 86_400_000),
        ("'S'", 86_400_000),
        ("yyyyHH", 3_600_000),
        ("a", 3_600_000),
        ("mm", 60_000),
        ("ss", 1_000),
        ("yyS", 1),
    ],
)
def test_how_long_a_name_stands(pattern: str, width_ms: int) -> None:
    """The finest letter says for how long timestamps have one text."""
    found = DatePattern(pattern)

    assert found.width_ms == width_ms
    begin = _AT - _AT % width_ms
    assert found.format(begin) == found.format(begin + width_ms - 1)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("yyyyb", "'b' is no letter"), ("yyyy'T", "unterminated quote"), ("XXXX", "X may come three times at most")],
)
def test_no_patterns(pattern: str, why: str) -> None:
    """What Java refuses is refused, with the reason."""
    with pytest.raises(DatePatternError, match=why):
        DatePattern(pattern)
