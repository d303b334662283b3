"""Which runs are shared by several processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import side_by_side
from tests.support.side_by_side import processes


@pytest.mark.parametrize(
    ("named", "wanted"),
    [
        (["tests"], 5),
        (["tests/e2e"], 5),
        (["tests/e2e/test_crashes.py", "tests/e2e/test_life.py"], 5),
        (["tests/unit", "tests/e2e/test_crashes.py"], 5),
        (["tests/e2e/test_crashes.py"], 0),
        (["tests/e2e/test_crashes.py::test_a", "tests/e2e/test_crashes.py::test_b"], 0),
        (["tests/unit"], 0),
        (["tests/unit/model", "tests/unit/test_errors.py"], 0),
    ],
)
def test_what_waits_runs_side_by_side(named: list[str], wanted: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit tests and single files stay in one process; whatever else was named is shared out."""
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(side_by_side.psutil, "virtual_memory", lambda: SimpleNamespace(total=24 * 10**9))

    assert processes(named) == wanted


@pytest.mark.parametrize(("gigabytes", "wanted"), [(2, 1), (8, 2), (12, 4), (64, 5)])
def test_each_process_has_the_memory_that_it_needs(
    gigabytes: int, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small machine has fewer processes than its cores could share, and at least one."""
    monkeypatch.setattr(side_by_side.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(side_by_side.psutil, "virtual_memory", lambda: SimpleNamespace(total=gigabytes * 10**9))

    assert processes(["tests"]) == wanted
