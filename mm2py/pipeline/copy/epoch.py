"""
The copy loop of one epoch.

Plain asyncio that knows nothing of Spark: it runs inside a Spark task's Python worker and is driven directly by
tests. It fetches from the leaders of the source, produces to the leaders of the target until the epoch's time is
over, waits for requests in flight, and returns the outcome. It decides nothing about topics or assignments.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import resource
from collections.abc import Callable, Iterable, Sequence
from typing import Final
from zlib import crc32

import attrs

from mm2py.clock import Clock
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionFailure
from mm2py.pipeline.copy.fetching import SourceReader
from mm2py.pipeline.copy.log_walk import LogWalker
from mm2py.pipeline.copy.metadata import UNREACHABLE_PAUSE_S, end_all_remade, follow_leaders, renew_aged
from mm2py.pipeline.copy.partition import ByFetcher, PartitionCopy
from mm2py.pipeline.copy.refusals import UNREACHABLE, failure_of, late
from mm2py.pipeline.copy.resume import Resumer
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.pipeline.copy.worker_state import Views, WorkerState, worker_name


_POLL_S: Final = 0.1
#: How often a stop file is looked for where the daemon says itself that the epoch is to end.
_FILE_POLL_S: Final = 1.0
#: How many partitions are started before those that were get their turn.
_STARTED_AT_ONCE: Final = 100
#: How long those to which nothing has happened wait for the first answers to the others.
_STARTS_APART_S: Final = 0.005
#: Part of the drain time in which queued batches are still sent; the rest is for answers alone.
_SENDING_SHARE: Final = 0.6


async def copy_epoch(
    plan: EpochPlan, clock: Clock, hosted: WorkerState, is_asked_to_end: asyncio.Event | None = None
) -> EpochOutcome:
    """Run the epoch of *plan*, which ends early where the event is set, and return its outcome. Failures of clusters,
    brokers and partitions are part of the outcome. Only a bug raises, and then the daemon treats the epoch as lost.
    """
    return await _Epoch(plan, clock, hosted, is_asked_to_end).run()


class _Epoch:
    def __init__(
        self, plan: EpochPlan, clock: Clock, hosted: WorkerState, is_asked_to_end: asyncio.Event | None
    ) -> None:
        self._plan = plan
        self._clock = clock
        self._hosted = hosted
        self._is_asked_to_end = is_asked_to_end or asyncio.Event()
        self._file_poll_s = _POLL_S if is_asked_to_end is None else _FILE_POLL_S
        self._loop = asyncio.get_running_loop()
        self._source = hosted.cluster(plan.source, clock)
        self._target = hosted.cluster(plan.target, clock)
        self._views = self._views_at_first = self._known()
        #: The cluster that is asked about its topics.
        self._asked = self._source
        self._planned = hosted.copies_of(plan, self._views)
        self._copies = self._planned.all
        self._started = self._loop.time()
        self._end = self._started + plan.epoch_ms / 1000
        #: Later than the epoch's own end while there is something to settle first.
        self._deadline = self._started + plan.longest_ms / 1000
        self._cpu_started = _cpu_s()
        self._drain_started = self._deadline
        self._sender: BatchSender | None = None
        self._reader: SourceReader | None = None

    def _known(self) -> Views:
        return Views(self._source.metadata, self._target.metadata)

    async def run(self) -> EpochOutcome:
        if self._is_in_time() and await self._prepare():
            await self._copy()
        else:
            self._hosted.begin_sessions_again(self._source.alias)
        return self._outcome()

    def _is_in_time(self) -> bool:
        """Whether the plan is so new that its batches may be sent; else nothing need be read."""
        void_after_ms = self._plan.void_after_ms
        if void_after_ms is None or self._clock.wall_ms() <= void_after_ms:
            return True
        for copy in self._copies:
            copy.retried_failure = PartitionFailure(
                f"by the clock of Spark's worker {worker_name()} this epoch was planned hours ago",
                "set the clocks of the daemon's host and of the Spark executors' hosts right",
            )
        return False

    async def _prepare(self) -> bool:
        """Learn of unknown topics; False when the time was over before both clusters answered."""
        plan = self._plan
        failure: PartitionFailure | None = None
        is_retry = False
        while True:
            try:
                async with asyncio.timeout_at(self._deadline):
                    await self._compare()
                    for copy in self._copies if is_retry else ():
                        copy.retried_failure = None
                    return True
            except UNREACHABLE as error:
                failure = failure_of(error, (plan.source, plan.target))
            except TimeoutError:
                failure = failure or late(self._asked)  # the earlier one is more informative
            is_retry = True
            for copy in self._copies:
                copy.retried_failure = failure
            if self._is_over() or self._loop.time() >= self._end:
                return False
            await self._clock.sleep(UNREACHABLE_PAUSE_S)

    async def _compare(self) -> None:
        """Learn of the topics of what is new, and end what is not in its remote topic any more."""
        source, target, new = self._source, self._target, self._planned.new
        self._asked = source
        await source.ensure_known({copy.plan.source.topic for copy in new})
        self._asked = target
        await target.ensure_known({copy.remote.topic for copy in new})
        views = self._known()
        if not views.are(self._views):
            new = self._copies
        for copy in new:
            copy.learn_topic(source.topic_id(copy.plan.source.topic))
        await end_all_remade(target, new)
        self._views = views

    def _is_over(self) -> bool:
        stop_file = self._plan.stop_file
        if self._is_asked_to_end.is_set() or self._loop.time() >= self._deadline:
            return True
        return stop_file is not None and os.path.exists(stop_file)  # noqa: PTH110

    async def _copy(self) -> None:
        plan = self._plan
        last_send_at = self._deadline + plan.drain_ms / 1000
        catch_up = self._hosted.catch_up(plan, self._copies)
        sender = BatchSender(
            self._target, plan.limits, self._clock, last_send_at=last_send_at, void_after_ms=plan.void_after_ms
        )
        if catch_up is not None:
            sender.on_answer = catch_up.answered
        reader = SourceReader(
            self._source,
            sender,
            self._copies,
            plan=plan,
            hosted=self._hosted,
            throttle=Throttle(plan.rates, self._copies, self._hosted.cut, catch_up),
            clock=self._clock,
        )
        self._sender, self._reader = sender, reader
        try:
            async with asyncio.TaskGroup() as tasks:
                sender.start(tasks)
                reader.start(tasks, self._end, self._deadline)
                background = self._start_background(tasks, reader, sender)
                await self._until_over(reader, sender)
                await reader.finish()
                await self._drain(sender)
                for task in background:
                    task.cancel()
        finally:
            sender.stop()
            sender.close_unanswered()

    def _start_background(
        self, tasks: asyncio.TaskGroup, reader: SourceReader, sender: BatchSender
    ) -> list[asyncio.Task[None]]:
        partitions = self._plan.partitions
        return [
            tasks.create_task(self._start_partitions(reader), name="start partitions"),
            tasks.create_task(follow_leaders(self._source, reader.wants_metadata), name="follow source leaders"),
            tasks.create_task(follow_leaders(self._target, sender.wants_metadata), name="follow target leaders"),
            tasks.create_task(renew_aged(self._source, (p.source.topic for p in partitions)), name="renew at source"),
            tasks.create_task(renew_aged(self._target, (p.remote_topic for p in partitions)), name="renew at target"),
        ]

    async def _start_partitions(self, reader: SourceReader) -> None:
        def start(copy: PartitionCopy) -> None:
            # A partition without a producer was only searched: the daemon stores the result before it is copied.
            if copy.sending.producer is not None:
                reader.assign(copy)

        def start_sure(copies: Iterable[PartitionCopy]) -> None:
            for copy in copies:
                if not copy.is_unsure:
                    start(copy)

        planned = self._planned
        first: Sequence[PartitionCopy] = planned.new
        if self._plan.rates:
            # If a limit is less than a batch, the first partition gets it: not the same one in each epoch.
            first = sorted(self._copies, key=lambda it: crc32(b"%d %d" % (self._plan.epoch, it.plan.source.partition)))
        await self._in_turns(start_sure, reader.busy_first(first))
        if len(first) < len(self._copies):
            await self._clock.sleep(_STARTS_APART_S)
            if reader.throttle.is_limiting or not self._views_at_first.are(self._known()):
                await self._in_turns(reader.assign_again, self._copies[len(first) :])
            else:
                reader.assign_as_before(planned.as_before)
                await self._in_turns(reader.assign_again, planned.others)
        reader.are_assigned.set()
        logs = LogWalker(
            self._source,
            self._target,
            reads_committed=self._plan.limits.reads_committed,
            slow_lines=self._hosted.slow_lines,
            epoch_ms=self._plan.epoch_ms,
        )
        resumer = Resumer(self._source, self._target, self._clock, self._hosted.walks, logs)
        # None of the others is unsure.
        await resumer.resolve([copy for copy in planned.new if copy.is_unsure and not copy.has_ended], start)

    async def _in_turns(
        self, start: Callable[[Sequence[PartitionCopy]], None], copies: Sequence[PartitionCopy]
    ) -> None:
        """Have *copies* started a few at a time; what is fetched already has its turn in between."""
        for at in range(0, len(copies), _STARTED_AT_ONCE):
            start(copies[at : at + _STARTED_AT_ONCE])
            await self._clock.sleep(0)

    async def _until_over(self, reader: SourceReader, sender: BatchSender) -> None:
        """Wait for the deadline or the stop file; the deadline is the epoch's own once everything is settled."""
        await self._clock.sleep(0)  # partitions are being assigned
        is_settled = self._end >= self._deadline
        while not self._is_over():
            if not is_settled and not self._is_settling(reader, sender):
                is_settled = True
                self._deadline = reader.deadline = max(self._end, self._loop.time())
            longest_s = _POLL_S if not is_settled else self._file_poll_s if self._plan.stop_file else math.inf
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(self._deadline, self._loop.time() + longest_s)):
                    await self._is_asked_to_end.wait()

    def _is_settling(self, reader: SourceReader, sender: BatchSender) -> bool:
        """Whether there is something that may take longer than the epoch; it looks at all partitions."""
        return reader.is_connecting or sender.is_connecting or any(map(_is_resuming, self._copies))

    async def _drain(self, sender: BatchSender) -> None:
        """Send what is queued, wait for what is in flight, both within the drain time."""
        self._drain_started = self._loop.time()
        drain_s = self._plan.drain_ms / 1000
        await self._send_queued(sender, self._drain_started + drain_s * _SENDING_SHARE)
        sender.stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._drain_started + drain_s):
                if sender.unanswered:
                    await sender.all_answered.wait()
        for copy in self._copies if sender.buffered_bytes else ():
            sender.discard(copy)

    async def _send_queued(self, sender: BatchSender, until: float) -> None:
        """Wait until what is queued is sent; of partitions that the target refuses, only for one more attempt, and for
        none whose broker reads nothing until later: nothing is fetched of all others meanwhile.
        """
        queued, attempt_s = self._copies, max(_POLL_S, self._plan.limits.retry_pause_s(1))
        while sender.buffered_bytes and self._loop.time() < until:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(min(until, self._loop.time() + attempt_s)):
                    await sender.drained.wait()
            queued = [copy for copy in queued if copy.buffer.size_bytes]
            # If nothing else is copied, what is given up would only be fetched once more the sooner.
            has_others = len(queued) < len(self._copies)
            if all(copy.sending.retries or (has_others and sender.is_held(copy, until)) for copy in queued):
                return

    def _outcome(self) -> EpochOutcome:
        now = self._loop.time()
        sender, reader = self._sender, self._reader
        as_before = {} if reader is None else reader.untouched()
        news: list[PartitionCopy] = []
        others: list[PartitionCopy] = []
        for copy in self._copies_beside(as_before):
            (news if copy.has_news else others).append(copy)
        # While the daemon plans the next epoch.
        self._loop.call_soon(self._hosted.keep, self._plan, self._views, news, others, as_before)
        outcome = EpochOutcome(
            flow=self._plan.flow,
            task=self._plan.task,
            epoch=self._plan.epoch,
            partitions=tuple([copy.outcome() for copy in news]),
            elapsed_s=now - self._started,
            drain_s=max(0.0, now - self._drain_started),
            cpu_s=_cpu_s() - self._cpu_started,
            rss_bytes=_rss_bytes(),
            worker=worker_name(),
        )
        if sender is None or reader is None:
            return outcome
        return attrs.evolve(
            outcome,
            latency=sender.latency.histogram(),
            age=reader.age.histogram(),
            fetches=reader.requests,
            produces=sender.requests,
            retries=sender.retries + reader.retries,
            throttled_ms=sender.throttled_ms + reader.throttled_ms,
            paced_ms=reader.throttle.paced_ms,
            rates=reader.throttle.uses(),
            is_complete=reader.have_told,
        )

    def _copies_beside(self, as_before: ByFetcher) -> Iterable[PartitionCopy]:
        """Return the partitions of the epoch that are not among those *as_before*."""
        if not as_before:
            return self._copies
        if sum(map(len, as_before.values())) == len(self._copies):
            return ()
        known = set().union(*(some.values() for some in as_before.values()))
        return (copy for copy in self._copies if copy not in known)


def _is_resuming(copy: PartitionCopy) -> bool:
    return copy.is_unsure and not copy.has_ended and copy.retried_failure is None


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _rss_bytes() -> int:
    # With as many files open as may be it is unknown: no reason to lose the epoch.
    with contextlib.suppress(OSError), open("/proc/self/statm", encoding="ascii") as statm:  # noqa: PTH123 - no pathlib
        return int(statm.read().split()[1]) * resource.getpagesize()
    return 0
