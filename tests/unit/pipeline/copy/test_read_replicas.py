"""Which replica of a source partition is read."""

from __future__ import annotations

from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import ReadReplicas


_ORDERS = TopicPartition("orders", 0)


def test_a_replica_that_was_named_is_read_for_some_minutes() -> None:
    """It counts for its partition and its cluster alone; then the leader is asked which one is near by now."""
    replicas = ReadReplicas()
    replicas.note("A", _ORDERS, 3, now=0.0)

    assert replicas.of("A", TopicPartition("orders", 1), now=1.0) is None
    assert replicas.of("B", _ORDERS, now=1.0) is None
    assert [replicas.of("A", _ORDERS, now=now) for now in (1.0, 299.0, 300.0)] == [3, 3, None]


def test_a_replica_that_failed_is_left_once() -> None:
    """Going back to the leader says whether there was anything to go back from."""
    replicas = ReadReplicas()
    replicas.note("A", _ORDERS, 3, now=0.0)

    assert replicas.forget("A", _ORDERS)
    assert not replicas.forget("A", _ORDERS)
    assert replicas.of("A", _ORDERS, now=1.0) is None


def test_partitions_that_are_not_read_any_more_are_forgotten() -> None:
    """Topics come and go under ever new names, and a worker lives for weeks."""
    replicas = ReadReplicas()
    for number in range(10_000):
        replicas.note("A", TopicPartition(f"of-this-minute-{number}", 0), 3, now=float(number))

    assert len(replicas._known) < 2_000
    assert replicas.of("A", TopicPartition("of-this-minute-9999", 0), now=10_000.0) == 3
    assert replicas.of("A", TopicPartition("of-this-minute-9800", 0), now=10_000.0) == 3
