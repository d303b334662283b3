"""The last events in words."""

from __future__ import annotations

import inspect

import attrs
import pytest

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry import events as all_events
from mm2py.telemetry.events import (
    ClusterRecovered,
    Event,
    FlowSummary,
    PartitionStopped,
    PositionsWritten,
    SettingsRefused,
    SparkEnded,
    SparkStarted,
    TaskRestarted,
)
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.recent import RecentEvents
from tests.support.clocks import WALL_START_MS, ManualClock


FLOW = Flow("A", "B")
BACK = ClusterRecovered(FLOW, "B", 4.0, 2)


@pytest.fixture
def recent(events: EventLog, clock: ManualClock) -> RecentEvents:
    return RecentEvents(events, clock)


def test_an_event_is_told_in_words(events: EventLog, recent: RecentEvents, clock: ManualClock) -> None:
    """Time, name, level and flow stand by themselves; the facts are a line, and it says what such events mean."""
    clock.advance(2)
    events.emit(PartitionStopped(FLOW, TopicPartition("orders", 3), "corrupt", "bad checksum", "look", 7, 30.0))

    (told,) = recent
    assert (told.wall_ms, told.name, told.level, told.flow) == (
        WALL_START_MS + 2000,
        "partition_stopped",
        "error",
        "A->B",
    )
    assert told.text == (
        "topic: orders, partition: 3, ended: corrupt, message: bad checksum, hint: look, offset: 7, retry in s: 30.0"
    )
    assert told.about.startswith("A topic-partition needs attention")


def test_what_is_only_worth_debugging_is_left_out(events: EventLog, recent: RecentEvents) -> None:
    """Positions are written every few seconds, flows summed up every minute; that must not push trouble out."""
    events.emit(BACK)
    for _ in range(1000):
        events.emit(PositionsWritten(FLOW, 3, 1.0))
        events.emit(FlowSummary(FLOW, 1, 1, 0, 0, 0.0, 0.0, 0, None, None))

    assert [told.name for told in recent] == ["cluster_recovered"]


def test_what_happened_before_is_there(events: EventLog, clock: ManualClock) -> None:
    """A page that is made after the daemon began still tells how it began."""
    events.emit(BACK)

    assert [told.name for told in RecentEvents(events, clock)] == ["cluster_recovered"]


def test_only_so_many_are_remembered(events: EventLog, clock: ManualClock) -> None:
    """The oldest go first; ids go on."""
    recent = RecentEvents(events, clock, keep=3)
    for _ in range(10):
        events.emit(BACK)

    assert [told.id for told in recent] == [8, 9, 10]


def test_reading_on_after_a_mark(events: EventLog, recent: RecentEvents) -> None:
    """A client that has seen an event gets those after it; marks of another daemon's life mean nothing."""
    for _ in range(4):
        events.emit(BACK)
    second = recent.since(0)[1].mark

    assert [told.id for told in recent.since(recent.id_of(second))] == [3, 4]
    assert [recent.id_of(mark) for mark in ("", "12.2", "x", second.split(".")[0] + ".²")] == [0, 0, 0, 0]


def test_loops_name_their_flow(events: EventLog, recent: RecentEvents) -> None:
    """What fails in a flow is found among that flow's events."""
    events.emit(TaskRestarted("A->B/source/0", ("boom",), 1.0))

    (told,) = recent
    assert told.flow == "A->B"


def test_long_texts_are_cut(events: EventLog, recent: RecentEvents) -> None:
    """A file with a thousand problems does not make each page load them every time."""
    events.emit(SettingsRefused("mm2.properties", tuple(f"problem {number}" for number in range(1000))))

    (told,) = recent
    assert len(told.text) < 5000
    assert "characters omitted" in told.text


def test_spark_s_life_is_remembered(events: EventLog, recent: RecentEvents) -> None:
    """Where Spark's own page is stays known, however much happens since."""
    up = SparkStarted("local[2]", 3.0, 1.0, "http://127.0.0.1:4040")
    events.emit(up)
    seen = recent.spark
    events.emit(SparkEnded("killed"))

    assert (seen, recent.spark) == (up, SparkEnded("killed"))


def test_no_event_has_room_for_a_secret() -> None:
    """What reaches pages and logs are facts; none of them is called after something secret."""
    kinds = [kind for _, kind in inspect.getmembers(all_events, inspect.isclass) if issubclass(kind, Event)]
    fields = {field.name for kind in kinds if attrs.has(kind) for field in attrs.fields(kind)}

    assert not {
        name for name in fields for word in ("password", "secret", "token", "jaas", "credential") if word in name
    }
