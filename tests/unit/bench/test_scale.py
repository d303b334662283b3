"""What the benchmark of many partitions is told to do, and what it makes of what arrived."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench.candidates import Candidate
from bench.scale import arrivals
from bench.scale.__main__ import make_parser, read_order
from bench.scale.arrivals import Arrival, Arrivals, Window
from bench.scale.catch_up import CatchUp, Foretold, Look, foretold
from bench.scale.idle import Idle, boundaries
from bench.scale.order import Order, places, remote
from bench.scale.rig import Start


def ordered(*arguments: str) -> Order:
    parser = make_parser()
    return read_order(parser, parser.parse_args(arguments))


def arrived(numbers: list[int], *, sent: int, places: int = 4) -> Arrivals:
    """Make up records that were due each millisecond and took as many milliseconds as their number says."""
    records = tuple(Arrival(number, number * 1_000_000, 2 * number * 1_000_000) for number in numbers)
    return Arrivals(sent, places, records)


def test_ten_thousand_partitions_of_which_five_hundred_are_busy() -> None:
    """Without arguments there are 200 topics of 50 partitions, and records go into ten of the topics."""
    order = ordered()

    assert (len(order.topics), sum(order.topics.values())) == (200, 10_000)
    assert (len(order.busy), sum(order.busy.values()), order.rate) == (10, 500, 500)
    assert len(set(places(order.topics))) == 10_000


def test_the_last_topic_has_what_is_left() -> None:
    """Any number of partitions can be asked for."""
    assert list(ordered("--partitions", "120", "--busy-topics", "2").topics.items()) == [
        ("idle-0000", 50),
        ("busy-0001", 50),
        ("busy-0002", 20),
    ]


@pytest.mark.parametrize(("part", "brokers", "nodes"), [("idle", 1, 1), ("flapping", 2, 2), ("leaders", 2, 3)])
def test_who_outlives_one_of_two_brokers_has_a_third_vote(part: str, brokers: int, nodes: int) -> None:
    """A cluster of two would lose its majority with a killed one, and elect no leaders."""
    order = ordered(part)

    assert (order.brokers, order.nodes) == (brokers, nodes)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(("--busy-topics", "0"), id="nothing busy"),
        pytest.param(("leaders", "--brokers", "1"), id="no other leader"),
        pytest.param(("--profile",), id="nowhere to keep the profile"),
        pytest.param(("catch-up", "--only", "mm2py,java"), id="a flow that cannot be paused"),
        pytest.param(("catch-up", "--busy-topics", "4"), id="no backlog"),
    ],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        ordered(*arguments)


def test_java_gets_no_keys_of_ours() -> None:
    """Both get the same flow; what only mm2py knows stays out of Java's file."""
    order = ordered("--brokers", "2")
    ours, javas = (order.settings(it, "a:1", "b:2", 8083) for it in (Candidate.MM2PY, Candidate.JAVA))

    assert ours.keys() - javas.keys() == {"copy.epoch.ms", "listeners", "log.level", "log.format"}
    assert javas.items() <= ours.items()
    assert javas["replication.factor"] == "2"


def test_a_backlog_goes_to_the_topics_that_are_not_busy() -> None:
    """And the flow catches up at the pace that is asked for; in other parts that is left to the default."""
    order = ordered("catch-up", "--backlog", "2", "--catch-up-latency", "5")
    settings = order.settings(Candidate.MM2PY, "a:1", "b:2", 8083)

    assert (sum(order.behind.values()), sum(order.busy.values())) == (150, 50)
    assert order.behind.keys() | order.busy.keys() == order.topics.keys()
    assert order.backlog_bytes == 2 * 1024 * 1024
    assert settings["catch.up.latency.ms"] == "5"
    assert "catch.up.latency.ms" not in ordered("idle").settings(Candidate.MM2PY, "a:1", "b:2", 8083)


def test_how_well_the_time_to_level_was_foretold() -> None:
    """What was said right before the end is left out: a fifth of so little is no time."""
    looks = [Look(0, None), Look(20, 100), Look(40, 70), Look(60, 41), Look(80, 20), Look(95, 60)]

    assert foretold(looks, 100) == Foretold(looks=5, known=4, close=3, median_ratio=pytest.approx(1.095, abs=0.075))
    assert foretold([], 100) == Foretold(0, 0, 0, 0.0)


