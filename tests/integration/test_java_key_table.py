"""The key table knows every key of MirrorMaker 2, of Connect's worker and of Kafka's clients, as Java defines it."""

from __future__ import annotations

import pytest

from mm2py.config.keys.row import Key, Kind, LineLevel
from mm2py.config.keys.table import find_key
from tests.support.java_programs import java_program


#: Where each of Java's tables is written, and what stands before its keys there.
_WRITTEN = {
    "process": (LineLevel.TOP, ""),
    "connector": (LineLevel.FLOW, ""),
    "checkpoints": (LineLevel.FLOW, ""),
    "heartbeats": (LineLevel.FLOW, ""),
    "source connector": (LineLevel.FLOW, ""),
    "filter DefaultTopicFilter": (LineLevel.FLOW, ""),
    "filter DefaultGroupFilter": (LineLevel.FLOW, ""),
    "filter DefaultConfigPropertyFilter": (LineLevel.FLOW, ""),
    "worker": (LineLevel.CLUSTER, ""),
    "consumer": (LineLevel.CLUSTER, "consumer."),
    "producer": (LineLevel.CLUSTER, "producer."),
    "admin": (LineLevel.CLUSTER, "admin."),
}
_KINDS = {
    "BOOLEAN": {Kind.BOOLEAN}, "SHORT": {Kind.SHORT, Kind.INT}, "INT": {Kind.INT}, "LONG": {Kind.LONG},
    "STRING": {Kind.STRING, Kind.LIST}, "LIST": {Kind.LIST, Kind.PATTERNS}, "CLASS": {Kind.CLASS},
    "PASSWORD": {Kind.PASSWORD},
}  # fmt: skip
#: Types of ours that differ, and why.
_OTHER_KINDS = {"connector.class": "a class is one", "replication.factor": "may be the source's"}
#: Internal to tasks, filled in by Connect for each of them.
_OF_TASKS = {"task.index", "task.assigned.partitions", "task.assigned.groups"}
#: Defaults of ours that differ, and why.
_OTHER_DEFAULTS = {
    "consumer.fetch.max.bytes": "memory: 8 MiB are as fast as 50",
    "consumer.auto.offset.reset": "MirrorMaker sets earliest itself",
    "consumer.client.id": "the flow's name",
    "producer.client.id": "the flow's name",
    "producer.compression.type": "batches keep the codec that they have",
    "producer.batch.size": "batches keep the size that they have",
    "producer.buffer.memory": "copy.buffer.bytes has the default",
    "target.cluster.alias": "filled in by MirrorMaker's driver",
    "enabled": "MirrorMaker's driver says false where a flow does not",
    "client.id": "filled in by MirrorMaker's driver",
    "key.converter": "filled in by MirrorMaker's driver",
    "value.converter": "filled in by MirrorMaker's driver",
    "header.converter": "filled in by MirrorMaker's driver",
    "listeners": "Java listens everywhere",
    "session.timeout.ms": "what a lost node copied goes on within ten seconds",
    "heartbeat.interval.ms": "as session.timeout.ms",
}
_SOCKETS = {
    "consumer.receive.buffer.bytes", "consumer.send.buffer.bytes", "producer.receive.buffer.bytes",
    "producer.send.buffer.bytes",
}  # fmt: skip


@pytest.fixture(scope="module")
def java_keys() -> list[tuple[str, str, str, str]]:
    """Return the table, the name, the type and the default of each of Java's keys that is not about security."""
    rows = [tuple((line + "\t").split("\t")[:4]) for line in java_program("KeyTable").run()]
    return [
        (table, name, kind, default)
        for table, name, kind, default in rows
        if table in _WRITTEN and name not in _OF_TASKS and not name.startswith(("ssl.", "sasl.", "listeners.https."))
    ]


def _row(table: str, name: str) -> Key | None:
    level, prefix = _WRITTEN[table]
    row = find_key(level, prefix + name) or find_key(LineLevel.TOP, name)
    return row if row is not None and (row.stem is None or row.name != "*") else None


def test_every_key_of_java_s_has_a_row(java_keys: list[tuple[str, str, str, str]]) -> None:
    """Nothing that Java knows is unknown here, or known only as one of many."""
    missing = {f"{table}: {name}" for table, name, _, _ in java_keys if _row(table, name) is None}

    assert len(java_keys) > 350
    assert missing == set()


def test_every_key_has_java_s_type(java_keys: list[tuple[str, str, str, str]]) -> None:
    """A value that Java takes for a number, a flag or a list is one here."""
    different = {}
    for table, name, kind, _ in java_keys:
        row = _row(table, name)
        is_comparable = row is not None and row.stem is None and row.name not in _OTHER_KINDS
        if row is not None and is_comparable and row.kind not in _KINDS[kind]:
            different[f"{table}: {name}"] = (row.kind, kind)

    assert different == {}


def test_every_key_has_java_s_default(java_keys: list[tuple[str, str, str, str]]) -> None:
    """Defaults are Java's but for those that are listed with a reason."""
    different = {}
    for table, name, _, default in java_keys:
        row = _row(table, name)
        if row is None or row.stem is not None or row.full_name in {*_OTHER_DEFAULTS, *_SOCKETS}:
            continue
        ours = row.default or ""
        if ours != ("" if default in {"null", "required"} else default):
            different[f"{table}: {name}"] = (ours, default)

    assert different == {}
