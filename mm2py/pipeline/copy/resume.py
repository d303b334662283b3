"""
Determines what has arrived, before anything is written.

For each partition whose position is unsure: read the target's end and last record, walk the source from the position,
and continue exactly after it, or report that it cannot be proven. `core.source.resume` decides.
"""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.core.source import resume
from mm2py.core.source.alignment import Alignment
from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.model.epoch import RECREATED, Ended, PartitionFailure, PartitionPlan, Runs
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.fetcher import HINT_OUT_OF_RANGE
from mm2py.pipeline.copy.ingest import end_corrupt
from mm2py.pipeline.copy.log_walk import LogWalker, NotThereError, WalkedRecord, records_of
from mm2py.pipeline.copy.metadata import end_remade, too_short
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.rebuilt import Rebuilding, compare
from mm2py.pipeline.copy.refusals import SILENT_S, UNREACHABLE, endless, failure_of, leaderless, untold
from mm2py.wire.batches.batch import LOG_APPEND_TIME, MAGIC_V2, MalformedRecordSetError, RecordBatchView
from mm2py.wire.batches.rebuild import NO_TIMESTAMP, UnreadableBatchError
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.fetch import OtherTopicError
from mm2py.wire.log_end import log_ends
from mm2py.wire.requests import LATEST


#: The source's brokers share so many places, with one each at least: each may hold an answer of a few MiB.
_AT_ONCE: Final = 8
_ATTEMPTS: Final = 5
_PAUSE_S: Final = 0.2
#: Two queries of the target's end this far apart must agree: a request of a lost writer may still be in the broker at
#: the first one.
_SETTLE_S: Final = 0.25
#: How long leaders are asked for ends that some do not tell, while all others wait. They are asked again in any case.
_PATIENCE_S: Final = 1.0
#: How many of the target's last records must reappear in the source, in order, to prove a match.
_MATCH_RECORDS: Final = 32
#: How far before the target's end they are looked for if it ends with a transaction that was aborted: of Java's, that
#: is one poll, 500 records by default.
_ABORTED_RECORDS: Final = (1_000, 10_000)
#: How many records are put beside each other one by one, in 16 bytes of memory each.
_ALIGN_RECORDS: Final = 4_000_000

_HINT_UNPROVEN: Final = "check whether the remote topic has another writer; only the mirror may write to it"
_HINT_REMOVED: Final = (
    "if the source has removed that record since, by retention or DeleteRecords, nothing is repeated; if not, the "
    "remote topic has another writer"
)


@attrs.frozen
class Walked:
    """The progress of a walk whose epoch ended: the next upstream offset, and the records found. `runs` are those
    records' offsets at the target, as far as their number proves it.
    """

    position: int
    records: int
    runs: Runs = attrs.field(factory=Runs, eq=False)


@attrs.define
class _Comparison:
    """Both sides being put beside each other, as far as the last epoch came; *why* their number proves nothing."""

    alignment: Alignment
    why: str
    upstream: int
    downstream: int
    #: How many of the target's offsets hold markers of transactions, or what was aborted.
    unused: int = 0


@attrs.frozen
class _Tail:
    """The target's last records. A target that stamps records itself (LogAppendTime) has no timestamps to compare."""

    records: tuple[WalkedRecord, ...]
    is_stamped: bool = False
    why_empty: str = ""
    hint: str = ""
    #: Whether nothing but what transactions leave was there: records may be before that.
    is_unused: bool = False


#: Walks by what they are about. They stay in the Python worker, so that a long one is not started again in each epoch.
Walks = dict[tuple[str, PartitionPlan], Walked | _Comparison | Rebuilding]


