"""Fixtures that integration tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.java_mirror import JavaMirror, java_mirror


@pytest.fixture(scope="session")
def mirror_by_java(
    primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaMirror]:
    """What Java MirrorMaker 2 left behind between the two clusters, once for all tests; nothing moves any more."""
    with java_mirror(primary.bootstrap_servers, backup.bootstrap_servers, tmp_path_factory.mktemp("java")) as made:
        yield made
