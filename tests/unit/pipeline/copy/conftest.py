"""A copier between two model clusters, for the tests of epochs."""

from __future__ import annotations

import pytest

from tests.support.copy_rig import CopyRig, rig_of


@pytest.fixture
def rig() -> CopyRig:
    """Return a copier of two partitions between model clusters."""
    return rig_of()
