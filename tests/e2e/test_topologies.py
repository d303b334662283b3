"""
Every shape in which clusters are mirrored, by every policy, in one properties file, with real brokers and real Spark.

Three clusters, west, east and south, and flows between them that share clusters, as they do in practice; each test has
topics of its own, which only the flows of its shape take.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.heartbeat import decode_heartbeat
from tests.support.brokers import cluster_factory
from tests.support.daemon import Daemon, daemon, shared_daemon
from tests.support.eventually import eventually
from tests.support.mirrored import assert_mirrored
from tests.support.mm2_file import mm2_properties
from tests.support.producing import produce_numbers
from tests.support.reading import read_topic
from tests.support.topics import create_topic, delete_topic, end_offsets, list_topics


_RECORDS = 500
_HOUSE_POLICY = """
from mm2py.policy.replication import DefaultReplicationPolicy


class HousePolicy(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return f"{topic}_of_{source_alias}"

    def topic_source(self, topic):
        return topic.rpartition("_of_")[2] if "_of_" in topic else None

    def upstream_topic(self, topic):
        return topic.rpartition("_of_")[0] if "_of_" in topic else None
"""
_HEARTBEATS = ("west->east", "east->west", "west->south", "south->west", "east->south", "south->east")


@attrs.frozen
class World:
    """Three clusters and the one daemon between them; `tag` ends the name of every topic of these tests."""

    clusters: dict[str, str]
    tag: str
    running: Daemon

    def __getitem__(self, alias: str) -> str:
        """Return a cluster's bootstrap servers."""
        return self.clusters[alias]

    def topic(self, shape: str) -> str:
        return f"{shape}-{self.tag}"

    async def fill(self, alias: str, topic: str, count: int = _RECORDS) -> None:
        """Make a topic of two partitions with numbered records."""
        await create_topic(self[alias], topic, partitions=2)
        await produce_numbers(self[alias], topic, count=count, partitions=2)

    async def arrives(self, source: str, topic: str, target: str, remote_topic: str, count: int = _RECORDS) -> None:
        """Wait until the remote topic holds exactly what its source holds."""
        await assert_mirrored(self[source], topic, self[target], remote_topic, count)

    async def topics(self, alias: str, topic: str) -> set[str]:
        """Return the topics of a cluster that are *topic* or its copies."""
        return {name for name in await list_topics(self[alias]) if name.endswith(topic)}

    async def has(self, alias: str, topic: str) -> None:
        """Wait until a cluster has a topic."""

        async def there() -> bool:
            return topic in await list_topics(self[alias])

        await eventually(there, within_s=60, what=f"{alias} has {topic}")


@pytest.fixture(scope="module")
def world(primary: KafkaCluster, backup: KafkaCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Run one daemon with every flow of this module."""
    tag, work_dir = secrets.token_hex(3), tmp_path_factory.mktemp("topologies")
    (work_dir / "house.py").write_text(_HOUSE_POLICY)
    with cluster_factory() as make:
        third = make("third").bootstrap_servers
        clusters = {"west": primary.bootstrap_servers, "east": backup.bootstrap_servers, "south": third}
        with shared_daemon(work_dir, _properties(clusters, tag)) as running:
            yield World(clusters, tag, running)
        for bootstrap in clusters.values():  # they are shared with tests that know nothing of heartbeats
            asyncio.run(_forget_heartbeats(bootstrap))


def _properties(clusters: dict[str, str], tag: str) -> str:
    shapes = {
        "west->east": "two-way|ring",
        "east->west": "two-way",
        "west->south": "aggregation",
        "east->south": "aggregation|ring",
        "south->west": "ring",
    }
    keys: dict[str, object] = {
        # The third cluster; west and south once more under names of a migration, west for two more policies.
        "clusters": "west, east, south, old, new, home, lost",
        "south.bootstrap.servers": clusters["south"],
        "old.bootstrap.servers": clusters["west"],
        "new.bootstrap.servers": clusters["south"],
        "home.bootstrap.servers": clusters["west"],
        "lost.bootstrap.servers": clusters["west"],
        **{f"{flow}.enabled": "true" for flow in (*shapes, "old->new", "home->east", "lost->east")},
        **{f"{flow}.topics": rf"(.*\\.)?({names})-{tag}(-later)?" for flow, names in shapes.items()},
        "old->new.topics": f"moved-{tag}",
        "old->new.replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "home->east.topics": f"house-{tag}",
        "home->east.replication.policy.class": "house.HousePolicy",
        "lost->east.topics": f"lost-{tag}",
        "lost->east.replication.policy.class": "nowhere.LostPolicy",
        **{f"{flow}.emit.heartbeats.enabled": "true" for flow in _HEARTBEATS},
        **{f"{flow}.heartbeats.replication.enabled": "true" for flow in shapes},
        "copy.epoch.ms": 1000,
    }
    return mm2_properties(clusters["west"], clusters["east"], aliases=("west", "east"), **keys)


async def _forget_heartbeats(bootstrap: str) -> None:
    for topic in await list_topics(bootstrap):
        if topic.endswith("heartbeats"):
            await delete_topic(bootstrap, topic)


async def test_active_active(world: World) -> None:
    """Two clusters mirror one another, and what was mirrored does not come back (no loop)."""
    topic, later = world.topic("two-way"), f"{world.topic('two-way')}-later"
    await world.fill("west", topic)
    await world.fill("east", topic, 300)
    await world.arrives("west", topic, "east", f"west.{topic}")
    await world.arrives("east", topic, "west", f"east.{topic}", 300)
    # Once a later topic is mirrored both ways, both flows have seen the first remote topics.
    for alias in ("west", "east"):
        await create_topic(world[alias], later)
    await world.has("east", f"west.{later}")
    await world.has("west", f"east.{later}")

    assert await world.topics("west", topic) == {topic, f"east.{topic}"}
    assert await world.topics("east", topic) == {topic, f"west.{topic}"}
    assert sum((await end_offsets(world["west"], topic)).values()) == _RECORDS


async def test_aggregation(world: World) -> None:
    """A topic of one name on two clusters becomes two topics on the third, with different names."""
    topic = world.topic("aggregation")
    await world.fill("west", topic)
    await world.fill("east", topic, 300)

    await world.arrives("west", topic, "south", f"west.{topic}")
    await world.arrives("east", topic, "south", f"east.{topic}", 300)


async def test_ring_of_three(world: World) -> None:
    """Each cluster's topic reaches the two others, and is not mirrored back to its own."""
    topic, later = world.topic("ring"), f"{world.topic('ring')}-later"
    for number, alias in enumerate(("west", "east", "south")):
        await world.fill(alias, topic, 100 + 100 * number)
    for first, second, third, count in (
        ("west", "east", "south", 100),
        ("east", "south", "west", 200),
        ("south", "west", "east", 300),
    ):
        await world.arrives(first, topic, second, f"{first}.{topic}", count)
        await world.arrives(first, topic, third, f"{second}.{first}.{topic}", count)
    # Once a later topic has gone as far, each flow has seen all remote topics of the first one.
    await create_topic(world["west"], later)
    await create_topic(world["south"], later)
    await world.has("south", f"east.west.{later}")
    await world.has("east", f"west.south.{later}")

    assert await world.topics("west", topic) == {topic, f"south.{topic}", f"south.east.{topic}"}
    assert await world.topics("east", topic) == {topic, f"west.{topic}", f"west.south.{topic}"}
    assert await world.topics("south", topic) == {topic, f"east.{topic}", f"east.west.{topic}"}


async def test_migration_with_names_kept(world: World) -> None:
    """With IdentityReplicationPolicy a topic has the same name on the new cluster."""
    topic = world.topic("moved")
    await world.fill("west", topic)
    await world.arrives("west", topic, "south", topic)

    assert await world.topics("south", topic) == {topic}


async def test_policy_of_ones_own(world: World) -> None:
    """A policy given by its dotted path names the remote topics."""
    topic = world.topic("house")
    await world.fill("west", topic)

    await world.arrives("west", topic, "east", f"{topic}_of_home")


async def test_failed_flow_is_alone(world: World) -> None:
    """A flow whose policy cannot be loaded stays down and its error names the setting; all others run."""
    failed = await world.running.wait_for_event("flow_failed", flow="lost->east")
    for flow in ("west->east", "home->east", "old->new"):
        await world.running.wait_for_event("flow_started", flow=flow)

    assert "nowhere.LostPolicy" in failed["error"]
    assert "replication.policy.class" in failed["error"]

    def is_shown() -> bool:
        states = [world.running.flow_view(flow).get("state") for flow in ("lost->east", "west->east")]
        assert states == ["failed", "running"], states
        return True

    await eventually(is_shown, within_s=30, what="the failed one is shown as such, and another one as running")


async def test_heartbeats_travel(world: World) -> None:
    """Each cluster's heartbeats reach the others hop by hop, those of a flow that is not enabled among them."""
    for alias, topic in (("east", "west.heartbeats"), ("south", "east.west.heartbeats"), ("west", "south.heartbeats")):
        await world.has(alias, topic)

    async def flows(alias: str, topic: str) -> set[str]:
        records = (await read_topic(world[alias], topic))[0]
        beats = [decode_heartbeat(record.key, record.value) for record in records]
        ours = {"east", "west", "south"}  # other tests write heartbeats to the shared clusters too
        return {f"{beat.source_alias}->{beat.target_alias}" for beat in beats if beat.source_alias in ours}

    for alias, topic, wanted in (
        ("west", "heartbeats", {"east->west", "south->west"}),
        ("east", "heartbeats", {"west->east", "south->east"}),
        ("east", "west.heartbeats", {"east->west", "south->west"}),
        ("south", "east.heartbeats", {"west->east", "south->east"}),
        ("south", "east.west.heartbeats", {"east->west", "south->west"}),
    ):

        async def arrived(alias: str = alias, topic: str = topic, wanted: set[str] = wanted) -> bool:
            found = await flows(alias, topic)
            assert found == wanted, found
            return True

        await eventually(arrived, within_s=60, what=f"{topic} on {alias} holds heartbeats of {wanted}")

    assert "west.heartbeats" not in await list_topics(world["west"])
    assert "south->east" in next(world.running.events("daemon_started"))["heartbeats_only"]


async def test_a_node_that_only_emits_heartbeats(primary: KafkaCluster, backup: KafkaCluster, tmp_path: Path) -> None:
    """If no flow is enabled a node runs without Spark, reports that, and ends in good order."""
    keys = {"x->y.enabled": "false", "emit.heartbeats.enabled": "true"}
    settings = mm2_properties(primary.bootstrap_servers, backup.bootstrap_servers, aliases=("x", "y"), **keys)
    async with daemon(tmp_path, settings, env={"JAVA_HOME": str(tmp_path)}) as running:
        for flow in ("x->y", "y->x"):
            await running.wait_for_event("heartbeats_started", flow=flow)

        def goes_on() -> bool:
            shown = running.flow_view("x->y").get("heartbeats")
            return shown is not None and shown["sent"] > 1

        await eventually(goes_on, within_s=30, what="it goes on")
        exit_code = await running.sigterm()

    assert exit_code == 0
    assert any("only emits heartbeats" in event["note"] for event in running.events("setting_noted"))
    assert not list(running.events("spark_started"))
