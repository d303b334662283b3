"""Runs of a whole mirror that once failed."""

from __future__ import annotations

import os

import pytest

from tests.support.simulating import simulate


@pytest.mark.timeout(1_800)
def test_what_once_failed_does_not_fail_again() -> None:
    """Each file in tests/simulated/bugs says what was wrong; its run has no violation today."""
    assert simulate("--bugs", "--jobs", str(os.cpu_count() or 1)) != ""
