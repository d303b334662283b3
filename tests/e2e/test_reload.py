"""A changed properties file takes effect while the daemon runs: flow by flow, without stopping the others."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.topics import create_topic, list_topics


_COUNT = 2_000


def _properties(primary: KafkaCluster, backup: KafkaCluster, topics: str, **keys: object) -> str:
    """Write settings for flows to two aliases of one target: `B`, and `C`, which takes the same topics always."""
    settings: dict[str, Any] = {
        "clusters": "A, B, C",
        "C.bootstrap.servers": backup.bootstrap_servers,
        "C.group.id": "A-mm2-C",  # B's brokers, where A->B is in A-mm2
        "A->B.topics": topics,
        "replication.policy.separator": "_",
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
        "copy.epoch.ms": 1000,
        **keys,
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, **settings)


def _reload(running: Daemon, file: Path, properties: str) -> None:
    file.write_text(properties)
    os.kill(running.pid, signal.SIGHUP)


async def test_a_change_reaches_its_flow_alone(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    After SIGHUP the changed flow mirrors by its new settings, from where it was; the other one goes on untouched.

    An invalid file changes nothing, and the error is reported; a flow that is switched off drains and is gone.
    """
    first, second, other = f"{prefix}-1", f"{prefix}-2", f"{prefix}-other"
    for topic in (first, second, other):
        await create_topic(primary.bootstrap_servers, topic)
        await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=1)
    flows = {
        "A->B.enabled": "true",
        "A->C.enabled": "true",
        "A->C.topics": other,
        "A->C.replication.policy.separator": "-",
    }
    file = tmp_path / "mm2.properties"
    async with daemon(tmp_path, _properties(primary, backup, first, **flows)) as running:
        await assert_mirrored(primary.bootstrap_servers, first, backup.bootstrap_servers, f"A_{first}", _COUNT)
        await assert_mirrored(primary.bootstrap_servers, other, backup.bootstrap_servers, f"A-{other}", _COUNT)
        assert f"A_{second}" not in await list_topics(backup.bootstrap_servers)

        _reload(running, file, _properties(primary, backup, f"{first}, {second}", **flows))
        reloaded = await running.wait_for_event("settings_reloaded")
        await assert_mirrored(primary.bootstrap_servers, second, backup.bootstrap_servers, f"A_{second}", _COUNT)

        _reload(running, file, _properties(primary, backup, first, **flows) + "A->B.tasks.max = many\n")
        refused = await running.wait_for_event("settings_refused")
        assert [event["flow"] for event in running.events("flow_drained")] == ["A->B"]

        _reload(running, file, _properties(primary, backup, first, **{**flows, "A->B.enabled": "false"}))
        gone = await running.wait_for_event("settings_reloaded", removed=["A->B"])
        await eventually(lambda: not running.flow_view("A->B"), within_s=30, what="A->B is no longer shown")
        assert await running.sigterm() == 0

    assert (reloaded["changed"], reloaded["unchanged"], reloaded["is_drained"]) == (["A->B"], ["A->C"], True)
    assert "tasks.max" in refused["problems"][0]
    assert "mm2.properties:" in refused["problems"][0]
    assert gone["unchanged"] == ["A->C"]
    drained = [event["flow"] for event in running.events("flow_drained")]
    assert drained == ["A->B", "A->B", "A->C"]
    await assert_mirrored(primary.bootstrap_servers, first, backup.bootstrap_servers, f"A_{first}", _COUNT)
