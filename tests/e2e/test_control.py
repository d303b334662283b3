"""Pauses and stops over HTTP, on a daemon with Spark: what they hold up, and what they leave alone."""

from __future__ import annotations

import time
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import daemon
from tests.support.eventually import scaled
from tests.support.flow_rest import SOURCE, flow_rest
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import numbered_stream
from tests.support.topics import create_topic


_WHILE = 500


async def _grown(held: tuple[KafkaCluster, str], other: tuple[KafkaCluster, str]) -> int:
    """Return by how many records a topic grows while another one grows by hundreds."""
    before, goes_on = [await arrived(cluster.bootstrap_servers, topic) for cluster, topic in (held, other)]
    await await_arrived(other[0].bootstrap_servers, other[1], goes_on + _WHILE)
    return await arrived(held[0].bootstrap_servers, held[1]) - before


def _both_ways(primary: KafkaCluster, backup: KafkaCluster, aliases: tuple[str, str], there: str, back: str) -> str:
    """Return a file with a flow of one topic in each direction."""
    a, b = aliases
    return mm2_properties(
        primary.bootstrap_servers,
        backup.bootstrap_servers,
        aliases=aliases,
        **{
            f"{a}->{b}.topics": there,
            f"{b}->{a}.enabled": "true",
            f"{b}->{a}.topics": back,
            "emit.checkpoints.enabled": "false",
            "tasks.max": "1",
        },
    )


async def test_a_held_flow_touches_no_other_and_can_be_drained(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Two flows of one daemon: while one is paused, stopped, and over a SIGTERM and a new start still stopped, the other
    goes on in its own epochs. At the end both have copied every record once, in order.
    """
    a, b, there, back = f"{prefix}-a", f"{prefix}-b", f"{prefix}-there", f"{prefix}-back"
    await create_topic(primary.bootstrap_servers, there, partitions=2)
    await create_topic(backup.bootstrap_servers, back, partitions=2)
    text = _both_ways(primary, backup, (a, b), there, back)
    ends = (backup, f"{a}.{there}"), (primary, f"{b}.{back}")
    async with (
        numbered_stream(primary.bootstrap_servers, there, count=1_000, partitions=2, rate=300, open_ended=True) as held,
        numbered_stream(backup.bootstrap_servers, back, count=1_000, partitions=2, rate=300, open_ended=True) as other,
    ):
        async with daemon(tmp_path, text) as running:
            rest = await flow_rest(running, f"{a}->{b}")
            await await_arrived(backup.bootstrap_servers, f"{a}.{there}", 100)
            await await_arrived(primary.bootstrap_servers, f"{b}.{back}", 100)
            await rest.ask("PUT", f"{SOURCE}/pause")
            await rest.state("PAUSED")
            paused = await _grown(*ends)
            await rest.ask("PUT", f"{SOURCE}/resume")
            at = await arrived(backup.bootstrap_servers, f"{a}.{there}")
            await await_arrived(backup.bootstrap_servers, f"{a}.{there}", at + 300)
            await rest.ask("PUT", f"{SOURCE}/stop")
            await rest.state("STOPPED")
            stopped = await _grown(*ends)
            lost = list(running.events("copy_task_lost"))
            starts = [event["flow"] for event in running.events("flow_started")]
            began = time.monotonic()
            code = await running.sigterm()
            took_s = time.monotonic() - began
            (end,) = running.events("daemon_stopped")
        async with daemon(tmp_path, text) as running:
            rest = await flow_rest(running, f"{a}->{b}")
            await rest.state("STOPPED")
            still = await _grown(*ends)
            await rest.ask("PUT", f"{SOURCE}/resume")
            counts = await held.done(), await other.done()
            await await_arrived(backup.bootstrap_servers, f"{a}.{there}", counts[0])
            await await_arrived(primary.bootstrap_servers, f"{b}.{back}", counts[1])
            assert await running.sigterm() == 0

    assert (paused, stopped, still) == (0, 0, 0)
    assert (code, end["is_drained"], lost) == (0, True, [])
    assert took_s < scaled(20)
    assert sorted(starts) == sorted([f"{a}->{b}", f"{b}->{a}"]), "neither a pause nor the other's stop starts a flow"
    await assert_mirrored(primary.bootstrap_servers, there, backup.bootstrap_servers, f"{a}.{there}", counts[0])
    await assert_mirrored(backup.bootstrap_servers, back, primary.bootstrap_servers, f"{b}.{back}", counts[1])
