"""The demo's records, its proof, and how it looks, without clusters."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest
from rich.console import Console

from mm2py.cli.demo import command
from mm2py.cli.demo.command import DemoExit, main
from mm2py.cli.demo.proof import prove
from mm2py.cli.demo.screen import LiveScreen, PlainScreen, make_screen
from mm2py.cli.demo.snapshot import FlowSnapshot, Said, Snapshot, TopicSnapshot
from mm2py.cli.demo.stage import BrokerEndedError, MirrorEndedError, Stage
from mm2py.cli.demo.stream import TOPICS, SampleTopic, samples
from mm2py.cli.exit_code import ExitCode
from mm2py.connectors.supervise import leaves
from mm2py.devkit.broker import KafkaCluster
from mm2py.wire import sample_load
from tests.support.clocks import WALL_START_MS, ManualClock
from tests.support.commands import unread_output


FLOW = FlowSnapshot(
    flow="primary->backup",
    state="running",
    records_per_s=12_345.6,
    bytes_per_s=2_500_000.0,
    lag=42,
    latency_p50_ms=1.0,
    latency_p99_ms=7.5,
)
SNAPSHOT = Snapshot(
    flow=FLOW,
    topics=(TopicSnapshot("orders", "primary.orders", "zstd", 4, 1_042, 1_000),),
    said=(Said("12:00:00", "error", "partition_stopped", "topic=orders partition=3"),),
    history=(0.0, 5_000.0, 10_000.0),
)


def digests(*names: str) -> bytes:
    """Stand in for the fingerprints of records of these names."""
    return b"".join(hashlib.blake2b(name.encode(), digest_size=16).digest() for name in names)


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_samples_look_like_a_shop_s_records(topic: SampleTopic) -> None:
    """Records are JSON with headers and the present time; some lack a key or a value, as in real topics."""
    stream = samples(topic, lambda: WALL_START_MS)
    records = [next(stream) for _ in range(500)]

    assert all(record.timestamp_ms == WALL_START_MS and record.headers for record in records)
    assert all(json.loads(record.value) for record in records if record.value is not None)
    assert any(record.key is None for record in records) is (topic.name == "clicks")
    assert any(record.value is None for record in records) is (topic.name == "payments")


def test_shares_make_the_whole_stream() -> None:
    """The topics' shares of the rate add up to all of it."""
    assert sum(topic.share for topic in TOPICS) == 100


def test_the_same_records_are_proof() -> None:
    """Equal fingerprints in equal order on every partition, as many as were written, are complete."""
    side = {0: digests("a", "b"), 1: digests("c")}
    proof = prove("orders", side, dict(side), written=3)

    assert proof.is_complete
    assert (proof.topics, proof.partitions, proof.records) == (1, 2, 3)


@pytest.mark.parametrize(
    ("remote", "first_at"),
    [
        pytest.param(digests("a", "b"), 2, id="one is missing at the end"),
        pytest.param(digests("a", "c"), 1, id="one is missing in the middle"),
        pytest.param(digests("a", "b", "b", "c"), 2, id="one came twice"),
        pytest.param(digests("a", "c", "b"), 1, id="two changed places"),
        pytest.param(digests("a", "x", "c"), 1, id="one has another content"),
        pytest.param(b"", 0, id="nothing came"),
    ],
)
def test_any_difference_is_found(remote: bytes, first_at: int) -> None:
    """Whatever is wrong with a partition is found, with the first record that differs."""
    proof = prove("orders", {0: digests("a", "b", "c")}, {0: remote}, written=3)

    (line,) = proof.differences
    assert line == (
        f"orders-0: 3 records at the source, {len(remote) // 16} at the target, "
        f"the first difference at record {first_at}"
    )
    assert not proof.is_complete


def test_what_the_source_lost_is_no_proof() -> None:
    """Two sides that agree prove nothing where fewer records are there than were acknowledged."""
    side = {0: digests("a", "b")}

    assert not prove("orders", side, dict(side), written=3).is_complete


