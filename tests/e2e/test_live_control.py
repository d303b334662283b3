"""Overrides over HTTP to a daemon with Spark, which is killed: what was ordered holds in the next one."""

from __future__ import annotations

import time
from pathlib import Path

from mm2py.devkit.broker import KafkaCluster
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually, scaled
from tests.support.flow_rest import SOURCE, flow_rest, offset_body
from tests.support.mirrored import arrived, assert_mirrored, await_arrived
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.topics import create_topic


_COUNT = 2_000


def _settings(primary: KafkaCluster, backup: KafkaCluster, alias: str, topics: str) -> str:
    keys = {
        "topics": topics,
        "emit.checkpoints.enabled": "false",
        "emit.offset-syncs.enabled": "false",
    }
    return mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=(alias, "B"), **keys)


async def _stage(running: Daemon, topic: str, alias: str, stage: str) -> None:
    def there() -> bool:
        views = running.partition_views(topic, f"{alias}->B")
        return bool(views) and all(view["stage"] == stage for view in views.values())

    await eventually(there, within_s=30, what=f"{topic} is {stage}")


async def test_what_was_ordered_survives_a_kill(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """
    Settings that were put count within seconds, and a topic that was paused stays so, both over SIGKILL.

    A body with several mistakes is refused with all of them and changes nothing. Taken back, the flow does what its
    file says; no record of any topic is lost or there twice.
    """
    first, second, paused = (f"{prefix}-{name}" for name in ("first", "second", "paused"))
    for topic in (first, second, paused):
        await create_topic(primary.bootstrap_servers, topic, partitions=2)
        await produce_numbers(primary.bootstrap_servers, topic, count=_COUNT, partitions=2)
    text = _settings(primary, backup, prefix, f"{first}, {paused}")
    async with daemon(tmp_path, text) as running:
        rest = await flow_rest(running, f"{prefix}->B")
        for topic in (first, paused):
            await await_arrived(backup.bootstrap_servers, f"{prefix}.{topic}", _COUNT)
        await rest.ask("PUT", f"/topics/{paused}/pause", wanted=202)
        refused = await rest.ask("PUT", f"{SOURCE}/config", {"tasks.max": "no", "topcs": "x"}, wanted=400)
        begun = time.monotonic()
        await rest.ask("PUT", f"{SOURCE}/config", {"topics": f"{prefix}-.*", "tasks.max": "2"}, wanted=200)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{second}", _COUNT)
        took_s = time.monotonic() - begun
        await _stage(running, paused, prefix, "paused")
        await running.kill()

    await produce_numbers(primary.bootstrap_servers, paused, count=_COUNT, partitions=2)
    async with daemon(tmp_path, text) as running:
        rest = await flow_rest(running, f"{prefix}->B")
        await running.wait_for_event("flow_started")
        await _stage(running, paused, prefix, "paused")
        config = await rest.ask("GET", f"{SOURCE}/config", wanted=200)
        kept = await rest.ask("GET", "/config", wanted=200)
        await produce_numbers(primary.bootstrap_servers, second, count=100, partitions=1)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{second}", _COUNT + 100)
        held_back = await arrived(backup.bootstrap_servers, f"{prefix}.{paused}")
        await rest.ask("PUT", f"/topics/{paused}/resume", wanted=202)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{paused}", 2 * _COUNT)
        after = await rest.ask("DELETE", f"{SOURCE}/config", wanted=200)
        reverted = await running.wait_for_event("live_settings_changed")
        await eventually(lambda: running.flow_view(f"{prefix}->B").get("topics") == 2, within_s=30, what="two topics")
        assert await running.sigterm() == 0

    assert took_s < scaled(20)
    assert len(refused["problems"]) == 2
    assert (config["topics"], config["tasks.max"]) == (f"{prefix}-.*", "2")
    in_file = f"{first}, {paused}"
    assert ("topics", f"{prefix}-.*", in_file) in [(one["key"], one["value"], one["file_value"]) for one in kept]
    assert after["config"]["topics"] == in_file
    assert held_back == _COUNT
    assert sorted(reverted["reverted"]) == ["tasks.max", "topics"]
    await assert_mirrored(primary.bootstrap_servers, first, backup.bootstrap_servers, f"{prefix}.{first}", _COUNT)
    assert await arrived(backup.bootstrap_servers, f"{prefix}.{second}") == _COUNT + 100
    source = await read_numbers(primary.bootstrap_servers, paused)
    assert await read_numbers(backup.bootstrap_servers, f"{prefix}.{paused}") == source


async def test_offsets_are_set_back_over_http(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """KIP-875's verbs as Connect has them: refused while the connector runs, then a hundred records come again."""
    await create_topic(primary.bootstrap_servers, prefix)
    await produce_numbers(primary.bootstrap_servers, prefix, count=_COUNT, partitions=1)
    body = offset_body(prefix, prefix, _COUNT - 101)
    async with daemon(tmp_path, _settings(primary, backup, prefix, prefix)) as running:
        rest = await flow_rest(running, f"{prefix}->B")
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{prefix}", _COUNT)
        await rest.ask("PATCH", f"{SOURCE}/offsets", body, wanted=409)
        await rest.ask("PUT", f"{SOURCE}/stop", wanted=204)
        await rest.state("STOPPED")
        before = await rest.ask("GET", f"{SOURCE}/offsets", wanted=200)
        await rest.ask("PATCH", f"{SOURCE}/offsets", body, wanted=200)
        await rest.ask("PUT", f"{SOURCE}/resume", wanted=202)
        await await_arrived(backup.bootstrap_servers, f"{prefix}.{prefix}", _COUNT + 100)
        assert await running.sigterm() == 0

    assert before == offset_body(prefix, prefix, _COUNT - 1)
    source = await read_numbers(primary.bootstrap_servers, prefix)
    found = await read_numbers(backup.bootstrap_servers, f"{prefix}.{prefix}")
    assert found[0] == source[0] + source[0][-100:]
