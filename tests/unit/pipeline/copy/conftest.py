"""A copier between two model clusters, for the tests of epochs."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.copy_rig import CopyRig, rig_of


@pytest.fixture
async def rig() -> AsyncIterator[CopyRig]:
    """Return a copier of one partition between model clusters."""
    rig = rig_of()
    yield rig
    await rig.worker.close()
