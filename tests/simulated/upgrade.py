"""
An upgrade from an earlier version: what that has left on both clusters, and how this one goes on there.

`python -m tests.simulated.upgrade write` has the version that runs it leave `upgrades/MODE.json`, for later ones;
`python -m tests.simulated.upgrade` prints what this one makes of the files that there are. A node is killed in the
middle of its work, so the files hold a position that is behind what was copied.
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
import zlib
from pathlib import Path
from typing import Any

from tests.simulated.cluster import Cluster
from tests.simulated.coordination import Transaction
from tests.simulated.log import batch_of
from tests.simulated.stage import Stage, play, play_apart


FOLDER = Path(__file__).parent / "upgrades"
MODES = ("dedicated", "worker")
_AT = "/from:A/to:B"
_TOPICS = ("orders", "events")
_COUNT = 40
_LOOKS_S, _LONG_S = 20.0, 120.0
#: A position is written by then (offset.flush.interval.ms).
_FLUSHED_S = 70.0


def _start(stage: Stage, mode: str) -> None:
    if mode == "worker":
        stage.worker("n0", "B")
        return
    factors = ("replication.factor", *(f"{it}.topic.replication.factor" for it in ("offset-syncs", "checkpoints")))
    kinds = {f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")}
    lines = {
        "clusters": "A, B",
        "A.bootstrap.servers": stage.servers("A"),
        "B.bootstrap.servers": stage.servers("B"),
        "A->B.enabled": "true",
        "A->B.topics": ",".join(_TOPICS),
        "emit.heartbeats.enabled": "false",
        **_periods(),
        **dict.fromkeys(factors, "1"),
        **kinds,
    }
    stage.node("n0", lines)


def _periods() -> dict[str, str]:
    return {
        "refresh.topics.interval.seconds": "5",
        "refresh.groups.interval.seconds": "5",
        "emit.checkpoints.interval.seconds": "5",
        "sync.group.offsets.enabled": "true",
        "sync.group.offsets.interval.seconds": "5",
    }


async def _connect(stage: Stage) -> None:
    """Create a worker's connectors."""
    for kind, name in (("Source", "mirror"), ("Checkpoint", "checks")):
        config = {
            "connector.class": f"org.apache.kafka.connect.mirror.Mirror{kind}Connector",
            "source.cluster.alias": "A",
            "target.cluster.alias": "B",
            "source.cluster.bootstrap.servers": stage.servers("A"),
            "target.cluster.bootstrap.servers": stage.servers("B"),
            "topics": ",".join(_TOPICS),
            "replication.factor": "1",
            "offset-syncs.topic.replication.factor": "1",
            "checkpoints.topic.replication.factor": "1",
            **_periods(),
        }
        await stage.put("n0", name, config)


async def _before(stage: Stage, mode: str) -> dict[str, Any]:
    """Copy for a while, and leave what is on both clusters as the node is killed."""
    for topic in _TOPICS:
        stage.produce(topic, _COUNT)
    stage.commit("A", "readers", "orders", 15)
    _start(stage, mode)
    if mode == "worker":
        await _connect(stage)
    await stage.until(lambda: stage.count("B", "A.orders") == _COUNT)
    await stage.until(lambda: stage.count("B", "A.events") == _COUNT)
    await asyncio.sleep(_FLUSHED_S)
    await stage.ask("n0", "PUT", f"{_AT}/topics/events/pause")
    await asyncio.sleep(_LOOKS_S)
    for _ in range(5):
        for topic in _TOPICS:
            stage.produce(topic, _COUNT)
        await asyncio.sleep(0.3)
    stage.commit("A", "readers", "orders", 100)
    stage.nodes["n0"].kill()
    for topic in _TOPICS:
        stage.produce(topic, _COUNT)
    await asyncio.sleep(_LOOKS_S)
    return {name: _saved(stage.clusters[name]) for name in "AB"}


