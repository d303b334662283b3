"""Fixtures for tests of settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.config_files import ConfigFile


@pytest.fixture
def config(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "mm2.properties")
