"""What tests of commands share: a file that a command reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.mm2_file import mm2_properties


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return the file of a flow A->B, of clusters that no test connects to."""
    path = tmp_path / "mm2.properties"
    path.write_text(mm2_properties("a:9092", "b:9092"))
    return path
