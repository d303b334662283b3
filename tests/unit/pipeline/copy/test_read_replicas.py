"""Which replica of a source partition is read."""

from __future__ import annotations

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.read_replicas import ReadReplicas


_ORDERS = TopicPartition("orders", 0)


def test_the_leader_is_read_until_a_replica_was_named() -> None:
    """A named replica counts for its partition and its cluster alone."""
    replicas = ReadReplicas()
    replicas.note("A", _ORDERS, 3, now=0.0)

    assert replicas.of("A", _ORDERS, now=1.0) == 3
    assert replicas.of("A", TopicPartition("orders", 1), now=1.0) is None
    assert replicas.of("B", _ORDERS, now=1.0) is None


def test_the_leader_is_asked_again_after_some_minutes() -> None:
    """A replica that came back nearer, or went away further, is found out about."""
    replicas = ReadReplicas()
    replicas.note("A", _ORDERS, 3, now=0.0)

    assert replicas.of("A", _ORDERS, now=299.0) == 3
    assert replicas.of("A", _ORDERS, now=300.0) is None


def test_a_replica_that_failed_is_left_once() -> None:
    """Going back to the leader says whether there was anything to go back from."""
    replicas = ReadReplicas()
    replicas.note("A", _ORDERS, 3, now=0.0)

    assert replicas.forget("A", _ORDERS)
    assert not replicas.forget("A", _ORDERS)
    assert replicas.of("A", _ORDERS, now=1.0) is None
