"""How to resume: from what is known of the target's end alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.source.resume import Blank, Exact, Match, Resume, Rewound, Skip, judge


@pytest.mark.parametrize(
    ("downstream", "target_end", "expected"),
    [
        pytest.param(-1, 0, Exact(-1), id="nothing copied, target empty"),
        pytest.param(41, 42, Exact(41), id="target ends where we stopped"),
        pytest.param(41, 43, Skip(1, 42), id="one record more arrived"),
        pytest.param(41, 142, Skip(100, 141), id="many records more arrived"),
        pytest.param(-1, 7, Skip(7, 6), id="the first records arrived"),
        pytest.param(41, 41, Rewound(41), id="the last record is missing"),
        pytest.param(41, 0, Rewound(0), id="the target was re-created"),
        pytest.param(None, 0, Blank(), id="Java's position, target empty"),
        pytest.param(None, 1, Match(0), id="Java's position, one record there"),
        pytest.param(None, 42, Match(41), id="Java's position, records there"),
    ],
)
def test_judgement(downstream: int | None, target_end: int, expected: Resume) -> None:
    """Each relation between the last known downstream offset and the target's end has one way to go on."""
    assert judge(downstream=downstream, target_end=target_end) == expected


@given(st.integers(-1, 1 << 40), st.integers(0, 1 << 40))
def test_judgement_adds_up(downstream: int, target_end: int) -> None:
    """Whatever is skipped ends at the target's last record, and nothing is skipped where nothing arrived."""
    match judge(downstream=downstream, target_end=target_end):
        case Exact(last):
            assert last == downstream == target_end - 1
        case Skip(records, last):
            assert (downstream + records, last) == (last, target_end - 1)
            assert records > 0
        case Rewound(end):
            assert end == target_end <= downstream
        case other:
            pytest.fail(f"a known downstream offset gave {other}")
