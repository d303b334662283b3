"""Three nodes of which one at a time transforms: while it moves about, readers of committed records see each once."""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from mm2py.core.membership import PROTOCOL, PROTOCOL_TYPE
from mm2py.devkit.broker import KafkaCluster
from mm2py.wire.groups.membership import Membership
from tests.support.daemon import Daemon, daemon
from tests.support.eventually import eventually
from tests.support.groups import throw_out
from tests.support.mm2_file import mm2_properties
from tests.support.node_runs import NAMES
from tests.support.producing import numbered_stream
from tests.support.reading import read_numbers
from tests.support.records import assert_numbers
from tests.support.soaking import rounds
from tests.support.topics import create_topic, looking_at


pytestmark = pytest.mark.soak(only="three daemons with Spark")

_REBALANCES = rounds(0, soak=300)
_PARTITIONS = 4
_RATE = 400
#: The group, and Spark on each node, come up first.
_LONG_S = 120.0


def _copied(nodes: list[Daemon], topic: str, flow: str) -> list[list[int]]:
    found = (node.partition_views(topic, flow) for node in nodes)
    return [[view["position"] for _, view in sorted(views.items())] for views in found if views]


def _exactly_once(alias: str, topic: str) -> dict[str, object]:
    """Return the keys of nodes that share a flow and transform its topic in transactions."""
    flow = f"{alias}->B"
    return {
        "clusters": f"{alias}, B",
        f"{flow}.topics": topic,
        "listeners": "",
        f"B->{alias}.enabled": "false",
        "tasks.max": 2,
        "copy.epoch.ms": 1_000,
        "B.session.timeout.ms": 6_000,
        "B.heartbeat.interval.ms": 300,
        "B.exactly.once.source.support": "enabled",
        f"{flow}.exactly.once.support": "required",
        f"{alias}.consumer.isolation.level": "read_committed",
        f"{flow}.transforms": "mark",
        f"{flow}.transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
        f"{flow}.transforms.mark.header": "seen",
        f"{flow}.transforms.mark.value.literal": "yes",
    }


async def test_forced_rebalances_while_records_are_transformed(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Nodes are thrown out of the group, one or two at a time, in the middle of transactions."""
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, prefix[-6:]
    flow, chance = f"{alias}->B", random.Random(11)
    await create_topic(source, prefix, partitions=_PARTITIONS)
    async with (
        numbered_stream(source, prefix, count=1, partitions=_PARTITIONS, rate=_RATE, open_ended=True) as stream,
        AsyncExitStack() as runs,
        looking_at(target) as cluster,
    ):
        properties = mm2_properties(source, target, aliases=(alias, "B"), **_exactly_once(alias, prefix))
        nodes = [await runs.enter_async_context(daemon(tmp_path, properties, name=name)) for name in NAMES]
        for node in nodes:
            await node.wait_for_event("spark_started", within_s=_LONG_S)
        await eventually(lambda: any(map(any, _copied(nodes, prefix, flow))), within_s=_LONG_S, what="one transforms")
        group = Membership(cluster, f"{alias}-mm2", (PROTOCOL_TYPE, PROTOCOL), 6_000)
        for _ in range(_REBALANCES):
            await throw_out(group, chance, chance.choice((1, 1, 2)))
            await asyncio.sleep(3 * chance.random())
        count = await stream.done()
        ends = [len(range(number, count, _PARTITIONS)) for number in range(_PARTITIONS)]

        def is_done() -> bool:
            found = _copied(nodes, prefix, flow)
            assert ends in found, f"positions are {found}, the ends {ends}"
            return True

        await eventually(is_done, within_s=_LONG_S, what=f"{count} records are transformed")
        moved = [sum("tasks 0" in str(it["tasks"]) for it in node.events("flow_shared")) for node in nodes]
        for node in nodes:
            assert await node.sigterm() == 0
            assert not list(node.events("resume_unproven"))

    assert all(moved), f"not every node has transformed: {moved}"
    found = await read_numbers(target, f"{alias}.{prefix}", reads_committed=True)
    assert_numbers(found, count)
    assert found == await read_numbers(source, prefix)
