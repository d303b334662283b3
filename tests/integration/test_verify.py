"""A comparison of both sides, on real brokers, with each kind of difference."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import attrs

from mm2py.clock import SystemClock
from mm2py.devkit.broker import KafkaCluster
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.verify.run import Moment, Verification, VerifyRequest
from mm2py.verify.slice import compare_slice
from mm2py.verify.values import DifferenceKind, Equality, PartitionReport, SliceOutcome, VerifyPlan, VerifyReport
from tests.support.contents import RecordContent
from tests.support.damage import delete_records, recreate_topic
from tests.support.eventually import eventually
from tests.support.flows import flow_settings, running_flow
from tests.support.java_mirror import JavaMirror
from tests.support.mirrored import await_arrived
from tests.support.planting import Plant, copy_with, write_batches
from tests.support.producing import numbered_stream, produce, produce_numbers, produce_transactions
from tests.support.reading import read_topic
from tests.support.records import NewRecord, plain_records, spread, strange_records
from tests.support.topics import alter_topic, create_topic


RECORDS, PARTITIONS = 1_000_000, 8


class InProcessSlices:
    """Compares slices where they are asked for, once what is to happen *before* has; `plans` remembers them."""

    def __init__(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self.plans: list[VerifyPlan] = []
        self._before = before

    async def ready(self) -> None:
        return

    async def run(
        self, _title: str, plans: Sequence[VerifyPlan], progress: Callable[[int], None]
    ) -> list[SliceOutcome]:
        self.plans += plans
        if self._before is not None:
            await self._before()
        outcomes = []
        clock = SystemClock()
        async with WorkerState() as state:
            for done, plan in enumerate(plans, 1):
                clusters = state.cluster(plan.source, clock), state.cluster(plan.target, clock)
                outcomes += [await compare_slice(plan, part, clusters) for part in plan.slices]
                progress(done)
        return outcomes


async def verify(
    source: str,
    target: str,
    topic: str,
    *,
    alias: str = "A",
    before: Callable[[], Awaitable[None]] | None = None,
    **asked: object,
) -> VerifyReport:
    """
    Compare one topic of a flow *alias*->B; *asked* are fields of the request, and keys of the file, with dots.

    What is to happen *before* the slices are compared comes after it was looked what there is.
    """
    fields = {key: value for key, value in asked.items() if "." not in key}
    keys = {key: value for key, value in asked.items() if "." in key}
    settings = flow_settings(source, target, alias=alias, topics=topic, **keys)
    request = VerifyRequest(**fields)  # type: ignore[arg-type]
    return await Verification(settings, request, InProcessSlices(before), clock=SystemClock()).run()  # type: ignore[arg-type]


def of_partition(report: VerifyReport, number: int) -> PartitionReport:
    """Return what is said of one partition of the only topic."""
    (found,) = [one for one in report.partitions if one.source.partition == number]
    return found


def by_partition(report: VerifyReport) -> dict[TopicPartition, PartitionReport]:
    """Return what is said of each partition."""
    return {one.source: one for one in report.partitions}


def _differing(report: VerifyReport, number: int) -> dict[str, int]:
    counts = of_partition(report, number).counts
    names = ("missing", "repeated", "foreign", "changed", "out_of_order", "pending", "only_source", "only_target")
    return {name: getattr(counts, name) for name in names if getattr(counts, name)}


def _flipped(record: RecordContent) -> RecordContent:
    value = bytearray(record.value or b"")
    value[-1] ^= 0x04
    return attrs.evolve(record, value=bytes(value))


def _plants(chance: random.Random) -> dict[int, tuple[int, Plant]]:
    """One mistake for each of six partitions, at a random offset."""

    def at_one(change: Plant) -> tuple[int, Plant]:
        offset = chance.randrange(RECORDS // PARTITIONS)

        def around(records: list[RecordContent]) -> list[RecordContent]:
            place = next(at for at, record in enumerate(records) if record.offset == offset)
            return [*records[:place], *change([records[place]]), *records[place + 1 :]]

        return offset, around

    def swap(records: list[RecordContent]) -> list[RecordContent]:
        one, other = chance.sample(range(len(records)), 2)
        records[one], records[other] = records[other], records[one]
        return records

    return {
        0: at_one(lambda _records: []),
        1: at_one(lambda records: records * 2),
        2: (chance.randrange(RECORDS // PARTITIONS), swap),
        3: at_one(lambda records: [_flipped(records[0])]),
        4: at_one(lambda records: [attrs.evolve(records[0], headers=(("number", b"none"), *records[0].headers[1:]))]),
        5: at_one(lambda records: [attrs.evolve(records[0], timestamp=records[0].timestamp - 1)]),
    }


async def test_each_mistake_in_a_million_records(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """Each of six mistakes, planted at a random offset, is found and named, and nothing where there is none."""
    seed = random.SystemRandom().randrange(1 << 30)
    plants = _plants(random.Random(seed))
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=PARTITIONS)
    await create_topic(target, f"A.{prefix}", partitions=PARTITIONS)
    await write_batches(source, prefix, batches_each=RECORDS // PARTITIONS // 500, records=500)
    await copy_with(source, prefix, target, f"A.{prefix}", plants)
    report = await verify(source, target, prefix)

    told = f"seed {seed}: {report}"
    assert report.verdict is Equality.DIFFERENT
    assert _differing(report, 0) == {"missing": 1}, told
    assert _differing(report, 1) == {"repeated": 1}, told
    assert _differing(report, 2) in ({"out_of_order": 1}, {"out_of_order": 2}), told
    assert [_differing(report, number) for number in (3, 4, 5)] == [{"changed": 1}] * 3, told
    firsts = [of_partition(report, number).differences[0] for number in range(6)]
    assert [first.parts for first in firsts[3:]] == [("value",), ("headers",), ("timestamp",)]
    assert [firsts[n].upstream for n in (0, 3, 4, 5)] == [plants[n][0] for n in (0, 3, 4, 5)]
    assert firsts[1].downstream == plants[1][0] + 1
    assert [of_partition(report, n).verdict for n in (6, 7)] == [Equality.EQUAL] * 2, told
    assert [_differing(report, n) for n in (6, 7)] == [{}, {}], told
    # A batch or two around each mistake were opened, and those alone.
    assert report.batches_opened < report.batches_unopened / 10


async def test_a_running_flow_is_equal_up_to_a_fixed_pair_of_offsets(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """While records are written and mirrored, each comparison finds no difference, and reports how far it went."""
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"run{prefix[-6:]}"
    await create_topic(source, prefix, partitions=2)
    settings = flow_settings(source, target, alias=alias, topics=prefix, **{"offset.flush.interval.ms": 500})
    async with (
        running_flow(settings, tmp_path) as flow,
        numbered_stream(source, prefix, count=1, partitions=2, rate=5_000, open_ended=True) as stream,
    ):
        await await_arrived(target, f"{alias}.{prefix}", 5_000)
        reports = [await verify(source, target, prefix, alias=alias) for _ in range(5)]
        sliced = await verify(source, target, prefix, alias=alias, share=0.2, seed=5)
        await await_arrived(target, f"{alias}.{prefix}", await stream.done())
        await flow.drain()
    last = await verify(source, target, prefix, alias=alias)

    assert [report.verdict for report in (*reports, sliced, last)] == [Equality.EQUAL] * 7, reports
    equal = [report.counts.equal for report in reports]
    assert equal == sorted(equal)
    assert equal[0] >= 5_000
    assert last.counts.equal == stream.sent
    assert last.counts.pending == 0
    assert 0.1 < sliced.share < 0.7


async def test_what_java_mirrored(mirror_by_java: JavaMirror) -> None:
    """A mirror by Java, which made batches of its own and keeps no index of runs, is equal."""
    java = mirror_by_java
    settings = flow_settings(java.source, java.target, alias=java.source_alias, topics=java.topic)
    report = await verify(java.source, java.target, java.topic, alias=java.source_alias)
    some = await verify(java.source, java.target, java.topic, alias=java.source_alias, start=Moment(offset=100))

    assert str(settings.flow) == report.flow
    assert (report.verdict, report.counts.equal) == (Equality.EQUAL, 600), report
    assert (some.verdict, some.counts.equal) == (Equality.EQUAL, 400), some


async def test_every_kind_of_record_in_other_batches(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """Strange records in other batches and under another codec are equal."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=2)
    await create_topic(target, f"A.{prefix}", partitions=2)
    written = spread(strange_records(4_000), 2)
    await produce(source, prefix, written, codec="zstd", batch_records=1)
    await produce(target, f"A.{prefix}", written, codec="lz4", batch_records=77)
    report = await verify(source, target, prefix)

    assert (report.verdict, report.counts.equal) == (Equality.EQUAL, 4_001), report


