"""
Settings as they were once written: KIP-382's first spellings, and keys of Mirus and of the first MirrorMaker.

KIP-382's draft wrote ``cluster.A.brokers.list`` and ``connector.A->B.topics``. Such lines count as if they were written
as MirrorMaker 2 writes them, where no line is. Keys of other mirrors have no meaning in this file; who writes one is
told what does the same here.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from mm2py.config.keys.row import Level
from mm2py.config.layers import Layers, Value, level_of
from mm2py.config.problem import Problem


_CLUSTER = "cluster."
_CONNECTOR = "connector."
#: What KIP-382 called settings, and their names today.
RENAMED = {
    "brokers.list": "bootstrap.servers",
    "emit.heartbeats": "emit.heartbeats.enabled",
    "emit.checkpoints": "emit.checkpoints.enabled",
    "refresh.topics": "refresh.topics.enabled",
    "refresh.groups": "refresh.groups.enabled",
    "sync.topic.configs": "sync.topic.configs.enabled",
    "sync.topic.acls": "sync.topic.acls.enabled",
}

_BY_TOPICS = "topics takes names and regular expressions, separated by commas"
_BY_POLICY = "replication.policy.class names remote topics: identity keeps names, a Python class of yours changes them"
#: What to write instead of a key of Mirus or of MirrorMaker 1.
FOREIGN_KEYS = {
    "topics.regex": _BY_TOPICS,
    "topics.regex.list": _BY_TOPICS,
    "whitelist": _BY_TOPICS,
    "blacklist": "topics.exclude takes names and regular expressions, separated by commas",
    "num.streams": "tasks.max says how many copy tasks share the partitions of a flow",
    "abort.on.send.failure": "what cannot be sent is always tried again",
    "offset.commit.interval.ms": "offset.flush.interval.ms, written for the target cluster, says how often",
    "message.handler": "records are not seen while they are copied",
    "consumer.rebalance.listener": "the copy has no consumer group",
    "monitor.poll.wait.ms": "refresh.topics.interval.seconds says how often topics are looked for",
    "poll.timeout.ms": "fetch.max.wait.ms, written behind consumer., says how long a fetch may wait",
    "destination.topic.name.prefix": _BY_POLICY,
    "destination.topic.name.suffix": _BY_POLICY,
    "destination.bootstrap.servers": "bootstrap.servers, written for the target cluster, names its brokers",
    "enable.partition.matching": "records always keep their partition",
    "enable.destination.topic.checking": "remote topics are created where they are missing",
    "source.key.converter": "records are copied as they are",
    "source.value.converter": "records are copied as they are",
    "source.header.converter": "records are copied as they are",
    "commit.failure.restart.ms": "a copy task that fails is always planned again",
    "replay.policy": "nothing is copied twice",
    "replay.window.records": "nothing is copied twice",
    "mirus.task.monitor.polling.interval.ms": "copy tasks are watched all the time",
    "mirus.task.auto.restart.enabled": "a copy task that fails is always planned again",
    "mirus.connector.auto.restart.enabled": "a flow that falls over is always run again",
}


@attrs.frozen
class Modern:
    """The lines as MirrorMaker 2 writes them, and a note for each that was written otherwise."""

    layers: Layers
    notes: tuple[Problem, ...]


def modernise(layers: Layers, aliases: Sequence[str]) -> Modern:
    """Return KIP-382's spellings the names that they have now."""
    renamed: dict[str, Value] = {}
    notes: list[Problem] = []
    for line in layers.lines():
        now = _modern_name(line.key, aliases)
        if now is None:
            continue
        if (winner := layers.get(now)) is not None:
            notes.append(Problem(line.where, line.key, f"overruled by {now} ({winner.where})", "remove the old line"))
        else:
            notes.append(Problem(line.where, line.key, "KIP-382's first spelling", f"write {now}"))
        renamed[line.key] = attrs.evolve(line, key=now, written=line.key)
    return Modern(layers.renamed(renamed), tuple(notes))


def _modern_name(written: str, aliases: Sequence[str]) -> str | None:
    for stem, level in ((_CLUSTER, Level.CLUSTER), (_CONNECTOR, Level.FLOW)):
        if written.startswith(stem) and stem[:-1] not in aliases:
            found, owner, name = level_of(written.removeprefix(stem), aliases)
            if found is level:
                return f"{owner}.{RENAMED.get(name, name)}"
    return None