def test_proofs_add_up() -> None:
    """The proof of all topics counts those of each, and keeps their differences."""
    good = prove("orders", {0: digests("a")}, {0: digests("a")}, written=1)
    bad = prove("clicks", {0: digests("b")}, {0: b""}, written=1)
    both = good.plus(bad)

    assert (both.topics, both.partitions, both.written, both.records) == (2, 2, 2, 2)
    assert both.differences == ("clicks-0: 1 records at the source, 0 at the target, the first difference at record 0",)


def test_plain_lines_have_the_time_and_every_figure() -> None:
    """Without a terminal each line stands alone, and snapshots come no faster than every two seconds."""
    out, clock = io.StringIO(), ManualClock()
    screen = make_screen(Console(file=out, width=80, highlight=False), clock)
    for _ in range(5):
        clock.advance(1.0)
        screen.show(SNAPSHOT, "3 of 15 s")

    assert isinstance(screen, PlainScreen)
    line = (
        "primary->backup running, 3 of 15 s: 1 topics, 4 partitions, 1,000 of 1,042 records mirrored, "
        "12,346 records/s, 2.50 MB/s, lag 42, latency p50 1.0 ms, p99 7.5 ms"
    )
    assert out.getvalue().splitlines() == [f"   2.0 s  {line}", f"   4.0 s  {line}"]


def test_the_live_view_fits_eighty_columns() -> None:
    """On a terminal the flow, its topics and the mirror's last words are seen at once, none of it cut off."""
    out = io.StringIO()
    console = Console(file=out, width=80, force_terminal=True, color_system=None, highlight=False)
    screen = make_screen(console, ManualClock())
    with screen.watching("primary ▶ backup"):
        screen.show(
            attrs.evolve(SNAPSHOT, flow=attrs.evolve(FLOW, lag=1_234_567, latency_p99_ms=11_665.0)), "3 of 15 s"
        )
    shown = out.getvalue()

    assert isinstance(screen, LiveScreen)
    for figure in (
        "primary->backup",
        "running",
        "12,346",
        "2.50",
        "1,234,567",
        "1.0",
        "11665.0",
        "primary.orders",
        "1,042",
    ):
        assert figure in shown
    assert "partition_stopped" in shown
    assert "…" not in shown
    assert "▁▅█" in shown


def test_what_is_not_known_yet_is_a_dash() -> None:
    """Before the first epoch has ended there are no bytes and no latency to show."""
    out, clock = io.StringIO(), ManualClock()
    screen = PlainScreen(Console(file=out, width=80), clock)
    clock.advance(2.0)
    flow = attrs.evolve(FLOW, bytes_per_s=None, latency_p50_ms=None, latency_p99_ms=None)
    screen.show(attrs.evolve(SNAPSHOT, flow=flow), "the mirror starts")

    assert "- MB/s, lag 42, latency p50 - ms, p99 - ms" in out.getvalue()


@pytest.fixture
def signals() -> Iterator[None]:
    """Give each signal that the demo handles its former handler back."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for one, handler in before.items():
        signal.signal(one, handler)


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_however_it_is_interrupted_it_clears_up(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Ctrl-C, a kill and a closed terminal end it alike: what it made is removed, and it says so."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made: list[Path] = []

    def interrupted(*_: object) -> int:
        made.extend(tmp_path.iterdir())
        signal.raise_signal(number)
        return 0

    monkeypatch.setattr(command, "_run", interrupted)

    exit_code = command.main([])

    assert exit_code == DemoExit.INTERRUPTED
    assert capsys.readouterr().out.endswith("Interrupted; everything is stopped and removed.\n")
    assert len(made) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_output_is_not_read_finds_no_difference(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """`mm2py demo | head`: it ends without having compared the two sides."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(command, "_run", lambda _stage, screen, *_: screen.say("starting"))
    with unread_output():
        exit_code = command.main([])

    assert exit_code == DemoExit.INTERRUPTED
    assert list(tmp_path.iterdir()) == []