async def test_transactions_of_the_source(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path
) -> None:
    """Markers and aborted records do not count as missing at the target, whichever of them the flow mirrors."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    rounds = [(n % 3 != 0, [plain_records(50, start=50 * n)]) for n in range(12)]
    await produce_transactions(source, prefix, rounds, transactional_id=prefix, batch_records=20)
    for isolation, count in (("read_committed", 400), ("read_uncommitted", 600)):
        alias = f"{isolation[5:9]}{prefix[-6:]}"
        keys = {f"{alias}.consumer.isolation.level": isolation}
        settings = flow_settings(source, target, alias=alias, topics=prefix, **keys)
        async with running_flow(settings, tmp_path) as flow:
            await await_arrived(target, f"{alias}.{prefix}", count)
            await flow.drain()
        report = await verify(source, target, prefix, alias=alias, **keys)

        assert (report.verdict, report.counts.equal) == (Equality.EQUAL, count), report


async def test_a_partition_compacted_on_one_side_only(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """What compaction may have removed at the target is not called missing: the verdict is that it cannot tell."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "200"}
    await create_topic(source, prefix)
    await create_topic(target, f"A.{prefix}")
    written = [NewRecord(b"k%d" % (n % 20), b"%d" % n, (), 1_000_000 + n) for n in range(2_000)]
    await produce(source, prefix, [written], batch_records=100)
    await copy_with(source, prefix, target, f"A.{prefix}", {})
    before = await verify(source, target, prefix)
    await alter_topic(target, f"A.{prefix}", configs)

    async def compacted() -> bool:
        await produce(source, prefix, [[NewRecord(b"last", b"x", (), 2_000_000)]])
        await produce(target, f"A.{prefix}", [[NewRecord(b"last", b"x", (), 2_000_000)]])
        held = await read_topic(target, f"A.{prefix}")
        return len(held[0]) < 1_000

    await eventually(compacted, within_s=60, what="the remote topic is compacted", every_s=0.5)
    report = await verify(source, target, prefix)

    assert before.verdict is Equality.EQUAL
    assert report.verdict is Equality.CANNOT_TELL, report
    (reason,) = of_partition(report, 0).reasons
    assert reason.startswith("compacted at the target")


