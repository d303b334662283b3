"""The status page of a daemon as a user starts it: real clusters, real Spark, a real browser."""

from __future__ import annotations

import secrets
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from tests.support.browser import chromium, looking
from tests.support.daemon import daemon
from tests.support.eventually import eventually
from tests.support.mirrored import await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream
from tests.support.topics import create_topic


PARTITIONS = 3


async def test_records_are_seen_while_they_flow(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """After a log-in, counts, rates and plots move while records arrive, without a reload."""
    token = "see-" + secrets.token_hex(16)
    await create_topic(primary.bootstrap_servers, prefix, partitions=PARTITIONS)
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **{"A->B.topics": prefix, "copy.epoch.ms": "1000", "rest.auth.read.tokens": token},
    )
    async with daemon(tmp_path, settings) as running, chromium() as browser:
        url = str((await running.wait_for_event("rest_listening"))["url"])
        await running.wait_for_event("spark_started", within_s=180)
        async with looking(browser, url, expects=("401",)) as seen:
            await seen.open("#/flow/A-%3EB/topics")
            await seen.sees("Log in")
            await seen.log_in(token)
            await seen.sees("Live", "header")
            await seen.sees(prefix, "table.topics")
            await seen.evaluate("window.wasHere = true")
            await seen.page.get_by_role("tab", name="Plots").click()
            async with numbered_stream(
                primary.bootstrap_servers, prefix, count=1, partitions=PARTITIONS, rate=500, open_ended=True
            ) as stream:
                await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 1_000)
                copied = seen.page.locator(".tile", has_text="Copied").locator(".tile-value")

                async def moves() -> bool:
                    before = await copied.inner_text()
                    await seen.page.wait_for_timeout(1_500)
                    return await copied.inner_text() != before

                await eventually(moves, within_s=30, what="the count of copied records moves")

                async def is_fast() -> bool:
                    return await seen.text(".tile-value") not in {"", "0/s"}

                await eventually(is_fast, within_s=30, what="the rate is not nothing")
                await stream.done()

            assert await seen.evaluate("window.wasHere") is True
            assert await seen.page.locator(".plot canvas").count() == 6
            await seen.keep_picture("daemon-flow")
