"""
An epoch of a record task: plan ranges of offsets, run them, account for their outcomes.

Unsure positions are resolved first. The records that there are become ranges, a micro-batch transforms and writes them,
and its results become the epoch's outcome. A record that the transform fails on is found, and stops its topic or is
skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

import attrs

from mm2py.clock import Clock
from mm2py.core.backoff import Backoff, Contention
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.counters import Effort
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import (
    Ended,
    EpochOutcome,
    EpochPlan,
    Histogram,
    LogOffsets,
    PartitionFailure,
    PartitionOutcome,
    PartitionPlan,
)
from mm2py.model.flow import TopicPartition
from mm2py.model.transform import Transform
from mm2py.pipeline.copy.fetcher import HINT_OUT_OF_RANGE
from mm2py.pipeline.copy.metadata import too_short
from mm2py.pipeline.copy.refusals import UNREACHABLE, failure_of
from mm2py.pipeline.transform.dead_letters import DeadLetters
from mm2py.pipeline.transform.failures import TransformFailedError, is_lost, raised_in, shortage_in, unreadable_in
from mm2py.pipeline.transform.find_bad_record import Isolation
from mm2py.pipeline.transform.jobs import LATE, TransformJobs, allowed_s
from mm2py.pipeline.transform.limits import Limits
from mm2py.pipeline.transform.offset_ranges import Pace
from mm2py.pipeline.transform.read import PATIENCE_S, READ_WITHIN_S, RangeReader
from mm2py.pipeline.transform.results import BadRecord, MicroBatchResult, Outcomes, RangeOutcome, unmoved
from mm2py.pipeline.transform.sql.dataframe import TransformRefusedError
from mm2py.pipeline.transform.target_tail import records_behind
from mm2py.pipeline.transform.transaction import Committer
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import LATEST
from mm2py.wire.topic_log import TooFewBrokersError
from mm2py.wire.transactions import ProducerFencedError


_LOOK_EVERY_S: Final = 0.05
_LOOK_EVERY_MOST_S: Final = 0.5
_SETTLE_S: Final = 0.2
#: How long Python workers of a job that failed may still write: Spark kills them after three seconds.
QUIET_S: Final = 4.0
#: How long a daemon leaves the field to another one that has taken over.
_FENCE_PAUSES: Final = Backoff(10.0, 300.0)
_FENCES_FORGOTTEN_S: Final = 600.0
Ends = Mapping[TopicPartition, "int | BrokerAnsweredError"]


@attrs.frozen
class End:
    """A remote partition's last offset, which may be a transaction's marker; its last record is at `downstream`."""

    downstream: int | None
    last: int


@attrs.define(eq=False)
class RecordTask:
    """What is kept of a record task between its epochs."""

    transform: Transform
    jobs: TransformJobs | None = None
    pace: Pace = attrs.field(factory=Pace)
    #: Records that the transform fails on; ranges end before them.
    bad: dict[TopicPartition, BadRecord] = attrs.field(factory=dict)
    #: Those of them that have stopped their topics.
    stopped: set[TopicPartition] = attrs.field(factory=set)
    nudged: asyncio.Event = attrs.field(factory=asyncio.Event)
    #: Those of ranges that failed last, maybe because of another one of their job: they have jobs of their own.
    alone: set[TopicPartition] = attrs.field(factory=set)
    is_running: bool = False
    #: Was something given up because it took too long, and has no epoch ended well since?
    is_late: bool = False
    #: How often that was so.
    lates: int = 0
    #: Was an epoch begun whose end is unknown? Its jobs may still write.
    is_unsettled: bool = False
    #: Where remote partitions end, by source.
    ends: dict[TopicPartition, End] = attrs.field(factory=dict)
    #: Writes its transactions, where it does.
    committer: Committer | None = None
    #: The outcomes that hold if the transaction was committed; whether it was is unknown.
    doubtful: dict[TopicPartition, RangeOutcome] = attrs.field(factory=dict)
    #: Ranges that are written, but not yet the dead letters of what they left out; and their plans.
    owing: dict[TopicPartition, tuple[PartitionPlan, RangeOutcome]] = attrs.field(factory=dict)
    #: Was the topic of the dead letters created, if it can be?
    has_letters: bool = False
    #: Partitions whose position is known to be the committed one.
    certain: set[TopicPartition] = attrs.field(factory=set)
    #: Until when no transaction is begun, because another producer has taken over.
    contention: Contention = attrs.field(factory=lambda: Contention(_FENCE_PAUSES, _FENCES_FORGOTTEN_S, free=1))


class Around(Protocol):
    """What an epoch finds around it: `mm2py.pipeline.transform.task.RecordTasks`."""

    clock: Clock
    events: EventLog

    def cluster(self, endpoint: ClusterEndpoint) -> Cluster: ...

    async def jobs(self, task: RecordTask, plan: EpochPlan) -> TransformJobs: ...


class MicroBatch:
    """One epoch of a record task whose records are written at least once."""

    _hint_late = "less is taken at once from now on"

    def __init__(self, tasks: Around, task: RecordTask, plan: EpochPlan) -> None:
        self._tasks = tasks
        self._task = task
        self._plan = plan
        self._clock = tasks.clock
        self._source = tasks.cluster(plan.source)
        self._target = tasks.cluster(plan.target)
        self._letters = DeadLetters(self._source, self._target, task.transform.errors, tasks.clock, tasks.events)
        self._begun = self._clock.monotonic()
        self._limits = Limits(plan.rates, self._begun)
        self._outcomes = Outcomes(plan.partitions)
        self._ends: dict[TopicPartition, int] = {}
        #: Where the source's logs end, and not only what may be read of them.
        self._log_ends: dict[TopicPartition, int] = {}
        self._offset_ranges: list[RangeOutcome] = []
        #: Why no more dead letters are written in this epoch.
        self._no_letters: PartitionFailure | None = None

    async def run(self) -> EpochOutcome:
        try:
            await self._course()
        except UNREACHABLE as error:
            self._outcomes.fail_rest(Ended.INTERRUPTED, failure_of(error, (self._plan.source, self._plan.target)))
        except TooFewBrokersError as error:
            self._outcomes.fail_rest(Ended.FAILED, failure_of(error))
        except TransformFailedError as error:
            unreadable = unreadable_in(str(error))
            if unreadable is not None:
                self._outcomes.fail_rest(Ended.INTERRUPTED, unreadable.failure)
        except TransformRefusedError as error:
            where = PartitionFailure(f"{self._plan.flow}, {error}", error.hint, type(error).__name__)
            self._outcomes.fail_rest(Ended.FAILED, where)
        return self._outcome()

    async def _course(self) -> None:
        await self._source.ensure_metadata({one.source.topic for one in self._plan.partitions})
        await self._target.ensure_metadata({one.remote_topic for one in self._plan.partitions})
        await self._write_letters()
        ready = await self._resolved()
        ready = await self._past_bad_records(ready)
        offset_ranges = await self._wait_for_records(ready)
        if offset_ranges:
            await self._ensure_letters()
            await self._transform(offset_ranges)

    # What is not known of the target.

    def _is_unsure(self, one: PartitionPlan) -> bool:
        return one.is_unsure or one.downstream is None

    async def _resolved(self) -> list[PartitionPlan]:
        """Return the partitions that can be written to; of those that are unsure, find out where the target ends."""
        plan = self._plan
        left = self._outcomes.missing(plan.partitions)
        unsure = [one for one in left if self._is_unsure(one)]
        ready = [one for one in left if one not in unsure]
        if not unsure:
            return ready
        remotes = {one.source: one.remote for one in unsure}
        ends = await self._settled_ends(list(remotes.values()))
        for one in unsure:
            end = ends[remotes[one.source]]
            if isinstance(end, BrokerAnsweredError):
                self._outcomes.fail(one, Ended.INTERRUPTED, failure_of(end, (plan.target,)), is_unsure=True)
            elif one.downstream is not None and end <= one.downstream:
                self._outcomes.fail(one, Ended.TARGET_REWOUND, too_short(one.remote, end, one.downstream))
            elif (known := await self._known(one, end)) is not None:
                self._outcomes.plans[one.source] = known
                ready.append(known)
        return ready

    async def _known(self, one: PartitionPlan, end: int) -> PartitionPlan | None:
        """Return *one* as it is with the target ending at *end*; None where it is not written to in this epoch."""
        downstream = end - 1 if one.downstream is None else one.downstream
        self._task.ends[one.source] = End(downstream, end - 1)
        if one.downstream is None:
            return attrs.evolve(one, downstream=end - 1, is_unsure=False, producer=None)
        if end == one.downstream + 1:
            return attrs.evolve(one, is_unsure=False)
        try:
            more = await records_behind(self._target, one.remote, after=one.downstream, end=end, clock=self._clock)
        except BrokerAnsweredError as error:
            self._outcomes.fail(one, Ended.INTERRUPTED, failure_of(error, (self._plan.target,)), is_unsure=True)
            return None
        if more:
            await self._explain_more(one, end, more)
            return None
        return attrs.evolve(one, is_unsure=False, producer=None)

    async def _explain_more(self, one: PartitionPlan, end: int, more: int) -> None:
        """Go on at least once."""
        message = (
            f"{one.remote_topic} holds {more} records that were not accounted for; those that a transform made are not "
            f"compared with their source, so up to {more} are written twice"
        )
        failure = PartitionFailure(message, "records after a crash are written at least once", "ResumeUnproven")
        self._outcomes[one.source] = PartitionOutcome(
            one.source, one.position, end - 1, is_unsure=False, ended=Ended.UNPROVEN, failure=failure
        )

    async def _settled_ends(self, remotes: Sequence[TopicPartition]) -> Ends:
        """Return where the target ends once it stands still."""
        ends = await self._target.list_offsets(remotes, LATEST, patience_s=PATIENCE_S)
        while known := _numbers(ends):
            await self._clock.sleep(_SETTLE_S)
            ends |= await self._target.list_offsets(list(known), LATEST, patience_s=PATIENCE_S)
            if _numbers(ends).items() >= known.items() or self._is_over():
                break
        return ends

    # What there is to read.

    async def _wait_for_records(self, ready: list[PartitionPlan]) -> tuple[PartitionPlan, ...]:
        """Wait until one of the partitions has records, within the epoch's time."""
        pause_s = _LOOK_EVERY_S
        bounds = {source: bad.offset for source, bad in self._task.bad.items()}
        committed = self._plan.limits.reads_committed
        while ready:
            wanted = [one.source for one in ready]
            found = await self._source.list_offsets(wanted, LATEST, reads_committed=committed, patience_s=PATIENCE_S)
            self._ends = self._log_ends = _numbers(found)
            ready = [one for one in ready if self._is_readable(one, found)]
            offset_ranges = self._task.pace.cut(ready, self._ends, bounds)
            offset_ranges = self._limits.within(offset_ranges, self._task.pace, self._clock.monotonic())
            if offset_ranges or self._is_over():
                if committed:
                    self._log_ends = _numbers(await self._source.list_offsets(list(self._ends), LATEST))
                return offset_ranges
            pause_s = min(pause_s * 1.5, _LOOK_EVERY_MOST_S)
            try:
                async with asyncio.timeout(pause_s):
                    await self._task.nudged.wait()
            except TimeoutError:
                continue
        return ()

    def _is_readable(self, one: PartitionPlan, found: Ends) -> bool:
        end = found[one.source]
        if isinstance(end, BrokerAnsweredError):
            self._outcomes.fail(one, Ended.INTERRUPTED, failure_of(end, (self._plan.source,)))
            return False
        if end < one.position:
            message = f"{one.source} ends at {end} at the source, and was read up to {one.position}"
            self._outcomes.fail(
                one, Ended.OUT_OF_RANGE, PartitionFailure(message, HINT_OUT_OF_RANGE, "OutOfRange", one.position)
            )
            return False
        return True

    def _is_over(self) -> bool:
        return self._task.nudged.is_set() or self._clock.monotonic() - self._begun >= self._plan.epoch_ms / 1000

    # Transforming them.

    async def _transform(self, offset_ranges: tuple[PartitionPlan, ...]) -> None:
        jobs = await self._tasks.jobs(self._task, self._plan)
        behind = tuple(map(self._behind_all, offset_ranges))
        begun = self._clock.monotonic()
        done = await self._run(jobs, behind)
        if not done.failed:
            self._task.pace.press_on(self._clock.monotonic() - begun, allowed_s(self._plan))
            await self._account(offset_ranges, done.outcomes)
            return
        self._task.jobs = None
        await jobs.stop(self._clock)
        await self._account(offset_ranges, done.outcomes)
        await self._explain(jobs, self._outcomes.missing(offset_ranges), done)

    async def _run(self, jobs: TransformJobs, offset_ranges: tuple[PartitionPlan, ...]) -> MicroBatchResult:
        alone = self._task.alone
        done = await jobs.run(attrs.evolve(self._plan, partitions=offset_ranges), self._clock, alone)
        alone.update(done.failed)
        alone.difference_update(it.partition.source for it in done.outcomes)
        return done

    def _behind_all(self, one: PartitionPlan) -> PartitionPlan:
        """Have *one* written after all that the target is known to hold, if anything."""
        end = self._task.ends.get(one.source)
        return one if end is None or end.downstream != one.downstream else attrs.evolve(one, downstream=end.last)

    async def _account(self, offset_ranges: Iterable[PartitionPlan], outcomes: Iterable[RangeOutcome]) -> None:
        planned = {one.source: one for one in offset_ranges}
        for offset_range in outcomes:
            one = planned[offset_range.partition.source]
            if offset_range.left_out:
                self._task.owing[one.source] = (one, offset_range)
            else:
                self._note(one, offset_range)
        await self._write_letters()

    def _note(self, one: PartitionPlan, offset_range: RangeOutcome) -> None:
        outcome = offset_range.partition
        if not outcome.records:
            outcome = attrs.evolve(outcome, downstream=one.downstream)
        self._outcomes[outcome.source] = outcome
        if outcome.position > one.position:
            moved = outcome.position - one.position
            self._task.pace.learn(outcome.source, offsets=moved, size_bytes=outcome.bytes)
            self._limits.charge(outcome.source, offsets=moved, size_bytes=outcome.bytes, now=self._clock.monotonic())
        self._offset_ranges.append(offset_range)

    async def _explain(self, jobs: TransformJobs, left: Sequence[PartitionPlan], done: MicroBatchResult) -> None:
        """Report why the ranges *left* failed: because of their records, or of something else."""
        if done.is_late or any(map(shortage_in, done.failed.values())):
            self._task.pace.ease()
        isolation = Isolation(jobs, self._reader(), self._clock)
        for one in left:
            words = done.failed.get(one.source, "")
            unreadable = unreadable_in(words)
            if unreadable is not None:
                # A range is written only once it is read, so nothing of it was.
                self._outcomes.fail(one, unreadable.ended, unreadable.failure)
            elif words and not is_lost(words) and words != LATE:
                bad = await isolation.first_bad(one)
                if bad is not None:
                    self._task.bad[one.source] = bad
                    self._outcomes[one.source] = unmoved(one)
        others = self._outcomes.missing(left)
        if others:
            await self._give_up(others, done)

    async def _give_up(self, others: Sequence[PartitionPlan], done: MicroBatchResult) -> None:
        """Report what became of ranges that failed, but not because of their records."""
        await self._clock.sleep(QUIET_S)
        self._interrupt(others, done, is_unsure=True)

    def _interrupt(self, others: Sequence[PartitionPlan], done: MicroBatchResult, *, is_unsure: bool) -> None:
        hint = self._hint_late if done.is_late else "it is tried again by itself"
        any_words = next(iter(done.failed.values()))
        for one in others:
            words = done.failed.get(one.source, any_words)
            said = words if done.is_late else ": ".join(raised_in(words))
            said, then = shortage_in(words) or (said, hint)
            failure = PartitionFailure(f"{self._task.transform.name}: {said}", then)
            self._outcomes.fail(one, Ended.INTERRUPTED, failure, is_unsure=is_unsure)

    # Records that the transform fails on.

    async def _past_bad_records(self, ready: list[PartitionPlan]) -> list[PartitionPlan]:
        """Deal with bad records that a partition has come to: leave them out, or stop their topics."""
        errors = self._task.transform.errors
        waiting = {
            one.source: bad
            for one in ready
            if (bad := self._task.bad.get(one.source)) is not None and bad.offset <= one.position
        }
        if not waiting:
            return ready
        stopped: dict[str, PartitionFailure] = {}
        for one in [one for one in ready if one.source in waiting]:
            bad = waiting[one.source]
            if bad.offset == one.position and errors.are_tolerated:
                await self._step_over(one, bad)
            elif bad.offset == one.position and not await self._is_mended(one, bad):
                stopped[one.source.topic] = bad.failure(self._plan.flow, one)
            else:
                del self._task.bad[one.source]
        for one in ready:
            failure = stopped.get(one.source.topic)
            if failure is not None:
                self._outcomes.fail(one, Ended.FAILED, failure)
        return self._outcomes.missing(ready)

    async def _step_over(self, one: PartitionPlan, bad: BadRecord) -> None:
        """Leave a record out that a partition has come to; it is forgotten once the partition is behind it."""
        failed = await self._refused(partial(self._leave_out, one, (bad,)))
        if failed is not None:
            self._outcomes.fail(one, *failed)
        else:
            self._outcomes[one.source] = attrs.evolve(unmoved(one), position=bad.offset + 1)

    async def _is_mended(self, one: PartitionPlan, bad: BadRecord) -> bool:
        """Try a record that stopped its topic once more: what the transform rests on may have changed."""
        if one.source not in self._task.stopped:
            self._task.stopped.add(one.source)
            return False
        jobs = await self._tasks.jobs(self._task, self._plan)
        if not await Isolation(jobs, self._reader(), self._clock).takes(one, bad.offset):
            return False
        self._task.stopped.discard(one.source)
        return True

    def _reader(self) -> RangeReader:
        return RangeReader(self._source, self._plan.limits, self._clock, within_s=READ_WITHIN_S)

    async def _leave_out(self, one: PartitionPlan, bad_records: Sequence[BadRecord]) -> None:
        """Note records that are not mirrored, and write them to the dead letters where there are some."""
        if self._letters.are_kept:
            await self._letters.write(self._plan, one, bad_records)
        self._letters.report(self._plan, one, bad_records)

    async def _ensure_letters(self) -> None:
        """Have their topic before the first record is written: a setting may be wrong. Raise `TooFewBrokersError`."""
        if not self._task.has_letters and self._task.transform.errors.are_tolerated and self._letters.are_kept:
            await self._letters.ensure()
            self._task.has_letters = True

    async def _write_letters(self) -> None:
        """Account for ranges that are written once what they left out is, too; until then they are not repeated."""
        owing = self._task.owing
        for one in self._outcomes.missing(self._outcomes.plans.values()):
            if one.source not in owing:
                continue
            then, offset_range = owing[one.source]
            if not _continues(one, then):
                del owing[one.source]
                continue
            failed = await self._refused(partial(self._leave_out, then, offset_range.left_out))
            if failed is not None:
                self._outcomes.fail(one, *failed)
            else:
                del owing[one.source]
                self._note(then, offset_range)

    async def _refused(self, write: Callable[[], Awaitable[None]]) -> tuple[Ended, PartitionFailure] | None:
        """*write* dead letters; return why that failed, if it did."""
        if self._no_letters is not None:  # every partition would wait for the same answer
            return Ended.INTERRUPTED, self._no_letters
        try:
            await write()
        except ProducerFencedError:
            raise
        except TransformFailedError as error:
            unreadable = unreadable_in(str(error))
            if unreadable is None:
                raise
            return unreadable.ended, unreadable.failure
        except Mm2Error as error:
            failure = self._letters.failure(self._plan, error)
            if not isinstance(error, BrokerAnsweredError) or error.code != ErrorCode.MESSAGE_TOO_LARGE:
                self._no_letters = failure
            return Ended.INTERRUPTED, failure
        return None

    # The outcome.

    def _outcome(self) -> EpochOutcome:
        latency, effort = Histogram(), Effort()
        for offset_range in self._offset_ranges:
            latency = latency.plus(offset_range.latency)
            effort.add(offset_range)
        for source, one in self._outcomes.plans.items():
            outcome, end = self._outcomes.get(source, unmoved(one)), self._log_ends.get(source, -1)
            stable = self._ends.get(source, -1) if self._plan.limits.reads_committed else -1
            self._outcomes[source] = attrs.evolve(outcome, log=LogOffsets(high_watermark=end, last_stable=stable))
        return EpochOutcome(
            flow=self._plan.flow,
            task=self._plan.task,
            epoch=self._plan.epoch,
            partitions=tuple(self._outcomes.values()),
            latency=latency,
            elapsed_s=self._clock.monotonic() - self._begun,
            worker="spark",
            rates=self._limits.uses(self._clock.monotonic()),
            **effort.counts(),
        )


def _continues(one: PartitionPlan, earlier: PartitionPlan) -> bool:
    """Whether *one* begins where an earlier plan did, in the same topics as far as is known."""
    ids = ((one.topic_id, earlier.topic_id), (one.remote_topic_id, earlier.remote_topic_id))
    return one.position == earlier.position and all(it is None or was is None or it == was for it, was in ids)


def _numbers(found: Ends) -> dict[TopicPartition, int]:
    """Return the ends that are known."""
    return {source: end for source, end in found.items() if isinstance(end, int)}
