"""Timestamps in settings and requests: what is understood, and what is refused and why."""

from __future__ import annotations

import pytest

from mm2py.model.timestamp import timestamp_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01T00:00:00Z", 1_793_491_200_000),
        (" 2026-11-01T02:00:00+02:00 ", 1_793_491_200_000),
        ("2026-10-31T18:30-05:30", 1_793_491_200_000),
        ("2026-11-01 00:00:00.250Z", 1_793_491_200_250),
        ("2026-11-01T00:00:00.250001Z", 1_793_491_200_251),
        ("1793491200000", 1_793_491_200_000),
        ("1970-01-01T00:00:00Z", 0),
        ("0", 0),
    ],
)
def test_timestamps(text: str, expected: int) -> None:
    """ISO 8601 with a zone, and milliseconds; what is finer than those is rounded up to the first one in it."""
    assert timestamp_ms(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("2026-11-01T00:00:00", "no time zone: write 2026-11-01T00:00:00Z"),
        ("2026-11-01", "no time zone"),
        ("1793491200", "are these seconds? then write 1793491200000"),
        ("-1", "expected 2026-11-01T00:00:00Z"),
        ("-2", "expected 2026-11-01T00:00:00Z"),
        ("9223372036854775808", "too large"),
        ("9" * 5000, "too large"),
        ("1969-12-31T23:59:59Z", "before 1970"),
        ("yesterday", "found 'yesterday'"),
        ("", "found ''"),
        ("2026-13-01T00:00:00Z", "expected"),
    ],
)
def test_what_is_no_timestamp(text: str, problem: str) -> None:
    """Nothing that brokers would take for one of their special values, nor for another moment than was meant."""
    with pytest.raises(ValueError, match=r"expected|zone") as refused:
        timestamp_ms(text)

    assert problem in str(refused.value)
