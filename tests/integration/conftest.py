"""Fixtures that integration tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser

from mm2py.devkit.broker import KafkaCluster
from tests.support.browser import chromium
from tests.support.epochs import Spark, idle_plan, spark_of
from tests.support.java_mirror import JavaMirror, java_mirror
from tests.support.served_page import Served, serving


@pytest.fixture(scope="session")
def mirror_by_java(
    primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaMirror]:
    """Return what Java MirrorMaker 2 mirrored between the two clusters, once for all tests; it has ended."""
    with java_mirror(primary.bootstrap_servers, backup.bootstrap_servers, tmp_path_factory.mktemp("java")) as made:
        yield made


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def spark_of_module() -> AsyncIterator[Spark]:
    """Spark for the tests of a module, which may kill it."""
    async with spark_of() as started:
        await started.runner.run(idle_plan())
        yield started


@pytest.fixture
def spark(spark_of_module: Spark) -> Spark:
    """Spark, without the events of earlier tests."""
    spark_of_module.events._ring.clear()
    return spark_of_module


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of a module."""
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A node that is only shown on its page, without access control."""
    async with serving(tmp_path) as running:
        yield running
