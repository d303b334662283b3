"""Connect's `/admin/loggers`: what tools read there, and what a change of it does to the log."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from mm2py.model.flow import Flow
from mm2py.model.herder.connector_configs import ConnectorsTopic, LoggerRequest, logger_record
from mm2py.telemetry.events import DaemonDraining, FlowFailed
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.levels import LogLevels
from mm2py.telemetry.logs import log_sink
from tests.support.clocks import ManualClock
from tests.support.rest_asking import Asking


async def test_loggers_are_shown_as_connect_shows_them(ask: Asking) -> None:
    """Strimzi reads all of them in each reconciliation, and needs `root`."""
    found = (await ask("GET", "/admin/loggers")).json
    root = await ask("GET", "/admin/loggers/root")
    unknown = await ask("GET", "/admin/loggers/no.such")

    assert {"root", "mm2py.flow", "mm2py.topics"} <= set(found)
    assert root.json == found["root"] == {"level": "INFO", "last_modified": None}
    assert (unknown.status, unknown.json["message"]) == (404, "Logger no.such not found.")


async def test_a_level_is_set_and_read_back(ask: Asking) -> None:
    """For a logger and all below it; also for one of Java's, so that a tool that compares both is content."""
    path = "/admin/loggers/"
    own = await ask("PUT", f"{path}mm2py.topics", {"level": "debug"})
    java = await ask("PUT", f"{path}org.apache.kafka.connect", {"level": "WARN"})
    read = [(await ask("GET", path + name)).json for name in ("mm2py.topics", "org.apache.kafka.connect", "mm2py.flow")]
    root = await ask("PUT", f"{path}root", {"level": "ERROR"})
    wrong = await ask("PUT", f"{path}root", {"level": "NOPE"})
    without = await ask("PUT", f"{path}root", {})

    assert (own.json, java.json) == (["mm2py.topics"], ["org.apache.kafka.connect"])
    assert [one["level"] for one in read] == ["DEBUG", "WARN", "INFO"]
    assert read[0]["last_modified"] is not None
    assert {"root", "mm2py.topics", "org.apache.kafka.connect"} <= set(root.json)
    assert (wrong.status, wrong.json["message"]) == (404, "invalid log level 'NOPE'.")
    assert without.status == 400


async def test_all_nodes_of_a_worker_take_a_level(ask: Asking) -> None:
    """With `scope=cluster` it goes through the worker's topic, in Connect's own bytes; other nodes have none."""
    store: Any = None if ask.node.worker is None else ask.node.worker.store
    sent = await ask("PUT", "/admin/loggers/root?scope=cluster", {"level": "DEBUG"})
    ask.node._worker[:] = [None]
    alone = await ask("PUT", "/admin/loggers/root?scope=cluster", {"level": "WARN"})

    assert (sent.status, alone.status) == (204, 204)
    assert store.loggers == [LoggerRequest("root", "DEBUG")]
    assert logger_record(store.loggers[0]) == (b"logger-cluster-root", b'{"level":"DEBUG"}')
    assert ConnectorsTopic().take(b"logger-cluster-root", b'{"level":"DEBUG"}') == store.loggers[0]
    assert (await ask("GET", "/admin/loggers/root")).json["level"] == "WARN"


@pytest.mark.parametrize(
    ("name", "level", "logged"),
    [
        ("root", "INFO", ["flow_failed", "daemon_draining"]),
        ("root", "WARN", ["flow_failed"]),
        ("mm2py", "OFF", []),
        ("mm2py.flow", "OFF", ["daemon_draining"]),
        ("org.apache.kafka", "OFF", ["flow_failed", "daemon_draining"]),
    ],
)
def test_the_log_has_what_its_levels_let_through(name: str, level: str, logged: list[str]) -> None:
    """A change counts for the next event."""
    stream, levels = io.StringIO(), LogLevels("info")
    journal = EventLog(ManualClock(), log_sink(log_format="json", levels=levels, stream=stream), levels)
    levels.set(name, level, at_ms=1)

    journal.emit(FlowFailed(Flow("A", "B"), "no", ""))
    journal.emit(DaemonDraining("the test", 1.0))

    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == logged
