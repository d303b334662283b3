"""Rows of the key table: this process, the clusters, the clients, and the runtime of flows into a cluster."""

from __future__ import annotations

from mm2py.config.keys.rest import REST
from mm2py.config.keys.row import Key, Kind, Place, Section, at_least, not_empty, one_of
from mm2py.config.keys.worker import WORKER


#: A micro-batch of a transform takes seconds if Spark starts a worker for it, or the machine is busy: a shorter
#: transaction could not be committed, however small it is.
LEAST_TRANSACTION_MS = 10_000


_PROCESS = Section(
    "This process",
    "Written at the top level.",
    (
        Key("clusters", Kind.LIST, None, Place.TOP,
            "Required. The aliases of all clusters: any text without commas, `->` and control characters. A source's "
            "is part of topic names, so it has letters, digits, `.`, `_` and `-` only; so does a target's unless "
            "`offset-syncs.topic.location` is `target`. In keys, blanks, `:`, `=` and `\\` need a `\\` before them.",
            check=not_empty),
        Key("spark.master", Kind.STRING, "local[*]", Place.TOP,
            "Where copy tasks run: `local[*]` inside this process's own Spark, or a cluster's URL.", check=not_empty),
        Key("spark.*", Kind.STRING, None, Place.TOP, "Any other Spark setting; passed on unchanged."),
        Key("log.format", Kind.STRING, "auto", Place.TOP,
            "`console`, `json`, or `auto`: console on a terminal, JSON otherwise.",
            check=one_of("auto", "console", "json")),
        Key("log.level", Kind.STRING, "info", Place.TOP, "The least severity that is logged.",
            check=one_of("debug", "info", "warning", "error")),
        Key("metrics.partitions.max", Kind.INT, "2000", Place.TOP,
            "How many topic-partitions of this node have metrics of their own; further ones are rolled up per topic. "
            "0 rolls up all. [metrics.md](metrics.md#many-partitions) has the sizes.", check=at_least(0)),
        Key("metrics.topics.max", Kind.INT, "1000", Place.TOP,
            "How many rolled-up topics, and how many consumer groups, have metrics of their own; further ones are "
            "rolled up per flow.", check=at_least(0)),
        Key("config.providers", Kind.LIST, "", Place.TOP,
            "Names of value providers for `${name:path:key}` and `${name:key}`."),
        Key("config.providers.*", Kind.STRING, None, Place.TOP,
            "Classes of the value providers, `config.providers.NAME.class`, and parameters, "
            "`config.providers.NAME.param.KEY`."),
    ),
)  # fmt: skip

_CLUSTER = Section(
    "Clusters",
    "Written for one cluster (`A.bootstrap.servers`) or at the top level for all of them. A client's own line "
    "(`A.consumer.security.protocol`) takes precedence over both.",
    (
        Key("bootstrap.servers", Kind.LIST, None, Place.CLUSTER,
            "Required. Brokers to connect to first, `host:port` separated by commas.", check=not_empty),
    ),
)  # fmt: skip


def _start(value: object) -> str | None:
    """Refuse all but the two places; a time has a setting of its own."""
    if str(value).startswith("by_duration:"):
        return "by_duration is not supported; write start.timestamp with the time itself"
    return one_of("earliest", "latest")(value)


def _connection_keys(place: Place) -> tuple[Key, ...]:
    """Return the connection settings that both clients have."""
    return (
        Key("metadata.max.age.ms", Kind.LONG, "300000", place,
            "Metadata older than this is refreshed.", check=at_least(0), least=1),
        Key("reconnect.backoff.ms", Kind.LONG, "50", place,
            "First pause before connecting again.", check=at_least(0)),
        Key("reconnect.backoff.max.ms", Kind.LONG, "1000", place, "Longest such pause.", check=at_least(0)),
        Key("receive.buffer.bytes", Kind.INT, "-1", place,
            "Size of the socket's receive buffer; -1 leaves it to the operating system.", check=at_least(-1)),
        Key("send.buffer.bytes", Kind.INT, "-1", place,
            "Size of the socket's send buffer; -1 leaves it to the operating system.", check=at_least(-1)),
        Key("socket.connection.setup.timeout.ms", Kind.LONG, "10000", place,
            "Time limit for connecting to a broker.", check=at_least(1)),
    )  # fmt: skip


