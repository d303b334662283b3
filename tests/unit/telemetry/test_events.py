"""Events and their way into the log."""

from __future__ import annotations

import errno
import fcntl
import inspect
import io
import json
import os
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import attrs
import pytest

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry import events
from mm2py.telemetry.events import Event, FlowDrained, Level, PartitionStopped, SparkLogged, TaskRestarted
from mm2py.telemetry.events.base import paragraphs
from mm2py.telemetry.journal import RING_EVENTS, EventLog
from mm2py.telemetry.levels import LogLevels
from mm2py.telemetry.logs import log_sink
from tests.support.clocks import WALL_START_MS, ManualClock


KINDS = [
    kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event) and kind is not Event
]
STOPPED = PartitionStopped(Flow("A", "B"), TopicPartition("t", 3), "failed", "it broke", "", None, 5.00049)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_each_event_says_what_it_means(kind: type[Event]) -> None:
    """Every event has a docstring, a loudness and a snake-case name. What the page shows of it names no field."""
    name = kind.log_name()
    words = set(re.findall(r"`(\w+)`", paragraphs(kind)[0]))

    assert kind.__doc__
    assert not words & {field.name for field in attrs.fields(kind)}
    assert isinstance(kind.level, Level)
    assert name == name.lower()
    assert name.replace("_", "") == kind.__name__.lower()


def test_fields_are_plain() -> None:
    """Facts are plain values, a topic-partition is two of them, and what is empty is left out."""
    assert STOPPED.fields() == {
        "flow": "A->B",
        "topic": "t",
        "partition": 3,
        "ended": "failed",
        "message": "it broke",
        "retry_in_s": 5.0,
    }


def test_no_log_line_is_endless() -> None:
    """Of a text that goes on and on, a line of the log holds the beginning and the end."""
    line = str(SparkLogged("begin" + "x" * 10_000_000 + "end").fields()["line"])

    assert len(line) < 20_000
    assert line.startswith("begin")
    assert line.endswith("end")


def test_the_journal_remembers_counts_and_writes() -> None:
    """An event is in the ring with its time, counted by name, and handed to the log."""
    written: list[Event] = []
    journal = EventLog(ManualClock(now_s=1.0), written.append)

    journal.emit(STOPPED)
    journal.emit(SparkLogged("hello"))

    assert journal.of(PartitionStopped) == (STOPPED,)
    assert [entry.wall_ms for entry in journal] == [WALL_START_MS + 1_000] * 2
    assert journal.counts == {"partition_stopped": 1, "spark_logged": 1}
    assert written == [STOPPED, SparkLogged("hello")]


def test_the_journal_is_bounded() -> None:
    """The oldest events are forgotten, their counts are not."""
    journal = EventLog(ManualClock())
    for number in range(RING_EVENTS + 5):
        journal.emit(SparkLogged(str(number)))

    assert len(journal.of(SparkLogged)) == RING_EVENTS
    assert journal.of(SparkLogged)[0] == SparkLogged("5")
    assert journal.counts["spark_logged"] == RING_EVENTS + 5


def test_json_lines_begin_with_what_they_are_about() -> None:
    """Off a terminal each event is one JSON object, time, level and name first."""
    stream = io.StringIO()

    log_sink(log_format="auto", levels=LogLevels(), stream=stream)(STOPPED)

    line = json.loads(stream.getvalue())
    assert list(line)[:3] == ["timestamp", "level", "event"]
    assert (line["level"], line["event"], line["partition"]) == ("error", "partition_stopped", 3)


def test_console_lines_are_for_people() -> None:
    """The console form names the event and shows a traceback as one."""
    stream = io.StringIO()
    write = log_sink(log_format="console", levels=LogLevels(), stream=stream)

    write(TaskRestarted("A->B", ("ValueError: no",), 1.0, "Traceback\n  a line"))

    assert "task_restarted" in stream.getvalue()
    assert "\n  a line" in stream.getvalue()


