"""docs/recovering.md: positions set and removed with Kafka's own tools, as it describes."""

from __future__ import annotations

import asyncio
import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from mm2py.config.settings import FlowSettings
from mm2py.devkit.broker import KafkaCluster
from mm2py.devkit.java import JvmOptions
from mm2py.telemetry.events import Event, ResumedExactly, ResumeUnproven
from tests.support.eventually import eventually, scaled
from tests.support.flows import flow_settings, running_flow
from tests.support.mirrored import await_arrived
from tests.support.producing import produce_numbers
from tests.support.reading import read_numbers
from tests.support.topics import create_topic, delete_topic


PAGE = (Path(__file__).parents[2] / "docs/recovering.md").read_text()
TOOLS = {
    "bin/kafka-get-offsets.sh": "org.apache.kafka.tools.GetOffsetShell",
    "bin/kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
}
RECORDS = 10


def told(number: int, meant: Mapping[str, str]) -> list[tuple[list[str], str]]:
    """Return the commands of one of the page's examples, and what follows each; *meant* replaces what is shown."""
    block = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)[number].replace("\\\n", " ")
    for shown, real in meant.items():
        assert shown in block, shown
        block = block.replace(shown, real)
    parts = [part.partition("\n") for part in block.split("$ ")[1:]]
    return [(shlex.split(command), rest) for command, _, rest in parts]


def follow(command: list[str], typed: str = "") -> str:
    """Run one of Kafka's tools with what an operator types."""
    tool, *arguments = command
    done = subprocess.run(
        JvmOptions(heap_mb=128).command(TOOLS[tool], *arguments),
        check=True,
        input=typed,
        stdout=subprocess.PIPE,
        text=True,
        timeout=scaled(60),
    )
    return done.stdout


@pytest.fixture
def settings(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> FlowSettings:
    """Return the settings of a mirror of one topic."""
    return flow_settings(primary.bootstrap_servers, backup.bootstrap_servers, topics=prefix)


async def copied(tmp_path: Path, settings: FlowSettings, remote_topic: str, count: int) -> list[Event]:
    """Run the mirror until the remote topic holds *count* records; return its events about resuming."""
    async with running_flow(settings, tmp_path) as flow:
        await await_arrived(settings.target.bootstrap_servers[0], remote_topic, count)
        await flow.drain()
        return [*flow.events.of(ResumedExactly), *flow.events.of(ResumeUnproven)]


async def mirrored(tmp_path: Path, settings: FlowSettings, primary: KafkaCluster, topic: str) -> None:
    """Write a topic, and run the mirror until all of it is copied."""
    await create_topic(primary.bootstrap_servers, topic)
    await produce_numbers(primary.bootstrap_servers, topic, count=RECORDS, partitions=1)
    await copied(tmp_path, settings, f"A.{topic}", RECORDS)


async def test_a_position_is_set(
    tmp_path: Path, settings: FlowSettings, primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """A position that an operator writes is where copying goes on, and nothing is left to be proven."""
    target = backup.bootstrap_servers
    await mirrored(tmp_path, settings, primary, prefix)
    meant = {"b1:9092": target, "A.orders": f"A.{prefix}", '"orders"': f'"{prefix}"', ":743": ":10", ":742": ":9"}
    (ask, answer), (write, typed) = told(0, {**meant, '"offset":1000': '"offset":4'})
    ends = await asyncio.to_thread(follow, ask)
    await asyncio.to_thread(follow, write, typed)
    resumed = await copied(tmp_path, settings, f"A.{prefix}", RECORDS + 5)

    assert ends.strip() == answer.strip()
    assert (await read_numbers(target, f"A.{prefix}"))[0] == [*range(RECORDS), *range(5, RECORDS)]
    assert resumed == []


async def test_a_position_is_removed(
    tmp_path: Path, settings: FlowSettings, primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """A partition whose position an operator removed is copied from its start again."""
    target = backup.bootstrap_servers
    await mirrored(tmp_path, settings, primary, prefix)
    ((write, typed),) = told(1, {"b1:9092": target, '"orders"': f'"{prefix}"'})
    await asyncio.to_thread(follow, write, typed)
    resumed = await copied(tmp_path, settings, f"A.{prefix}", 2 * RECORDS)

    assert (await read_numbers(target, f"A.{prefix}"))[0] == [*range(RECORDS), *range(RECORDS)]
    assert resumed == []


async def test_a_missing_positions_topic(
    tmp_path: Path, primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Without its positions topic the mirror finds the target's last records in the source, and repeats none."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    settings = flow_settings(source, target, **{"topics": prefix, "B.offset.storage.topic": f"{prefix}.offsets"})
    await create_topic(source, prefix)
    await produce_numbers(source, prefix, count=RECORDS, partitions=1)
    await copied(tmp_path, settings, f"A.{prefix}", RECORDS)
    await delete_topic(target, f"{prefix}.offsets")
    async with running_flow(settings, tmp_path) as flow:
        found = await eventually(lambda: flow.events.of(ResumedExactly), within_s=60, what="it has resumed")
        await flow.drain()

    assert (await read_numbers(target, f"A.{prefix}"))[0] == [*range(RECORDS)]
    assert [event.records for event in found] == [RECORDS]
