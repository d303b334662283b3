"""Rows of the key table: the runtime of all flows into a cluster, which in Java is a worker of Kafka Connect."""

from __future__ import annotations

from mm2py.config.keys.row import (
    Key,
    Kind,
    Place,
    Section,
    at_least,
    instance_id,
    number_or_default,
    one_of_in_any_case,
    topic_text,
)


#: Records are copied as they are.
_BYTES = ("org.apache.kafka.connect.converters.ByteArrayConverter", "ByteArrayConverter")
#: Many files set a cluster's client settings without naming the client; Java uses them for Connect's own clients only.
_OWN = "it applies to Connect's own clients; copying uses consumer.{0} and producer.{0}"

WORKER = Section(
    "Runtime of all flows into a cluster",
    "Written for the target cluster (`B.offset.flush.interval.ms`). Where the table names the top level as well, that "
    "takes precedence over the cluster's line, as in Java.",
    (
        Key("offset.flush.interval.ms", Kind.LONG, "60000", Place.WORKER,
            "How often positions are written.", check=at_least(1)),
        Key("task.shutdown.graceful.timeout.ms", Kind.LONG, "5000", Place.WORKER_TOP,
            "How long a stop waits for copy tasks to drain.", check=at_least(1)),
        Key("offset.storage.topic", Kind.STRING, None, Place.WORKER_TOP,
            "Topic on the target cluster that stores positions; `mm2-offsets.A.internal` if unset.", check=topic_text),
        Key("offset.storage.partitions", Kind.INT, "25", Place.WORKER_TOP,
            "Partitions of the positions topic when it is created; -1 takes the brokers' default.",
            check=number_or_default),
        Key("offset.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Replication factor of the positions topic when it is created; -1 takes the brokers' default.",
            check=number_or_default),
        Key("group.id", Kind.STRING, None, Place.WORKER,
            "The group on the target cluster whose members share a flow; `A-mm2` if "
            "unset. Java MirrorMaker's workers use the same one. Flows from several sources need one each: if they "
            "share a target, the source's alias is appended."),
        Key("group.instance.id", Kind.STRING, None, Place.WORKER,
            "Makes this node a static member of those groups (KIP-345), as with Kafka's consumers; each node needs a "
            "value of its own. While it restarts within `session.timeout.ms`, its tasks wait for it; without it they "
            "move to other nodes. Java's Connect has no such setting.", check=instance_id),
        Key("session.timeout.ms", Kind.INT, "6000", Place.WORKER,
            "How long a node without heartbeats stays a member of those groups; then others take its tasks. Java's "
            "default is 10000; brokers refuse less than their `group.min.session.timeout.ms`, 6000.",
            check=at_least(1)),
        Key("heartbeat.interval.ms", Kind.INT, "2000", Place.WORKER,
            "How often a node sends heartbeats to its group, and how often one that waits for Java checks; at most a "
            "third of the session. Java's default is 3000.",
            check=at_least(1)),
        Key("exactly.once.source.support", Kind.STRING, "disabled", Place.WORKER,
            "`enabled` writes records of topics with a transform in transactions, together with positions and dead "
            "letters, so that each is visible once to consumers with `isolation.level=read_committed`. Topics that "
            "are copied unopened need none: a restart determines what has arrived. `preparing` is the same as "
            "`disabled`.",
            check=one_of_in_any_case("disabled", "preparing", "enabled")),
        Key("status.storage.topic", Kind.STRING, None, Place.WORKER_TOP,
            "Topic on the target cluster where nodes that run the same flow report to each other, beside Connect's own "
            "records; `mm2-status.A.internal` if unset. A flow's only node writes nothing there.", check=topic_text),
        Key("status.storage.partitions", Kind.INT, "5", Place.WORKER_TOP,
            "Partitions of the status topic when it is created; -1 takes the brokers' default.",
            check=number_or_default),
        Key("status.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Replication factor of the status topic when it is created; -1 takes the brokers' default.",
            check=number_or_default),
        Key("config.storage.topic", Kind.STRING, None, Place.WORKER_TOP,
            "Topic on the target cluster that stores overrides by operators (pauses, limits, settings), beside "
            "Connect's own records; `mm2-configs.A.internal` if unset.", check=topic_text),
        Key("config.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Replication factor of the overrides topic when the first override creates it; -1 takes the brokers' "
            "default.",
            check=number_or_default),
    ),
)  # fmt: skip
