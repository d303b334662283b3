"""
From the source: two fetchers per broker keep long polls open for the partitions that broker leads.

Each of the two serves half of the partitions, so that the broker prepares one answer while the other is parsed, and a
distant broker's round trip is used twice. A broker looks at all partitions of a session for each fetch, so where there
are many, those without records have two fetchers of their own: busy ones would wait for them. So have those that are
far behind: they fill answers, and others would wait for many of these. A fetcher pauses while the buffer is full, and
omits partitions whose own share is full: what the target does not accept is not read. Leaders that move, brokers that
go away and sessions that the broker forgot are ordinary events here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import RECREATED, Ended, EpochPlan
from mm2py.pipeline.copy.fetcher import Fetcher, behind_fetcher_id, busy_fetcher_id, fetcher_id_of, is_for_quiet
from mm2py.pipeline.copy.leader_epochs import HistoryCheck
from mm2py.pipeline.copy.metadata import WantedTopics, is_recreated
from mm2py.pipeline.copy.partition import ByFetcher, PartitionCopy, Tally
from mm2py.pipeline.copy.refusals import kept_out, tried_again
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.pipeline.copy.sent_plan import MANY
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.wire.cluster import Cluster
from mm2py.wire.fetch_forms import FetchSizes


_FINISH_S: Final = 0.1
#: How long a broker may hold a fetch back is said in milliseconds.
_SHORTEST_S: Final = 0.001
_QUIET_EARLY_MS: Final = 100
#: A broker looks at all partitions of a session when a fetch arrives, and twice when its time is over.
_QUIET_WAIT_MS: Final = 5_000

#: A partition without records for this long is quiet. Longer than an epoch, so that a busy one stays so in the next.
_QUIET_AFTER_S: Final = 15.0
#: Of how many partitions is remembered when they had records, before those are forgotten that are quiet.
_REMEMBERED: Final = 1_000


class SourceReader:
    """All fetchers of an epoch, and what they share."""

    def __init__(
        self,
        source: Cluster,
        sender: BatchSender,
        copies: Collection[PartitionCopy],
        *,
        plan: EpochPlan,
        hosted: WorkerState,
        throttle: Throttle,
        clock: Clock,
    ) -> None:
        """Make one for an epoch of *plan*, in the worker that keeps *hosted*."""
        self.source = source
        self.sender = sender
        self.limits = limits = plan.limits
        self.clock = clock
        self.sessions = hosted.sessions
        self.throttle = throttle
        self.far_behind = hosted.far_behind_of(plan, copies)
        self.slow_lines = hosted.slow_lines
        self.epoch_ms = epoch_ms = plan.epoch_ms
        self._replicas = hosted.replicas
        self._copies = copies
        self._history = HistoryCheck(source, hosted.checked, assign=self.assign, retry=self.retry)
        self.sizes = FetchSizes(
            limits.fetch_min_bytes,
            limits.fetch_max_bytes,
            limits.fetch_partition_max_bytes,
            limits.reads_committed,
            limits.rack,
        )
        self.age = Tally()
        #: Those of which records have arrived.
        self.heard: set[PartitionCopy] = set()
        #: Those that are fetched as they were in the last epoch, by their fetchers; and all to which anything may have
        #: happened in this one. Others are not looked at: of very many, that would be most of what an epoch costs.
        self.as_before: ByFetcher = {}
        self.touched: set[PartitionCopy] = set()
        self.requests = 0
        #: Whether all brokers have said what there is of each partition, once the epoch is over.
        self.have_told = False
        self.retries = 0
        self.throttled_ms = 0
        #: How long before the end of the epoch the last fetch of quiet partitions must be answered, or their session is
        #: lost: a broker looks at all of them before it answers.
        self.quiet_early_ms = min(_QUIET_EARLY_MS, epoch_ms // 10)
        #: How long a fetch of quiet partitions may wait. A broker that does not answer is to be noticed in the epoch.
        self.quiet_wait_ms = 0 if limits.fetch_min_bytes > 1 else min(_QUIET_WAIT_MS, epoch_ms // 2)
        self.wants_metadata = WantedTopics()
        self.deadline = self._end = 0.0
        self.is_stopped = False
        #: Set when all partitions that can be are assigned. A session of quiet ones is entered with all of its own.
        self.are_assigned = asyncio.Event()
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._loop = asyncio.get_running_loop()
        self._heard_at = hosted.heard_at
        self._has_many = len(copies) > MANY

    def start(self, tasks: asyncio.TaskGroup, end: float, deadline: float) -> None:
        """
        Begin; *deadline* is the event loop's time at which no fetch may be under way any more.

        It moves to *end*, or to the time when everything is settled if that is later.
        """
        self._tasks, self._end, self.deadline = tasks, end, deadline

    def left_s(self, early_s: float) -> float:
        """
        Return how long a fetch may take, to be answered *early_s* before the epoch ends.

        Once that is over, and something still has to be settled, before the deadline.
        """
        now = self._loop.time() + early_s
        return (self._end if self._end - now >= _SHORTEST_S else self.deadline) - now

    async def finish(self) -> None:
        """Ask for nothing more; fetches under way are given a moment to be answered, then given up."""
        self.is_stopped = True
        self.have_told = self.are_assigned.is_set() and not self._history.is_asking
        self.are_assigned.set()
        self._remember()
        self._history.give_up()
        self.throttle.stop()
        self.far_behind.end()
        self.sender.has_room.set()
        for fetcher in self._fetchers.values():
            fetcher.wake()
        tasks = [fetcher.task for fetcher in self._fetchers.values() if fetcher.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_FINISH_S)
            for fetcher in self._fetchers.values():
                if fetcher.task in late:
                    fetcher.give_up()
        self.have_told = self.have_told and all(fetcher.has_told for fetcher in self._fetchers.values())

    def busy_first(self, copies: Sequence[PartitionCopy]) -> Sequence[PartitionCopy]:
        """Return *copies* in their order, but busy ones first: they would wait for the assignment of many others."""
        return sorted(copies, key=lambda copy: not self._is_busy(copy)) if self._has_many else copies

    def assign(self, copy: PartitionCopy) -> None:
        """Assign *copy* to the fetcher of its broker; without a leader, retry soon."""
        self.touched.add(copy)
        if self.is_stopped or copy.has_ended:
            return
        node = self.source.leader(copy.plan.source)
        if node is None or self._tasks is None:
            self.retry(copy, f"no broker leads {copy.plan.source} at the source")
            return
        if is_recreated(self.source, copy.plan):
            if copy.fetching.retries:
                copy.end(Ended.RECREATED, RECREATED)
            else:
                self.retry(copy, RECREATED.message)  # what is known here may be old: look once more
            return
        if self._history.is_due(copy):
            self._history.ask(copy, node, self._tasks)
            return
        named = self._replicas.of(self.source.alias, copy.plan.source, self._loop.time())
        if named is not None and named in self.source.brokers:
            node = named
        fetching = copy.fetching
        fetching.node = node
        fetching.expect_leader(self.source.leader_epoch(copy.plan.source))
        is_quiet = self._has_many and not self._is_busy(copy)
        fetcher_id = fetcher_id_of(fetching.position, is_quiet=is_quiet, is_behind=fetching.is_behind)
        fetcher = self.fetcher(node, fetcher_id, self._tasks)
        if fetcher.is_in_long_fetch:
            fetcher = self.fetcher(node, busy_fetcher_id(fetcher_id), self._tasks)
        fetching.fetcher_id = fetcher.fetcher_id
        fetching.assigned_by = self.source.metadata if named is None else None
        fetcher.add(copy)

    def assign_again(self, copies: Iterable[PartitionCopy]) -> None:
        """
        Assign *copies* to which nothing happened in the last epoch, as `assign` would.

        Of very many, that is most. Quiet ones stay quiet, and without news of the source all is as it was then.
        """
        known, is_limiting = self.source.metadata, self.throttle.is_limiting
        as_before: ByFetcher = {}
        for copy in copies:
            fetching = copy.fetching
            is_as_before = fetching.assigned_by is known and is_for_quiet(fetching.fetcher_id) and not copy.has_ended
            is_limited = is_limiting or fetching.position.max_bytes is not None
            if fetching.node is not None and is_as_before and not is_limited:
                as_before.setdefault((fetching.node, fetching.fetcher_id), {})[fetching.position] = copy
            else:
                self.assign(copy)
        self.assign_as_before(as_before)

    def assign_as_before(self, by_fetcher: ByFetcher) -> None:
        """Assign partitions without a look at each."""
        if self.is_stopped or self._tasks is None:
            return
        for (node, fetcher_id), some in by_fetcher.items():
            self.fetcher(node, fetcher_id, self._tasks).add_as_before(some)
            known = self.as_before.setdefault((node, fetcher_id), some)
            if known is not some:
                known.update(some)

    def untouched(self) -> ByFetcher:
        """Return those that are fetched as they were, and to which nothing has happened."""
        return {
            place: {position: copy for position, copy in some.items() if copy not in self.touched}
            if not self.touched.isdisjoint(some.values())
            else some
            for place, some in self.as_before.items()
        }

    def fetcher(self, node: int, fetcher_id: int, tasks: asyncio.TaskGroup) -> Fetcher:
        """Return that fetcher of a broker, which runs from now on."""
        found = self._fetchers.get((node, fetcher_id))
        if found is None:
            found = self._fetchers[node, fetcher_id] = Fetcher(self, node, fetcher_id)
            found.task = tasks.create_task(found.run(), name=f"fetcher {fetcher_id} of broker {node}")
        return found

    def sort(self, copies: Iterable[PartitionCopy], fetcher: Fetcher) -> None:
        """Have *copies*, of which *fetcher* has just had answers, fetched with their like from now on."""
        others = []
        for copy in copies:
            if copy.fetching.is_behind:
                if not fetcher.is_for_behind:
                    self._move(copy, fetcher, behind_fetcher_id(fetcher.fetcher_id))
            elif copy.fetching.is_paused:
                self._move(copy, fetcher, busy_fetcher_id(fetcher.fetcher_id))
            elif fetcher.is_for_quiet or fetcher.is_for_behind:
                others.append(copy)
        if others and self._tasks is not None and not self.is_stopped:
            # Until its next fetch, which may be a long time, the one that has them fetches them.
            self.fetcher(fetcher.node, busy_fetcher_id(fetcher.fetcher_id), self._tasks).expect(others, fetcher)

    def _move(self, copy: PartitionCopy, fetcher: Fetcher, to_id: int) -> None:
        """Have another fetcher fetch *copy* from now on; *fetcher* has nothing under way for it."""
        fetching = copy.fetching
        if self._tasks is None or self.is_stopped or copy.has_ended:
            return
        if (fetching.node, fetching.fetcher_id) != (fetcher.node, fetcher.fetcher_id) or to_id == fetcher.fetcher_id:
            return
        to = self.fetcher(fetcher.node, to_id, self._tasks)
        fetching.fetcher_id = to_id
        if fetcher.has(copy):  # else it is paused, and continues there
            fetcher.remove(copy)
            to.add(copy)

    def _is_busy(self, copy: PartitionCopy) -> bool:
        before = self._heard_at.get((self.source.alias, copy.plan.source), -math.inf)
        return max(before, copy.fetching.heard_at) > self._loop.time() - _QUIET_AFTER_S

    def _remember(self) -> None:
        """Keep in mind for the next epoch which partitions had records."""
        alias = self.source.alias
        for copy in self.heard:
            self._heard_at[alias, copy.plan.source] = copy.fetching.heard_at
        if len(self._heard_at) > _REMEMBERED:
            oldest = self._loop.time() - _QUIET_AFTER_S
            for key in [key for key, heard_at in self._heard_at.items() if heard_at < oldest]:
                del self._heard_at[key]

    def read_nearer(self, copy: PartitionCopy, node: int) -> None:
        """Read *copy* from the replica on *node*, which the leader has named."""
        self._replicas.note(self.source.alias, copy.plan.source, node, self._loop.time())
        self.assign(copy)

    def read_leader(self, copy: PartitionCopy) -> bool:
        """Read *copy* from its leader again; False if it already is."""
        return self._replicas.forget(self.source.alias, copy.plan.source)

    def retry(self, copy: PartitionCopy, why: str, error: BrokerConnectionError | None = None) -> None:
        """Take *copy* from its fetcher and look its leader up after a pause."""
        self.touched.add(copy)
        self.read_leader(copy)
        fetching = copy.fetching
        fetching.node = None
        fetching.retries += 1
        self.retries += 1
        copy.retried_failure = kept_out(error) or tried_again(why, "source", self.source.alias)
        self.wants_metadata.add(copy.plan.source.topic)
        self._loop.call_later(self.limits.retry_pause_s(fetching.retries), self.assign, copy)

    def spare_memory(self) -> None:
        """
        Free the answers that a few batches hold on to, once these are far larger than what is buffered.

        A batch lies in the answer it came in. Where one partition does not get on while others do, each answer stays
        for the sake of that partition's small part of it.
        """
        held_bytes = sum(fetcher.held_bytes for fetcher in self._fetchers.values())
        if held_bytes > 2 * self.limits.buffer_bytes + self.limits.fetch_max_bytes:
            for copy in self._copies:
                for buffered in (*copy.buffer.in_flight, *copy.buffer.queue):
                    buffered.detach()

    @property
    def fetchers(self) -> int:
        return len(self._fetchers)

    @property
    def is_connecting(self) -> bool:
        """Whether a connection is being opened, or a leader is asked before its partitions are fetched."""
        return self._history.is_asking or any(fetcher.is_connecting for fetcher in self._fetchers.values())

    def resume_paused(self, copy: PartitionCopy) -> None:
        """Fetch *copy* again once its share of the buffer has drained by half, and its topic's limit allows it."""
        fetching = copy.fetching
        is_drained = copy.buffer.size_bytes * 2 <= self.limits.partition_buffer_bytes
        if fetching.is_paused and is_drained and not self.throttle.hold_s(copy):
            fetching.is_paused = False
            if fetching.node is not None and not copy.has_ended:
                self._fetchers[fetching.node, fetching.fetcher_id].add(copy)