async def _after(stage: Stage, mode: str) -> dict[str, Any]:
    """Go on where the other version was killed."""
    for name, saved in json.loads((FOLDER / f"{mode}.json").read_text()).items():
        _restore(stage.clusters[name], saved)
    await asyncio.sleep(10 * _LONG_S)  # so that it is later than there
    copied = {topic: stage.count("B", f"A.{topic}") for topic in _TOPICS}
    # What was copied of the paused topic has expired: only its position says where it goes on.
    [expired] = stage.clusters["B"].topics["A.events"].partitions
    expired.delete_before(expired.end)
    _start(stage, mode)
    is_level = await stage.until(lambda: stage.count("B", "A.orders") == stage.count("A", "orders"))
    await asyncio.sleep(_LOOKS_S)
    paused = stage.count("B", "A.events")
    group = stage.committed("B", "readers", "A.orders")
    await stage.ask("n0", "PUT", f"{_AT}/topics/events/resume")
    for topic in _TOPICS:
        stage.produce(topic, _COUNT)
    await stage.until(lambda: all(stage.count("B", f"A.{it}") == stage.count("A", it) for it in _TOPICS))
    await asyncio.sleep(_LONG_S)
    status = (await stage.ask("n0", "GET", f"{_AT}/status")).body
    return {
        "was_copied": copied,
        "is_level": is_level,
        "paused": paused,
        "group": group,
        "same": [
            stage.values("B", "A.orders") == stage.values("A", "orders"),
            stage.values("B", "A.events") == stage.values("A", "events")[_COUNT:],
        ],
        "counts": {it: stage.count("A", it) for it in _TOPICS},
        "state": status["state"],
        "issues": status["issues"],
    }


def _saved(cluster: Cluster) -> dict[str, Any]:
    return {
        "topics": [
            {
                "name": name,
                "id": topic.topic_id,
                "configs": topic.configs,
                "partitions": [
                    _packed(b"".join(batch.raw for batch in one.batches)) if one.batches else ""
                    for one in topic.partitions
                ],
            }
            for name, topic in cluster.topics.items()
        ],
        "groups": {
            name: [[*place, *at] for place, at in group.offsets.items()]
            for name, group in cluster.coordinator.groups.items()
            if group.offsets
        },
        "ids": {it.name: [it.producer_id, it.epoch] for it in cluster.transactions.values()},
        "producer_ids": cluster.producer_ids,
    }


def _restore(cluster: Cluster, saved: dict[str, Any]) -> None:
    for it in saved["topics"]:
        topic = cluster.create(it["name"], len(it["partitions"]), it["configs"])
        del cluster.by_id[topic.topic_id]
        topic.topic_id = it["id"]
        cluster.by_id[topic.topic_id] = topic
        for partition, packed in zip(topic.partitions, it["partitions"], strict=True):
            for raw in _batches(zlib.decompress(base64.b64decode(packed)) if packed else b""):
                partition.take(batch_of(raw, "before"))
            partition.raise_watermark(partition.end)
    for name, offsets in saved["groups"].items():
        group = cluster.coordinator.group(name)
        group.protocol_type = "consumer"
        group.offsets.update({(topic, number): tuple(at) for topic, number, *at in offsets})
    for name, (producer_id, epoch) in saved["ids"].items():
        cluster.transactions[name] = Transaction(name, producer_id, epoch)
    cluster.producer_ids = saved["producer_ids"]


def _packed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 9)).decode()


def _batches(raw: bytes) -> list[bytes]:
    """Split a log: each batch says after its base offset how long the rest is."""
    found = []
    while raw:
        size = 12 + int.from_bytes(raw[8:12], "big")
        found.append(raw[:size])
        raw = raw[size:]
    return found


def main() -> None:
    """Write the files of this version, or print what it makes of those that there are."""
    if sys.argv[1:2] == ["write"]:
        [mode] = sys.argv[2:]
        text = json.dumps(play(lambda stage: _before(stage, mode)), indent=1)
        (FOLDER / f"{mode}.json").write_text(text + "\n")
    else:
        play_apart({mode: lambda stage, mode=mode: _after(stage, mode) for mode in MODES})  # type: ignore[misc]


if __name__ == "__main__":
    main()
