"""
Rows of the key table: settings of Java's clients that mm2py accepts without acting on them.

They are listed so that the types of their values are checked as in Java, and a note names what to set instead, if
anything. Client settings that take effect are in `mm2py.config.keys.cluster`.
"""

from __future__ import annotations

from mm2py.config.keys.row import Key, Kind, Place


_CONSUMER, _PRODUCER, _ADMIN = Place.CONSUMER, Place.PRODUCER, Place.ADMIN
_JAVA = "org.apache.kafka."
_JMX = _JAVA + "common.metrics.JmxReporter"
_BYTES_IN = _JAVA + "common.serialization.ByteArrayDeserializer"
_BYTES_OUT = _JAVA + "common.serialization.ByteArraySerializer"
_ASSIGNORS = f"{_JAVA}clients.consumer.RangeAssignor, {_JAVA}clients.consumer.CooperativeStickyAssignor"

_WITHOUT_GROUP = "copying assigns partitions itself, without a consumer group"
_NO_OPINION = "without effect: positions are stored on the target cluster"
_UNOPENED = "batches travel unopened"
_LEVEL = f"{_UNOPENED}; batches recompressed by compression.type get the codec's default level"
_THEIR_PARTITION = "records keep their partition"


def _key(  # noqa: PLR0917 - a row of a table
    place: Place, name: str, kind: Kind, default: str | None, doc: str, remark: str = "", *, fits: tuple[str, ...] = ()
) -> Key:
    return Key(name, kind, default, place, doc, acts=False, remark=remark, fits=fits)


def _of_every_client(place: Place, *, idle_ms: str, pushes_metrics: str) -> tuple[Key, ...]:
    return (
        _key(place, "client.dns.lookup", Kind.STRING, "use_all_dns_ips", "Which of a host's addresses to try."),
        _key(place, "config.providers", Kind.LIST, "", "Value providers of this client only.",
             "write config.providers at the top level; it applies to the whole file"),
        _key(place, "connections.max.idle.ms", Kind.LONG, idle_ms, "When an idle connection is closed."),
        _key(place, "enable.metrics.push", Kind.BOOLEAN, pushes_metrics, "Send metrics to the brokers (KIP-714)."),
        _key(place, "metadata.recovery.strategy", Kind.STRING, "rebootstrap", "What to do when no broker is reachable.",
             "mm2py always starts again from bootstrap.servers", fits=("rebootstrap",)),
        _key(place, "metadata.recovery.rebootstrap.trigger.ms", Kind.LONG, "300000", "And when."),
        _key(place, "metric.reporters", Kind.LIST, _JMX, "Java metric reporters."),
        _key(place, "metrics.num.samples", Kind.INT, "2", "Samples per metric."),
        _key(place, "metrics.recording.level", Kind.STRING, "INFO", "Level of detail of metrics."),
        _key(place, "metrics.sample.window.ms", Kind.LONG, "30000", "Length of a sample."),
        _key(place, "security.providers", Kind.STRING, None, "Java security providers."),
        _key(place, "socket.connection.setup.timeout.max.ms", Kind.LONG, "30000", "Longest time to connect."),
    )  # fmt: skip