def test_console_lines_are_text_with_a_time_that_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No Python in them: lists have commas, flags are yes or no, several words have quotes; the time has its zone."""
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    stream = io.StringIO()
    write = log_sink(log_format="console", levels=LogLevels(), stream=stream)
    try:
        write(TaskRestarted("A->B", ("ValueError: no", "again"), 1.0, ""))
        write(FlowDrained(Flow("A", "B"), 1, 1.0, True))
    finally:
        monkeypatch.undo()
        time.tzset()
    restarted, drained = stream.getvalue().splitlines()

    assert re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+\+0530 \[error ", restarted)
    assert 'causes="ValueError: no, again"' in restarted
    assert "positions_written=yes" in drained


@pytest.mark.parametrize(
    ("log_level", "is_written"),
    [("debug", True), ("INFO", True), ("warn", False), ("WARNING", False), ("error", False)],
)
def test_the_log_level_decides(log_level: str, is_written: bool) -> None:
    """Events below the level are not written."""
    stream = io.StringIO()

    log_sink(log_format="json", levels=LogLevels(log_level), stream=stream)(FlowDrained(Flow("A", "B"), 1, 1.0, True))

    assert bool(stream.getvalue()) == is_written


def _full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


def _pipe_without_reader() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


@pytest.mark.parametrize("opened", [_full_disk, _pipe_without_reader])
def test_a_line_that_cannot_be_written_stops_nothing(opened: Callable[[], int]) -> None:
    """Whatever emits an event goes on without the line; the event is kept, counted and passed on."""
    passed_on: list[Event] = []
    with suppress(OSError), os.fdopen(opened(), "w") as stream:  # closing it writes what is left
        journal = EventLog(ManualClock(), log_sink(log_format="json", levels=LogLevels(), stream=stream))
        journal.attach(passed_on.append)

        journal.emit(STOPPED)

    assert journal.of(PartitionStopped) == (STOPPED,)
    assert journal.counts["partition_stopped"] == 1
    assert passed_on == [STOPPED]


def test_a_reader_that_hangs_stops_nothing() -> None:
    """A pipe is full because its reader hangs: lines are lost until it reads on. One that was cut off ends there."""
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 16_384)
    lines = [SparkLogged(f"{number} {'x' * 2_500}") for number in range(20)]

    with os.fdopen(writer, "w") as stream, os.fdopen(reader, "rb", buffering=0) as log:
        write = log_sink(log_format="json", levels=LogLevels(), stream=stream)
        writing = threading.Thread(target=lambda: [write(line) for line in lines])
        writing.start()
        writing.join(10)
        assert not writing.is_alive(), "it waits for the reader"
        before = log.read(65_536).splitlines()
        write(SparkLogged("read again"))
        after = log.read(65_536).splitlines()

    assert json.loads(before[0])["line"] == lines[0].line
    assert json.loads(after[-1])["line"] == "read again"


def test_a_closed_log_stops_nothing() -> None:
    """A stream that was closed in the meantime takes no line, and raises nothing."""
    stream = io.StringIO()
    write = log_sink(log_format="json", levels=LogLevels(), stream=stream)
    stream.close()

    write(STOPPED)

    assert stream.closed


def test_lines_are_written_again_once_they_can_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk was full for a while: the lines of that time are lost, later ones are written."""
    stream = io.StringIO()
    write = log_sink(log_format="json", levels=LogLevels(), stream=stream)

    def refuse(_line: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(stream, "write", refuse)
        write(SparkLogged("lost"))
    write(SparkLogged("written"))

    assert [json.loads(line)["line"] for line in stream.getvalue().splitlines()] == ["written"]


def test_without_stderr_there_is_no_log(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that was started with stderr closed (`2>&-`) runs, and does not write its log elsewhere."""
    monkeypatch.setattr("sys.stderr", None)

    log_sink(log_format="auto", levels=LogLevels())(STOPPED)

    assert capsys.readouterr().out == ""
