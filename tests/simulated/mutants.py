"""
The product broken on purpose, in one rule each: a sweep that does not notice is blind.

`scripts/simulate --mutants` says of each which seed noticed, and after how many; `--mutant NAME` looks at one.
Each is a function that replaces something in the process of a run, and whose docstring says what is wrong then. What
only a rare sequence of events shows has options over those that seeds draw, in `SHOWN_BY`.

Some rules are not here, because what is broken alone is made good by another one; unit tests hold them.

- The target's end is awaited until it stands still: what arrives after that makes brokers refuse our sequences, and the
  next resume counts it.
- A producer that brokers may have forgotten is replaced: only a batch from before could be taken twice then, and an
  epoch sends nothing after its time (`void`).
- An id counts once the group has answered again, and a node that was replaced writes nothing more: its transactions are
  refused once another node has opened the id, and what is stored is compared before anything is written (`uncompared`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping
from typing import Any
from unittest import mock

import attrs

from mm2py.connectors.checkpoint import group_offsets, own_moves
from mm2py.connectors.control_writers import ControlWriters, TaskWriter
from mm2py.connectors.measures import FlowMeasures
from mm2py.connectors.offsets import stored_translations
from mm2py.connectors.reach import Reach
from mm2py.connectors.source.copy_task import CopyTask
from mm2py.connectors.source.group import SourceGroup
from mm2py.connectors.source.holders import Holders
from mm2py.connectors.source.outcomes import Outcomes
from mm2py.connectors.source.position_writer import PositionWriter
from mm2py.connectors.source.positions import Positions
from mm2py.connectors.topics import acls as acl_sync
from mm2py.connectors.topics import remote_topics
from mm2py.core.backoff import Backoff
from mm2py.core.checkpoint import checkpoints
from mm2py.core.source import broken_history, resume
from mm2py.core.source.progress import PartitionState
from mm2py.core.topics import acls, topology
from mm2py.core.topics.topology import GrowPartitions
from mm2py.model import health, offset_sync
from mm2py.model.behind import Behind
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionOutcome, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset
from mm2py.model.positions import Position
from mm2py.pipeline.copy import broker_sender, ingest
from mm2py.pipeline.copy import epoch as copying
from mm2py.pipeline.copy.broker_sender import BrokerSender
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.wire.batches import batch
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode


#: Every so many outcomes, a rule is broken that would be noticed at once if it always were.
_EACH = 97


def _replace(target: object, name: str, double: object) -> None:
    mock.patch.object(target, name, double).start()  # for good: the process ends with the run


def _planned(change: Callable[[PartitionPlan], PartitionPlan]) -> None:
    """Have each partition's plan be another one."""
    whole = copying.copy_epoch

    async def copy_epoch(plan: EpochPlan, *more: Any) -> EpochOutcome:
        return await whole(attrs.evolve(plan, partitions=tuple(map(change, plan.partitions))), *more)

    _replace(copying, "copy_epoch", copy_epoch)


# Where a copy goes on, and what of it counts.


def _beyond() -> None:
    """A position is one record too far, now and then."""
    whole, numbers = copying.copy_epoch, itertools.count(1)

    def told(it: PartitionOutcome) -> PartitionOutcome:
        return attrs.evolve(it, position=it.position + (it.records > 0 and next(numbers) % _EACH == 0))

    async def copy_epoch(plan: EpochPlan, *more: Any) -> EpochOutcome:
        outcome = await whole(plan, *more)
        return attrs.evolve(outcome, partitions=tuple(map(told, outcome.partitions)))

    _replace(copying, "copy_epoch", copy_epoch)


def _short() -> None:
    """A resume goes on with the record that it has found at the target, not with the next one."""
    whole = PartitionCopy.continue_after

    def continue_after(self: PartitionCopy, upstream: int, downstream: int, records: int) -> None:
        whole(self, upstream - (records > 0), downstream, records)

    _replace(PartitionCopy, "continue_after", continue_after)


def _unseen() -> None:
    """What the target has beyond the position is taken for nothing."""
    whole = resume.judge

    def judge(*, downstream: int | None, target_end: int) -> resume.Resume:
        found = whole(downstream=downstream, target_end=target_end)
        return resume.Exact(found.downstream) if isinstance(found, resume.Skip) else found

    _replace(resume, "judge", judge)


