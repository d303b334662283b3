"""What ``mm2py verify`` takes, and what it prints."""

from __future__ import annotations

import json
import os
from contextlib import nullcontext
from pathlib import Path

import attrs
import pytest

from mm2py.cli import comparing, verify
from mm2py.cli.command import ArgumentsError
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.verify_report import as_json, in_words, print_report
from mm2py.config.settings import FlowSettings
from mm2py.model.flow import TopicPartition
from mm2py.verify.run import Moment
from mm2py.verify.values import Counts, Difference, DifferenceKind, Equality, PartitionReport, VerifyReport
from tests.support.clocks import LoopClock
from tests.support.config_files import BASE


NOW_MS = 1_763_737_200_000


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("", None),
        ("1500", Moment(offset=1500)),
        ("-90m", Moment(timestamp_ms=NOW_MS - 90 * 60_000)),
        ("-1.5h", Moment(timestamp_ms=NOW_MS - 5_400_000)),
        ("-2d", Moment(timestamp_ms=NOW_MS - 2 * 86_400_000)),
        ("-99999999999999999d", Moment(timestamp_ms=0)),
        ("2025-11-21T15:00", Moment(timestamp_ms=NOW_MS)),
        ("2025-11-21T16:00+01:00", Moment(timestamp_ms=NOW_MS)),
        ("2025-11-21", Moment(timestamp_ms=NOW_MS - 15 * 3_600_000)),
    ],
)
def test_moments(text: str, moment: Moment | None) -> None:
    """An offset, a time before now, or a time of day."""
    assert comparing._moment(text, NOW_MS, "--from") == moment


def test_a_duration_may_stand_apart_from_its_option() -> None:
    """It begins with a minus, as options do."""
    joined = list(verify._joined(["f", "A->B", "--from", "-1h", "--to", "1500", "--json"]))

    assert joined == ["f", "A->B", "--from=-1h", "--to", "1500", "--json"]


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[FlowSettings]:
    """Return the flows that are compared, each with the same result."""
    flows: list[FlowSettings] = []

    async def compared(_mirror: object, settings: FlowSettings, *_: object, **__: object) -> VerifyReport:
        flows.append(settings)
        return REPORT

    monkeypatch.setattr(comparing, "_verify", compared)
    return flows


def test_the_flow_of_a_connector_s_file(tmp_path: Path, seen: list[FlowSettings]) -> None:
    """It is compared as one of an mm2.properties is."""
    worker, connector = tmp_path / "worker.properties", tmp_path / "mirus.json"
    worker.write_text("bootstrap.servers = t:9092\n")
    config = {"name": "mirus", "connector.class": "MirusSourceConnector", "consumer.bootstrap.servers": "m:9092"}
    connector.write_text(json.dumps(config))
    code = verify.main([str(worker), "mirus->target", "--connector", str(connector), "--json"])

    assert code == REPORT.verdict
    assert [settings.source.bootstrap_servers for settings in seen] == [("m:9092",)]


def test_a_file_may_be_a_pipe(seen: list[FlowSettings]) -> None:
    """`mm2py verify <(sops -d mm2.properties) 'A->B'`: whatever has been read of it is gone."""
    file, other_end = os.pipe()
    os.write(other_end, BASE.encode())
    os.close(other_end)
    code = verify.main([f"/dev/fd/{file}", "A->B", "--json"])
    os.close(file)

    assert code == REPORT.verdict
    assert [str(settings.flow) for settings in seen] == ["A->B"]


@pytest.mark.parametrize(
    ("start", "end", "is_refused"),
    [
        ("1500", "1000", True),
        ("-1h", "-2h", True),
        ("-1d", "2025-11-21T15:00", False),
        ("1000", "1000", True),
        ("-1h", "-1h", True),
        ("1500", "-1h", False),
        ("", "1000", False),
    ],
)
async def test_a_range_that_ends_where_it_begins_or_before_is_refused(start: str, end: str, is_refused: bool) -> None:
    """Nothing would be compared, and found equal."""
    options = verify.make_parser().parse_args(["f", "A->B", f"--from={start}", f"--to={end}"])
    refused = pytest.raises(ArgumentsError, match=f"--to {end} is not after --from {start}")
    with refused if is_refused else nullcontext():
        comparing._request(options, LoopClock())


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--from=-0s", "--from -0s is not before now: nothing would be compared"),
        ("--from=2999-01-01", "--from 2999-01-01 is not before now: nothing would be compared"),
        ("--topics=,", "--topics ,: no topic is named"),
    ],
)
def test_what_would_compare_nothing_or_all_by_mistake_is_refused(
    option: str, said: str, capsys: pytest.CaptureFixture[str], seen: list[FlowSettings]
) -> None:
    """A mistyped year found both sides equal, and a list of empty variables compared everything."""
    assert verify.main(["f", "A->B", option]) == ExitCode.BAD_ARGUMENTS
    assert capsys.readouterr().err == f"mm2py: {said}\n"
    assert not seen


