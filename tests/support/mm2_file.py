"""Properties files as an operator writes them; mm2py and Java MirrorMaker 2 read the same ones."""

from __future__ import annotations

from mm2py.config.properties import escaped


#: An alias that Kafka's own test of MirrorMaker gives a target: all that is printed but letters, and a blank.
STRANGE_ALIAS = "B- ._~:/?#[]@!$&'()*+;=\"<>%{}|\\^`618"

#: The header that `MARKING` inserts, and a transform that does.
MARK = ("seen", b"yes")
MARKING = {
    "transforms": "mark",
    "transforms.mark.type": "org.apache.kafka.connect.transforms.InsertHeader",
    "transforms.mark.header": MARK[0],
    "transforms.mark.value.literal": MARK[1].decode(),
}

#: Records and nothing else, which needs the fewest permissions (docs/security.md).
COPY_ONLY = {
    "sync.topic.configs.enabled": "false",
    "sync.topic.acls.enabled": "false",
    "emit.checkpoints.enabled": "false",
    "emit.heartbeats.enabled": "false",
    "emit.offset-syncs.enabled": "false",
}

_SMALL_CLUSTER = {
    "replication.factor": "1",
    "checkpoints.topic.replication.factor": "1",
    "heartbeats.topic.replication.factor": "1",
    "offset-syncs.topic.replication.factor": "1",
    "offset.storage.replication.factor": "1",
    "config.storage.replication.factor": "1",
    "status.storage.replication.factor": "1",
    "refresh.topics.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
}

#: The clusters are shared, so one test's heartbeats would be among the topics of another.
_NO_HEARTBEATS = {"emit.heartbeats.enabled": "false", "heartbeats.replication.enabled": "false"}

#: Daemons of several tests run side by side; the event rest_listening names the port. Java takes no empty list.
_ANY_PORT = {"listeners": "http://127.0.0.1:0"}


def mm2_properties(source: str, target: str, *, aliases: tuple[str, str] = ("A", "B"), **keys: object) -> str:
    """
    Write settings for a flow ``A->B`` between two clusters given by their bootstrap servers.

    Keys with dots and arrows are handed in as ``**{"A->B.topics": "orders"}``. They win over what is set here:
    everything replicated once, a look for new topics every second, no heartbeats, and REST at a port of its own. A
    source alias of its own gives a test its own internal topics and Connect group on shared clusters.
    """
    from_alias, to_alias = aliases
    settings: dict[str, object] = {
        "clusters": f"{from_alias}, {to_alias}".replace("\\", "\\\\"),
        f"{from_alias}.bootstrap.servers": source,
        f"{to_alias}.bootstrap.servers": target,
        f"{from_alias}->{to_alias}.enabled": "true",
        **_SMALL_CLUSTER,
        **_NO_HEARTBEATS,
        **_ANY_PORT,
        **keys,
    }
    return "".join(f"{escaped(key)} = {value}\n" for key, value in settings.items())


def marking_exactly_once(alias: str) -> dict[str, object]:
    """Return settings by which each record of ``alias->B`` gets the header `MARK` on its way, in transactions."""
    return {
        "B.exactly.once.source.support": "enabled",
        f"{alias}->B.exactly.once.support": "required",
        f"{alias}.consumer.isolation.level": "read_committed",
        **{f"{alias}->B.{key}": value for key, value in MARKING.items()},
    }
