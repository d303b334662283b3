"""What tests of REST share: an application to ask."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.rest_asking import Asking, asking


@pytest.fixture
async def ask(tmp_path: Path) -> Asking:
    """An application without access control."""
    return asking(tmp_path)
