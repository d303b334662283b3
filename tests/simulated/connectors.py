"""
What Connect's connectors do beside each other, a story each: `python -m tests.simulated.connectors` prints what they
come to, or those that it names. `test_connectors.py` says what Java does.
"""

from __future__ import annotations

import asyncio
import math
import sys
from typing import Any

from tests.simulated.http import ask
from tests.simulated.node import SimNode
from tests.simulated.stage import Stage, Story, play_apart


COUNT = 60
#: What has not happened by then does not happen.
_LONG_S = 60.0
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"


def _connector(stage: Stage, kind: str, target: str = "B", **more: str) -> dict[str, str]:
    """Return the config of a connector of A->B, or to another target."""
    return {
        "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
        "source.cluster.alias": "A",
        "target.cluster.alias": target,
        "source.cluster.bootstrap.servers": stage.servers("A"),
        "target.cluster.bootstrap.servers": stage.servers(target),
        **more,
    }


def _source(stage: Stage, topics: str, target: str = "B", **more: str) -> dict[str, str]:
    own = {
        "topics": topics,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "refresh.topics.interval.seconds": "5",
        "heartbeats.replication.enabled": "false",
    }
    return _connector(stage, "Source", target, **own, **more)


def _checkpoint(stage: Stage, **more: str) -> dict[str, str]:
    own = {
        "checkpoints.topic.replication.factor": "1",
        "emit.checkpoints.interval.seconds": "5",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "5",
        "refresh.groups.interval.seconds": "5",
    }
    return _connector(stage, "Checkpoint", **own, **more)


async def names_routed_after_the_policy(stage: Stage) -> Any:
    """A router takes the policy's alias away again."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    strip = {"type": "org.apache.kafka.connect.transforms.RegexRouter", "regex": r"A\.(.*)", "replacement": "$1"}
    transforms = {"transforms": "strip", **{f"transforms.strip.{key}": value for key, value in strip.items()}}
    await stage.put("n0", "mirror", _source(stage, "orders", **transforms))
    await stage.until(lambda: COUNT in (stage.count("B", "orders"), stage.count("B", "A.orders")))
    return {topic: stage.count("B", topic) for topic in ("orders", "A.orders")}


async def checkpoints_of_fewer_topics(stage: Stage) -> Any:
    """A checkpoint connector selects less than the source connector beside it."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
        stage.commit("A", "g", topic, 50)
    stage.commit("B", "g", "A.clicks", 5)
    stage.worker("n0", "B")
    await stage.put("n0", "mirror", _source(stage, "orders|clicks"))
    await stage.put("n0", "checks", _checkpoint(stage, topics="orders", groups="g"))
    assert await stage.until(lambda: stage.committed("B", "g", "A.orders") == 50)
    await asyncio.sleep(_LONG_S)
    return stage.committed("B", "g", "A.clicks")


