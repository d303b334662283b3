"""Fixtures for every test: real clusters that start when first asked for, unique names, virtual time in unit tests."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping

import hypothesis
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import MakeCluster, cluster_factory, clusters_of
from tests.support.loops import AutojumpLoop
from tests.support.side_by_side import processes
from tests.support.soaking import IS_SOAK
from tests.support.stalls import StallWatch


# Machines are shared and at times slow; how long an example takes says nothing about the code.
hypothesis.settings.register_profile("mm2py", deadline=None)
hypothesis.settings.load_profile("mm2py")

_STALL_WATCH = pytest.StashKey[StallWatch]()


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return unit tests a loop whose time jumps, and all others the real one."""
    if "unit" in item.path.parts:
        return {"autojump": AutojumpLoop}
    return {"asyncio": asyncio.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Watch the machine for as long as tests run in this process."""
    watch = config.stash[_STALL_WATCH] = StallWatch()
    watch.start()


def pytest_unconfigure(config: pytest.Config) -> None:
    config.stash[_STALL_WATCH].stop()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to ``scripts/soak`` what only it runs. Run a test with real brokers again if the machine stood still during
    the first try, and only then.
    """
    watch = config.stash[_STALL_WATCH]
    second_try = pytest.mark.flaky(reruns=1, condition=lambda: watch.has_stalled)
    for item in items:
        if "unit" not in item.path.parts:
            item.add_marker(second_try)
        mark = item.get_closest_marker("soak")
        if mark is not None and "only" in mark.kwargs and not IS_SOAK:
            item.add_marker(pytest.mark.skip(reason=f"{mark.kwargs['only']}: for scripts/soak alone"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    item.config.stash[_STALL_WATCH].begin()


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes share the tests where ``-n auto`` leaves that open, as scripts/test does."""
    return processes(config.args)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show what the brokers had to complain about beside the failure of a test that used them."""
    report = yield
    watch = item.config.stash[_STALL_WATCH]
    if report.failed and watch.has_stalled:
        report.sections.append(("the machine", f"it stood still for {watch.longest_s:.1f} s while this test ran"))
    if report.failed and isinstance(item, pytest.Function):
        for name, value in item.funcargs.items():
            if isinstance(value, KafkaCluster):
                report.sections.extend((f"{name}: {title}", text) for title, text in value.warnings().items())
    return report


@pytest.fixture(scope="session")
def both_clusters() -> Iterator[dict[str, KafkaCluster]]:
    """Two one-broker clusters for the whole session."""
    with clusters_of("primary", "backup") as clusters:
        yield clusters


@pytest.fixture(scope="session")
def primary(both_clusters: dict[str, KafkaCluster]) -> KafkaCluster:
    """The cluster that tests copy from."""
    return both_clusters["primary"]


@pytest.fixture(scope="session")
def backup(both_clusters: dict[str, KafkaCluster]) -> KafkaCluster:
    """The cluster that tests copy to."""
    return both_clusters["backup"]


@pytest.fixture
def make_cluster() -> Iterator[MakeCluster]:
    """Start clusters of a test's own: several brokers, special settings, brokers to be killed."""
    with cluster_factory() as make:
        yield make


@pytest.fixture
def prefix(request: pytest.FixtureRequest) -> str:
    """Return a start for topic and group names that no other test has."""
    words = re.sub(r"[^a-zA-Z0-9]+", "-", request.node.name.removeprefix("test_"))
    return f"{words[:40].strip('-')}-{secrets.token_hex(3)}"
