"""A source that lost what was copied, and a remote topic that is another one: noticed before anything is mixed."""

from __future__ import annotations

import asyncio
from typing import Any

import attrs
import pytest

from mm2py.model.epoch import SETTLING_MS, Ended, LeaderMark
from mm2py.wire.log_end import OffsetForLeaderEpochRequest
from mm2py.wire.requests import MetadataRequest
from tests.support.copy_rig import NEW_ID, OLD_ID, REMOTE, TOPIC, CopyRig, known, of, rig_of, worker_of
from tests.support.fake_brokers import PRODUCE
from tests.support.in_process import InProcessCluster, InProcessPartition


def truncate(partition: InProcessPartition, to: int, *, new_epoch: int) -> None:
    """Do what an unclean election does: the new leader's log ends at *to*."""
    partition.truncate(to)
    partition.leader_epoch = new_epoch
    partition.wake()


async def test_the_epoch_of_the_last_record_goes_with_the_position(rig: CopyRig) -> None:
    """The outcome says under which leader the record before the position was written, and since when."""
    rig.load(0, 4, leader_epoch=0)
    rig.load(0, 4, leader_epoch=3)
    rig.upstream(0).leader_epoch = rig.upstream(1).leader_epoch = 3
    rig.load(1, 40, records=1, leader_epoch=2)
    rig.load(1, 40, records=1, leader_epoch=3)
    outcome = await rig.epoch()

    assert of(outcome, 0).leader == LeaderMark(3, 12)
    assert of(outcome, 1).leader == LeaderMark(3, 40)
    assert rig.values(1) == list(range(80))


async def test_a_source_that_lost_what_was_copied_and_grew_past_it_is_noticed(rig: CopyRig) -> None:
    """
    An unclean leader whose log has grown past the position is not taken for the old one; another partition goes on.

    Records 0 to 29 are copied; the new leader has 0 to 17 of them, and 33 others behind these.
    """
    rig.load(0, 10)
    await rig.epoch()
    truncate(rig.upstream(), 18, new_epoch=1)
    rig.load(0, 11, leader_epoch=1)
    rig.load(1, 3)
    outcome = await rig.epoch()

    assert of(outcome).ended is Ended.TRUNCATED
    assert known(of(outcome).failure).offset == 18
    assert of(outcome).position == 30
    assert (rig.values(0), rig.values(1)) == (list(range(30)), list(range(9)))


async def test_a_leader_that_changes_within_an_epoch_is_asked(rig: CopyRig) -> None:
    """The new leader is asked before the epoch goes on with it, not only at the next epoch's start."""
    rig.load(0, 10)

    def elect() -> None:
        truncate(rig.upstream(), 18, new_epoch=1)
        rig.load(0, 11, leader_epoch=1)

    asyncio.get_running_loop().call_later(1.0, elect)
    outcome = await rig.epoch(epoch_ms=3_000)

    assert of(outcome).ended is Ended.TRUNCATED
    assert rig.values(0) == list(range(30))


async def test_a_clean_election_changes_nothing_and_is_asked_about_once(rig: CopyRig) -> None:
    """A new leader that has everything goes on at once; an idle partition is not asked about in each epoch."""
    rig.load(0, 10)
    await rig.epoch()
    rig.upstream().leader_epoch = 5
    for _ in range(3):
        await rig.epoch()
    asked = rig.source.asked("OffsetForLeaderEpoch")
    rig.load(0, 2, leader_epoch=5)
    outcome = await rig.epoch()

    assert asked == 1
    assert (of(outcome).ended, of(outcome).leader) == (Ended.OK, LeaderMark(5, 30))
    assert rig.values(0) == list(range(36))


async def test_a_leader_that_does_not_answer_holds_up_no_other() -> None:
    """After an election one broker opens no connection: the other's partition goes on, and epochs end in time."""
    rig = rig_of(2, brokers=2)
    for number in range(2):
        rig.load(number, 10)
    await rig.epoch()
    for number in range(2):
        rig.upstream(number).leader_epoch = 5
        rig.load(number, 1, leader_epoch=5)
    await rig.source.send_to(1, MetadataRequest([TOPIC]))  # so that it is asked first who leads
    for connection in rig.source.connections:
        if connection.node == 0:
            connection.hang_up()
    rig.source.hanging = {0}
    arrived: list[int] = []
    asyncio.get_running_loop().call_later(0.3, lambda: arrived.extend(rig.values(1)))
    outcome = await rig.epoch(epoch_ms=SETTLING_MS)

    assert arrived == list(range(33))
    assert outcome.elapsed_s == pytest.approx(SETTLING_MS / 1000, abs=0.2)
    assert of(outcome, 0).ended is Ended.INTERRUPTED
    assert known(of(outcome, 0).failure).message.startswith("broker 0 at the source answered nothing")


