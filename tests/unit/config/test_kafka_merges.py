"""Kafka's merges beyond what an ``mm2.properties`` can say, of which test_java_settings.py asks Kafka itself."""

from __future__ import annotations

from mm2py.config.kafka_merges import producer_config


def test_a_worker_s_producer_may_be_told_no_brokers() -> None:
    """It writes to the worker's cluster then, unless a line of the worker's or a connector's override says other."""
    worker, producers = {"bootstrap.servers": "w:1"}, {"producer.bootstrap.servers": "p:1"}
    override = {"producer.override.bootstrap.servers": "o:1", "producer.bootstrap.servers": "not read"}

    assert producer_config(worker, {}) == {"bootstrap.servers": "w:1"}
    assert producer_config({**worker, **producers}, {}) == {"bootstrap.servers": "p:1"}
    assert producer_config({**worker, **producers}, override) == {"bootstrap.servers": "o:1"}
