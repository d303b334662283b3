"""Finding out what has arrived while a cluster is away, a log still grows, or a walk is interrupted."""

from __future__ import annotations

import asyncio

import pytest

from mm2py.model.epoch import Ended, Run, Runs
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.resume import Walked
from tests.support.batches import build_batch, flipped
from tests.support.copy_rig import known
from tests.support.in_process import InProcessCluster
from tests.support.resuming import REMOTE, TOPIC, ResumeRig, assert_resumed, copy_of, record, rig_of


@pytest.fixture
def rig() -> ResumeRig:
    return rig_of()


async def test_target_that_keeps_growing_is_waited_for(rig: ResumeRig) -> None:
    """Nothing is concluded while records still arrive from a writer that was thought lost."""
    rig.write_source(range(100))
    rig.write_target(range(10))
    loop = asyncio.get_running_loop()
    for step in range(12):
        loop.call_later(0.2 * step, rig.write_target, [10 + step])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=22, downstream=21, records=12)
    assert loop.time() > 2.4


async def test_an_end_that_is_told_late_is_asked_for_once_more(rig: ResumeRig) -> None:
    """A new leader takes its time to tell the end; a request of a lost writer may be on its way to it, too."""
    rig.write_source(range(100))
    rig.write_target(range(10))
    rig.downstream.is_end_unknown = True
    loop = asyncio.get_running_loop()
    loop.call_later(1.1, setattr, rig.downstream, "is_end_unknown", False)
    loop.call_later(1.4, rig.write_target, [10, 11])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=12, downstream=11, records=2)


@pytest.mark.parametrize(
    ("field", "values", "message"),
    [
        ("high_watermark", (12, 15), "3 records of A.orders-0 are not on all replicas yet"),
        ("open", ({9: 10}, {}), "a transaction that is still open holds A.orders-0 at offset 10"),
    ],
)
@pytest.mark.parametrize("downstream", [9, None])
async def test_what_may_yet_appear_or_vanish_is_waited_for(
    rig: ResumeRig, downstream: int | None, field: str, values: tuple[int, int], message: str
) -> None:
    """
    What the leader holds beyond its high watermark may become visible; what an open transaction wrote may be aborted.

    So when Java MirrorMaker dies with five records in an open transaction, they match the source. If copying went on
    after them, they would be lost to consumers of committed records once the brokers abort it.
    """
    rig.write_source(range(100))
    rig.write_target(range(15))
    setattr(rig.downstream, field, values[0])
    copy = await rig.resume(10, downstream, within_s=3)

    assert not rig.resolved
    assert message in known(copy.retried_failure).message
    setattr(rig.downstream, field, values[1])
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)


@pytest.mark.parametrize(("within_s", "is_told"), [(0.5, False), (5.0, True)])
async def test_a_target_that_tells_no_end_is_named(
    rig: ResumeRig, monkeypatch: pytest.MonkeyPatch, *, within_s: float, is_told: bool
) -> None:
    """
    A remote topic that was deleted has no leader to ask, and is asked for until the epoch ends.

    If nothing were said then, nobody would see that it is gone. An epoch that is ended early had hardly asked.
    """

    async def wait(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(InProcessCluster, "list_offsets", wait)
    copy = await rig.resume(10, 9, within_s=within_s)

    told = copy.retried_failure
    assert (told is not None) is is_told
    assert told is None or told.message == "the target did not say within the epoch's time where A.orders-0 ends"
    assert rig.target.doubted == ([0] if is_told else [])


@pytest.mark.parametrize(
    ("side", "gone", "error"),
    [
        ("source", 1, "BrokerConnectionError"),
        ("source", 2, "ClusterUnreachableError"),
        ("target", 1, "NoAnswerError"),
        ("target", 2, "ClusterUnreachableError"),
    ],
)
async def test_what_goes_away_is_named_and_tried_again(side: str, gone: int, error: str) -> None:
    """A cluster or a broker that is away while resuming is trouble, not the end of the epoch; it goes on afterwards."""
    rig = rig_of(brokers=2)
    rig.write_source(range(100))
    rig.write_target(range(15))
    cluster: InProcessCluster = getattr(rig, side)
    await rig.known()
    cluster.drop()
    cluster.down = set(range(gone))
    copy = await rig.resume(10, 9, within_s=8)

    assert known(copy.retried_failure).error == error
    assert "connection refused" in known(copy.retried_failure).message
    assert (copy.ended, copy.is_unsure) == (Ended.OK, True)
    cluster.down = set()
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)


