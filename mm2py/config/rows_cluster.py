"""Rows of the key table: this process, the clusters, the clients, and the runtime of flows into a cluster."""

from __future__ import annotations

from mm2py.config.row import Key, Kind, Place, Section, at_least, not_empty, one_of, replication_factor, topic_text


_NOT_YET = False

_PROCESS = Section(
    "This process",
    "Written at the top level.",
    (
        Key("clusters", Kind.LIST, None, Place.TOP, "Required. The aliases of all clusters.", check=not_empty),
        Key("spark.master", Kind.STRING, "local[*]", Place.TOP,
            "Where copy tasks run: `local[*]` inside this process's own Spark, or a cluster's URL.", check=not_empty),
        Key("spark.*", Kind.STRING, None, Place.TOP, "Any other Spark setting; passed on as it is."),
        Key("log.format", Kind.STRING, "auto", Place.TOP,
            "`console`, `json`, or `auto`: console on a terminal, JSON otherwise.",
            check=one_of("auto", "console", "json")),
        Key("log.level", Kind.STRING, "info", Place.TOP, "The least severity that is logged.",
            check=one_of("debug", "info", "warning", "error")),
        Key("dedicated.mode.enable.internal.rest", Kind.BOOLEAN, "false", Place.TOP,
            "Java's REST between nodes.", _NOT_YET),
        Key("listeners", Kind.LIST, "http://:8083", Place.TOP, "Addresses of the REST server.", _NOT_YET),
        Key("listeners.https.*", Kind.PASSWORD, None, Place.TOP, "Its TLS.", _NOT_YET, is_secret=True),
        Key("rest.advertised.host.name", Kind.STRING, None, Place.TOP, "Host named to other nodes.", _NOT_YET),
        Key("rest.advertised.port", Kind.INT, None, Place.TOP, "Port named to other nodes.", _NOT_YET),
        Key("rest.advertised.listener", Kind.STRING, None, Place.TOP, "http or https.", _NOT_YET),
        Key("access.control.allow.origin", Kind.STRING, "", Place.TOP, "Cross-origin header.", _NOT_YET),
        Key("access.control.allow.methods", Kind.STRING, "", Place.TOP, "Cross-origin header.", _NOT_YET),
        Key("response.http.headers.config", Kind.STRING, "", Place.TOP, "Extra headers.", _NOT_YET),
        Key("config.providers", Kind.LIST, "", Place.TOP, "Names of value providers for `${…}`.", _NOT_YET),
        Key("config.providers.*", Kind.STRING, None, Place.TOP, "Their classes and parameters.", _NOT_YET),
    ),
)  # fmt: skip

_CLUSTER = Section(
    "Clusters",
    "Written for one cluster (`A.bootstrap.servers`) or at the top level for all of them. A client's own line "
    "(`A.consumer.security.protocol`) beats both.",
    (
        Key("bootstrap.servers", Kind.LIST, None, Place.CLUSTER,
            "Required. Brokers to ask first, `host:port` separated by commas.", check=not_empty),
        Key("security.protocol", Kind.STRING, "PLAINTEXT", Place.CLUSTER,
            "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL, in either case. This version connects in PLAINTEXT only."),
        Key("ssl.client.auth", Kind.STRING, "none", Place.TOP, "TLS of the REST server.", _NOT_YET),
        Key("ssl.*", Kind.PASSWORD, None, Place.CLUSTER, "TLS settings.", _NOT_YET, is_secret=True),
        Key("sasl.*", Kind.PASSWORD, None, Place.CLUSTER, "SASL settings.", _NOT_YET, is_secret=True),
    ),
)  # fmt: skip

_CONSUMER = Section(
    "Reading the source cluster",
    "Written as `A.consumer.KEY`, `A->B.source.consumer.KEY` or `A->B.consumer.KEY`. As in Java, "
    "`A->B.source.consumer.` beats `A.consumer.`, which beats `A->B.consumer.`.",
    (
        Key("fetch.min.bytes", Kind.INT, "1", Place.CONSUMER,
            "A fetch is answered once so much is there.", check=at_least(0)),
        Key("fetch.max.wait.ms", Kind.INT, "500", Place.CONSUMER, "Or after this time.", check=at_least(0)),
        Key("fetch.max.bytes", Kind.INT, "8388608", Place.CONSUMER,
            "Most that one fetch answers. Java's default is 50 MiB; 8 MiB keep memory small and are as fast.",
            check=at_least(1)),
        Key("max.partition.fetch.bytes", Kind.INT, "1048576", Place.CONSUMER,
            "Most that one fetch answers for one partition; a larger batch is still given whole.", check=at_least(1)),
        Key("isolation.level", Kind.STRING, "read_uncommitted", Place.CONSUMER,
            "`read_committed` leaves out records of aborted transactions.",
            check=one_of("read_uncommitted", "read_committed")),
        Key("auto.offset.reset", Kind.STRING, "earliest", Place.CONSUMER,
            "Where a partition without a position starts.", check=one_of("earliest", "latest")),
        Key("request.timeout.ms", Kind.INT, "30000", Place.CONSUMER,
            "How long an answer of a source broker is awaited.", check=at_least(1)),
        Key("metadata.max.age.ms", Kind.LONG, "300000", Place.CONSUMER,
            "Metadata older than this is asked for again.", check=at_least(1)),
        Key("reconnect.backoff.ms", Kind.LONG, "50", Place.CONSUMER,
            "First pause before connecting again.", check=at_least(0)),
        Key("reconnect.backoff.max.ms", Kind.LONG, "1000", Place.CONSUMER, "Longest such pause.", check=at_least(0)),
        Key("client.id", Kind.STRING, None, Place.CONSUMER,
            "Name shown to source brokers, for quotas and logs; the flow's name if unset."),
        Key("*", Kind.STRING, None, Place.CONSUMER, "Other settings of Java's consumer.", _NOT_YET),
    ),
)  # fmt: skip

