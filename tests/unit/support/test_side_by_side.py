"""Which runs are shared by several processes."""

from __future__ import annotations

import pytest

from tests.support import side_by_side
from tests.support.side_by_side import processes


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        (["tests"], 3),
        (["tests/e2e"], 3),
        (["tests/e2e/test_crashes.py", "tests/e2e/test_life.py"], 3),
        (["tests/unit", "tests/e2e/test_crashes.py"], 3),
        (["tests/e2e/test_crashes.py"], 0),
        (["tests/e2e/test_crashes.py::test_a", "tests/e2e/test_crashes.py::test_b"], 0),
        (["tests/unit"], 0),
        (["tests/unit/model", "tests/unit/test_errors.py"], 0),
    ],
)
def test_what_waits_runs_side_by_side(named: list[str], wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests and single files stay in one process; whatever else was named is shared out."""
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)

    assert processes(named) == wanted