async def test_partitions_do_not_wait_for_each_other() -> None:
    """What has no leader at the target waits, and says for what, as does what a silent broker leads; others do not."""
    rig = rig_of(4, brokers=3)
    rig.target.partition(REMOTE, 1).lead(None)
    await rig.known()
    rig.target.drop()
    rig.target.hanging = {2}
    copies = [copy_of(number, 0, -1) for number in range(4)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(3):
            await rig.resolve(copies)

    assert sorted(copy.remote.partition for copy in rig.resolved) == [0, 3]
    assert known(copies[1].retried_failure).message == "no broker leads A.orders-1 at the target"


async def test_no_partition_waits_for_another_one_s_end() -> None:
    """
    Two of a remote partition's three brokers are down, and the third one, now its leader, is not to tell its end before
    they are back. After a restart, other partitions of that leader, which have all replicas, go on meanwhile.
    """
    rig = rig_of(2)
    rig.target.partition(REMOTE).is_end_unknown = True
    copies = [copy_of(number, 0, -1) for number in range(2)]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(9):
            await rig.resolve(copies)

    held = known(copies[0].retried_failure)
    assert rig.resolved == [copies[1]]
    assert held.message == "cluster B answered ListOffsets with OFFSET_NOT_AVAILABLE [78] (A.orders-0)"
    assert held.hint == "it is tried again by itself; check the target's brokers if it stays"


async def test_no_partition_waits_for_another_one_s_source_broker() -> None:
    """
    A daemon was killed; meanwhile the network drops all packets to a broker of the source. Of its many partitions none
    can be resolved, and those of other brokers, of which the target has more than is known as well, do not wait.
    """
    rig = rig_of(41, brokers=2)
    for number in range(41):
        for cluster, topic in ((rig.source, TOPIC), (rig.target, REMOTE)):
            cluster.partition(topic, number).load(build_batch([record(0)]))
    await rig.known()
    rig.source.hanging = {0}
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(4):
            await rig.resolve([copy_of(number, 0, -1) for number in range(41)])

    assert sorted(copy.remote.partition for copy in rig.resolved) == list(range(1, 41, 2))


async def test_long_walk_does_not_hold_others_up() -> None:
    """A partition that has far to walk is handed over when it is done, the others before."""
    rig = rig_of(2)
    rig.write_source(range(3_000), batch=1)
    rig.write_target(range(2_500))
    done: list[tuple[int, float]] = []
    loop = asyncio.get_running_loop()
    copies = [copy_of(0, 0, -1), copy_of(1, 0, -1)]
    await rig.resolve(copies, lambda copy: done.append((copy.remote.partition, loop.time())))

    assert [number for number, _ in done] == [1, 0]


async def test_walk_goes_on_where_the_last_epoch_left_it(rig: ResumeRig) -> None:
    """A walk that an epoch's end interrupted is not started again: what it has passed is not read again."""
    rig.write_source(range(40))
    rig.upstream.damage(3, flipped(rig.upstream.batches[3].raw))
    rig.write_target(range(30))
    copy = copy_of(0, 5, 4)
    rig.walks["B", copy.plan] = Walked(24, 19, Runs([Run(5, 5, 19)]))
    await rig.resolve([copy])

    assert_resumed(rig, copy, position=30, downstream=29, records=25)
    assert list(copy.runs) == [Run(5, 5, 25)]
    assert not rig.walks


@pytest.mark.parametrize("walked", [24, 27])
async def test_a_walk_that_went_further_than_the_target_now_is_begins_again(rig: ResumeRig, walked: int) -> None:
    """An unclean election at the target took records away between two epochs."""
    rig.write_source(range(40))
    rig.write_target(range(24))
    copy = copy_of(0, 5, 4)
    rig.walks["B", copy.plan] = Walked(walked, walked - 5, Runs([Run(5, 5, walked - 5)]))
    await rig.resolve([copy])

    assert_resumed(rig, copy, position=24, downstream=23, records=19)
    assert list(copy.runs) == [Run(5, 5, 19)]


async def test_corrupt_source_batch_ends_the_partition(rig: ResumeRig) -> None:
    """A source batch that does not match its checksum proves nothing about what arrived."""
    rig.write_source(range(6))
    rig.upstream.load(flipped(build_batch([record(6)], base_offset=6)))
    rig.write_source(range(7, 12))
    rig.write_target(range(10))
    copy = await rig.resume(3, 2)

    assert (copy.ended, copy.is_unsure) == (Ended.FAILED, True)
    assert (known(copy.failure).error, known(copy.failure).offset) == ("CorruptBatchError", 6)


async def test_moved_leader_is_looked_up_again() -> None:
    """A walk follows a source leader that moves meanwhile."""
    rig = rig_of(brokers=2)
    rig.write_source(range(40))
    rig.write_target(range(15))
    await rig.source.refresh_metadata([TOPIC])
    rig.upstream.lead(1)
    copy = await rig.resume(10, 9)

    assert_resumed(rig, copy, position=15, downstream=14, records=5)
    assert rig.source.leader(TopicPartition(TOPIC, 0)) == 1
