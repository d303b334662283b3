"""
The settings of Java's that mm2py accepts without acting on them.

A line at the margin has a place, and what a note says, where there is more to say than that: ``KEY`` stands for the
setting. Below are the settings of that place, as ``name:type=default~fit``. A type is a kind of value, checked as in
Java, or the words to choose from; without one it is any text. A fit is a value that is mm2py's fixed behaviour: a line
with it needs no note.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from mm2py.config.keys.row import Key, Kind, Place, one_of_in_any_case


_TABLE: Final = """
TOP
  dedicated.mode.enable.internal.rest:boolean=false response.http.headers.config=
FLOW
  tasks.max.enforce:boolean=true forwarding.admin.class:class=org.apache.kafka.clients.admin.ForwardingAdmin name
  connector.class:class connector.plugin.version metric.reporters:list=org.apache.kafka.common.metrics.JmxReporter
  config.action.reload:none|restart=restart consumer.poll.timeout.ms:long=1000 errors.retry.timeout:long=0
  errors.retry.delay.max.ms:long=60000 errors.log.enable:boolean=false errors.log.include.messages:boolean=false
  key.converter:class~org.apache.kafka.connect.converters.ByteArrayConverter~ByteArrayConverter
  value.converter:class~org.apache.kafka.connect.converters.ByteArrayConverter~ByteArrayConverter
  header.converter:class~org.apache.kafka.connect.converters.ByteArrayConverter~ByteArrayConverter
FLOW: clusters' alias is used; Java would use this one for positions, checkpoints and offset syncs
  source.cluster.alias target.cluster.alias
FLOW: metrics have their names of legacy; Prometheus can rename them: mm2py docs metrics#kafka-43s-names
  metric.names.formats:list=legacy~legacy
FLOW: removed in Kafka 4.0: configurations are always altered incrementally
  use.incremental.alter.configs
FLOW: removed in Kafka 4.0: metrics always name the source
  add.source.alias.to.metrics:boolean
FLOW: removed in Kafka 4.0
  auto.include.jmx.reporter:boolean
FLOW_ONLY
  topic.creation.* source.* target.* consumer.override.* admin.override.*
FLOW_ONLY: each micro-batch of a transform is a transaction
  transaction.boundary:poll|interval|connector=poll transaction.boundary.interval.ms:long
WORKER_TOP
  offset.storage.* worker.sync.timeout.ms:int=3000 worker.unsync.backoff.ms:int=300000 status.storage.*
  config.storage.* key.converter* value.converter* header.converter*
WORKER
  offset.flush.timeout.ms:long=5000 client.id rebalance.timeout.ms:int=60000
  scheduled.rebalance.max.delay.ms:int=300000 connect.protocol=sessioned topic.tracking.enable:boolean=true
  topic.tracking.allow.reset:boolean=true internal.topics.automatic.creation.enable:boolean=true inter.worker.*
  plugin.path:list plugin.discovery=hybrid_warn admin.listeners:list client.dns.lookup=use_all_dns_ips
  connections.max.idle.ms:long=540000 connector.client.config.override.policy=All
  metadata.recovery.strategy=rebootstrap metadata.recovery.rebootstrap.trigger.ms:long=300000
  metric.reporters:list=org.apache.kafka.common.metrics.JmxReporter metrics.num.samples:int=2
  metrics.recording.level=INFO metrics.sample.window.ms:long=30000 rest.extension.classes:list=
  socket.connection.setup.timeout.max.ms:long=30000 topic.creation.enable:boolean=true
WORKER: it applies to Connect's own clients; copying uses consumer.KEY and producer.KEY
  request.timeout.ms:int=40000 metadata.max.age.ms:long=300000 receive.buffer.bytes:int=32768
  send.buffer.bytes:int=131072 reconnect.backoff.ms:long=50 reconnect.backoff.max.ms:long=1000
  retry.backoff.ms:long=100 retry.backoff.max.ms:long=1000 socket.connection.setup.timeout.ms:long=10000
CONSUMER
  internal.throw.on.fetch.stable.offset.unsupported:boolean=false client.dns.lookup=use_all_dns_ips
  connections.max.idle.ms:long=540000 enable.metrics.push:boolean=true
  metadata.recovery.rebootstrap.trigger.ms:long=300000
  metric.reporters:list=org.apache.kafka.common.metrics.JmxReporter metrics.num.samples:int=2
  metrics.recording.level=INFO metrics.sample.window.ms:long=30000 security.providers
  socket.connection.setup.timeout.max.ms:long=30000 *
CONSUMER: reading never creates a topic
  allow.auto.create.topics:boolean=true~false
CONSUMER: without effect: positions are stored on the target cluster
  auto.commit.interval.ms:int=5000 enable.auto.commit:boolean=true~false
CONSUMER: checksums are always checked
  check.crcs:boolean=true~true
CONSUMER: write request.timeout.ms or admin.timeout.ms
  default.api.timeout.ms:int=60000
CONSUMER: write topics.exclude
  exclude.internal.topics:boolean=true
CONSUMER: copying assigns partitions itself, without a consumer group
  group.id group.instance.id group.protocol=classic group.remote.assignor heartbeat.interval.ms:int=3000
  session.timeout.ms:int=45000 max.poll.interval.ms:int=300000
  partition.assignment.strategy:list=org.apache.kafka.clients.consumer.RangeAssignor,org.apache.kafka.clients.consumer.CooperativeStickyAssignor
  share.acknowledgement.mode=implicit share.acquire.mode=BATCH_OPTIMIZED