def _sure() -> None:
    """An unsure partition is taken for a sure one."""
    _planned(lambda it: attrs.evolve(it, is_unsure=it.is_unsure and it.downstream is None))


def _fresh() -> None:
    """What may have arrived is not looked for, and is copied by a producer that no broker knows."""
    numbers = itertools.count(900_000)

    def change(it: PartitionPlan) -> PartitionPlan:
        if not it.is_unsure or it.producer is None or it.downstream is None:
            return it
        producer = attrs.evolve(it.producer, producer_id=next(numbers), sequence=0)
        return attrs.evolve(it, is_unsure=False, producer=producer)

    _planned(change)


def _uncounted() -> None:
    """What a resume has found at the target is not counted in the sequences of what follows."""
    whole = PartitionCopy.continue_after

    def continue_after(self: PartitionCopy, upstream: int, downstream: int, records: int) -> None:
        sequence = self.sending.sequence
        whole(self, upstream, downstream, records)
        self.sending.sequence = self.sending.next_sequence = sequence

    _replace(PartitionCopy, "continue_after", continue_after)


def _aborted() -> None:
    """Records of aborted transactions are copied."""
    whole = ingest.DataFilter.__init__
    _replace(ingest.DataFilter, "__init__", lambda self, _aborted: whole(self, ()))


def _uncommitted() -> None:
    """What is not committed yet is read, although committed records are asked for."""
    whole = copying.copy_epoch

    async def copy_epoch(plan: EpochPlan, *more: Any) -> EpochOutcome:
        return await whole(attrs.evolve(plan, limits=attrs.evolve(plan.limits, reads_committed=False)), *more)

    _replace(copying, "copy_epoch", copy_epoch)


def _alike() -> None:
    """A topic that was created again is taken for the one before."""
    _replace(broken_history, "is_other_topic", lambda *_: False)


# How it is sent.


def _unsequenced() -> None:
    """Batches carry no sequence numbers."""
    whole = batch.sign

    def sign(raw: memoryview, _producer: int, _epoch: int, _sequence: int, *, is_transactional: bool) -> None:
        whole(raw, -1, -1, -1, is_transactional=is_transactional)

    _replace(broker_sender, "sign", sign)


def _hasty() -> None:
    """A second batch is sent before the first one of an epoch is acknowledged."""
    _replace(BrokerSender, "_awaits_first_ack", staticmethod(lambda _: False))


def _shuffled() -> None:
    """Batches without an answer are sent again in the wrong order, and numbered in that."""
    whole = BatchSender._when_all_answered

    def when_all_answered(self: BatchSender, copy: PartitionCopy) -> None:
        sending, in_flight = copy.sending, copy.buffer.in_flight
        if in_flight and not sending.unanswered and not sending.is_given_up:
            sending.next_sequence = in_flight[0].sequence
            in_flight.reverse()
            for buffered in in_flight:
                buffered.sequence = -1
        whole(self, copy)

    _replace(BatchSender, "_when_all_answered", when_all_answered)


def _refused() -> None:
    """A batch whose sequence the broker refuses counts as arrived."""
    whole = BatchSender.settle

    def settle(self: BatchSender, copy: PartitionCopy, buffered: Any, ack: Any, now_ms: int) -> None:
        if ack.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            ack = attrs.evolve(ack, error_code=0, base_offset=(copy.downstream or 0) + 1)
        whole(self, copy, buffered, ack, now_ms)

    _replace(BatchSender, "settle", settle)


def _void() -> None:
    """An epoch sends after its time, even if it slept through it."""
    _replace(BatchSender, "may_send", property(lambda self: not self.is_stopped))


def _impatient() -> None:
    """A lost epoch is planned again at once, while it may still write."""
    whole = CopyTask._lose

    def lose(self: CopyTask, plan: EpochPlan, lost: Any) -> float:
        return whole(self, attrs.evolve(plan, drain_ms=0), attrs.evolve(lost, may_still_write=False))

    _replace(CopyTask, "_lose", lose)


# Who writes.


def _unclaimed() -> None:
    """A partition begins with a producer that no other node could claim before."""

    async def fence(self: Positions, states: Collection[PartitionState]) -> list[Position]:
        claims = [await self._claim(state) for state in states]
        given = [attrs.evolve(it, producer=it.claimed, claimed=None) for it in claims]
        await self.write(given)
        return given

    _replace(Positions, "fence", fence)