async def test_what_retention_removed_on_one_side_only(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """If one side holds more at its beginning, that part cannot be judged; the rest is compared all the same."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    for shorter, (ours, theirs) in {"source": (700, 0), "target": (0, 700)}.items():
        topic = f"{prefix}-{shorter}"
        await create_topic(source, topic)
        await create_topic(target, f"A.{topic}")
        await produce(source, topic, [plain_records(2_000)], batch_records=100)
        await copy_with(source, topic, target, f"A.{topic}", {})
        for bootstrap, name, before in ((source, topic, ours), (target, f"A.{topic}", theirs)):
            if before:
                await delete_records(bootstrap, name, before)
        report = await verify(source, target, topic)
        lenient = await verify(source, target, topic, ignore_expired=True)

        only = "only_target" if shorter == "source" else "only_source"
        assert (report.counts.equal, getattr(report.counts, only)) == (1_300, 700), report
        assert report.verdict is Equality.CANNOT_TELL, report
        assert "retention" in of_partition(report, 0).reasons[0]
        assert lenient.verdict is Equality.EQUAL


async def test_many_repeated_and_many_missing_records(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """An offset range that is far too long to be remembered is counted all the same."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix, partitions=2)
    await create_topic(target, f"A.{prefix}", partitions=2)
    records = list(plain_records(150_000, size=20))
    await produce(source, prefix, [records, records], batch_bytes=60_000)
    twice = [*records[:120_000], *records[20_000:]]
    await produce(target, f"A.{prefix}", [twice, [*records[:10_000], *records[100_000:]]], batch_bytes=50_000)
    report = await verify(source, target, prefix)

    assert _differing(report, 0) == {"repeated": 100_000}
    assert _differing(report, 1) == {"missing": 90_000}
    assert of_partition(report, 1).differences[0].upstream == 10_000
    assert of_partition(report, 0).differences[0].kind is DifferenceKind.REPEATED


async def test_a_target_that_stamps_records(primary: KafkaCluster, backup: KafkaCluster, prefix: str) -> None:
    """If the target's brokers stamp records, all else is compared, unopened, and that is reported."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    await create_topic(source, prefix)
    await create_topic(target, f"A.{prefix}", configs={"message.timestamp.type": "LogAppendTime"})
    await produce(source, prefix, [plain_records(500)])
    await copy_with(source, prefix, target, f"A.{prefix}", {})
    report = await verify(source, target, prefix)

    assert (report.verdict, report.counts.equal) == (Equality.EQUAL, 500), report
    assert "timestamps were not compared" in of_partition(report, 0).notes[0]


async def test_what_a_position_proves(primary: KafkaCluster, backup: KafkaCluster, prefix: str, tmp_path: Path) -> None:
    """After a drain all is compared; what the target then loses at its end is missing, not merely not mirrored yet."""
    source, target, alias = primary.bootstrap_servers, backup.bootstrap_servers, f"pos{prefix[-6:]}"
    begun_ms = SystemClock().wall_ms()
    await create_topic(source, prefix, partitions=2)
    await produce_numbers(source, prefix, count=60_000, partitions=2)
    settings = flow_settings(source, target, alias=alias, topics=prefix)
    async with running_flow(settings, tmp_path) as flow:
        await await_arrived(target, f"{alias}.{prefix}", 60_000)
        await flow.drain()
    await produce_numbers(source, prefix, count=1_000, partitions=2)
    report = await verify(source, target, prefix, alias=alias, slots=8)
    part = await verify(source, target, prefix, alias=alias, start=Moment(offset=1_000), end=Moment(offset=3_500))
    recent = await verify(source, target, prefix, alias=alias, start=Moment(timestamp_ms=begun_ms - 60_000))
    later = await verify(source, target, prefix, alias=alias, start=Moment(timestamp_ms=begun_ms + 3_600_000))

    assert report.verdict is Equality.EQUAL, report
    assert (recent.verdict, recent.counts.equal) == (Equality.EQUAL, 60_000), recent
    assert (later.verdict, later.counts.source) == (Equality.EQUAL, 0), later
    assert (report.counts.equal, report.counts.pending) == (60_000, 1_000)
    assert report.slices > 2
    assert (part.verdict, part.counts.equal, part.counts.target) == (Equality.EQUAL, 5_000, 5_000)
    assert len(by_partition(part)) == 2


async def test_a_topic_created_again_while_it_is_compared(
    primary: KafkaCluster, backup: KafkaCluster, prefix: str
) -> None:
    """Another topic's records are not the mirror's mistake: the comparison reports that it could not go on."""
    source, target = primary.bootstrap_servers, backup.bootstrap_servers
    for bootstrap, topic in ((source, prefix), (target, f"A.{prefix}")):
        await create_topic(bootstrap, topic)
        await produce(bootstrap, topic, [plain_records(100)])

    async def exchange() -> None:
        await recreate_topic(source, prefix)
        await produce(source, prefix, [plain_records(100, start=500)])

    report = of_partition(await verify(source, target, prefix, before=exchange), 0)

    assert report.verdict is Equality.CANNOT_TELL
    assert any("created again while it was compared" in reason for reason in report.reasons)