CONSUMER: batches travel unopened; fetch.max.bytes and max.partition.fetch.bytes limit how much is read at once
  max.poll.records:int=500
CONSUMER: batches travel unopened; there are no records to intercept
  interceptor.classes:list=
CONSUMER: batches travel unopened, as bytes
  key.deserializer:class~org.apache.kafka.common.serialization.ByteArrayDeserializer
  value.deserializer:class~org.apache.kafka.common.serialization.ByteArrayDeserializer
CONSUMER: reading continues after reconnect.backoff.ms
  retry.backoff.ms:long=100
CONSUMER: reading continues after reconnect.backoff.max.ms at the latest
  retry.backoff.max.ms:long=1000
CONSUMER: write config.providers at the top level; it applies to the whole file
  config.providers:list=
CONSUMER: mm2py always starts again from bootstrap.servers
  metadata.recovery.strategy=rebootstrap~rebootstrap
PRODUCER
  max.block.ms:long=60000~9223372036854775807 metadata.max.idle.ms:long=300000
  transaction.two.phase.commit.enable:boolean=false client.dns.lookup=use_all_dns_ips
  connections.max.idle.ms:long=540000 enable.metrics.push:boolean=true
  metadata.recovery.rebootstrap.trigger.ms:long=300000
  metric.reporters:list=org.apache.kafka.common.metrics.JmxReporter metrics.num.samples:int=2
  metrics.recording.level=INFO metrics.sample.window.ms:long=30000 security.providers
  socket.connection.setup.timeout.max.ms:long=30000 *
PRODUCER: copying always waits for all in-sync replicas
  acks=all~all~-1
PRODUCER: copying is always idempotent
  enable.idempotence:boolean=true~true
PRODUCER: batches travel unopened; batches recompressed by compression.type get the codec's default level
  compression.gzip.level:int=-1 compression.lz4.level:int=9 compression.zstd.level:int=3
PRODUCER: batches travel unopened and are sent at once; the source's fetch.min.bytes and fetch.max.wait.ms collect more
  linger.ms:long=5
PRODUCER: copying never gives up: failed sends are retried until they succeed
  retries:int=2147483647~2147483647 delivery.timeout.ms:int=120000~2147483647
PRODUCER: batches travel unopened; there are no records to intercept
  interceptor.classes:list=
PRODUCER: batches travel unopened, as bytes
  key.serializer:class~org.apache.kafka.common.serialization.ByteArraySerializer
  value.serializer:class~org.apache.kafka.common.serialization.ByteArraySerializer
PRODUCER: records keep their partition
  partitioner.class:class partitioner.ignore.keys:boolean=false
  partitioner.adaptive.partitioning.enable:boolean=true partitioner.availability.timeout.ms:long=0
PRODUCER: it is MirrorMaker's own
  transactional.id
PRODUCER: write config.providers at the top level; it applies to the whole file
  config.providers:list=
PRODUCER: mm2py always starts again from bootstrap.servers
  metadata.recovery.strategy=rebootstrap~rebootstrap
ADMIN
  client.dns.lookup=use_all_dns_ips connections.max.idle.ms:long=300000 enable.metrics.push:boolean=false
  metadata.recovery.rebootstrap.trigger.ms:long=300000
  metric.reporters:list=org.apache.kafka.common.metrics.JmxReporter metrics.num.samples:int=2
  metrics.recording.level=INFO metrics.sample.window.ms:long=30000 security.providers
  socket.connection.setup.timeout.max.ms:long=30000 *
ADMIN: mm2py connects to brokers
  bootstrap.controllers:list=
ADMIN: administration uses the copy's connections; write consumer.KEY (source) or producer.KEY (target)
  client.id= metadata.max.age.ms:long=300000 reconnect.backoff.ms:long=50 reconnect.backoff.max.ms:long=1000
  request.timeout.ms:int=30000 receive.buffer.bytes:int=65536 send.buffer.bytes:int=131072
  socket.connection.setup.timeout.ms:long=10000
ADMIN: write admin.timeout.ms, which limits a whole round of a periodic job
  default.api.timeout.ms:int=60000 retries:int=2147483647 retry.backoff.ms:long=100 retry.backoff.max.ms:long=1000
ADMIN: write config.providers at the top level; it applies to the whole file
  config.providers:list=
ADMIN: mm2py always starts again from bootstrap.servers
  metadata.recovery.strategy=rebootstrap~rebootstrap
"""


@attrs.frozen
class Ignored:
    """Settings of one place that have no effect for one reason, which may be empty."""

    place: Place
    why: str
    keys: tuple[Key, ...]


def _read(table: str) -> Iterator[Ignored]:
    place, why, keys = Place.TOP, "", list[Key]()
    for line in table.strip().splitlines():
        if line.startswith(" "):
            keys += (_key(place, why, text) for text in line.split())
            continue
        if keys:
            yield Ignored(place, why, tuple(keys))
        name, _, why = line.partition(": ")
        place, keys = Place[name], []
    yield Ignored(place, why, tuple(keys))


def _key(place: Place, why: str, text: str) -> Key:
    text, *fits = text.split("~")
    setting, has_default, default = text.partition("=")
    name, _, kind = setting.partition(":")
    words = kind.split("|") if "|" in kind else []
    return Key(
        name,
        Kind[kind.upper()] if kind and not words else Kind.STRING,
        default.replace(",", ", ") if has_default else None,
        place,
        "Without effect in mm2py.",
        acts=False,
        check=one_of_in_any_case(*words) if words else None,
        remark=why.replace("KEY", name),
        fits=tuple(fits),
    )


IGNORED: Final = tuple(_read(_TABLE))

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
