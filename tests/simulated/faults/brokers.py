"""What befalls brokers, leaders, coordinators and partitions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from tests.simulated.faults.kind import Fault, duration


if TYPE_CHECKING:
    from tests.simulated.cluster import Cluster
    from tests.simulated.world import World


def _able(cluster: Cluster) -> list[int]:
    return [node for node, it in cluster.brokers.items() if it.is_up and node not in cluster.fenced]


def _crash(world: World, draw: random.Random) -> str:
    cluster = world.a_cluster(draw)
    able = _able(cluster)
    if len(able) < (2 if draw.random() < 0.8 else 1):
        return ""
    node = draw.choice(able)
    cluster.crash(node)
    seconds = duration(draw)
    world.later(seconds, lambda: cluster.restart(node))
    return f"{cluster.name}{node} for {seconds:.2f} s"


def _stall(world: World, draw: random.Random) -> str:
    cluster = world.a_cluster(draw)
    able = _able(cluster)
    if not able:
        return ""
    node = draw.choice(able)
    cluster.freeze(node)
    seconds = duration(draw)
    world.later(seconds, lambda: cluster.thaw(node))
    return f"{cluster.name}{node} for {seconds:.2f} s"


def _leader(world: World, draw: random.Random) -> str:
    cluster = world.a_cluster(draw)
    some = [it for it in cluster.all_partitions() if draw.random() < 0.3]
    for partition in some:
        cluster.move_leader(partition)
    return f"{len(some)} of {cluster.name}" if some else ""


def _coordinator(world: World, draw: random.Random) -> str:
    cluster = world.target
    alive = [it for it in cluster.brokers if it not in cluster.fenced]
    if not alive:
        return ""
    slot = draw.choice(list(cluster.slots))
    cluster.move_coordinators(slot, draw.choice(alive))
    return f"{slot} of {cluster.name}"


def _stale(world: World, draw: random.Random) -> str:
    """A broker hears of nothing new for a while."""
    cluster = world.a_cluster(draw)
    broker = draw.choice(list(cluster.brokers.values()))
    broker.stale = cluster.image()
    seconds = duration(draw)
    world.later(seconds, lambda: setattr(broker, "stale", None))
    return f"{broker.address} for {seconds:.2f} s"


def _sessions(world: World, _draw: random.Random) -> str:
    """Brokers forget their fetch sessions."""
    for broker in world.source.brokers.values():
        broker.sessions.clear()
    return "all of A"


def _grow(world: World, draw: random.Random) -> str:
    topic = world.source.topics.get(draw.choice(list(world.topics)))
    is_unable = len(world.source.fenced) == len(world.source.brokers)  # the controller refuses to place a replica then
    if topic is None or len(topic.partitions) > world.options.partitions + 2 or is_unable:
        return ""
    world.source.grow(topic, len(topic.partitions) + 1)
    return f"{topic.name} to {len(topic.partitions)}"


def _ids(world: World, draw: random.Random) -> str:
    """Transactional ids are forbidden for a while: a flow writes without them, and is to use them again."""
    seconds = duration(draw)
    world.target.refuses_ids_until = max(world.target.refuses_ids_until, world.loop.time() + seconds)
    return f"forbidden at {world.target.name} for {seconds:.2f} s"


def _rights(world: World, draw: random.Random) -> str:
    """The mirror loses its rights on a topic, at the source or at the target, for a while."""
    cluster, names = draw.choice(((world.source, world.topics), (world.target, world.topics.values())))
    return _denied(world, cluster, draw, [name for name in names if name in cluster.topics])


def _locked(world: World, draw: random.Random) -> str:
    """It loses those on a topic in which it, or its worker, keeps something at the target."""
    others = {*world.topics.values(), *world.topics}
    return _denied(world, world.target, draw, [it for it in world.target.topics if it not in others and it[0] != "_"])


def _denied(world: World, cluster: Cluster, draw: random.Random, names: list[str]) -> str:
    if not names:
        return ""
    name, seconds = draw.choice(names), duration(draw)
    cluster.denied_until[name] = max(cluster.denied_until.get(name, 0.0), world.loop.time() + seconds)
    return f"{name} is denied at {cluster.name} for {seconds:.2f} s"


def _storage(world: World, draw: random.Random) -> str:
    """A disk at the target is full: no client can append there for a while; what is there can be read."""
    target = world.target
    able = _able(target)
    if not able:
        return ""
    node, seconds = draw.choice(able), duration(draw)
    target.full_until[node] = max(target.full_until.get(node, 0.0), world.loop.time() + seconds)
    return f"full at {target.name}{node} for {seconds:.2f} s"


def _quota(world: World, draw: random.Random) -> str:
    """Who produces or fetches exceeds a quota: each is told to wait, and not heard meanwhile."""
    cluster, seconds = world.a_cluster(draw), duration(draw)
    cluster.throttle_ms = draw.choice((100, 1_000, 4_000))
    world.later(seconds, lambda: setattr(cluster, "throttle_ms", 0))
    return f"{cluster.throttle_ms} ms at {cluster.name} for {seconds:.2f} s"


def _unclean(world: World, draw: random.Random) -> str:
    """The target loses what it has acknowledged, which a flow copies again."""
    remote = [world.target.topics[name] for name in world.topics.values() if name in world.target.topics]
    able = [partition for topic in remote for partition in topic.partitions]
    if not able:
        return ""
    partition = draw.choice(able)
    lost = world.target.lose(partition, draw.choice((1, 1, 2, 5, 20)))
    return f"{lost} batches of {partition} from {partition.end}" if lost else ""


def _delete(world: World, draw: random.Random) -> str:
    """Records of the source are deleted, by DeleteRecords or retention, whether they were copied or not."""
    remote = world.target.topics
    able = [
        partition
        for partition in world.source.partitions_of(world.topics)
        if (copy := world.topics[partition.topic]) in remote
        and partition.number < len(remote[copy].partitions)
        and partition.stable > partition.start
    ]
    if not able:
        return ""
    partition = draw.choice(able)
    offset = draw.randint(partition.start + 1, partition.stable)
    world.checker.deletes(partition, offset)
    partition.delete_before(offset)
    return f"records of {partition} up to {offset}"


def _recreate(world: World, draw: random.Random) -> str:
    """A topic of the source is deleted, and created again with other records, at once or later."""
    source, names = world.source, list(world.topics)
    if not all(name in source.topics for name in names):
        return ""
    name = draw.choice(names)
    count = len(source.topics[name].partitions)
    world.checker.renew(name)
    source.delete(name)
    world.forget(name)
    seconds = draw.choice((0.0, duration(draw)))

    def create() -> None:
        source.create(name, count)
        world.checker.renew(name)

    world.later(seconds, create)
    return f"{name} after {seconds:.2f} s"


def _remake(world: World, draw: random.Random) -> str:
    """A remote topic is deleted, and the flow creates it again; or an operator does so, at once."""
    target = world.target
    able = [name for name in world.topics.values() if name in target.topics]
    if not able:
        return ""
    name = draw.choice(able)
    count = len(target.topics[name].partitions)
    target.delete(name)
    is_created = draw.random() < 0.4
    if is_created:
        target.create(name, count)
    return f"{name}{', and created' if is_created else ''}"


FAULTS: dict[str, Fault] = {
    "broker": _crash,
    "stall": _stall,
    "leader": _leader,
    "coordinator": _coordinator,
    "stale": _stale,
    "sessions": _sessions,
    "grow": _grow,
    "ids": _ids,
    "rights": _rights,
    "locked": _locked,
    "unclean": _unclean,
    "storage": _storage,
    "quota": _quota,
    "delete": _delete,
    "recreate": _recreate,
    "remake": _remake,
}
