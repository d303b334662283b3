"""Clusters as tests use them: the two of the session, special ones, and damage done on purpose."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Protocol

from mm2py.devkit.broker import BrokerNode, KafkaCluster, start_clusters
from mm2py.devkit.class_archive import make_class_archive


#: Compaction within a second or two instead of half a minute.
TEST_PROPERTIES = {"log.cleaner.backoff.ms": "500", "log.initial.task.delay.ms": "500"}
#: A cluster of one broker that is never killed: it is not fenced because the machine was busy for three seconds.
NEVER_KILLED = {**TEST_PROPERTIES, "broker.session.timeout.ms": "60000"}
#: What a broker needs to keep ACLs, with the tests' own clients as super users.
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
#: The same with tests that need a permission once a resource has an ACL.
GUARDED = {**AUTHORIZED, "super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}

_BATCH_PREFIX = struct.Struct(">qi")
_HEADER_BYTES = 61


class MakeCluster(Protocol):
    """Starts a cluster that ends with the test."""

    def __call__(
        self,
        name: str,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        proxied: Sequence[str] = (),
        is_killed: bool = False,
    ) -> KafkaCluster:
        """
        Clients of the listeners *proxied* reach the brokers through proxies of the caller.

        A cluster of one broker says so if it *is_killed*: it comes back only once its session is over.
        """
        ...


@contextmanager
def clusters_of(*names: str, properties: Mapping[str, str] = NEVER_KILLED) -> Iterator[dict[str, KafkaCluster]]:
    """Run clusters of one broker each, started side by side."""
    make_class_archive()
    clusters = {name: KafkaCluster(name, properties=properties) for name in names}
    start_clusters(list(clusters.values()))
    try:
        yield clusters
    finally:
        for cluster in clusters.values():
            cluster.stop()


@contextmanager
def cluster_factory() -> Iterator[MakeCluster]:
    """Return a function that starts clusters; all of them end with the block."""
    with ExitStack() as running:

        def make(
            name: str,
            *,
            brokers: int = 1,
            properties: Mapping[str, str] | None = None,
            proxied: Sequence[str] = (),
            is_killed: bool = False,
        ) -> KafkaCluster:
            usual = TEST_PROPERTIES if is_killed or brokers > 1 else NEVER_KILLED
            properties = {**usual, **(properties or {})}
            listeners = dict.fromkeys(proxied, "PLAINTEXT")
            cluster = KafkaCluster(name, brokers=brokers, properties=properties, listeners=listeners, proxied=proxied)
            return running.enter_context(cluster)

        yield make


def flip_bit(node: BrokerNode, topic: str, partition: int, offset: int) -> None:
    """Flip one bit in the last byte of the batch with that base offset, in the broker's own file."""
    (segment,) = (node.data / f"{topic}-{partition}").glob("*.log")
    with segment.open("r+b") as log:
        at = 0
        while True:
            log.seek(at)
            head = log.read(_HEADER_BYTES)
            if len(head) < _HEADER_BYTES:
                message = f"no batch with base offset {offset} in {segment}"
                raise LookupError(message)
            base_offset, length = _BATCH_PREFIX.unpack_from(head)
            end = at + _BATCH_PREFIX.size + length
            if base_offset == offset:
                log.seek(end - 1)
                (last,) = log.read(1)
                log.seek(end - 1)
                log.write(bytes([last ^ 0x01]))
                return
            at = end