def test_a_broker_that_ends_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Its disk is full, for example: clients would look for it without end."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Stage() as stage:
        monkeypatch.setattr(KafkaCluster, "is_running", lambda cluster, _: cluster is stage.source)
        monkeypatch.setattr(KafkaCluster, "exit_code", lambda *_: 1)
        monkeypatch.setattr(KafkaCluster, "warnings", lambda *_: {"broker": "all log dirs have failed"})
        with pytest.raises(BrokerEndedError, match=r"cluster backup ended with exit code 1; .*\nall log dirs"):
            stage.check()


async def test_a_producer_whose_broker_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it ends because of an error it is not waited for; otherwise what is on its way arrives first."""
    ends: list[str] = []

    class Producer:
        def __init__(self, **_: object) -> None: ...

        async def start(self) -> None: ...

        async def stop(self) -> None:
            await asyncio.sleep(0.1)
            ends.append("stopped")

    monkeypatch.setattr(sample_load, "AIOKafkaProducer", Producer)
    monkeypatch.setattr(sample_load, "_GIVEN_UP_AFTER_S", 0.01)
    with pytest.raises(BrokerEndedError):
        async with sample_load.SampleProducer("127.0.0.1:1", "t", partitions=1, codec=None):
            raise BrokerEndedError("A", 1, "")

    assert not ends
    async with sample_load.SampleProducer("127.0.0.1:1", "t", partitions=1, codec=None):
        pass
    assert ends == ["stopped"]


async def test_a_group_whose_broker_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C ends the demo although its consumer would commit to a broker that has ended, again and again."""

    class Consumer:
        def __init__(self, *_: object, **__: object) -> None: ...

        async def start(self) -> None: ...

        async def getmany(self, **_: object) -> None:
            await asyncio.Event().wait()

        async def stop(self) -> None:
            await asyncio.Event().wait()

    monkeypatch.setattr(sample_load, "AIOKafkaConsumer", Consumer)
    monkeypatch.setattr(sample_load, "_GIVEN_UP_AFTER_S", 0.01)
    reading = asyncio.create_task(sample_load.read_as_group("127.0.0.1:1", "t", "g"))
    await asyncio.sleep(0)
    reading.cancel()

    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(reading, 5)


def test_a_mirror_that_ends_by_itself_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """With --keep-running, the command would otherwise stay beside two clusters without a mirror, and say nothing."""
    states = iter(["runs", "runs"])

    def check() -> None:
        if next(states, None) is None:
            raise MirrorEndedError("ended with exit code -9", "its log")

    monkeypatch.setattr(command, "_LOOK_EVERY_S", 0.0)
    stage = SimpleNamespace(
        **dict.fromkeys(("page", "properties_file", "log_file", "status_file"), "there"),
        **dict.fromkeys(("source", "target"), SimpleNamespace(bootstrap_servers="127.0.0.1:1")),
        check=check,
    )
    screen = PlainScreen(Console(file=io.StringIO()), ManualClock())
    monkeypatch.setattr(command, "_trickle", lambda *_: asyncio.sleep(0))
    with pytest.raises(ExceptionGroup, match="TaskGroup") as caught:
        asyncio.run(command._keep_running(cast("Any", stage), screen, SNAPSHOT, ManualClock()))

    assert [type(error) for error in leaves(caught.value)] == [MirrorEndedError]


@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("is_one_of_several", [False, True])
def test_a_full_disk_is_a_line(
    is_one_of_several: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """So is a cache that cannot be written, or a Java for another processor; what was made is removed."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    full = OSError(errno.ENOSPC, "No space left on device", "/tmp/there")

    def failing(*_: object) -> int:
        raise ExceptionGroup("tasks", [full]) if is_one_of_several else full

    monkeypatch.setattr(command, "_run", failing)

    assert command.main([]) == DemoExit.FAILED
    assert capsys.readouterr().err == "mm2py demo: [Errno 28] No space left on device: '/tmp/there'\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["--seconds", "0"],
        ["--seconds", "nan"],
        ["--seconds", "inf"],
        ["--rate", "-1"],
        ["--rate", "fast"],
        ["--no-such"],
    ],
)
def test_arguments_that_make_no_sense(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong arguments end with a line that says what is wrong, before anything is started."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == ExitCode.BAD_ARGUMENTS
    assert "mm2py demo: " in capsys.readouterr().err