def test_what_is_printed_of_catching_up() -> None:
    """The rate, and by how much a stranger's producer waits longer; where it was not level in time, no rate."""
    short, long = (Window(10, 1.0, p99_ms, 9.0, 9.0) for p99_ms in (2.0, 8.5))
    level = Foretold(10, 8, 6, 0.9)

    def rows(took_s: float | None) -> dict[str, str]:
        windows = (short, long, short, long)
        return dict(CatchUp(Start(), 150, 50, 1000.0, took_s, level, *windows, 10, 0, 0, 0.0).rows())

    assert rows(20.0)["until all are level"] == "20.0 s, 50.0 MB/s"
    assert rows(20.0)["producer at the target, meanwhile"].endswith("p99 +6.5 ms")
    assert rows(None)["until all are level"] == "not in time"


def test_places_take_turns_between_topics() -> None:
    """Neighbours lie in different topics, and a remote place has the source's alias."""
    assert places({"a": 2, "b": 1}) == [("a", 0), ("b", 0), ("a", 1)]
    assert remote(("a", 1)) == ("A.a", 1)


@pytest.mark.parametrize(
    ("numbers", "missing", "repeated"),
    [([0, 1, 2, 3], 0, 0), ([0, 1, 3], 1, 0), ([0, 1, 2], 1, 0), ([0, 1, 1, 2, 3], 0, 1), ([1, 1, 1], 3, 2)],
    ids=["complete", "one lost", "the last lost", "one twice", "all at once"],
)
def test_losses_and_repetitions_are_counted_against_what_was_sent(
    numbers: list[int], missing: int, repeated: int
) -> None:
    """The producer knows how many records it sent, so the very last one counts, too."""
    found = arrived(numbers, sent=4)

    assert (found.missing, found.repeated) == (missing, repeated)


def test_windows_are_of_what_was_due_then() -> None:
    """A record belongs to the span in which it was due, however late it arrived; some partitions may be asked for."""
    found = arrived(list(range(100)), sent=100)
    window = found.window(10_000_000, 20_000_000)

    assert (window.records, window.p50_ms, window.max_ms) == (10, 14.0, 19.0)
    # Those whose leaders stayed are not mixed up with those whose leaders moved.
    assert found.window(0, 100_000_000, {1, 3}).records == 50
    assert found.window(0, 100_000_000, {3}).max_ms == 99.0


def test_an_empty_window_has_no_latency() -> None:
    window = arrived([], sent=0).window(0, 1)

    assert window.records == 0
    assert math.isnan(window.max_ms)


def test_arrivals_outlive_the_receiver(tmp_path: Path) -> None:
    """What the receiver writes is what the benchmark reads."""
    found = arrived([0, 2, 2], sent=3)
    arrivals.write(tmp_path / "arrivals", found.records)

    assert arrivals.read(tmp_path / "arrivals", sent=3, places=4) == found


def test_boundaries_leave_out_the_start_and_refreshes_what_was_before(tmp_path: Path) -> None:
    """The first epochs are not typical; refreshes count from when the load began."""
    log = tmp_path / "log"
    early = [{"event": "topics_refreshed"}, {"event": "epoch_ended", "epoch": 2, "boundary_ms": 900}]
    late = [{"event": "topics_refreshed"}, *({"event": "epoch_ended", "epoch": 3, "boundary_ms": it} for it in (5, 7))]
    log.write_text("".join(json.dumps(event) + "\n" for event in early))
    began = log.stat().st_size
    with log.open("a") as more:
        more.writelines(json.dumps(event) + "\n" for event in late)
    found = boundaries(log, began)

    assert (found.epochs, found.p50_ms, found.max_ms, found.refreshes) == (2, 5.0, 7.0, 1)


def test_a_mirror_that_does_not_get_there_has_the_figures_that_it_reached() -> None:
    """Beside those of another candidate there is a column for it all the same."""
    rows = dict(Idle(Start(first_record_s=12.0), peak_pss_mib=100.0).rows())

    assert rows["start to first record"] == "12.0 s"
    assert rows["all topics mirrored"] == "not in time"
    assert "latency, warm" not in rows
