"""Former spellings of settings: those of KIP-382's draft, and keys of Mirus and MirrorMaker 1. KIP-382's draft had
``cluster.A.brokers.list`` and ``connector.A->B.topics``. Such lines are translated to MirrorMaker 2's keys, unless
these are set. Keys of other mirrors have no effect; a note names their equivalents.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from mm2py.config.keys.row import LineLevel
from mm2py.config.layers import Layers, Value, level_of
from mm2py.config.problem import Problem


_CLUSTER = "cluster."
_CONNECTOR = "connector."
#: KIP-382's names of settings, and the current ones.
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
#: Equivalents of Mirus's and MirrorMaker 1's keys.
FOREIGN_KEYS = {
    "topics.regex": _BY_TOPICS,
    "topics.regex.list": _BY_TOPICS,
    "whitelist": _BY_TOPICS,
    "blacklist": "topics.exclude takes names and regular expressions, separated by commas",
    "num.streams": "tasks.max sets how many copy tasks share the partitions of a flow",
    "abort.on.send.failure": "failed sends are always retried",
    "offset.commit.interval.ms": "offset.flush.interval.ms, written for the target cluster, sets how often",
    "message.handler": "records are copied unopened",
    "consumer.rebalance.listener": "copying uses no consumer group",
    "monitor.poll.wait.ms": "refresh.topics.interval.seconds sets how often topics are refreshed",
    "poll.timeout.ms": "fetch.max.wait.ms, written after consumer., sets how long a fetch may wait",
    "destination.bootstrap.servers": "bootstrap.servers, written for the target cluster, names its brokers",
    "enable.partition.matching": "records always keep their partition",
    "enable.destination.topic.checking": "missing remote topics are created",
    "source.key.converter": "records are copied as they are",
    "source.value.converter": "records are copied as they are",
    "source.header.converter": "records are copied as they are",
    "commit.failure.restart.ms": "a failed copy task is always restarted",
    "replay.policy": "nothing is copied twice",
    "replay.window.records": "nothing is copied twice",
    "mirus.task.monitor.polling.interval.ms": "copy tasks are monitored all the time",
    "mirus.task.auto.restart.enabled": "a failed copy task is always restarted",
    "mirus.connector.auto.restart.enabled": "a failed flow is always restarted",
}


@attrs.frozen
class Modern:
    """The lines in MirrorMaker 2's spelling, and a note for each that was spelt differently."""

    layers: Layers
    notes: tuple[Problem, ...]


def modernise(layers: Layers, aliases: Sequence[str]) -> Modern:
    """Return the lines with KIP-382's spellings replaced by the current names."""
    renamed: dict[str, Value] = {}
    notes: list[Problem] = []
    for line in layers.lines():
        now = _modern_name(line.counts_as, aliases)
        if now is None:
            continue
        if (winner := layers.get(now)) is not None:
            notes.append(Problem(line.where, line.key, f"overruled by {now} ({winner.where})", "remove the old line"))
        else:
            notes.append(Problem(line.where, line.key, "KIP-382's draft spelling", f"write {now}"))
        renamed[line.counts_as] = attrs.evolve(line, counts_as=now)
    return Modern(layers.renamed(renamed), tuple(notes))


def _modern_name(written: str, aliases: Sequence[str]) -> str | None:
    for stem, level in ((_CLUSTER, LineLevel.CLUSTER), (_CONNECTOR, LineLevel.FLOW)):
        if written.startswith(stem) and stem[:-1] not in aliases:
            found, owner, name = level_of(written.removeprefix(stem), aliases)
            if found is level:
                return f"{owner}.{RENAMED.get(name, name)}"
    return None
