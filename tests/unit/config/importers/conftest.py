"""A standalone worker's file and its connectors' files, written and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import MirrorSettings


Load = Callable[..., MirrorSettings]


@pytest.fixture
def read(tmp_path: Path) -> Load:
    """Write a worker's file and connectors' files, by their names, and load them."""

    def write_and_load(worker: str, files: Mapping[str, str], **overrides: str) -> MirrorSettings:
        (tmp_path / "worker.properties").write_text(worker)
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        connectors = [tmp_path / name for name in files]
        return standalone_settings(tmp_path / "worker.properties", connectors, overrides=overrides)

    return write_and_load


@pytest.fixture
def load(read: Load) -> Load:
    """Load a worker's file and connectors' files, named ``1.properties`` and so on."""

    def load(worker: str, *connectors: str, **overrides: str) -> MirrorSettings:
        files = {f"{number}.properties": text for number, text in enumerate(connectors, 1)}
        return read(worker, files, **overrides)

    return load
