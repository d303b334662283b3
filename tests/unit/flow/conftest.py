"""What unit tests of a flow share."""

from __future__ import annotations

import pytest

from tests.support.memberships import Run, runner


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a membership whose group at the target is as said, with the settings changed as said."""
    return runner(monkeypatch)
