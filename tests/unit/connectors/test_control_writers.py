"""Under which transactional ids a flow's owner and its tasks write, and what happens where they may not open them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from mm2py.connectors.control_writers import ControlWriters, NotOpenError, TaskWriter
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.telemetry.events import ControlWritesGuarded, ControlWritesUnguarded, FlowFenced
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fenced_writer import FencedWriter, TakenOverError
from mm2py.wire.transactions import TransactionalProducer
from tests.support.clocks import LoopClock
from tests.support.fake_brokers import INIT, FakeBrokers, FakePartition, FakeTopic
from tests.support.flow_rig import FLOW, flow_context


OWNER = "connect-cluster-A-mm2"


PLACE = TopicPartition("t", 0)


class Rig:
    """A flow's writers at a coordinator, which answers as said before it does what it is asked."""

    def __init__(self, brokers: FakeBrokers, target: Cluster) -> None:
        brokers.topics = {PLACE.topic: FakeTopic([FakePartition()])}
        self.brokers, self.target = brokers, target
        self.events = EventLog(LoopClock())
        self.writers: ControlWriters = flow_context(LoopClock(), self.events).writers
        self.doubts = 0
        self.writers.follow(is_certain=lambda: True, on_fenced=self.doubt)

    def doubt(self) -> None:
        self.doubts += 1

    async def write(self, writer: FencedWriter, *answers: int) -> None:
        self.brokers.answers = list(answers)

        async def append(_: TransactionalProducer | None) -> None:
            return

        await writer.write(self.target, [PLACE], append)


@pytest.fixture
def owner(brokers: FakeBrokers, cluster: Cluster) -> Rig:
    """The writer of what only the owner writes."""
    return Rig(brokers, cluster)


async def test_a_fenced_owner_is_reported_once_and_begins_with_another_writer(owner: Rig) -> None:
    """The id is that of Java's leader. What an earlier life still tries to write is refused without a word."""
    rig = owner
    first = await rig.writers.for_owner(rig.target)
    for answers in ([ErrorCode.PRODUCER_FENCED], []):
        with pytest.raises(TakenOverError):
            await rig.write(first, *answers)
    second = await rig.writers.for_owner(rig.target)
    await rig.write(second)
    with pytest.raises(TakenOverError):
        await rig.write(first)

    assert [(it.transactional_id, it.flow) for it in rig.events.of(FlowFenced)] == [(OWNER, FLOW)]
    assert rig.doubts == 1


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, f"WRITE on transactional id {OWNER} of cluster"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "__transaction_state"),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "transaction.max.timeout.ms"),
        (ErrorCode.CONCURRENT_TRANSACTIONS, "kafka-transactions.sh"),
        (ErrorCode.UNSUPPORTED_VERSION, ""),
    ],
)
async def test_where_no_id_can_be_opened_a_flow_writes_unguarded(owner: Rig, code: ErrorCode, hint: str) -> None:
    """That is reported once, with what is missing; the next life tries again, and reports it again after a success."""
    rig = owner
    for _ in range(2):
        rig.brokers.answers = [code] * 10_000
        writer = await rig.writers.for_owner(rig.target)
    await rig.write(writer)
    unguarded = rig.events.of(ControlWritesUnguarded)
    guarded = await rig.writers.for_owner(rig.target)

    assert (writer.is_open, guarded.is_open) == (False, True)
    assert [it.transactional_id for it in unguarded] == [OWNER]
    assert hint in unguarded[0].hint
    assert code.name in unguarded[0].error


async def test_other_errors_are_not_taken_for_a_refusal(owner: Rig) -> None:
    """A coordinator that only moves must not leave a flow unguarded."""
    owner.brokers.answers = [ErrorCode.NOT_COORDINATOR] * 10_000
    with pytest.raises(BrokerAnsweredError, match="NOT_COORDINATOR"):
        await owner.writers.for_owner(owner.target)

    assert not owner.events.of(ControlWritesUnguarded)


async def test_nodes_that_copy_side_by_side_do_not_fence_each_other(owner: Rig) -> None:
    """With copy.on.second.node = warn, or without the group, two nodes may run the flow, and both write."""
    owner.writers.is_guarding = False
    writer = await owner.writers.for_owner(owner.target)
    await owner.write(writer)

    assert not writer.is_open
    assert owner.brokers.asked == []


class TaskRig(Rig):
    """The writer of a node's tasks, whose group answers at once while it `answers`."""

    def __init__(self, brokers: FakeBrokers, target: Cluster) -> None:
        super().__init__(brokers, target)
        self.writer: TaskWriter = self.writers.tasks
        self.answers = True
        self.asked = 0
        self.written: list[bool] = []
        self.writer.guard(self.ask)

    def ask(self) -> None:
        self.asked += 1
        if self.answers:
            self.answer()

    def answer(self) -> None:
        self.writer.begin_asking()
        asyncio.get_running_loop().call_soon(self.writer.confirm)

    async def write_as_task(self, *answers: int) -> None:
        self.brokers.answers = list(answers)

        async def append(transaction: TransactionalProducer | None) -> None:
            self.written.append(transaction is not None)

        await self.writer.write(self.target, [PLACE], append)

    @property
    def tasks(self) -> list[str]:
        """The tasks whose ids were opened."""
        opened = [request.transactional_id for _, request in self.brokers.requests_of(INIT)]
        return [name.removeprefix("A-mm2-MirrorSourceConnector-") for name in opened]


