"""What an operator writes: the file of a dedicated node or of a Connect worker, and the worker's connectors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mm2py.model.flow import Flow
from tests.simulated.record_jobs import STATEMENT
from tests.support.mm2_file import mm2_properties


if TYPE_CHECKING:
    from tests.simulated.options import Options


TOPICS = ("orders", "events")
#: Where positions are, in both modes: the checker reads them there.
POSITIONS, POSITIONS_BACK = "mm2-offsets.A.internal", "mm2-offsets.B.internal"
#: Loopback, so that everyone may change things; the address by which others reach a node is its name.
_LISTENER = "http://127.0.0.1:8083"
_GROUP = "mm2"
#: The worker that has the checkpoint connector and no other, and what its nodes' names begin with.
_GROUP_APART, _NODE_APART = "mm2-checks", "c"
_FLOW: dict[str, object] = {
    "refresh.topics.interval.seconds": 5,
    "replication.factor": 1,
    "heartbeats.replication.enabled": "false",
    "tasks.max": 3,
}
_CHECKPOINTS: dict[str, object] = {
    "emit.checkpoints.interval.seconds": 5,
    "sync.group.offsets.enabled": "true",
    "refresh.groups.interval.seconds": 5,
    "sync.group.offsets.interval.seconds": 5,
}
#: The topic whose records a statement changes, if one does.
TRANSFORMED = "events"
#: Names of the worker's connectors, by what they are.
NAMES = {"source": "mirror", "checkpoints": "checks"}
#: The second source connector, and its topic.
ASIDE, TOPIC_ASIDE = "aside", "events"


def node_names(options: Options) -> list[str]:
    """Return the names of all nodes, those of the worker that only has the checkpoint connector last."""
    apart = [f"{_NODE_APART}{it}" for it in range(options.checkers)] if options.checks_apart else []
    return [*(f"n{it}" for it in range(options.nodes)), *apart]


def is_apart(node: str) -> bool:
    """Whether a node is of the worker that only has the checkpoint connector."""
    return node.startswith(_NODE_APART)


def flow_groups(options: Options) -> tuple[str, ...]:
    """Return the groups at the target whose members share the flow, and the one beside it."""
    aside = (f"{_GROUP}-A:{ASIDE}",) if options.has_aside else ()
    return (f"{_GROUP}-A", *aside) if options.is_worker else ("A-mm2",)


def topics_of(options: Options, flow: Flow) -> tuple[str, ...]:
    """Return the topics of a flow."""
    if not options.has_aside:
        return TOPICS
    return tuple(topic for topic in TOPICS if (topic == TOPIC_ASIDE) == bool(flow.connector))


def topic_configs(options: Options) -> dict[str, str]:
    """Return the configs of the source's topics."""
    return {"retention.ms": str(round(options.retention_s * 1000))} if options.retention_s else {}


def _policies(options: Options) -> dict[str, object]:
    acls = {"sync.topic.acls.interval.seconds": 5, "sync.topic.acls.delete.enabled": "true"}
    return {
        **({"copy.on.source.recreated": options.on_recreated} if options.on_recreated != "fail" else {}),
        **(acls if "acl" in options.faults else {}),
    }


def node_file(options: Options, name: str, source: str, target: str, *, is_changed: bool = False) -> str:
    """Return the text of a node's file."""
    epoch_ms = options.epoch_ms + (500 if is_changed else 0)
    rest = {"listeners": _LISTENER, "rest.advertised.host.name": name, "rest.advertised.port": 8083}
    if options.is_worker:
        return _worker_file(options, name, target, {**rest, "copy.epoch.ms": epoch_ms})
    settings: dict[str, Any] = {
        **rest,
        **_FLOW,
        **_CHECKPOINTS,
        "refresh.topics.interval.seconds": 6 if is_changed else 5,
        "A->B.topics": ",".join(TOPICS),
        "B->A.enabled": "false",
        "B.offset.flush.interval.ms": 5_000,
        "copy.epoch.ms": epoch_ms,
        **_policies(options),
        "offset.storage.partitions": 5,
    }
    if options.leads_back:
        settings |= {"B->A.enabled": "true", "B->A.topics": ",".join(TOPICS), "A.offset.flush.interval.ms": 5_000}
    if options.transform:
        settings[f"A->B.transform.{TRANSFORMED}.sql"] = STATEMENT
    if options.transform == "once":
        settings["B.exactly.once.source.support"] = "enabled"
    if options.static:
        settings["B.group.instance.id"] = name
    if options.transactions:
        settings["A.consumer.isolation.level"] = "read_committed"
        if options.leads_back:
            settings["B.consumer.isolation.level"] = "read_committed"
    return mm2_properties(source, target, **settings)


def _worker_file(options: Options, name: str, target: str, more: dict[str, object]) -> str:
    positions = "checks-offsets" if is_apart(name) else POSITIONS
    lines: dict[str, object] = {
        "bootstrap.servers": target,
        "group.id": _GROUP_APART if is_apart(name) else _GROUP,
        "config.storage.topic": f"{'checks' if is_apart(name) else 'connect'}-configs",
        "offset.storage.topic": positions,
        "status.storage.topic": f"{'checks' if is_apart(name) else 'connect'}-status",
        "config.storage.replication.factor": 1,
        "offset.storage.replication.factor": 1,
        "status.storage.replication.factor": 1,
        "offset.storage.partitions": 5,
        "offset.flush.interval.ms": 5_000,
        **({"group.instance.id": name} if options.static else {}),
        **more,
    }
    return "".join(f"{key}={value}\n" for key, value in lines.items())


def connectors(options: Options, source: str) -> dict[str, dict[str, str]]:
    """Return the configs of a worker's connectors, by name."""
    ends: dict[str, object] = {
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": source,
    }
    package = "org.apache.kafka.connect.mirror."
    mirror = {
        **ends,
        **_FLOW,
        "connector.class": f"{package}MirrorSourceConnector",
        "topics": ",".join(topics_of(options, Flow("A", "B"))),
        "offset-syncs.topic.replication.factor": 1,
        **_policies(options),
    }
    if options.transactions:
        mirror["source.consumer.isolation.level"] = "read_committed"
    checkpoints = {
        **ends,
        **_CHECKPOINTS,
        "connector.class": f"{package}MirrorCheckpointConnector",
        "checkpoints.topic.replication.factor": 1,
    }
    named = {NAMES["source"]: mirror, NAMES["checkpoints"]: checkpoints}
    if options.has_aside:
        named[ASIDE] = {**mirror, "topics": TOPIC_ASIDE}
    return {name: {key: str(value) for key, value in config.items()} for name, config in named.items()}