@pytest.mark.parametrize("slots", ["0", "-1", "100000"])
def test_a_number_of_slots_that_spark_does_not_start_with_is_refused(
    slots: str, capsys: pytest.CaptureFixture[str], seen: list[FlowSettings]
) -> None:
    """Spark took minutes to begin with a hundred thousand."""
    assert verify.main(["f", "A->B", f"--slots={slots}"]) == ExitCode.BAD_ARGUMENTS
    assert capsys.readouterr().err == f"mm2py: --slots {slots}: give a number from 1 to 1000\n"
    assert not seen


REPORT = VerifyReport(
    "A->B",
    (
        PartitionReport(
            TopicPartition("orders", 0),
            TopicPartition("A.orders", 0),
            Equality.DIFFERENT,
            upstream=(0, 10),
            downstream=(0, 9),
            counts=Counts(source=10, target=9, equal=8, missing=1, changed=1, changed_values=1),
            differences=(
                Difference(DifferenceKind.MISSING, 4, 4),
                Difference(DifferenceKind.CHANGED, 7, 6, ("value",)),
            ),
        ),
        PartitionReport(
            TopicPartition("orders", 1),
            TopicPartition("A.orders", 1),
            Equality.CANNOT_TELL,
            reasons=("topic A.orders has only 1 partitions",),
            share=0.0,
        ),
    ),
    source_bytes=2_000_000,
    target_bytes=1_000_000,
    batches_unopened=3,
    batches_opened=1,
    elapsed_s=1.25,
    share=0.5,
    left_out=3,
)


def test_the_table_says_where_both_sides_differ(capsys: pytest.CaptureFixture[str]) -> None:
    """Each difference has a line with both offsets, each partition that cannot be told its reason."""
    print_report(REPORT)
    text = capsys.readouterr().out
    titles, first, *_ = text.splitlines()

    assert titles.split() == ["PARTITION", "VERDICT", "SOURCE", "TARGET", "EQUAL", "MISSING", "CHANGED"]
    assert first.split() == ["orders-0", "different", "10", "9", "8", "1", "1"]
    assert "orders-0: upstream offset 4 is missing at downstream offset 4" in text
    assert "orders-0: upstream offset 7 and downstream offset 6 differ in value" in text
    assert "orders-1: topic A.orders has only 1 partitions" in text
    assert (
        "A->B: different. 8 records equal, 2 different, 2 partitions, 50.0% of the requested records (nothing of 3 more"
        in text
    )
    assert "75% of the batches unopened" in text


def test_it_says_so_if_nothing_was_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing came since the requested time: the sides are equal, but nobody may think that records were looked at."""
    partition = attrs.evolve(REPORT.partitions[0], verdict=Equality.EQUAL, counts=Counts(), differences=())
    print_report(attrs.evolve(REPORT, partitions=(partition,)))

    assert "A->B: equal. nothing was compared, 1 partitions" in capsys.readouterr().out


def test_nothing_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a file, in CI and in cron a row is as long as it must be; on a narrow terminal a row becomes a block."""
    counts = Counts(source=2_000_000_000, target=2_000_000_000, equal=2_000_000_000)
    partition = attrs.evolve(REPORT.partitions[0], source=TopicPartition("o" * 70, 10), counts=counts, differences=())
    report = attrs.evolve(REPORT, partitions=(partition,))
    monkeypatch.setenv("COLUMNS", "80")
    print_report(report)
    plain = capsys.readouterr().out.splitlines()
    monkeypatch.setenv("FORCE_COLOR", "1")
    print_report(report)
    terminal = capsys.readouterr().out

    assert plain[1].split() == [f"{'o' * 70}-10", "different", *["2,000,000,000"] * 3]
    assert "…" not in terminal
    assert terminal.count("2,000,000,000") == 4  # once in the summary


def test_json_has_everything() -> None:
    """A program finds verdict, counts and first differing offsets."""
    found = json.loads(json.dumps(as_json(REPORT)))

    assert (found["verdict"], found["exit_code"]) == ("different", 1)
    assert found["partitions"][0]["first_difference"] == {
        "kind": "missing",
        "upstream": 4,
        "downstream": 4,
        "parts": [],
    }
    assert found["partitions"][0]["counts"]["changed_values"] == 1
    assert found["partitions"][1]["verdict"] == "could not tell"


def test_each_kind_has_words() -> None:
    """No difference is printed without saying what it is."""
    for kind in DifferenceKind:
        assert "offset 5" in in_words(Difference(kind, 5, 5, ("value",)))
    assert "the end" in in_words(Difference(DifferenceKind.MISSING, 5, None))
