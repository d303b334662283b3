"""The status page of a daemon as a user starts it: real clusters, real Spark, a real browser."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import attrs
import pytest
import pytest_asyncio
from playwright.async_api import Browser

from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.ports import free_ports
from mm2py.model.flow import TopicPartition
from tests.support.browser import DESKTOP, PHONE, Looked, chromium, looking
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.groups import commit_plainly
from tests.support.mirrored import arrived, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.topics import create_topic


pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE_GROUP = "<img src=x onerror=\"document.title='owned'\">"
PARTITIONS = 3
READER, WRITER = "see-" + secrets.token_hex(16), "do-" + secrets.token_hex(16)


@attrs.frozen
class Mirror:
    """A daemon that mirrors one cluster, and would mirror another that is not there."""

    daemon: Daemon
    url: str
    alias: str
    prefix: str
    source: str
    target: str

    @property
    def flow(self) -> str:
        """Where the flow is in the page."""
        return f"#/flow/{self.alias}-%3EB"

    def remote(self, topic: str) -> str:
        return f"{self.alias}.{topic}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """One browser for all tests of this file."""
    async with chromium() as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mirror(
    primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Mirror]:
    """One daemon for all tests of this file, with a reader's and a writer's token."""
    alias, prefix, folder = (
        f"page{secrets.token_hex(2)}",
        f"page-{secrets.token_hex(3)}",
        tmp_path_factory.mktemp("page"),
    )
    for name in ("orders", "payments", "clicks"):
        await create_topic(primary.bootstrap_servers, f"{prefix}.{name}", partitions=PARTITIONS)
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=(alias, "B"),
        **{
            "clusters": f"{alias}, B, lost",
            "lost.bootstrap.servers": f"127.0.0.1:{free_ports(1)[0]}",
            "lost->B.enabled": "true",
            f"{alias}->B.topics": f"{prefix}.*",
            "copy.epoch.ms": "1000",
            "emit.checkpoints.interval.seconds": "1",
            "rest.auth.read.tokens": READER,
            "rest.auth.write.tokens": WRITER,
        },
    )
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(daemon(folder, settings))
        url = str((await running.wait_for_event("rest_listening"))["url"])
        await running.wait_for_event("flow_started", flow=f"{alias}->B", within_s=90)
        await running.wait_for_event("spark_started", within_s=180)
        yield Mirror(running, url, alias, prefix, primary.bootstrap_servers, backup.bootstrap_servers)


async def entered(seen: Looked, place: str, *, token: str = WRITER) -> None:
    """Open the page and log in."""
    await seen.open(place)
    await seen.sees("Log in")
    await seen.log_in(token)
    await seen.sees("Live", "header")


async def test_records_are_seen_while_they_flow(browser: Browser, mirror: Mirror) -> None:
    """Counts, rates and plots move while records arrive, without a reload."""
    topic = f"{mirror.prefix}.orders"
    async with looking(browser, mirror.url, expects=("401",)) as seen:
        await entered(seen, mirror.flow)
        await seen.sees(topic, "table.topics")
        await seen.evaluate("window.wasHere = true")
        async with numbered_stream(mirror.source, topic, count=12_000, partitions=PARTITIONS, rate=500) as stream:
            await await_arrived(mirror.target, mirror.remote(topic), 1_000)
            copied = seen.page.locator(".tile-value").nth(5)

            async def moves() -> bool:
                before = await copied.inner_text()
                await seen.page.wait_for_timeout(1_500)
                return await copied.inner_text() != before

            await eventually(moves, within_s=30, what="the count of copied records moves")

            async def is_fast() -> bool:
                return await seen.text(".tile-value") not in {"", "0/s"}

            await eventually(is_fast, within_s=30, what="the rate is not nothing")
            await stream.done()
        await await_arrived(mirror.target, mirror.remote(topic), 12_000)

        assert await seen.evaluate("window.wasHere") is True
        assert await seen.page.locator(".plot canvas").count() == 4
        await seen.keep_picture("daemon-flow")


async def test_pause_and_resume_by_clicking(browser: Browser, mirror: Mirror) -> None:
    """A click on Pause, and a yes, stop the flow; what is written meanwhile arrives after a click on Resume."""
    topic = f"{mirror.prefix}.payments"
    await produce_numbers(mirror.source, topic, count=300, partitions=PARTITIONS)
    await await_arrived(mirror.target, mirror.remote(topic), 300)
    async with looking(browser, mirror.url, expects=("401",)) as seen:
        await entered(seen, mirror.flow)
        await seen.sees("running", ".flow-head")
        await seen.click("Pause", ".flow-head")
        await seen.answer("Pause")
        await seen.sees("paused", ".flow-head .pill", within_s=60)
        await produce_numbers(mirror.source, topic, count=300, partitions=PARTITIONS)
        await seen.page.wait_for_timeout(3_000)
        meanwhile = await arrived(mirror.target, mirror.remote(topic))
        await seen.keep_picture("daemon-paused")
        await seen.click("Resume", ".flow-head")
        await seen.sees("running", ".flow-head .pill", within_s=60)
        await await_arrived(mirror.target, mirror.remote(topic), 600)

        assert meanwhile == 300


async def test_an_unreachable_cluster_is_told(browser: Browser, mirror: Mirror) -> None:
    """A cluster that does not answer is named on the first page with the error and what to try, also on a phone."""
    for size, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        async with looking(browser, mirror.url, size=size, scheme=scheme, expects=("401",)) as seen:
            await entered(seen, "#/", token=READER)
            card = await seen.sees("Cluster lost is unreachable", ".problems", within_s=60)
            await seen.sees("unreachable", "svg.diagram")
            await seen.keep_picture(f"daemon-{scheme}")

            assert "lost" in card
            assert "What to try" in card
            assert await seen.width() <= size[0]


async def test_groups_with_any_name_are_text(browser: Browser, mirror: Mirror) -> None:
    """A group that is called like a piece of a page is shown by its name, with its translated offsets."""
    topic = f"{mirror.prefix}.clicks"
    await produce_numbers(mirror.source, topic, count=90, partitions=PARTITIONS)
    await await_arrived(mirror.target, mirror.remote(topic), 90)
    await commit_plainly(mirror.source, HOSTILE_GROUP, {TopicPartition(topic, 0): 20})
    async with looking(browser, mirror.url, expects=("401",)) as seen:
        await entered(seen, f"{mirror.flow}/groups", token=READER)
        await seen.sees(HOSTILE_GROUP, "table.groups", within_s=60)
        await seen.page.fill("#panel-groups input[type=search]", "onerror")
        await seen.page.locator("table.groups .opener").first.click()
        await seen.sees("exactly", "table.groups tr.under", within_s=30)

        assert await seen.page.locator("img").count() == 0
        assert "owned" not in await seen.page.title()
        assert await seen.page.locator("[data-write]:visible").count() == 0
        await seen.keep_picture("daemon-groups")