def _unguarded() -> None:
    """A node writes positions without transactions."""
    _replace(TaskWriter, "guard", lambda *_: None)


def _unfenced() -> None:
    """The transactional ids of a node that vanished stay valid."""

    async def fence_tasks(*_: object) -> None:
        pass

    _replace(ControlWriters, "fence_tasks", fence_tasks)


def _uncompared() -> None:
    """What others have written meanwhile is not compared before positions are written."""

    async def ready(self: Positions) -> None:
        self._term = await self._writer.ready()

    _replace(Positions, "ready", ready)


def _unreleased() -> None:
    """A partition is given to another node while it is still copied here."""

    async def until_released(_: SourceGroup) -> None:
        pass

    _replace(SourceGroup, "until_released", until_released)


def _greedy() -> None:
    """Each node copies all partitions, whatever its share is."""
    _replace(Holders, "is_ours", lambda *_: True)


def _ungrown() -> None:
    """A remote topic does not grow with its source."""
    whole = topology.missing
    _replace(
        remote_topics, "missing", lambda *it: tuple(act for act in whole(*it) if not isinstance(act, GrowPartitions))
    )


def _permitted() -> None:
    """An ACL that the mirror has created stays once it is gone at the source."""
    whole = acls.plan_acls
    _replace(acl_sync, "plan_acls", lambda *it, **_: whole(*it, deletes=False))


def _certain() -> None:
    """What no broker fences is written although another node may have this one's share."""
    _replace(ControlWriters, "is_certain", lambda _: True)


# Consumer groups.


def _due(change: Callable[..., Mapping[TopicPartition, CommittedOffset]]) -> None:
    whole = checkpoints.due_offsets
    _replace(group_offsets, "due_offsets", lambda *it, **more: change(whole, *it, **more))


def _ahead() -> None:
    """A group is put one record too far at the target."""
    _due(
        lambda whole, *it, **more: {tp: attrs.evolve(at, offset=at.offset + 1) for tp, at in whole(*it, **more).items()}
    )


def _rewound() -> None:
    """A group that went back at the source is set back at the target, too."""
    _due(lambda whole, *it, **more: whole(*it, **{**more, "may_rewind": True}))


def _carried() -> None:
    """What the sync has put a group to at the target is carried back as if the group had read there."""
    _replace(own_moves, "is_own_move", lambda *_, **__: True)


def _nameless() -> None:
    """A lone checkpoint connector takes offset syncs for those of whatever remote topic there is."""
    whole = offset_sync.decode_offset_sync
    _replace(stored_translations, "decode_offset_sync", lambda key, value, _headers: whole(key, value))


def _untranslated() -> None:
    """What a position rests on, where records went, is not written with it."""
    _replace(PositionWriter, "_records", lambda *_: [])


# What a node says, and what it costs.


def _old_lag() -> None:
    """A lag is shown as exact however long ago the source has reported it."""
    _replace(FlowMeasures, "_is_told", lambda *_: True)


def _level() -> None:
    """No partition is shown to be behind."""
    _replace(FlowMeasures, "_behind", lambda *_, **__: Behind(0, 0.0))


def _deaf() -> None:
    """That a cluster does not answer is not noticed."""
    _replace(Reach, "_away", lambda *_: None)


def _healthy() -> None:
    """A cluster that does not answer is no reason to be unhealthy."""
    _replace(health, "_clusters", lambda _: iter(()))


def _restless() -> None:
    """Nothing pauses before it tries again."""
    _replace(Backoff, "pause_s", lambda *_: 0.0)


def _hoarded() -> None:
    """What each epoch came to is kept for good."""
    whole = Outcomes.account

    def account(self: Outcomes, *it: Any, **more: Any) -> Any:
        vars(self).setdefault("_kept", []).append(it)
        return whole(self, *it, **more)

    _replace(Outcomes, "account", account)


def _unclosed() -> None:
    """A connection that is not needed any more stays open."""
    whole = BrokerConnection.close

    def close(self: BrokerConnection, *why: Any) -> None:
        transport, self._transport = self._transport, mock.Mock()
        whole(self, *why)
        self._transport = transport

    _replace(BrokerConnection, "close", close)