async def test_an_epoch_lasts_until_a_distant_leader_has_said_what_it_holds(
    rig: CopyRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asking takes longer than an epoch: it is not started again in each."""
    rig.load(0, 10)
    await rig.epoch()
    rig.upstream().leader_epoch = 5
    rig.load(0, 1, leader_epoch=5)
    ask = InProcessCluster.send_to

    async def slowly(cluster: InProcessCluster, node: int, request: Any, purpose: str = "") -> Any:
        if isinstance(request, OffsetForLeaderEpochRequest):
            await asyncio.sleep(0.8)
        return await ask(cluster, node, request, purpose)

    monkeypatch.setattr(InProcessCluster, "send_to", slowly)
    await rig.epoch(epoch_ms=500)
    await rig.epoch(epoch_ms=500)

    assert rig.values() == list(range(33))


async def test_a_leader_that_does_not_know_the_epoch_is_another_log(rig: CopyRig) -> None:
    """A log that has no such epoch at all, as one restored from a backup, is not the one that was copied."""
    rig.load(0, 10, leader_epoch=7)
    rig.upstream().leader_epoch = 7
    await rig.epoch()
    rig.upstream().leader_epoch = 2
    restored = InProcessCluster.of("A", TOPIC, 2)
    restored.simulated = rig.source.simulated
    rig.worker = worker_of(restored, rig.target)
    outcome = await rig.epoch()

    assert of(outcome).ended is Ended.TRUNCATED


async def test_a_remote_topic_of_another_id_is_not_written(rig: CopyRig) -> None:
    """A remote topic that was deleted and created again gets no record from the middle of the source."""
    rig.target.create(REMOTE, 2, NEW_ID)
    rig.load(0, 3)
    rig.load(1, 3)
    rig.plans[0] = attrs.evolve(rig.plans[0], remote_topic_id=OLD_ID, position=3, downstream=2)
    rig.plans[1] = attrs.evolve(rig.plans[1], remote_topic_id=NEW_ID)
    outcome = await rig.epoch()

    assert [of(outcome, number).ended for number in (0, 1)] == [Ended.TARGET_REWOUND, Ended.OK]
    assert (rig.values(0), rig.values(1)) == ([], list(range(9)))


@pytest.mark.parametrize(("newest", "is_seen"), [(12, False), (13, False), (12, True)])
async def test_a_remote_topic_that_is_created_again_unseen(rig: CopyRig, newest: int, *, is_seen: bool) -> None:
    """
    While nothing is sent nobody notices; brokers that are told topics' ids take nothing for another one then.

    To others nothing more is sent once metadata names another topic.
    """
    rig.target.versions[PRODUCE] = (7, newest)
    rig.plans.pop(1)
    rig.load(0, 2)

    async def create_again() -> None:
        await asyncio.sleep(1)
        rig.target.create(REMOTE, 1, NEW_ID)
        if is_seen:
            await rig.target.refresh_metadata([REMOTE])
        rig.load(0, 2)

    creating = asyncio.create_task(create_again())
    outcome = await rig.epoch(epoch_ms=3_000)
    await creating

    assert of(outcome).ended is Ended.TARGET_REWOUND
    assert (of(outcome).position, rig.values(0)) == (6, [] if is_seen or newest >= 13 else [6, 7, 8])


async def test_partitions_of_which_no_topic_id_is_known_share_no_request_with_others(rig: CopyRig) -> None:
    """All are copied, in order, whichever their broker is told of their topics."""
    rig.plans[0] = attrs.evolve(rig.plans[0], remote_topic_id=None)
    for number in rig.plans:
        rig.load(number, 30)
    outcome = await rig.epoch()

    assert {one.ended for one in outcome.partitions} == {Ended.OK}
    assert [rig.values(number) for number in rig.plans] == [list(range(90))] * len(rig.plans)


async def test_a_search_ends_where_the_record_cannot_be_any_more() -> None:
    """What the target ends with must come from before the records that it lost, or it is not what it seems."""
    rig = rig_of(1, coalesce_below_bytes=0)
    rig.load(0, 10)
    await rig.epoch()
    remote = rig.remote()
    strays = remote.batches[5:7]
    remote.truncate(0)
    for batch in strays:
        remote.append(batch.raw, "")
    remote.raise_watermark(6)
    rig.plans = {
        0: attrs.evolve(rig.plans[0], position=0, downstream=None, is_unsure=True, found_before=6, producer=None)
    }
    outcome = await rig.epoch()

    assert of(outcome).ended is Ended.UNPROVEN
