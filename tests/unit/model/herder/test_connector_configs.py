"""Connectors in Kafka Connect's own bytes."""

from __future__ import annotations

import pytest

from mm2py.model.foreign import UnreadableRecord
from mm2py.model.herder.connector_configs import (
    ConnectorsTopic,
    LoggerRequest,
    StoredConnector,
    config_record,
    logger_record,
    state_record,
)
from mm2py.model.herder.overrides import Wanted


def _topic(*records: tuple[bytes, bytes | None]) -> ConnectorsTopic:
    topic = ConnectorsTopic()
    for key, value in records:
        topic.take(key, value)
    return topic


def test_records_have_connect_s_bytes() -> None:
    """As KafkaConfigBackingStore writes them; a worker before 3.5 reads a stopped connector as a paused one."""
    assert config_record("a b", {"topics": "x.*", "name": "a b"}) == (
        b"connector-a b",
        b'{"properties":{"topics":"x.*","name":"a b"}}',
    )
    assert state_record("m", Wanted.RUNNING)[1] == b'{"state":"STARTED","state.v2":"STARTED"}'
    assert state_record("m", Wanted.STOPPED) == (b"target-state-m", b'{"state":"PAUSED","state.v2":"STOPPED"}')
    assert config_record("m", None) == (b"connector-m", None)
    assert state_record("m", None) == (b"target-state-m", None)


@pytest.mark.parametrize("wanted", [Wanted.RUNNING, Wanted.PAUSED, Wanted.STOPPED])
def test_what_is_written_is_read(wanted: Wanted) -> None:
    """A config and each target state come back as they were."""
    topic = _topic(config_record("m", {"topics": "ü"}), state_record("m", wanted))

    assert topic.connectors == {"m": StoredConnector({"topics": "ü"}, wanted)}


def test_when_a_further_connector_was_created_is_kept() -> None:
    """It is gone with the connector, and where a Java worker has changed its config."""
    later = _topic(config_record("m", {}, 5))
    by_java = _topic(config_record("m", {}, 5), config_record("m", {}))
    again = _topic(config_record("m", {}, 5), config_record("m", None), config_record("m", {}))

    assert [topic.connectors["m"].created_ms for topic in (later, by_java, again)] == [5, 0, 0]


def test_a_topic_as_java_left_it() -> None:
    """Connectors and their states count; tasks, commits, session keys, restarts and our overrides do not."""
    topic = _topic(
        (b"session-key", b'{"key":"AAAA","algorithm":"HmacSHA256","creation-timestamp":1}'),
        (b"connector-us-west", b'{"properties":{"name":"us-west","tasks.max":"2","unset":null}}'),
        (b"task-us-west-0", b'{"properties":{"task.class":"x"}}'),
        (b"commit-us-west", b'{"tasks":1}'),
        (b"restart-connector-us-west", b'{"include-tasks":true,"only-failed":false}'),
        (b"logger-cluster-org.apache", b'{"level":"DEBUG"}'),
        (b"tasks-fencing-us-west", b'{"task-count":1}'),
        (b"mm2py-orders-A->B", b"{}"),
        (b"target-state-us-west", b'{"state":"PAUSED"}'),
        (b"connector-gone", b'{"properties":{"name":"gone"}}'),
        (b"connector-gone", None),
        (b"target-state-gone", None),
        (None, None),
    )

    assert topic.connectors == {"us-west": StoredConnector({"name": "us-west", "tasks.max": "2"}, Wanted.PAUSED)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"connector-m", b"no json"),
        (b"connector-m", b"[]"),
        (b"connector-m", b'{"properties":[]}'),
        (b"connector-m", b'{"properties":{"topics":1}}'),
        (b"target-state-m", b'{"state":"RUNNING"}'),
        (b"target-state-m", b'{"state":1}'),
        (b"logger-cluster-m", b"[]"),
    ],
)
def test_an_unreadable_record_is_ignored(key: bytes, value: bytes) -> None:
    """What was stored before counts, as in Java."""
    topic = _topic(config_record("m", {"topics": "x"}), state_record("m", Wanted.PAUSED))

    assert isinstance(topic.take(key, value), UnreadableRecord)
    assert topic.connectors == {"m": StoredConnector({"topics": "x"}, Wanted.PAUSED)}


def test_a_request_to_log_changes_nothing() -> None:
    """It is given to the caller, who logs from that level on; a worker of Java's restarts connectors alone."""
    topic = _topic(config_record("m", {"topics": "x"}))
    request = LoggerRequest("mm2py.flow", "DEBUG")

    assert topic.take(*logger_record(request)) == request
    assert topic.take(b"logger-cluster-mm2py.flow", None) is None
    assert topic.take(b"restart-connector-m", b'{"include-tasks":true,"only-failed":false}') is None
    assert topic.connectors == {"m": StoredConnector({"topics": "x"})}