_PRODUCER = Section(
    "Writing the target cluster",
    "Written as `A->B.producer.override.KEY` or `B.producer.KEY`; the first beats the second. `A->B.producer.KEY`, "
    "which Java ignores for data, counts where neither of them is there.",
    (
        Key("max.request.size", Kind.INT, "1048576", Place.PRODUCER,
            "Most that one produce request carries; a single larger batch still goes.", check=at_least(1)),
        Key("max.in.flight.requests.per.connection", Kind.INT, "5", Place.PRODUCER,
            "Produce requests awaiting their answer on one connection. Order is kept.",
            check=lambda value: None if value in range(1, 6) else "must be 1 to 5"),
        Key("request.timeout.ms", Kind.INT, "30000", Place.PRODUCER,
            "How long an answer of a target broker is awaited.", check=at_least(1)),
        Key("retry.backoff.ms", Kind.LONG, "100", Place.PRODUCER,
            "First pause before a request is sent again.", check=at_least(0)),
        Key("retry.backoff.max.ms", Kind.LONG, "1000", Place.PRODUCER, "Longest such pause.", check=at_least(0)),
        Key("metadata.max.age.ms", Kind.LONG, "300000", Place.PRODUCER,
            "Metadata older than this is asked for again.", check=at_least(1)),
        Key("reconnect.backoff.ms", Kind.LONG, "50", Place.PRODUCER,
            "First pause before connecting again.", check=at_least(0)),
        Key("reconnect.backoff.max.ms", Kind.LONG, "1000", Place.PRODUCER, "Longest such pause.", check=at_least(0)),
        Key("client.id", Kind.STRING, None, Place.PRODUCER,
            "Name shown to target brokers, for quotas and logs; the flow's name if unset."),
        Key("*", Kind.STRING, None, Place.PRODUCER, "Other settings of Java's producer.", _NOT_YET),
    ),
)  # fmt: skip

_OTHER_CLIENTS = Section(
    "Other clients of Java's",
    "",
    (
        Key("admin.*", Kind.STRING, None, Place.WORKER, "Java's admin client of a cluster.", _NOT_YET),
        Key("admin.*", Kind.STRING, None, Place.FLOW_ONLY, "Java's admin clients of a flow.", _NOT_YET),
        Key("source.*", Kind.STRING, None, Place.FLOW_ONLY, "Java's other clients of the source.", _NOT_YET),
        Key("target.*", Kind.STRING, None, Place.FLOW_ONLY, "Java's other clients of the target.", _NOT_YET),
        Key("consumer.override.*", Kind.STRING, None, Place.FLOW_ONLY, "Unused by Java's MirrorMaker.", _NOT_YET),
    ),
)  # fmt: skip

