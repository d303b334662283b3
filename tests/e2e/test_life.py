"""The daemon's life: how it starts, how it waits, how it ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from mm2py.devkit.broker import KafkaCluster
from tests.support.brokers import NEVER_KILLED
from tests.support.daemon import Daemon, daemon, still_running
from tests.support.eventually import eventually, scaled
from tests.support.mirrored import assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream, produce_numbers
from tests.support.topics import create_topic


_SHORT_EPOCHS = {"copy.epoch.ms": 1000}
_NO_SERVER = "127.0.0.1:1"
_ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def _ends_well(running: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """End a daemon with SIGTERM after the block; its exit code is 0."""
    try:
        yield
        running.terminate()
        async with asyncio.timeout(scaled(60)):
            exit_code = await running.wait()
    finally:
        with suppress(ProcessLookupError):
            running.kill()
        await running.wait()

    assert exit_code == 0


# --- ending -----------------------------------------------------------------------------------------------------------


async def test_signals_drain(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    SIGTERM in a running stream and SIGINT write the positions and exit with 0; the next start goes on exactly.

    A process manager sends the first one to Spark's JVM and its workers as well, which the drain still needs.
    """
    settings = mm2_properties(
        primary.bootstrap_servers, backup.bootstrap_servers, **{"A->B.topics": prefix, "tasks.max": 2}
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=4)
    stream_of = numbered_stream(
        primary.bootstrap_servers, prefix, count=10_000, partitions=4, rate=2_000, open_ended=True
    )
    async with stream_of as stream:
        async with daemon(tmp_path, settings) as first:
            await first.wait_for_event("spark_started")
            await await_arrived(backup.bootstrap_servers, f"A.{prefix}", stream.sent)
            below = first.tree()[1:]
            exit_codes = [await first.sigterm_all()]
            await eventually(partial(_are_gone, below), within_s=5, what="its processes have ended")
        async with daemon(tmp_path, settings) as last:
            count = await stream.done()
            await assert_mirrored(primary.bootstrap_servers, prefix, backup.bootstrap_servers, f"A.{prefix}", count)
            found = await last.wait_for_event("positions_read")
            exit_codes.append(await last.send_signal(signal.SIGINT))

    assert exit_codes == [0, 0]
    assert (found["found"], found["fresh"]) == (4, 0)
    log = first.log_text()  # and all that follows in the same file
    assert log.count('"positions_written": true') == log.count('"is_drained": true') == 2
    for unwanted in ("copy_task_lost", "resumed_exactly", "resume_unproven"):
        assert unwanted not in log


