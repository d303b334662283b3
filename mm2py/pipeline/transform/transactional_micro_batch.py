"""
An epoch of a record task whose records are written exactly once.

All that a micro-batch writes is one transaction: its records, its dead letters, and the positions after them. If
anything about it is in doubt it is undone by opening the producer again, which fences whatever may still be writing for
it, and nothing has moved. Only an answer to the commit that was lost leaves the question how it ended; the committed
positions answer that, which are read whenever the producer is opened.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final

import attrs

from mm2py.core.source.exactly_once import Standing, judge
from mm2py.model.epoch import Ended, EpochOutcome, EpochPlan, PartitionFailure, PartitionOutcome, PartitionPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.pipeline.copy.refusals import UNREACHABLE
from mm2py.pipeline.transform.micro_batch import Around, End, MicroBatch, RecordTask
from mm2py.pipeline.transform.results import BadRecord, MicroBatchResult, RangeOutcome, unmoved
from mm2py.pipeline.transform.target_tail import records_behind
from mm2py.pipeline.transform.transaction import Committer
from mm2py.telemetry.events import TransactionFenced
from mm2py.wire.error_codes import name_of
from mm2py.wire.transactions import FENCED, ProducerFencedError


_FENCED_NAMES: Final = frozenset(map(name_of, FENCED))
_HINT_TIMEOUT: Final = "less is taken at once from now on; or raise producer.transaction.timeout.ms"
_HINT_SET_BACK: Final = "restart the flow to go on from there; only this daemon may write positions while it runs"


class TransactionalMicroBatch(MicroBatch):
    """One epoch of a record task with transactions."""

    _hint_late = _HINT_TIMEOUT

    def __init__(self, tasks: Around, task: RecordTask, plan: EpochPlan) -> None:
        super().__init__(tasks, task, plan)
        assert task.committer is not None  # noqa: S101 - the caller has checked
        self._committer: Committer = task.committer
        #: The sources of the ranges that are in the transaction.
        self._begun_with: frozenset[TopicPartition] = frozenset()

    async def run(self) -> EpochOutcome:
        if self._task.contention.left_s(self._clock.monotonic()):
            self._outcomes.fail_rest(Ended.FAILED, self._taken_over())
            return self._outcome()
        return await super().run()

    async def _course(self) -> None:
        try:
            await super()._course()
        except ProducerFencedError as error:
            self._fenced(error)
        finally:
            if self._committer.is_begun:
                await self._committer.undo()

    # Being the only writer.

    def _is_unsure(self, one: PartitionPlan) -> bool:
        end = self._task.ends.get(one.source)
        return super()._is_unsure(one) or end is None or end.downstream != one.downstream

    async def _resolved(self) -> list[PartitionPlan]:
        """Open the producer if anything is in doubt, then look at the target, which has no other writer now."""
        task, sources = self._task, {one.source for one in self._plan.partitions}
        if not self._committer.is_open:
            task.certain.clear()
        if not sources <= task.certain:
            # One that was not there when the producer was opened last may have been in doubt, too.
            task.ends.clear()
            committed = await self._committer.open()
            await self._write_starts(committed)
            await self._go_by(committed)
            task.certain |= {it for it in sources if it not in self._outcomes or self._outcomes[it].ended is Ended.OK}
        return await super()._resolved()

    async def _write_starts(self, committed: Mapping[TopicPartition, Position]) -> None:
        """
        Commit where the partitions start that have no position: a later life is not to decide it again.

        In a transaction, because another node may have decided as well, and have written a great deal since.
        """
        fresh = [one for one in self._plan.partitions if one.source not in committed and one.found_before is None]
        if fresh:
            await self._committer.begin((), [one.source for one in fresh])
            await self._committer.commit([_position(one, unmoved(one)) for one in fresh])

    async def _explain_more(self, one: PartitionPlan, end: int, more: int) -> None:
        """Report records that nothing accounts for, unless another producer has written them since ours was opened."""
        committed = (await self._committer.committed()).get(one.source)
        if judge(one.position, committed) is not Standing.AS_KNOWN:
            raise ProducerFencedError(self._plan.target.alias, self._committer.terms.transactional_id)
        await super()._explain_more(one, end, more)

    async def _go_by(self, committed: Mapping[TopicPartition, Position]) -> None:
        """Go by what is committed, which may be more, or less, than was known."""
        for one in self._plan.partitions:
            position, offset_range = committed.get(one.source), self._task.doubtful.pop(one.source, None)
            if one.found_before is not None or position is None:
                continue  # what is planned is a guess, or there is nothing to go by
            match judge(one.position, position):
                case Standing.AS_KNOWN:
                    continue
                case Standing.AHEAD:
                    if offset_range is not None and _position(one, offset_range.partition) == position:
                        await self._account((one,), (offset_range,))
                    else:
                        self._outcomes[one.source] = _further(one, position)
                case Standing.BEHIND:
                    message = (
                        f"{self._committer.terms.positions_topic} says that {one.source} is mirrored up to offset "
                        f"{position.next_upstream}, but this daemon has committed {one.position}"
                    )
                    self._outcomes.fail(one, Ended.FAILED, PartitionFailure(message, _HINT_SET_BACK, "PositionSetBack"))

    def _fenced(self, error: ProducerFencedError) -> None:
        """Stop: another producer has the transactional id, or the brokers have aborted the transaction."""
        committer, task = self._committer, self._task
        if committer.is_overdue:
            task.pace.ease()
            message = f"its transaction was open for longer than {committer.terms.timeout_ms} ms and was aborted"
            self._outcomes.fail_rest(Ended.INTERRUPTED, PartitionFailure(message, _HINT_TIMEOUT, "TransactionTimedOut"))
            return
        committer.give_way()
        pause_s, failure = task.contention.lose(self._clock.monotonic(), 0.5), self._taken_over()
        if not pause_s:
            # Once is no contest: this node was frozen, and another one has its task.
            self._outcomes.fail_rest(Ended.INTERRUPTED, attrs.evolve(failure, hint="it is tried again by itself"))
            return
        self._tasks.events.emit(
            TransactionFenced(self._plan.flow, self._plan.task, error.transactional_id, str(error), error.hint, pause_s)
        )
        self._outcomes.fail_rest(Ended.FAILED, failure)

    def _taken_over(self) -> PartitionFailure:
        error = ProducerFencedError(self._plan.target.alias, self._committer.terms.transactional_id)
        return PartitionFailure(str(error), error.hint, type(error).__name__)

    # A transaction.

    async def _transform(self, offset_ranges: tuple[PartitionPlan, ...]) -> None:
        # It is there before the transaction begins, whose time is limited.
        jobs = await self._tasks.jobs(self._task, self._plan)
        committer = self._committer
        behind = [self._behind_all(one) for one in offset_ranges]
        sources = frozenset(one.source for one in offset_ranges)
        self._begun_with, begun = sources, self._clock.monotonic()
        await committer.begin([one.remote for one in behind], sources)
        marked = tuple(attrs.evolve(one, producer=committer.mark(one.remote)) for one in behind)
        done = await self._run(jobs, marked)
        if done.failed:
            self._task.jobs = None
            await jobs.stop(self._clock)
            await committer.undo()
            await self._explain(jobs, offset_ranges, done)
            return
        doubts = _doubts(offset_ranges, done.outcomes)
        if any(it.failure is not None and it.failure.error in _FENCED_NAMES for it in doubts):
            raise ProducerFencedError(self._plan.target.alias, committer.terms.transactional_id)
        if doubts:
            # With less to send there is less that can be on its way when time is up.
            self._task.pace.ease()
            await committer.undo()
            self._outcomes |= {it.source: it for it in doubts}
            self._give_back(self._outcomes.missing(offset_ranges))
            return
        planned = {one.source: one for one in offset_ranges}
        for offset_range in done.outcomes:
            told = offset_range.partition
            committer.wrote(planned[told.source].remote, told.producer)
        await self._commit(offset_ranges, done.outcomes)
        self._task.pace.press_on(self._clock.monotonic() - begun, committer.terms.timeout_ms / 1000)

    async def _commit(self, offset_ranges: Sequence[PartitionPlan], outcomes: Sequence[RangeOutcome]) -> None:
        """Commit what was written together with the positions after it, and account for it."""
        planned = {one.source: one for one in offset_ranges}
        written: dict[TopicPartition, RangeOutcome] = {}
        ends: dict[TopicPartition, End] = {}
        for offset_range in outcomes:
            one, told = planned[offset_range.partition.source], offset_range.partition
            downstream = told.downstream if told.records else one.downstream
            # Behind the last record is the marker of the transaction.
            last = -1 if told.downstream is None else told.downstream
            ends[one.source] = End(downstream, last + 1)
            moved = attrs.evolve(told, downstream=downstream, producer=None)
            written[one.source] = attrs.evolve(offset_range, partition=moved)
            bad_records = [bad for bad in offset_range.left_out if bad.offset < told.position]
            failed = await self._refused(partial(self._keep_letters, one, bad_records))
            if failed is not None:
                await self._undo_for(one, *failed)
                return
        await self._commit_positions(planned, written)
        written = {source: await self._without_markers(planned[source], it) for source, it in written.items()}
        self._task.ends.update(ends)
        await self._account(offset_ranges, written.values())

    async def _without_markers(self, one: PartitionPlan, offset_range: RangeOutcome) -> RangeOutcome:
        """
        Count as another writer's only those offsets before a range that hold records.

        A coordinator that replaces one in the middle of a commit writes the markers of that commit once more.
        """
        told, behind = offset_range.partition, self._behind_all(one)
        if not told.foreign_records or behind.downstream is None:
            return offset_range
        after, first = behind.downstream, told.runs[0].downstream
        try:
            records = await records_behind(self._target, one.remote, after=after, end=first, clock=self._clock)
        except UNREACHABLE:
            records = 0  # if there is another writer, the next range finds its records
        foreign = told.foreign_records - (first - after - 1) + records
        return attrs.evolve(offset_range, partition=attrs.evolve(told, foreign_records=foreign))

    async def _commit_positions(
        self, planned: Mapping[TopicPartition, PartitionPlan], written: Mapping[TopicPartition, RangeOutcome]
    ) -> None:
        doubtful = self._task.doubtful
        doubtful |= written
        await self._committer.commit(
            [
                _position(planned[source], offset_range.partition)
                for source, offset_range in written.items()
                if offset_range.partition.position > planned[source].position
            ]
        )
        for source in written:
            del doubtful[source]

    async def _keep_letters(self, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        if self._letters.are_kept and bad_records:
            records = await self._letters.collect(self._plan, one, bad_records)
            await self._committer.append(self._letters.log, records)

    async def _leave_out(self, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        self._letters.report(self._plan, one, bad_records)  # it was written with the rest

    async def _step_over(self, one: PartitionPlan, bad: BadRecord) -> None:
        if not self._committer.is_open:
            return  # another one was refused
        await self._committer.begin((), [one.source])
        failed = await self._refused(partial(self._keep_letters, one, [bad]))
        if failed is not None:
            await self._undo_for(one, *failed)
            return
        outcome = attrs.evolve(unmoved(one), position=bad.offset + 1, producer=None)
        await self._commit_positions({one.source: one}, {one.source: RangeOutcome(outcome, left_out=(bad,))})
        self._outcomes[one.source] = outcome
        await self._leave_out(one, (bad,))

    # What was not committed.

    async def _undo_for(self, one: PartitionPlan, ended: Ended, failure: PartitionFailure) -> None:
        """Undo a transaction in which the dead letters of *one* are refused: it pauses, the others are tried again."""
        await self._committer.undo()
        self._outcomes.fail(one, ended, failure)
        self._give_back(self._outcomes.missing(self._outcomes.plans.values()))

    async def _give_up(self, others: Sequence[PartitionPlan], done: MicroBatchResult) -> None:
        if self._outcomes.keys() & self._begun_with:
            self._give_back(others)
        else:
            self._interrupt(others, done, is_unsure=False)

    def _give_back(self, others: Collection[PartitionPlan]) -> None:
        """Report ranges whose transaction was aborted, for no fault of theirs."""
        self._outcomes |= {one.source: unmoved(one) for one in others}


def _doubts(offset_ranges: Collection[PartitionPlan], outcomes: Sequence[RangeOutcome]) -> list[PartitionOutcome]:
    """
    Return why it is not known to the last record what was written, for each range that this holds for.

    Where there are any, the transaction cannot be committed, and they are where they were.
    """
    told = {offset_range.partition.source: offset_range.partition for offset_range in outcomes}
    doubts: list[PartitionOutcome] = []
    for one in offset_ranges:
        outcome = told.get(one.source)
        if outcome is not None and not outcome.is_unsure:
            continue
        ended = Ended.INTERRUPTED if outcome is None or outcome.ended is Ended.OK else outcome.ended
        failure = PartitionFailure(f"it is not known what was written for {one.source}")
        if outcome is not None and outcome.failure is not None:
            failure = outcome.failure
        stray_from = outcome.stray_from if outcome is not None else None
        doubts.append(attrs.evolve(unmoved(one), ended=ended, failure=failure, stray_from=stray_from))
    return doubts


def _position(one: PartitionPlan, outcome: PartitionOutcome) -> Position:
    """
    Return what is written down of an outcome. Another daemon's would be equal only if it were the same transaction.
    """
    return Position(
        one.source, outcome.position, outcome.downstream, one.topic_id, None, one.remote_topic_id, outcome.leader
    ).at(one.remote_topic)


def _further(one: PartitionPlan, position: Position) -> PartitionOutcome:
    """Continue where another node has got to: where the records up to there went is not known."""
    return attrs.evolve(
        unmoved(one),
        position=position.next_upstream,
        downstream=position.downstream,
        leader=position.leader,
        producer=None,
        is_unsure=True,
        known_from=position.next_upstream,
    )