CONSUMER_KEYS = (
    _key(_CONSUMER, "allow.auto.create.topics", Kind.BOOLEAN, "true", "Let a fetch create a topic.",
         "reading never creates a topic", fits=("false",)),
    _key(_CONSUMER, "auto.commit.interval.ms", Kind.INT, "5000", "Consumer groups.", _NO_OPINION),
    _key(_CONSUMER, "enable.auto.commit", Kind.BOOLEAN, "true", "Consumer groups.", _NO_OPINION, fits=("false",)),
    _key(_CONSUMER, "check.crcs", Kind.BOOLEAN, "true", "Verify the checksum of batches.",
         "checksums are always checked", fits=("true",)),
    _key(_CONSUMER, "default.api.timeout.ms", Kind.INT, "60000", "Blocking calls.",
         "write request.timeout.ms or admin.timeout.ms"),
    _key(_CONSUMER, "exclude.internal.topics", Kind.BOOLEAN, "true", "Patterns of subscriptions.",
         "write topics.exclude"),
    _key(_CONSUMER, "group.id", Kind.STRING, None, "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "group.instance.id", Kind.STRING, None, "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "group.protocol", Kind.STRING, "classic", "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "group.remote.assignor", Kind.STRING, None, "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "heartbeat.interval.ms", Kind.INT, "3000", "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "session.timeout.ms", Kind.INT, "45000", "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "max.poll.interval.ms", Kind.INT, "300000", "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "partition.assignment.strategy", Kind.LIST, _ASSIGNORS, "Consumer group.", _WITHOUT_GROUP),
    _key(_CONSUMER, "max.poll.records", Kind.INT, "500", "Records that one poll returns.",
         f"{_UNOPENED}; fetch.max.bytes and max.partition.fetch.bytes limit how much is read at once"),
    _key(_CONSUMER, "interceptor.classes", Kind.LIST, "", "Java interceptors.", f"{_UNOPENED}; there are no records "
        "to intercept"),
    _key(_CONSUMER, "key.deserializer", Kind.CLASS, None, "Java class.", f"{_UNOPENED}, as bytes", fits=(_BYTES_IN,)),
    _key(_CONSUMER, "value.deserializer", Kind.CLASS, None, "Java class.", f"{_UNOPENED}, as bytes", fits=(_BYTES_IN,)),
    _key(_CONSUMER, "retry.backoff.ms", Kind.LONG, "100", "First pause before a request is sent again.",
         "reading continues after reconnect.backoff.ms"),
    _key(_CONSUMER, "retry.backoff.max.ms", Kind.LONG, "1000", "Longest such pause.",
         "reading continues after reconnect.backoff.max.ms at the latest"),
    _key(_CONSUMER, "internal.throw.on.fetch.stable.offset.unsupported", Kind.BOOLEAN, "false", "Kafka Streams."),
    _key(_CONSUMER, "share.acknowledgement.mode", Kind.STRING, "implicit", "Share groups (KIP-932).", _WITHOUT_GROUP),
    _key(_CONSUMER, "share.acquire.mode", Kind.STRING, "BATCH_OPTIMIZED", "Share groups (KIP-932).", _WITHOUT_GROUP),
    *_of_every_client(_CONSUMER, idle_ms="540000", pushes_metrics="true"),
)  # fmt: skip

PRODUCER_KEYS = (
    _key(_PRODUCER, "acks", Kind.STRING, "all", "Which replicas must have a batch.",
         "copying always waits for all in-sync replicas", fits=("all", "-1")),
    _key(_PRODUCER, "enable.idempotence", Kind.BOOLEAN, "true", "Keep batches from being appended twice.",
         "copying is always idempotent", fits=("true",)),
    _key(_PRODUCER, "compression.gzip.level", Kind.INT, "-1", "Codec of batches.", _LEVEL),
    _key(_PRODUCER, "compression.lz4.level", Kind.INT, "9", "Codec of batches.", _LEVEL),
    _key(_PRODUCER, "compression.zstd.level", Kind.INT, "3", "Codec of batches.", _LEVEL),
    _key(_PRODUCER, "linger.ms", Kind.LONG, "5", "Time to wait for a batch to fill up.",
         f"{_UNOPENED} and are sent at once; the source's fetch.min.bytes and fetch.max.wait.ms collect more of them"),
    _key(_PRODUCER, "retries", Kind.INT, "2147483647", "How often a request is sent again.",
         "copying never gives up: failed sends are retried until they succeed", fits=("2147483647",)),
    _key(_PRODUCER, "delivery.timeout.ms", Kind.INT, "120000", "How long sending a record is retried.",
         "copying never gives up: failed sends are retried until they succeed", fits=("2147483647",)),
    _key(_PRODUCER, "max.block.ms", Kind.LONG, "60000", "Blocking calls.", fits=("9223372036854775807",)),
    _key(_PRODUCER, "interceptor.classes", Kind.LIST, "", "Java interceptors.", f"{_UNOPENED}; there are no records "
        "to intercept"),
    _key(_PRODUCER, "key.serializer", Kind.CLASS, None, "Java class.", f"{_UNOPENED}, as bytes", fits=(_BYTES_OUT,)),
    _key(_PRODUCER, "value.serializer", Kind.CLASS, None, "Java class.", f"{_UNOPENED}, as bytes", fits=(_BYTES_OUT,)),
    _key(_PRODUCER, "metadata.max.idle.ms", Kind.LONG, "300000", "When metadata of an idle topic is dropped."),
    _key(_PRODUCER, "partitioner.class", Kind.CLASS, None, "Which partition a record goes to.",
         _THEIR_PARTITION),
    _key(_PRODUCER, "partitioner.ignore.keys", Kind.BOOLEAN, "false", "Same.", _THEIR_PARTITION),
    _key(_PRODUCER, "partitioner.adaptive.partitioning.enable", Kind.BOOLEAN, "true", "Same.", _THEIR_PARTITION),
    _key(_PRODUCER, "partitioner.availability.timeout.ms", Kind.LONG, "0", "Same.", _THEIR_PARTITION),
    _key(_PRODUCER, "transaction.two.phase.commit.enable", Kind.BOOLEAN, "false", "Transactions."),
    _key(_PRODUCER, "transactional.id", Kind.STRING, None, "Transactions.", "it is MirrorMaker's own"),
    *_of_every_client(_PRODUCER, idle_ms="540000", pushes_metrics="true"),
)  # fmt: skip

_SAME = "administration uses the copy's connections; write consumer.{0} (source) or producer.{0} (target)"
_ADMIN_TIMEOUT = "write admin.timeout.ms, which limits a whole round of a periodic job"

ADMIN_KEYS = (
    _key(_ADMIN, "bootstrap.controllers", Kind.LIST, "", "Controllers to connect to instead of brokers.", "mm2py "
        "connects to brokers"),
    _key(_ADMIN, "client.id", Kind.STRING, "", "Name shown to brokers.", _SAME.format("client.id")),
    _key(_ADMIN, "default.api.timeout.ms", Kind.INT, "60000", "Blocking calls.", _ADMIN_TIMEOUT),
    _key(_ADMIN, "metadata.max.age.ms", Kind.LONG, "300000", "Age of metadata.", _SAME.format("metadata.max.age.ms")),
    _key(_ADMIN, "reconnect.backoff.ms", Kind.LONG, "50", "Connecting.", _SAME.format("reconnect.backoff.ms")),
    _key(_ADMIN, "reconnect.backoff.max.ms", Kind.LONG, "1000", "Connecting.",
         _SAME.format("reconnect.backoff.max.ms")),
    _key(_ADMIN, "request.timeout.ms", Kind.INT, "30000", "Answers.", _SAME.format("request.timeout.ms")),
    _key(_ADMIN, "receive.buffer.bytes", Kind.INT, "65536", "Socket.", _SAME.format("receive.buffer.bytes")),
    _key(_ADMIN, "send.buffer.bytes", Kind.INT, "131072", "Socket.", _SAME.format("send.buffer.bytes")),
    _key(_ADMIN, "socket.connection.setup.timeout.ms", Kind.LONG, "10000", "Connecting.",
         _SAME.format("socket.connection.setup.timeout.ms")),
    _key(_ADMIN, "retries", Kind.INT, "2147483647", "How often a request is sent again.", _ADMIN_TIMEOUT),
    _key(_ADMIN, "retry.backoff.ms", Kind.LONG, "100", "Pause before that.", _ADMIN_TIMEOUT),
    _key(_ADMIN, "retry.backoff.max.ms", Kind.LONG, "1000", "Longest such pause.", _ADMIN_TIMEOUT),
    *_of_every_client(_ADMIN, idle_ms="300000", pushes_metrics="false"),
    Key("*", Kind.STRING, None, _ADMIN, "Any other setting of Java's admin client.", acts=False),
)  # fmt: skip