async def test_signal_while_starting(primary: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A daemon that is stopped before its Spark is up and while a cluster does not answer ends with 0."""
    settings = mm2_properties(primary.bootstrap_servers, _NO_SERVER, **{"A->B.topics": prefix})
    async with daemon(tmp_path, settings) as running:
        await running.wait_for_event("cluster_unreachable", cluster="B")

        assert await running.sigterm(within_s=20) == 0
        assert not list(running.events("flow_failed"))


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the names of sockets."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


async def test_signal_while_spark_starts(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path, short_folder: Path
) -> None:
    """A daemon that is to stop before, while or after its JVM comes up does so at once, with 0, and leaves nothing."""
    settings = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, **{"A->B.topics": prefix})
    await create_topic(primary.bootstrap_servers, prefix)

    def names(running: Daemon) -> list[str]:
        found = []
        for process in running.tree()[1:]:
            with suppress(psutil.NoSuchProcess):
                found.append(process.name())
        return found

    moments: list[Callable[[Daemon], bool]] = [
        lambda _: True,
        lambda running: "java" in names(running),
        lambda running: any(name.startswith("python") for name in names(running)),
    ]
    for moment in moments:
        async with daemon(tmp_path, settings, env={"TMPDIR": str(short_folder)}) as running:
            await running.wait_for_event("daemon_started")
            await eventually(partial(moment, running), within_s=60, what="Spark has come so far", every_s=0.02)
            below = running.tree()[1:]

            assert await running.sigterm(within_s=20) == 0
            said = [event["event"] for event in running.events()]
            assert "spark_started" not in said[said.index("daemon_draining") :]
            assert "Traceback" not in running.log_text()
            assert _names_in(short_folder) == []
            await eventually(partial(_are_gone, below), within_s=5, what="its processes have ended")


def _names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _are_gone(processes: list[psutil.Process]) -> bool:
    return not still_running(processes)


async def test_a_log_that_nothing_reads_stops_no_mirror(tmp_path: Path) -> None:
    """The reader of its log has ended, as of `| tee` may: the daemon goes on, drains on SIGTERM, and ends with 0."""
    lines = "clusters = A, B\nA.bootstrap.servers = {0}\nB.bootstrap.servers = {0}\nA->B.enabled = false\nlisteners =\n"
    (tmp_path / "mm2.properties").write_text(lines.format(_NO_SERVER))
    status = tmp_path / "status.json"
    reader, writer = os.pipe()
    os.close(reader)
    running = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mm2py.cli.mirror_maker", "mm2.properties", "--status-file", str(status)),
        stderr=writer,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": ""},
    )
    os.close(writer)
    async with _ends_well(running):
        await eventually(status.exists, within_s=60, what="the daemon runs")


async def test_a_reload_right_after_the_start_ends_nothing(tmp_path: Path) -> None:
    """SIGHUP while the daemon still loads: systemd takes a process that it ends for one that ended well."""
    lines = "clusters = A, B\nA.bootstrap.servers = {0}\nB.bootstrap.servers = {0}\nA->B.enabled = false\nlisteners =\n"
    (tmp_path / "mm2.properties").write_text(lines.format(_NO_SERVER))
    with (tmp_path / "log").open("wb") as log:
        running = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mm2py.cli.mirror_maker", "mm2.properties"),
            stdin=asyncio.subprocess.DEVNULL,
            stderr=log,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(_ROOT)},
        )

    def is_held() -> bool:
        status = Path(f"/proc/{running.pid}/status").read_text()
        # Blocked at first, and then caught: that may come within a moment.
        masks = [line.split()[1] for line in status.splitlines() if line.startswith(("SigBlk", "SigCgt"))]
        return any(int(mask, 16) & 1 << (signal.SIGHUP - 1) for mask in masks)

    async with _ends_well(running):
        await eventually(is_held, within_s=10, what="SIGHUP is held back", every_s=0.02)
        running.send_signal(signal.SIGHUP)
        await eventually(
            lambda: b"settings_reloaded" in (tmp_path / "log").read_bytes(), within_s=60, what="the file is reread"
        )


async def test_nothing_left_to_mirror(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """A node whose only flow has failed for good ends with 2 and drains the flow that only emits heartbeats."""
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=("gone", "left"),
        **{
            "gone->left.topics": prefix,
            "replication.policy.class": "nowhere.LostPolicy",
            # The other direction has a policy that can be loaded, and so heartbeats.
            "left->gone.replication.policy.class": "default",
            "emit.heartbeats.enabled": "true",
        },
    )
    async with daemon(tmp_path, settings) as running:
        exit_code = await running.wait(within_s=60)

        assert exit_code == 2
        assert [event["flow"] for event in running.events("flow_failed")] == ["gone->left"]
        assert next(running.events("daemon_stopped"))["is_drained"]


# --- waiting ----------------------------------------------------------------------------------------------------------


async def test_unreachable_cluster(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """
    Of two flows in one file the one whose source is away keeps trying while the other copies.

    Each outage and its end are reported once; neither keeps the daemon from draining.
    """
    late = KafkaCluster("late", properties=NEVER_KILLED)
    settings = mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        **{
            "clusters": "A, B, C",
            "C.bootstrap.servers": late.bootstrap_servers,
            "C->B.enabled": "true",
            "topics": prefix,
            **_SHORT_EPOCHS,
        },
    )
    await create_topic(primary.bootstrap_servers, prefix, partitions=2)
    await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
    try:
        async with daemon(tmp_path, settings) as running:
            await running.wait_for_event("cluster_unreachable", cluster="C", flow="C->B")
            await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 1_000)
            assert not list(running.events("cluster_recovered"))

            await asyncio.to_thread(late.start_all)
            await create_topic(late.bootstrap_servers, prefix)
            await produce_numbers(late.bootstrap_servers, prefix, count=2_000, partitions=1)
            await running.wait_for_event("cluster_recovered", cluster="C", flow="C->B")
            await assert_mirrored(late.bootstrap_servers, prefix, backup.bootstrap_servers, f"C.{prefix}", 2_000)

            await asyncio.to_thread(late.kill, 0)
            await eventually(
                lambda: len(list(running.events("cluster_unreachable"))) == 2,
                within_s=20,
                what="the second absence is said",
            )
            await produce_numbers(primary.bootstrap_servers, prefix, count=1_000, partitions=2)
            await await_arrived(backup.bootstrap_servers, f"A.{prefix}", 2_000)

            assert await running.sigterm(within_s=20) == 0
            assert {"C"} == {event["cluster"] for event in running.events("cluster_unreachable")}
            assert len(list(running.events("cluster_unreachable"))) == 2
            assert len(list(running.events("cluster_recovered"))) == 1
            assert not list(running.events("task_restarted"))
    finally:
        await asyncio.to_thread(late.stop)
