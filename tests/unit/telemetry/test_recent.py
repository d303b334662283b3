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
    Level,
    PartitionStopped,
    PositionsWritten,
    SettingsRefused,
    SparkEnded,
    SparkStarted,
    TaskRestarted,
    TopicCreated,
)
from mm2py.telemetry.journal import EventLog
from mm2py.telemetry.recent import RecentEvents
from mm2py.telemetry.wording import PHRASES, worded
from tests.support.clocks import WALL_START_MS, ManualClock


FLOW = Flow("A", "B")
KINDS = [kind for _, kind in inspect.getmembers(all_events, inspect.isclass) if issubclass(kind, Event)]
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
    assert told.text == "orders-3, corrupt, bad checksum, offset 7, tried again in 30 s. What to try: look"
    assert told.about.startswith("A topic-partition needs attention")


def test_what_is_only_worth_debugging_is_left_out(events: EventLog, recent: RecentEvents) -> None:
    """Positions are written every few seconds, flows summed up every minute; that must not push trouble out."""
    events.emit(BACK)
    for _ in range(1000):
        events.emit(PositionsWritten(FLOW, 3, 1.0))
        events.emit(FlowSummary(FLOW, "running", 1, 1, 0, 0, 0.0, 0.0, 0, None, None))

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


def test_a_flood_is_one_run(events: EventLog, recent: RecentEvents, clock: ManualClock) -> None:
    """1500 new topics displace nothing: the last ones are kept and counted; after a minute of quiet a run is over."""
    events.emit(BACK)
    for number in range(1500):
        clock.advance(0.01)
        events.emit(TopicCreated(FLOW, f"t{number}", f"A.t{number}", 2, "it is new"))
    clock.advance(61)
    events.emit(TopicCreated(FLOW, "late", "A.late", 2, "it is new"))

    shown = list(recent)
    assert [one.name for one in shown] == ["cluster_recovered", *["topic_created"] * 21]
    assert (shown[-2].nth, shown[-2].run, shown[-2].since_ms) == (1500, shown[-3].run, WALL_START_MS + 10)
    assert (shown[-1].nth, shown[-1].run) == (1, shown[-1].mark)


def test_runs_are_of_one_flow(events: EventLog, recent: RecentEvents) -> None:
    """What happens to two flows at the same time stays apart, also where it alternates."""
    for _ in range(2):
        events.emit(BACK)
        events.emit(attrs.evolve(BACK, flow=Flow("B", "A")))

    assert [one.nth for one in recent] == [1, 1, 2, 2]
    assert len({one.run for one in recent}) == 2


def test_every_fact_has_a_phrase() -> None:
    """No event that is shown has a fact without words: `found: 0, fresh: 1` means nothing to a reader."""
    shown = [kind for kind in KINDS if kind.level.value >= Level.INFO.value and kind is not FlowSummary]
    facts = {field.name for kind in shown for field in attrs.fields(kind) if str(field.type) != "TopicPartition"}

    assert facts - set(PHRASES) - {"flow", "hint"} == set()


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"found": 0, "fresh": 1}, "0 partitions with a position, 1 partition without one"),
        ({"topic": "orders", "partitions": 1, "reason": "it is new"}, "topic orders, 1 partition, it is new"),
        ({"added": (), "changed": ("A->B", "B->A"), "took_s": 0.25}, "changed A->B; B->A, in 0.2 s"),
        ({"groups": 3, "added": 2, "gone": 0}, "3 groups, 2 added"),
        ({"away_s": 3725.4}, "after 1 h 2 min"),
        ({"error": "gone.", "hint": "start it"}, "gone. What to try: start it"),
        ({"is_drained": False, "bytes_per_s": 2500.0}, "not everything ended cleanly, 2\u202f500 bytes/s"),
        ({"what": "new"}, "what: new"),
    ],
)
def test_facts_in_words(facts: dict[str, object], words: str) -> None:
    """Counts have their nouns, durations their units, what to try comes last; unknown facts keep their names."""
    assert worded(facts) == words


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
    fields = {field.name for kind in KINDS if attrs.has(kind) for field in attrs.fields(kind)}

    assert not {
        name for name in fields for word in ("password", "secret", "token", "jaas", "credential") if word in name
    }