@pytest.fixture
async def rig(brokers: FakeBrokers, cluster: Cluster) -> AsyncIterator[TaskRig]:
    """A writer that opens ids, and has no tasks yet."""
    brokers.latency_s = 0.0
    rig = TaskRig(brokers, cluster)
    running = asyncio.create_task(rig.writer.run(rig.target))
    yield rig
    running.cancel()


async def test_a_node_writes_as_its_first_task(rig: TaskRig) -> None:
    """It does so once it has tasks; the names are Java's. When that task goes elsewhere, the next id is opened."""
    with pytest.raises(NotOpenError):
        await rig.write_as_task()
    rig.writer.hold({2, 1})
    term = await rig.writer.ready()
    await rig.write_as_task()
    rig.writer.hold({2})
    await rig.writer.until_moved()
    await rig.write_as_task()

    assert rig.tasks == ["1", "2"]
    assert rig.written == [True, True]
    assert await rig.writer.ready() == term


async def test_an_id_counts_once_the_group_has_answered(rig: TaskRig) -> None:
    """
    A node freezes before it opens its id. Its group throws it out, and the leader takes the id from it.

    When it thaws it opens the id, which takes it from its new owner, but learns that it was replaced before it writes.
    """
    rig.answers = False
    rig.writer.hold({0})
    await asyncio.sleep(0.1)
    early = list(rig.tasks)
    rig.answer()
    await asyncio.sleep(0.1)
    opened = list(rig.tasks)
    rig.writer.lose()
    rig.answer()
    with pytest.raises(NotOpenError):
        await rig.writer.ready()
    with pytest.raises(NotOpenError):
        await rig.write_as_task()

    assert (early, opened, rig.asked) == ([], ["0"], 2)
    assert rig.written == []


async def test_a_refused_node_writes_again_once_its_group_has_answered(rig: TaskRig) -> None:
    """A leader that was replaced meanwhile has fenced it. It is told once; what was read before has to be compared."""
    rig.writer.hold({0})
    term = await rig.writer.ready()
    rig.answers = False
    with pytest.raises(TakenOverError):
        await rig.write_as_task(ErrorCode.INVALID_PRODUCER_EPOCH)
    with pytest.raises(NotOpenError):
        await rig.write_as_task()
    await asyncio.sleep(0.1)
    before = list(rig.tasks)
    rig.answers = True
    rig.answer()
    later = await rig.writer.ready()
    await rig.write_as_task()

    assert (before, rig.tasks) == (["0"], ["0", "0"])
    assert rig.written == [True]
    assert later > term
    assert [it.transactional_id for it in rig.events.of(FlowFenced)] == ["A-mm2-MirrorSourceConnector-0"]
    assert rig.doubts == 0


async def test_nodes_that_contend_for_an_id_leave_it_to_each_other_for_longer_and_longer(rig: TaskRig) -> None:
    """Otherwise none of them would get a write done; after a quiet minute it is opened again at once."""
    rig.writer.hold({0})
    clock, opened_after = LoopClock(), []
    for quiet_s in (0.0, 0.0, 0.0, 0.0, 100.0):
        await rig.writer.ready()
        await asyncio.sleep(quiet_s)
        with pytest.raises(TakenOverError):
            await rig.write_as_task(ErrorCode.INVALID_PRODUCER_EPOCH)
        begun = clock.monotonic()
        await rig.writer.ready()
        opened_after.append(clock.monotonic() - begun)

    assert opened_after == pytest.approx([0.0, 0.5, 1.0, 2.0, 0.0])


async def test_a_node_whose_ids_are_forbidden_writes_as_before(rig: TaskRig) -> None:
    """That is reported once, however often tasks are assigned."""
    for _ in range(2):
        rig.brokers.answers = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 10
        rig.writer.hold({0})
        await rig.writer.ready()
        await asyncio.sleep(0.1)
    await rig.write_as_task()

    assert rig.written == [False]
    (unguarded,) = rig.events.of(ControlWritesUnguarded)
    assert "WRITE on transactional ids that begin with A-mm2-MirrorSourceConnector-" in unguarded.hint


async def test_an_id_that_could_not_be_opened_is_tried_again_every_minute(rig: TaskRig) -> None:
    """
    The coordinator is away for longer than a node waits for it, which writes without transactions then.

    If it did so until tasks are assigned again, it could write old positions over newer ones after a standstill, days
    later.
    """
    rig.brokers.answers = [ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED] * 2
    rig.writer.hold({0})
    term = await rig.writer.ready()
    await rig.write_as_task(*rig.brokers.answers)
    await asyncio.sleep(130)
    later = await rig.writer.ready()
    await rig.write_as_task()

    assert rig.written == [False, True]
    assert later > term
    assert len(rig.events.of(ControlWritesUnguarded)) == 1
    assert [it.transactional_id for it in rig.events.of(ControlWritesGuarded)] == ["A-mm2-MirrorSourceConnector-0"]


async def test_a_new_life_undoes_what_the_last_one_left(rig: TaskRig) -> None:
    """Its last write may have been cancelled in a transaction, which would keep it from reading."""
    rig.writer.hold({0})
    await rig.writer.ready()
    rig.writer.restart()
    await rig.writer.ready()
    await rig.write_as_task()
    await asyncio.sleep(1)  # until its markers are written
    rig.writer.restart()
    await rig.writer.ready()

    assert rig.tasks == ["0", "0"]