class Resumer:
    """Resolves unsure partitions of one epoch."""

    def __init__(self, source: Cluster, target: Cluster, clock: Clock, walks: Walks, logs: LogWalker) -> None:
        """Make one for an epoch, which *walks* outlive; *logs* are those of both clusters."""
        self._source = source
        self._target = target
        self._clock = clock
        self._walks = walks
        self._logs = logs
        #: By the source's leader: one that is silent delays only what it leads.
        self._slots: dict[int | None, asyncio.Semaphore] = {}

    async def resolve(self, copies: Collection[PartitionCopy], resolved: Callable[[PartitionCopy], None]) -> None:
        """Resolve each partition's position; pass those that may be copied to *resolved*. Failed partitions are
        retried until the caller gives up. They are queried leader by leader, so that an unavailable broker delays only
        its own.
        """
        by_leader: dict[int | None, list[PartitionCopy]] = {}
        for copy in copies:
            by_leader.setdefault(self._target.leader(copy.remote), []).append(copy)
        brokers = {self._source.leader(copy.plan.source) for copy in copies}
        each = math.ceil(_AT_ONCE / max(1, len(brokers)))
        self._slots = collections.defaultdict(lambda: asyncio.Semaphore(each))
        async with asyncio.TaskGroup() as tasks:
            for leader, group in by_leader.items():
                tasks.create_task(self._resolve_group(group, resolved), name=f"resume partitions of {leader}")

    async def _resolve_group(self, unsure: list[PartitionCopy], resolved: Callable[[PartitionCopy], None]) -> None:
        while True:
            asked_at = self._clock.monotonic()
            try:
                ends = await self._settled_ends([copy.remote for copy in unsure])
            except ClusterUnreachableError as error:
                for copy in unsure:
                    copy.retried_failure = failure_of(error)
            except asyncio.CancelledError:
                # A topic that is gone has no leader that could answer: without a word of it nobody would look.
                if self._clock.monotonic() - asked_at >= SILENT_S:
                    self._note_silence(unsure)
                raise
            else:
                async with asyncio.TaskGroup() as tasks:
                    for copy in unsure:
                        end = ends.get(copy.remote)
                        tasks.create_task(self._resolve(copy, end, resolved), name=f"resume {copy.remote}")
            unsure = [copy for copy in unsure if copy.is_unsure and not copy.has_ended]
            if not unsure:
                return
            await self._clock.sleep(_PAUSE_S)

    def _note_silence(self, copies: Iterable[PartitionCopy]) -> None:
        """Note that nothing was learnt of *copies* because their leaders did not answer, or they have none."""
        leaders = {copy.remote: self._target.leader(copy.remote) for copy in copies}
        for copy in copies:
            why = leaderless if leaders[copy.remote] is None else untold
            copy.retried_failure = copy.retried_failure or why(copy.remote, self._target.alias)
        for leader in {it for it in leaders.values() if it is not None}:
            self._target.doubt(leader)

    async def _settled_ends(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        """Return the partitions' ends at the target once they stand still; those where more is coming have an error."""
        ends = await self._ends(partitions)
        growing: set[TopicPartition] = set()
        for _ in range(_ATTEMPTS):
            await self._clock.sleep(_SETTLE_S)
            before, ends = ends, await self._ends(partitions)
            growing = {tp for tp, end in ends.items() if isinstance(end, int) and before[tp] != end}
            if not growing:
                break
        for tp in growing:
            detail = f"{tp} keeps growing: another writer is at it"
            ends[tp] = error_of(ErrorCode.OFFSET_NOT_AVAILABLE, self._target.alias, "ListOffsets", detail)
        for tp, log_end in (await log_ends(self._target, partitions)).items():
            end = ends[tp]
            if isinstance(end, int) and log_end > end:
                detail = f"{log_end - end} records of {tp} are not on all replicas yet"
                ends[tp] = error_of(ErrorCode.OFFSET_NOT_AVAILABLE, self._target.alias, "ListOffsets", detail)
        # What an exactly-once mirror wrote before it was killed, a Java MirrorMaker 2 or a transform of ours, is not
        # there until its transaction ends, and may never be.
        for tp, stable in (await self._ends(partitions, reads_committed=True)).items():
            end = ends[tp]
            if isinstance(end, int) and isinstance(stable, int) and stable < end:
                detail = f"a transaction that is still open holds {tp} at offset {stable}"
                ends[tp] = error_of(ErrorCode.CONCURRENT_TRANSACTIONS, self._target.alias, "ListOffsets", detail)
        return ends

    async def _ends(
        self, partitions: Collection[TopicPartition], *, reads_committed: bool = False
    ) -> dict[TopicPartition, int | BrokerAnsweredError]:
        # A new leader with too few replicas does not tell its end (OFFSET_NOT_AVAILABLE), for hours.
        return await self._target.list_offsets(
            partitions, LATEST, reads_committed=reads_committed, patience_s=_PATIENCE_S
        )

    async def _resolve(
        self, copy: PartitionCopy, end: int | BrokerAnsweredError | None, resolved: Callable[[PartitionCopy], None]
    ) -> None:
        async with self._slots[self._source.leader(copy.plan.source)]:
            try:
                if end is None:
                    copy.retried_failure = untold(copy.remote, self._target.alias)
                elif isinstance(end, BrokerAnsweredError):
                    copy.retried_failure = endless(copy.remote, end, self._target.endpoint)
                elif await self._decide(copy, end):
                    copy.is_unsure = False
                    copy.retried_failure = None
                    self._walks.pop(self._key(copy), None)
                    if copy.sending.is_contested:
                        self._renew_producer(copy)
                    else:
                        resolved(copy)
            except UNREACHABLE as error:
                copy.retried_failure = failure_of(error, (self._source.endpoint, self._target.endpoint))
                if isinstance(error, BrokerAnsweredError) and error.code == ErrorCode.OFFSET_OUT_OF_RANGE:
                    copy.end(Ended.OUT_OF_RANGE, attrs.evolve(copy.retried_failure, hint=HINT_OUT_OF_RANGE))
            except (UnreadableBatchError, MalformedRecordSetError) as error:
                end_corrupt(copy, error)
            except OtherTopicError as error:
                if error.cluster == self._source.alias:
                    copy.end(Ended.RECREATED, RECREATED)
                else:
                    end_remade(copy)

    async def _decide(self, copy: PartitionCopy, end: int) -> bool:
        if copy.plan.is_rebuilt:
            return await self._compare(copy, end)
        match resume.judge(downstream=copy.downstream, target_end=end):
            case resume.Exact(downstream):
                copy.downstream = downstream
                return True
            case resume.Rewound(rewound_end):
                copy.sending.forget_producer()
                copy.end(Ended.TARGET_REWOUND, too_short(copy.remote, rewound_end, copy.downstream))
                return False
            case resume.Skip(records, downstream):
                return await self._skip(copy, records, downstream)
            case resume.Match(downstream):
                return await self._match(copy, downstream)
            case resume.Blank():
                return await self._begin(copy)

    async def _compare(self, copy: PartitionCopy, end: int) -> bool:
        """Go on after the target's last record, if the source was rebuilt from the target."""
        known = self._walks.get(self._key(copy))
        if not isinstance(known, Rebuilding) or known.target_end != end:
            known = self._walks[self._key(copy)] = Rebuilding(end)
        try:
            why = await compare(self._logs, copy, known)
        except NotThereError as error:
            return self._unproven(copy, str(error), end - 1, error.hint)
        if why is None:
            del self._walks[self._key(copy)]
            return False
        if why or known.met is None:
            return self._unproven(copy, why, end - 1)
        copy.continue_after(known.met[0], end - 1, known.records)
        copy.runs, copy.known_from = known.runs, known.runs.upstreams[0]
        return True

    async def _begin(self, copy: PartitionCopy) -> bool:
        """Begin a remote partition that is empty, if the source has no record that counts as copied to it."""
        log_start, _ = await self._logs.search_bounds(copy.plan.source, NO_TIMESTAMP)
        if log_start >= copy.position:
            copy.downstream = -1
            return True
        copy.end(Ended.TARGET_REWOUND, too_short(copy.remote, 0, None))
        return False

    async def _skip(self, copy: PartitionCopy, records: int, downstream: int) -> bool:
        """Walk over *records* data records and compare the last one with the target's."""
        walked = self._walks.get(self._key(copy))
        if isinstance(walked, _Comparison) and walked.alignment.target_end == downstream + 1:
            return await self._align(copy, walked)
        if not isinstance(walked, Walked) or walked.records >= records:  # the target has become shorter meanwhile
            walked = Walked(copy.position, 0)
        left, runs, next_downstream = records - walked.records, walked.runs, downstream - records + walked.records + 1
        async for batch, after in self._logs.walk(copy, walked.position):
            contents = None
            count = batch.record_count
            if batch.magic < MAGIC_V2 or batch.base_offset < walked.position or batch.has_holes:
                contents = [c for c in records_of(batch) if c.offset >= walked.position]
                count = len(contents)
            if count < left:
                _note(runs, batch, contents, next_downstream)
                left -= count
                next_downstream += count
                self._walks[self._key(copy)] = Walked(after, records - left, runs)
                continue
            contents = (contents or records_of(batch))[:left]
            return await self._conclude(copy, contents, runs, records, downstream)
        why = f"the target holds {records} records past upstream offset {copy.position}, the source {records - left}"
        return await self._align(copy, self._comparison(copy, downstream, why))

    async def _conclude(
        self, copy: PartitionCopy, contents: Sequence[WalkedRecord], runs: Runs, records: int, downstream: int
    ) -> bool:
        last = contents[-1]
        tail = await self._target_tail(copy, downstream, 1)
        if not tail.records or not _pairs([last], tail):
            why = tail.why_empty or (
                f"upstream offset {last.offset} of {copy.plan.source} and downstream offset {downstream} of "
                f"{copy.remote} should hold the same record"
            )
            return await self._align(copy, self._comparison(copy, downstream, why))
        copy.continue_after(last.offset, downstream, records)
        copy.runs = runs
        for at, content in enumerate(contents, downstream - len(contents) + 1):
            runs.add(content.offset, at, 1)
        return True

    def _comparison(self, copy: PartitionCopy, downstream: int, why: str) -> _Comparison:
        assert copy.downstream is not None  # noqa: S101 - or nothing could have been counted
        alignment = Alignment(copy.position, copy.downstream, downstream + 1)
        found = self._walks[self._key(copy)] = _Comparison(alignment, why, copy.position, copy.downstream + 1)
        return found

    async def _align(self, copy: PartitionCopy, comparison: _Comparison) -> bool:
        """Find out record by record what is at the target: on either side some may have been removed since."""
        alignment = comparison.alignment
        downstream, records = alignment.target_end - 1, alignment.target_end - 1 - alignment.downstream
        if records > _ALIGN_RECORDS:
            return self._unproven(copy, comparison.why, downstream)
        try:
            async for batch, contents in self._logs.target_batches(copy, comparison.downstream, downstream):
                is_stamped = bool(batch.attributes & LOG_APPEND_TIME)
                if contents is None:
                    comparison.unused += batch.last_offset + 1 - max(batch.base_offset, comparison.downstream)
                for content in contents or ():
                    if content.offset >= comparison.downstream:
                        alignment.hold(content.offset, content.digest(ignore_timestamp=is_stamped))
                comparison.downstream = batch.last_offset + 1
        except NotThereError as error:
            return self._unproven(copy, str(error), downstream, error.hint)
        if comparison.unused == records:
            # A transform wrote in exactly-once mode until now, and nothing more.
            copy.continue_after(copy.position - 1, downstream, 0)
            return True
        await self._meet(copy, comparison)
        position = alignment.concluded(comparison.upstream)
        if position is None:
            return self._unproven(copy, comparison.why, downstream)
        copy.continue_after(position - 1, downstream, records)
        copy.runs = alignment.runs
        return True

    async def _meet(self, copy: PartitionCopy, comparison: _Comparison) -> None:
        async for batch, after in self._logs.walk(copy, comparison.upstream):
            for content in records_of(batch):
                digests = content.digest(), content.digest(ignore_timestamp=True)
                if content.offset >= comparison.upstream and not comparison.alignment.meet(content.offset, *digests):
                    comparison.upstream = content.offset + 1
                    return
            comparison.upstream = after
        comparison.upstream = max(comparison.upstream, copy.fetching.position.offset)

    async def _match(self, copy: PartitionCopy, downstream: int) -> bool:
        """Find the target's last records in the source, from the position's own record on."""
        tail = await self._target_records(copy, copy.plan.found_at if copy.plan.found_at is not None else downstream)
        if not tail.records:
            return self._unproven(copy, tail.why_empty, downstream, tail.hint)
        why = f"the last record of {copy.remote} at the target is not in the source from offset {copy.position} on"
        timestamp = NO_TIMESTAMP if tail.is_stamped else tail.records[-1].timestamp
        log_start, first = await self._logs.search_bounds(copy.plan.source, timestamp)
        hint = _HINT_REMOVED if 0 < log_start >= copy.position else ""
        if first is None:
            return self._unproven(copy, why, downstream, hint, log_start)
        walked = self._walked(copy, first)
        start = max(log_start, walked.position - len(tail.records))
        window: collections.deque[WalkedRecord] = collections.deque(maxlen=len(tail.records))
        records = walked.records
        async for batch, after in self._logs.walk(copy, start):
            for content in records_of(batch):
                if content.offset < start:
                    continue
                if copy.plan.found_before is not None and content.offset >= copy.plan.found_before:
                    before = f"{copy.remote} does not end with what was copied to it last"
                    return self._unproven(copy, before, downstream)
                window.append(content)
                records += content.offset >= walked.position
                if content.offset >= copy.position - 1 and (pairs := _pairs(window, tail)):
                    copy.continue_after(content.offset, downstream, records)
                    _note_match(copy, pairs)
                    return True
            if after > walked.position:
                self._walks[self._key(copy)] = Walked(after, records)
        return self._unproven(copy, why, downstream, hint, log_start)

    def _walked(self, copy: PartitionCopy, first: int) -> Walked:
        """Return from where on the walk goes, which need not begin before *first*."""
        walked = self._walks.get(self._key(copy))
        if not isinstance(walked, Walked):
            walked = Walked(copy.position, 0)
        passed = max(0, first - walked.position)
        return Walked(walked.position + passed, walked.records + passed)

    def _key(self, copy: PartitionCopy) -> tuple[str, PartitionPlan]:
        return self._target.alias, copy.plan

    @staticmethod
    def _renew_producer(copy: PartitionCopy) -> None:
        """Have the next epoch take a new producer id: the broker refused our sequence, yet holds nothing that we do not
        know, so it has lost our producer's state.
        """
        copy.sending.forget_producer()
        message = f"the target expects another sequence of our producer for {copy.remote}, but holds nothing more of it"
        copy.end(Ended.INTERRUPTED, PartitionFailure(message, "a new producer id is taken by itself", "SequenceLost"))

    def _unproven(self, copy: PartitionCopy, why: str, downstream: int, hint: str = "", log_start: int = -1) -> bool:
        """Give up; the target's records up to *downstream* existed before, with an unknown writer. If all that the
        source has begins at *log_start*, and none of them is there, they are of offsets before it.
        """
        copy.known_from = log_start if log_start >= copy.position else None
        self._walks.pop(self._key(copy), None)
        copy.sending.forget_producer()
        copy.downstream = downstream
        copy.end(Ended.UNPROVEN, PartitionFailure(why, hint or _HINT_UNPROVEN, "ResumeUnproven"))
        return False

    async def _target_records(self, copy: PartitionCopy, downstream: int) -> _Tail:
        """Return the target's last records up to *downstream*; aborted ones may lie behind them."""
        tail = await self._target_tail(copy, downstream, _MATCH_RECORDS)
        for count in _ABORTED_RECORDS:
            if tail.is_unused:
                tail = await self._target_tail(copy, downstream, count)
        return tail

    async def _target_tail(self, copy: PartitionCopy, downstream: int, count: int) -> _Tail:
        """Return the last ones of *count* records of the target that end with the one at *downstream*. Java's
        exactly-once mode may have left the end of a transaction there instead.
        """
        found: list[WalkedRecord] = []
        is_stamped, start = False, max(0, downstream - count + 1)
        reached = start - 1
        try:
            async for batch, contents in self._logs.target_batches(copy, start, downstream):
                if contents:
                    found = [*found, *contents][-_MATCH_RECORDS:]
                    reached = contents[-1].offset
                    is_stamped = is_stamped or bool(batch.attributes & LOG_APPEND_TIME)
                elif contents is None and batch.base_offset <= reached + 1:
                    reached = batch.last_offset
        except NotThereError as error:
            return _Tail((), why_empty=str(error), hint=error.hint)
        if reached != downstream:
            return _Tail((), why_empty=f"the record at downstream offset {downstream} of {copy.remote} is gone")
        if not found:
            why = f"the last {count} offsets of {copy.remote}, up to {downstream}, hold only what transactions left"
            return _Tail((), why_empty=why, is_unused=True)
        return _Tail(tuple(found), is_stamped)


def _note(runs: Runs, batch: RecordBatchView, contents: Sequence[WalkedRecord] | None, downstream: int) -> None:
    """Record that the records of a *batch* went to *downstream* and after it; *contents* are the relevant ones."""
    if contents is None:
        runs.add(batch.base_offset, downstream, batch.record_count)
        return
    for at, content in enumerate(contents, downstream):
        runs.add(content.offset, at, 1)


def _note_match(copy: PartitionCopy, pairs: Sequence[tuple[int, int]]) -> None:
    """Record where the compared records are. Java may have written earlier ones twice: their offsets are unknown."""
    copy.runs, copy.known_from = Runs(), pairs[0][0]
    for upstream, downstream in pairs:
        copy.runs.add(upstream, downstream, 1)


def _pairs(window: Sequence[WalkedRecord], tail: _Tail) -> list[tuple[int, int]]:
    """
    Return the offsets of the records that both end with, as far as the shorter one reaches; nothing if they differ.

    Between two records of the source as many of the target's may lie as the source has offsets there: compaction
    removed them at the source. Without timestamps too much looks alike for that.
    """
    held, at = tail.records, len(tail.records)
    found: list[tuple[int, int]] = []
    later = window[-1].offset + 1
    for record in reversed(window):
        if at == 0:
            break
        lowest = at - (1 if tail.is_stamped or not found else later - record.offset)
        matching = (
            index
            for index in range(at - 1, max(lowest, 0) - 1, -1)
            if record.matches(held[index], ignore_timestamp=tail.is_stamped)
        )
        index = next(matching, None)
        if index is None:
            if lowest >= 0:
                return []
            break
        at, later = index, record.offset
        found.append((record.offset, held[index].offset))
    return found[::-1]