_WORKER = Section(
    "Runtime of all flows into a cluster",
    "Written for the target cluster (`B.offset.flush.interval.ms`). Where the table names the top level as well, "
    "that beats the cluster's line, as in Java.",
    (
        Key("offset.flush.interval.ms", Kind.LONG, "60000", Place.WORKER,
            "How often positions are written.", check=at_least(1)),
        Key("task.shutdown.graceful.timeout.ms", Kind.LONG, "5000", Place.WORKER_TOP,
            "How long a stop waits for copy tasks to drain.", check=at_least(1)),
        Key("offset.storage.topic", Kind.STRING, None, Place.WORKER_TOP,
            "Topic on the target cluster that holds positions; `mm2-offsets.A.internal` if unset.", check=topic_text),
        Key("offset.storage.partitions", Kind.INT, "25", Place.WORKER_TOP, "Its partitions when it is created.",
            check=at_least(1)),
        Key("offset.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Its replication factor when it is created; -1 takes the brokers' default.", check=replication_factor),
        Key("offset.storage.*", Kind.STRING, None, Place.WORKER_TOP, "Its other configurations.", _NOT_YET),
        Key("offset.flush.timeout.ms", Kind.LONG, "5000", Place.WORKER, "Java's flush time-out.", _NOT_YET),
        Key("group.id", Kind.STRING, None, Place.WORKER, "Connect group; `A-mm2` if unset.", _NOT_YET),
        Key("client.id", Kind.STRING, None, Place.WORKER, "Name of Connect's clients.", _NOT_YET),
        Key("session.timeout.ms", Kind.INT, "10000", Place.WORKER, "Connect group.", _NOT_YET),
        Key("heartbeat.interval.ms", Kind.INT, "3000", Place.WORKER, "Connect group.", _NOT_YET),
        Key("rebalance.timeout.ms", Kind.INT, "60000", Place.WORKER, "Connect group.", _NOT_YET),
        Key("scheduled.rebalance.max.delay.ms", Kind.INT, "300000", Place.WORKER, "Connect group.", _NOT_YET),
        Key("worker.sync.timeout.ms", Kind.INT, "3000", Place.WORKER_TOP, "Connect group.", _NOT_YET),
        Key("worker.unsync.backoff.ms", Kind.INT, "300000", Place.WORKER_TOP, "Connect group.", _NOT_YET),
        Key("connect.protocol", Kind.STRING, "sessioned", Place.WORKER, "Connect group.", _NOT_YET),
        Key("exactly.once.source.support", Kind.STRING, "disabled", Place.WORKER,
            "Java's exactly-once mode.", _NOT_YET, one_of("disabled", "preparing", "enabled")),
        Key("topic.tracking.enable", Kind.BOOLEAN, "true", Place.WORKER, "Connect status.", _NOT_YET),
        Key("topic.tracking.allow.reset", Kind.BOOLEAN, "true", Place.WORKER, "Connect status.", _NOT_YET),
        Key("internal.topics.automatic.creation.enable", Kind.BOOLEAN, "true", Place.WORKER,
            "Whether Java creates Connect's topics.", _NOT_YET),
        Key("inter.worker.*", Kind.STRING, None, Place.WORKER, "Signing between Java's nodes.", _NOT_YET),
        Key("status.storage.topic", Kind.STRING, None, Place.WORKER_TOP, "Connect status topic.", _NOT_YET),
        Key("status.storage.partitions", Kind.INT, "5", Place.WORKER_TOP, "Its partitions.", _NOT_YET),
        Key("status.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Its replication factor.", _NOT_YET, replication_factor),
        Key("status.storage.*", Kind.STRING, None, Place.WORKER_TOP, "Its other configurations.", _NOT_YET),
        Key("config.storage.topic", Kind.STRING, None, Place.WORKER_TOP, "Connect config topic.", _NOT_YET),
        Key("config.storage.replication.factor", Kind.SHORT, "3", Place.WORKER_TOP,
            "Its replication factor.", _NOT_YET, replication_factor),
        Key("config.storage.*", Kind.STRING, None, Place.WORKER_TOP, "Its other configurations.", _NOT_YET),
        Key("plugin.path", Kind.STRING, None, Place.WORKER, "Where Java finds plugins.", _NOT_YET),
        Key("plugin.discovery", Kind.STRING, None, Place.WORKER, "How Java finds plugins.", _NOT_YET),
        Key("request.timeout.ms", Kind.INT, "40000", Place.WORKER, "Connect's clients.", _NOT_YET,
            remark="it is Connect's own; the copy takes consumer.request.timeout.ms and producer.request.timeout.ms"),
        Key("metadata.max.age.ms", Kind.LONG, "300000", Place.WORKER, "Connect's clients.", _NOT_YET,
            remark="it is Connect's own; the copy takes consumer.metadata.max.age.ms and producer.metadata.max.age.ms"),
        Key("key.converter*", Kind.STRING, None, Place.WORKER_TOP, "Connect converters.", _NOT_YET),
        Key("value.converter*", Kind.STRING, None, Place.WORKER_TOP, "Connect converters.", _NOT_YET),
        Key("header.converter*", Kind.STRING, None, Place.WORKER_TOP, "Connect converters.", _NOT_YET),
        Key("key.converter", Kind.CLASS, None, Place.FLOW, "Connect converter.", _NOT_YET),
        Key("value.converter", Kind.CLASS, None, Place.FLOW, "Connect converter.", _NOT_YET),
        Key("header.converter", Kind.CLASS, None, Place.FLOW, "Connect converter.", _NOT_YET),
    ),
)  # fmt: skip

FIRST_SECTIONS = (_PROCESS, _CLUSTER)
LAST_SECTIONS = (_CONSUMER, _PRODUCER, _WORKER, _OTHER_CLIENTS)