_CONSUMER = Section(
    "Reading the source cluster",
    "Written as `A.consumer.KEY`, `A->B.source.consumer.KEY` or `A->B.consumer.KEY`. As in Java, "
    "`A->B.source.consumer.` takes precedence over `A.consumer.`, which takes precedence over `A->B.consumer.`.",
    (
        Key("fetch.min.bytes", Kind.INT, "1", Place.CONSUMER,
            "A fetch is answered once this much data is available.", check=at_least(0)),
        Key("fetch.max.wait.ms", Kind.INT, "500", Place.CONSUMER,
            "A fetch is answered after this time, however little data there is. A copy task with more than 64 "
            "partitions fetches the idle ones apart, where nothing "
            "but a record ends the wait for up to 5 seconds.", check=at_least(0)),
        Key("fetch.max.bytes", Kind.INT, "8388608", Place.CONSUMER,
            "Most data in one fetch answer. Java's default is 50 MiB; 8 MiB need less memory and are equally fast.",
            check=at_least(0), least=1),
        Key("max.partition.fetch.bytes", Kind.INT, "1048576", Place.CONSUMER,
            "Most data per partition in one fetch answer; a larger batch is still returned whole.", check=at_least(0),
            least=1),
        Key("client.rack", Kind.STRING, "", Place.CONSUMER,
            "The rack where the copy tasks run. Brokers with a `replica.selector.class` name a replica in this rack "
            "to read from instead of the leader (KIP-392)."),
        Key("isolation.level", Kind.STRING, "read_uncommitted", Place.CONSUMER,
            "`read_committed` skips records of aborted transactions.",
            check=one_of("read_uncommitted", "read_committed")),
        Key("auto.offset.reset", Kind.STRING, "earliest", Place.CONSUMER,
            "Where a partition without a position starts. If the target's last record still exists at the source, "
            "copying continues after it, regardless of this setting; what appears while the flow runs is copied from "
            "its first record on.", check=_start),
        Key("request.timeout.ms", Kind.INT, "30000", Place.CONSUMER,
            "Time limit for an answer of a source broker.", check=at_least(1)),
        *_connection_keys(Place.CONSUMER),
        Key("client.id", Kind.STRING, None, Place.CONSUMER,
            "Name shown to source brokers, for quotas and logs; the flow's name if unset."),
    ),
)  # fmt: skip

_PRODUCER = Section(
    "Writing the target cluster",
    "Written as `A->B.producer.override.KEY` or `B.producer.KEY`; the first takes precedence. `A->B.producer.KEY`, "
    "which Java ignores for data, is used if neither of them is set.",
    (
        Key("max.request.size", Kind.INT, "1048576", Place.PRODUCER,
            "Largest produce request; a single larger batch is still sent.", check=at_least(1)),
        Key("max.in.flight.requests.per.connection", Kind.INT, "5", Place.PRODUCER,
            "Produce requests in flight on one connection, 1 to 5; more counts as 5. Order is kept.",
            check=at_least(1), most=5),
        Key("request.timeout.ms", Kind.INT, "30000", Place.PRODUCER,
            "Time limit for an answer of a target broker.", check=at_least(1)),
        Key("retry.backoff.ms", Kind.LONG, "100", Place.PRODUCER,
            "First pause before a request is sent again.", check=at_least(0)),
        Key("retry.backoff.max.ms", Kind.LONG, "1000", Place.PRODUCER, "Longest such pause.", check=at_least(0)),
        *_connection_keys(Place.PRODUCER),
        Key("client.id", Kind.STRING, None, Place.PRODUCER,
            "Name shown to target brokers, for quotas and logs; the flow's name if unset."),
        Key("transaction.timeout.ms", Kind.INT, "60000", Place.PRODUCER,
            "When brokers abort a transaction that is still open, with `exactly.once.source.support`. Less than "
            f"{LEAST_TRANSACTION_MS} counts as that.", check=at_least(1)),
        Key("batch.size", Kind.INT, None, Place.PRODUCER,
            "Largest size of merged batches, 262144 bytes if unset. All other batches stay as the source's producers "
            "made them.", check=at_least(0), least=1),
        Key("compression.type", Kind.STRING, "source", Place.PRODUCER,
            "Codec of batches at the target: `none`, `gzip`, `snappy`, `lz4` or `zstd`. Batches with another one are "
            "opened and recompressed, which costs many times the CPU. By default they stay unopened, as the source's "
            "producers made them, whereas Java writes them uncompressed.",
            check=one_of("source", "none", "gzip", "snappy", "lz4", "zstd")),
        Key("buffer.memory", Kind.LONG, None, Place.PRODUCER,
            "Bytes that one copy task may buffer, unless `copy.buffer.bytes` is set; at least 1 MiB.",
            check=at_least(0)),
    ),
)  # fmt: skip

FIRST_SECTIONS = (_PROCESS, REST, _CLUSTER)
LAST_SECTIONS = (_CONSUMER, _PRODUCER, WORKER)