async def two_sources_of_a_pair(stage: Stage) -> Any:
    """One copies all of its topics, the other one begins at the end of its own."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
    stage.worker("n0", "B")
    latest = {"source.consumer.auto.offset.reset": "latest"}
    statuses = [
        await stage.put("n0", "orders", _source(stage, "orders.*", **{"tasks.max": "4"})),
        await stage.put("n0", "clicks", _source(stage, "clicks.*", **latest)),
    ]
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    await asyncio.sleep(_LONG_S)
    stage.produce("clicks", 7)
    await stage.until(lambda: stage.count("B", "A.clicks") == 7)
    return {"statuses": statuses, "A.orders": stage.count("B", "A.orders"), "A.clicks": stage.count("B", "A.clicks")}


async def two_sources_that_meet(stage: Stage) -> Any:
    """A second one selects what the first one has; then the first one is deleted. Two nodes, one of which dies."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
        stage.commit("A", "g", topic, COUNT // 2)
    stage.produce("heartbeats", 3)
    for node in ("n0", "n1"):
        stage.worker(node, "B")
    beats = {"heartbeats.replication.enabled": "true"}
    statuses = [await stage.put("n0", "orders", _source(stage, "orders") | beats)]
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    statuses += [await stage.put("n1", "all", _source(stage, ".*") | beats)]
    statuses += [await stage.put("n0", "checks", _checkpoint(stage, topics=".*", groups="g"))]

    async def carried(topic: str, offset: int) -> bool:
        stage.commit("A", "g", topic, offset)
        return await stage.until(lambda: stage.committed("B", "g", f"A.{topic}") == offset)

    assert await stage.until(lambda: stage.count("B", "A.clicks") == COUNT)
    found: dict[str, Any] = {
        "statuses": statuses,
        "carried": [await carried(it, COUNT // 2) for it in ("orders", "clicks")],
    }
    found["flows"] = [flow["flow"] for flow in (await stage.ask("n0", "GET", "/status")).body["flows"]]
    topics = (await stage.ask("n0", "GET", "/from:A/to:B;connector=all/topics")).body["topics"]
    found["topics"] = {topic["topic"]: topic["last_error"] for topic in topics}
    found["states"] = [await stage.state("n0", name) for name in ("orders", "all", "checks")]
    stage.nodes["n0"].kill()
    stage.produce("orders", 5)
    stage.produce("clicks", 5)
    assert await stage.until(
        lambda: stage.count("B", "A.orders") == COUNT + 5 and stage.count("B", "A.clicks") == COUNT + 5
    )
    found["deleted"] = (await stage.ask("n1", "DELETE", "/connectors/orders")).status
    stage.produce("orders", 5)
    await stage.until(lambda: (stage.count("B", "A.orders") or 0) >= COUNT + 10)
    await asyncio.sleep(_LONG_S)
    found["carried by the second"] = [await carried(it, COUNT + 3) for it in ("orders", "clicks")]
    found["counts"] = [stage.count("B", "A.orders"), stage.count("B", "A.clicks")]
    return found


async def a_topic_that_moves(stage: Stage) -> Any:
    """Of three nodes the one that copies a topic is frozen while that is left to another connector; then it moves on
    and back, by changes of both.
    """
    for topic in ("orders", "clicks", "bills"):
        stage.produce(topic, COUNT)
    stage.commit("A", "g", "orders", 1)
    for node in ("n0", "n1", "n2"):
        stage.worker(node, "B")
    await stage.put("n0", "first", _source(stage, "orders|bills"))
    await stage.put("n0", "second", _source(stage, "orders|clicks"))
    await asyncio.sleep(_LONG_S)

    async def pass_s(seconds: float) -> None:
        for _ in range(int(seconds * 8)):
            stage.produce("orders", 3)
            await asyncio.sleep(1 / 8)

    await pass_s(5)
    copies = next(name for name, node in stage.nodes.items() if _copies(node, "orders"))
    workers = stage.nodes[copies].workers
    for worker in workers:
        worker.freeze()
    await stage.put(next(name for name in stage.nodes if name != copies), "first", _source(stage, "bills"))
    await pass_s(3)
    for worker in workers:
        worker.thaw()
    await pass_s(30)
    for first, second in (("orders|bills", "clicks"), ("bills", "orders|clicks")):
        await asyncio.gather(
            stage.put("n0", "first", _source(stage, first)), stage.put("n1", "second", _source(stage, second))
        )
        await pass_s(20)
    await stage.put("n0", "checks", _checkpoint(stage, topics=".*", groups="g"))
    await asyncio.sleep(_LONG_S)

    async def is_carried(offset: int) -> bool:
        stage.commit("A", "g", "orders", offset)
        return await stage.until(lambda: stage.committed("B", "g", "A.orders") == offset)

    return {
        "is copied once": stage.values("B", "A.orders") == stage.values("A", "orders"),
        "others": [stage.count("B", "A.clicks"), stage.count("B", "A.bills")],
        "carried": [await is_carried(it) for it in (COUNT, 2 * COUNT)],
    }


def _copies(node: SimNode, topic: str) -> bool:
    """Whether a node copies a topic."""
    copied = (it for flow in node.view().flows for it in flow.partitions if it.task is not None)
    return any(it.source.topic == topic for it in copied)


async def two_sources_of_a_standalone_worker(stage: Stage) -> Any:
    """The second one selects what the first one has, and the process is started again."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
    one_broker = {"offset.storage.replication.factor": "1"}
    connectors = {
        "orders": _source(stage, "orders", **one_broker),
        "clicks": _source(stage, "orders|clicks", **one_broker),
    }
    found = list[Any]()
    for _ in range(2):
        stage.standalone("n0", "B", connectors)
        await asyncio.sleep(_LONG_S)
        stage.produce("orders", 5)
        await asyncio.sleep(_LONG_S)
        topics = (await stage.ask("n0", "GET", "/from:A/to:B;connector=clicks/topics")).body["topics"]
        why = {topic["topic"]: topic["last_error"] for topic in topics}
        found.append([why, stage.count("B", "A.orders"), stage.count("B", "A.clicks")])
        stage.nodes["n0"].stop()
        await asyncio.sleep(_LONG_S)
    return found


async def offsets_of_a_standalone_worker(stage: Stage) -> Any:
    """Those of the first one of two source connectors are reset, and the process is started again."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
    one_broker = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset")}
    connectors = {topic: _source(stage, topic, **one_broker) for topic in ("orders", "clicks")}
    stage.standalone("n0", "B", connectors)
    await asyncio.sleep(2 * _LONG_S)
    first, second = (f"/from:A/to:B{one}/connectors/MirrorSourceConnector" for one in ("", ";connector=clicks"))
    found = list[Any]()
    for path in (first, second):
        offsets = (await stage.ask("n0", "GET", f"{path}/offsets")).body["offsets"]
        found.append([it["partition"]["topic"] for it in offsets])
    await stage.ask("n0", "PUT", f"{first}/stop")
    await asyncio.sleep(_LONG_S)
    found.append((await stage.ask("n0", "DELETE", f"{first}/offsets")).status)
    await stage.ask("n0", "PUT", f"{first}/resume")
    await asyncio.sleep(_LONG_S)
    stage.nodes["n0"].stop()
    await asyncio.sleep(_LONG_S)
    stage.standalone("n0", "B", connectors)
    await asyncio.sleep(_LONG_S)
    return [*found, stage.count("B", "A.orders"), stage.count("B", "A.clicks")]


async def offsets_of_hidden_topics(stage: Stage) -> Any:
    """Offsets are altered and read while a topic may not be described: a remote one, the source, that of offsets."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    await stage.put("n0", "mirror", _source(stage, "orders"))
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    path = "/connectors/mirror"
    await stage.ask("n0", "PUT", f"{path}/stop")
    partition = {"cluster": "A", "partition": 0, "topic": "orders"}
    body = {"offsets": [{"partition": partition, "offset": {"offset": COUNT // 2 - 1}}]}
    found = list[Any]()
    for cluster, topic in (("B", "A.orders"), ("A", "orders"), ("B", "connect-offset")):
        stage.clusters[cluster].denied_until[topic] = math.inf
        answers = (
            await ask(stage.loop, "n0", "PATCH", f"{path}/offsets", body),
            await ask(stage.loop, "n0", "GET", f"{path}/offsets"),
        )
        found.append([answer and (answer.status, answer.body.get("message")) for answer in answers])
        stage.clusters[cluster].denied_until.clear()
    found.append((await stage.ask("n0", "PATCH", f"{path}/offsets", body)).status)
    await stage.ask("n0", "PUT", f"{path}/resume")
    await stage.until(lambda: stage.count("B", "A.orders") == COUNT + COUNT // 2)
    return found, stage.count("B", "A.orders")


async def two_targets_of_a_worker(stage: Stage) -> Any:
    """A connector's own producer writes to another cluster than the worker's."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    elsewhere = {"producer.override.bootstrap.servers": stage.servers("C")}
    statuses = [
        await stage.put("n0", "to-b", _source(stage, "orders")),
        await stage.put("n0", "to-c", _source(stage, "orders", "C", **elsewhere)),
    ]
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    await stage.until(lambda: stage.count("C", "A.orders") == COUNT)
    return {"statuses": statuses, "B": stage.count("B", "A.orders"), "C": stage.count("C", "A.orders")}


async def checkpoints_in_another_worker(stage: Stage) -> Any:
    """One worker has the source connector, another one the checkpoint connector."""
    stage.produce("orders", COUNT)
    stage.commit("A", "g", "orders", COUNT)  # not behind the first sync
    stage.worker("n0", "B")
    stage.worker("n1", "B", group="other")
    await stage.put("n0", "mirror", _source(stage, "orders"))
    assert await stage.until(lambda: stage.count("A", "mm2-offset-syncs.B.internal"))
    await stage.put("n1", "checks", _checkpoint(stage, groups="g"))
    await stage.until(lambda: stage.count("B", "A.checkpoints.internal"))
    return {"state": await stage.state("n1", "checks"), "is_written": bool(stage.count("B", "A.checkpoints.internal"))}


async def checkpoints_with_and_without_a_source_connector(stage: Stage) -> Any:
    """Two nodes have the checkpoint connector, one of which dies; then its pair's source connector comes and goes."""
    for topic in ("orders", "clicks"):
        stage.produce(topic, COUNT)
        stage.commit("A", "g", topic, COUNT)
    stage.worker("n0", "B")
    others = ["n1", "n2"]
    for name in others:
        stage.worker(name, "B", group="other")
    await stage.put("n0", "mirror", _source(stage, "orders"))
    await stage.put("n1", "checks", _checkpoint(stage, topics=".*", groups="g"))

    async def carries(offset: int, carried: int) -> bool:
        stage.commit("A", "g", "orders", offset)
        return await stage.until(lambda: stage.committed("B", "g", "A.orders") == carried)

    found: dict[str, Any] = {"by syncs": await carries(COUNT, COUNT)}
    status = (await stage.ask("n1", "GET", "/connectors/checks/status")).body
    owner = status["connector"]["worker_id"].partition(":")[0]
    found["states"] = [await stage.state(name, "checks") for name in others]
    group = (await stage.ask(owner, "GET", "/from:A/to:B/groups/g")).body
    found["why not"] = [it["why"] for it in group["offsets"] if it["why"]]
    found["health"] = [(await stage.ask(name, "GET", "/health")).status for name in others]
    stage.nodes[owner].kill()
    [left] = {*others} - {owner}
    stage.produce("orders", 1)
    found["after a death"] = await carries(COUNT + 1, COUNT + 1)

    found["ids"] = sorted(name for name in stage.clusters["B"].transactions if "other" in name)

    await stage.ask("n0", "DELETE", "/connectors/mirror")
    await asyncio.sleep(_LONG_S)
    latest = {"source.consumer.auto.offset.reset": "latest"}
    found["status"] = await stage.put(left, "mirror", _source(stage, "orders", **latest))
    await asyncio.sleep(_LONG_S)
    stage.produce("orders", 9)
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT + 10)
    found["exactly"] = await carries(COUNT + 5, COUNT + 5)
    await stage.ask(left, "DELETE", "/connectors/mirror")
    await asyncio.sleep(_LONG_S)
    found["by syncs again"] = await carries(COUNT + 10, COUNT + 10)
    return found


async def positions_by_connector(stage: Stage) -> Any:
    """What a worker's topic has of a connector that has a name of its own."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    await stage.put("n0", "mirror", _source(stage, "orders"))
    assert await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    await asyncio.sleep(_LONG_S)
    key = '["mirror",{"cluster":"A","partition":0,"topic":"orders"}]'
    value = stage.last("B", "connect-offset").get(key.encode())
    return None if value is None else value.decode()


async def a_connector_by_another_name(stage: Stage) -> Any:
    """Two nodes copy while a connector gets another name, and its former one again."""
    names = ("first", "second", "first")
    config = _source(stage, "t[0-9]", **{"tasks.max": "2"})
    for node in ("n0", "n1"):
        stage.worker(node, "B")
    statuses, before = list[int](), ""
    for name in names:
        for topic in ("t1", "t2", "t3", "t4"):
            stage.produce(topic, COUNT)
        if before:
            await stage.ask("n1", "DELETE", f"/connectors/{before}")
        statuses.append(await stage.put("n1", name, config))
        before = name
        await asyncio.sleep(_LONG_S)
    counts = {stage.count("B", f"A.t{number}") for number in (1, 2, 3, 4)}
    return {"statuses": statuses, "state": await stage.state("n0", before), "counts": sorted(counts)}


async def settings_of_the_process(stage: Stage) -> Any:
    """A connector's config has what only a worker's file can set."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    stray = {
        "config.providers": "file",
        "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
        "ssl.client.auth": "required",
        "log.level": "DEBUG",
        "listeners": "http://127.0.0.1:8084",
    }
    status = await stage.put("n0", "mirror", _source(stage, "orders", **stray))
    await stage.until(lambda: stage.count("B", "A.orders") == COUNT)
    return status, stage.count("B", "A.orders"), (await stage.ask("n0", "GET", "/")).status


async def clusters_by_other_hosts(stage: Stage) -> Any:
    """Connectors name their clusters in other ways than the worker's file, and than each other."""
    stage.produce("orders", COUNT)
    stage.commit("A", "g", "orders", 50)
    stage.worker("n0", "B")
    target = {"target.cluster.bootstrap.servers": stage.named_again("B")}
    source = {"source.cluster.bootstrap.servers": stage.named_again("A")}
    statuses = [
        await stage.put("n0", "mirror", {**_source(stage, "orders"), **target}),
        await stage.put("n0", "checks", {**_checkpoint(stage, groups="g"), **source}),
    ]
    await stage.until(lambda: stage.committed("B", "g", "A.orders") == 50)
    return statuses, stage.count("B", "A.orders"), stage.committed("B", "g", "A.orders")


async def a_target_that_is_another_cluster(stage: Stage) -> Any:
    """The worker writes to B, and a connector says that its target is A."""
    stage.produce("orders", COUNT)
    stage.worker("n0", "B")
    other = {"target.cluster.bootstrap.servers": stage.servers("A")}
    await stage.put("n0", "mirror", {**_source(stage, "orders"), **other})
    await asyncio.sleep(_LONG_S)
    copied = [stage.count(cluster, "A.orders") for cluster in ("A", "B")]
    return await stage.state("n0", "mirror"), copied


async def a_config_put_and_read_again(stage: Stage) -> Any:
    """A tool puts a connector's own file at a pair of a dedicated node, and compares what it reads then."""
    servers = {f"{name}.bootstrap.servers": stage.servers(name) for name in "AB"}
    one_broker = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    stage.node("n0", {"clusters": "A, B", **servers, **one_broker, "A->B.enabled": "true", "A->B.topics": "orders"})
    path = "/from:A/to:B/connectors/MirrorSourceConnector/config"
    config = {
        "name": "MirrorSourceConnector",
        **_connector(stage, "Source"),
        "key.converter": _BYTES,
        "value.converter": _BYTES,
        "topics": "orders,clicks",
        "tasks.max": "2",
    }
    first = await stage.ask("n0", "PUT", path, config)
    assert first.is_ok, first
    return {"put": config, "got": (await stage.ask("n0", "GET", path)).body}


STORIES: dict[str, Story] = {
    story.__name__: story
    for story in (
        names_routed_after_the_policy,
        checkpoints_of_fewer_topics,
        two_sources_of_a_pair,
        two_sources_that_meet,
        a_topic_that_moves,
        two_sources_of_a_standalone_worker,
        offsets_of_a_standalone_worker,
        offsets_of_hidden_topics,
        two_targets_of_a_worker,
        checkpoints_in_another_worker,
        checkpoints_with_and_without_a_source_connector,
        positions_by_connector,
        a_connector_by_another_name,
        settings_of_the_process,
        clusters_by_other_hosts,
        a_target_that_is_another_cluster,
        a_config_put_and_read_again,
    )
}


if __name__ == "__main__":
    play_apart({name: STORIES[name] for name in sys.argv[1:] or STORIES})
