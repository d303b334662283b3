"""The tables show medians and ratios; the JSON holds every run."""

import json

import attrs
import pytest
from rich.console import Console

from bench.candidates import Candidate
from bench.copying import CopyRun
from bench.latency import Latencies, LatencyRun
from bench.load import LoadedTopic
from bench.report import Failure, Machine, Results, print_report
from bench.shapes import SHAPES_BY_NAME


MACHINE = Machine(2, "a processor", 8 * 2**30, "Linux 6", "3.11", "openjdk 17", "4.3.1", "0.1", 0.5)
SHAPE = SHAPES_BY_NAME["json-lz4"]


def copied(candidate: Candidate, rate: float) -> CopyRun:
    return CopyRun(candidate, SHAPE.name, 1000, 4.0, 2.0, rate, 50.0, 1.5, 1.25, 6.0, 500 * 2**20, 0.04)


def measured(candidate: Candidate, p99_ms: float) -> LatencyRun:
    return LatencyRun(candidate, 40.0, Latencies(20_000, 0, 0, 1.0, p99_ms, 20.0, 30.0), 0.25, 0.04)


@pytest.fixture(name="results")
def some_results() -> Results:
    return Results(
        MACHINE,
        [LoadedTopic("bench-json-lz4", SHAPE, 1000, 60_000, 200_000, 0.1)],
        [copied(Candidate.MM2PY, rate) for rate in (900.0, 1200.0, 1500.0)] + [copied(Candidate.JAVA, 150.0)],
        [measured(Candidate.MM2PY, 8.0), measured(Candidate.JAVA, 16.0)],
    )


def printed(results: Results) -> list[str]:
    console = Console(width=220)
    with console.capture() as capture:
        print_report(console, results)
    return capture.get().splitlines()


def test_table_shows_the_median_and_the_ratio(results: Results) -> None:
    """Three runs give the middle one, in how many times Java's rate."""
    (row,) = [" ".join(line.split()) for line in printed(results) if "json-lz4" in line and "mm2py" in line]

    assert row == "json-lz4 mm2py 1,000 1,200 50.0 1.50 1.25 500 4.0 6.0 0.04 8.00"


def test_each_candidate_is_compared_with_those_that_ran(results: Results) -> None:
    """There is a column for each but mm2py itself, and none for others."""
    results.copies.append(copied(Candidate.GO, 600.0))
    lines = printed(results)
    (head,) = [line for line in lines if "CPU-s/GB" in line and "PSS" in line]
    (row,) = [line.split() for line in lines if "json-lz4" in line and "go" in line.split()]

    assert head.rstrip().endswith("x java   x go")
    assert row[-2:] == ["4.00", "-"]


def test_latency_table_compares_the_tails(results: Results) -> None:
    """The ratio of the 99th percentiles stands beside them."""
    rows = [" ".join(line.split()) for line in printed(results) if line.strip().startswith("mm2py")]

    assert rows == ["mm2py 40 20,000 0 0 1.00 8.00 20.0 30.0 0.250 0.04 0.50"]


def test_the_latency_without_a_mirror_stands_below(results: Results) -> None:
    """It is the part of each row that is not the mirror's."""
    results.alone += [Latencies(10_000, 0, 0, p50_ms, 2.0, 5.0, 9.0) for p50_ms in (0.9, 1.1, 1.0)]
    (row,) = [" ".join(line.split()) for line in printed(results) if "no mirror" in line]

    assert row == "no mirror - 30,000 0 0 1.00 2.00 5.00 9.00"


def test_failures_are_told_with_their_log(results: Results) -> None:
    """A run that does not count is not passed over in silence."""
    results.failures.append(Failure(Candidate.JAVA, "wide", "stands still", "[last words]"))
    text = "\n".join(printed(results))

    assert "failed: java, wide: stands still" in text
    assert "[last words]" in text


def test_json_holds_every_run_in_plain_values(results: Results) -> None:
    """What was measured can be read back without this package."""
    told = json.loads(json.dumps(results.as_json()))

    assert [run["records_per_s"] for run in told["copies"]] == [900.0, 1200.0, 1500.0, 150.0]
    assert told["copies"][0]["candidate"] == "mm2py"
    assert told["loaded"][0]["shape"]["codec"] == "lz4"
    assert told["machine"] == attrs.asdict(MACHINE)