MUTANTS: dict[str, Callable[[], None]] = {
    it.__name__.strip("_").replace("_", "-"): it
    for it in (
        _beyond, _short, _unseen, _sure, _fresh, _uncounted, _aborted, _uncommitted, _alike,
        _unsequenced, _hasty, _shuffled, _refused, _void, _impatient,
        _unclaimed, _unguarded, _unfenced, _uncompared, _unreleased, _greedy, _ungrown, _permitted, _certain,
        _ahead, _rewound, _carried, _nameless, _untranslated, _old_lag, _level, _deaf, _healthy, _restless, _unclosed,
        _hoarded,
    )
}  # fmt: skip

_AWAY: dict[str, Any] = {"faults": ("away",), "minutes": 3.0}
_REFUSED: dict[str, Any] = {"faults": ("refused", "late"), "fault_every_s": 8.0, "starts_s": 2.0, "minutes": 3.0}
#: Nodes that take each other's work away, and wake up in the midst of what they were writing.
_CONTENDED: dict[str, Any] = {
    "nodes": 2, "partitions": 2, "rate": 0.5, "minutes": 3.0, "fault_every_s": 2.0, "latency_s": 0.02,
    "epoch_ms": 1_000, "faults": ("slow", "freeze", "clock", "drain", "worker", "kill"), "transactions": True,
}  # fmt: skip
#: Each node copies all, and what one has read is old once it may write; nothing but the log keeps them from harm.
_APART: dict[str, Any] = {
    "nodes": 2, "partitions": 2, "rate": 0.5, "minutes": 2.0, "faults": ("apart",), "fault_every_s": 10.0,
    "latency_s": 0.02, "starts_s": 0.5, "epoch_ms": 1_000,
}  # fmt: skip
#: They begin partitions at the same time.
_BEGUN_APART: dict[str, Any] = {
    **_APART, "nodes": 3, "partitions": 1, "rate": 1.5, "minutes": 1.0, "faults": ("apart", "grow"),
    "fault_every_s": 1.0, "latency_s": 0.1, "starts_s": 0.1, "transactions": False,
}  # fmt: skip
#: What is given away is in the hands of a worker that hangs.
_HELD: dict[str, Any] = {
    "nodes": 3, "partitions": 4, "faults": (*("hang",) * 9, "drain"), "fault_every_s": 4.0, "epoch_ms": 10_000,
    "latency_s": 0.0005, "minutes": 5.0,
}  # fmt: skip
#: What has only the checkpoint connector starts again beside remote topics that are gone and created again.
_APART_AND_REMADE: dict[str, Any] = {
    "mode": "worker", "nodes": 1, "checkers": 1, "both": False, "faults": ("drain", "remake"), "fault_every_s": 4.0,
    "minutes": 5.0, "partitions": 1, "rate": 1.5, "retention_s": 120.0, "on_recreated": "earliest",
}  # fmt: skip
_ASLEEP: dict[str, Any] = {"faults": ("sleep",), "fault_every_s": 6.0, "rate": 1.5, "latency_s": 0.1}
#: Options over what seeds draw, under which a mutant is noticed soon.
SHOWN_BY: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("old-lag", "level", "deaf", "healthy", "restless"), _AWAY),
    **dict.fromkeys(("hasty", "shuffled", "refused"), _REFUSED),
    "alike": {"faults": ("recreate", "remake"), "minutes": 3.0, "on_recreated": "earliest"},
    "impatient": {"faults": ("executor",), "minutes": 3.0},
    "void": _ASLEEP,
    "carried": {"both": True},
    "nameless": _APART_AND_REMADE,
    "certain": {**_CONTENDED, "nodes": 3, "faults": ("freeze", "remake", "drain"), "latency_s": 0.0005},
    "permitted": {"faults": ("acl",), "minutes": 2.0, "fault_every_s": 5.0},
    "hoarded": {"nodes": 1, "rounds": 2, "minutes": 2.0, "epoch_ms": 1_000, "faults": ()},
    "unreleased": _HELD,
    **dict.fromkeys(("unguarded", "unfenced"), _CONTENDED),
    "uncompared": _APART,
    "unclaimed": _BEGUN_APART,
}
