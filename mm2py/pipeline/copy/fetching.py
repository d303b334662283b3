"""
From the source: two fetchers per broker keep long polls open for the partitions that broker leads.

Each of the two serves half of the partitions, so that the broker prepares one answer while the other is parsed, and a
distant broker's round trip is used twice. A fetcher pauses while the buffer is full, and omits partitions whose own
share is full: what the target does not accept is not read. Leaders that move, brokers that go away and sessions that
the broker forgot are ordinary events here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection
from typing import Final
from zlib import crc32

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import RECREATED, CopyLimits, Ended, PartitionFailure
from mm2py.pipeline.copy.ingest import ingest
from mm2py.pipeline.copy.leader_epochs import Checked, HistoryCheck
from mm2py.pipeline.copy.metadata import is_recreated
from mm2py.pipeline.copy.partition import PartitionCopy, Tally
from mm2py.pipeline.copy.read_replicas import ReadReplicas
from mm2py.pipeline.copy.refusals import kept_out, lacks, tried_again
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, name_of
from mm2py.wire.fetch import NONE, FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.frames import POOLED_FROM_BYTES


#: How long the broker may hold a fetch back while a partition is left out only because its share of the buffer is
#: full: it must come back soon after there is room.
_WAIT_WHILE_PAUSED_MS: Final = 20

#: The last fetch of an epoch is to be answered just before the epoch ends, so that its connection can be kept.
_ANSWER_EARLY_MS: Final = 4
_FINISH_S: Final = 0.1
#: A broker whose answer is this late when the epoch ends is reported as silent.
_SILENT_S: Final = 1.0

#: How often to look for room when every partition of a broker has its share of the buffer full.
_PAUSED_POLL_S: Final = 0.003

#: A partition with more batches waiting does not get on: its next ones move out of the answers they came in, which
#: may be far larger than they are. Where answers are so large that their memory is counted, `spare_memory` sees to it.
_PARCELS_IN_PLACE: Final = 64

#: Fetchers for each broker.
_LANES: Final = 2

_REFUSED: Final = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant the principal of the source cluster READ on the topic",
    ErrorCode.CORRUPT_MESSAGE: "the source broker cannot read its own log: check its disk, or move leadership",
}


#: What to do about a position that the source does not hold.
HINT_OUT_OF_RANGE: Final = (
    "retention overtook the mirror, or the source was truncated: copy.on.source.* defines what to do"
)


class SourceReader:
    """All fetchers of an epoch, and what they share."""

    def __init__(
        self,
        source: Cluster,
        sender: BatchSender,
        copies: Collection[PartitionCopy],
        *,
        limits: CopyLimits,
        clock: Clock,
        sessions: dict[tuple[str, int, int], FetchSession],
        replicas: ReadReplicas,
        checked: Checked,
        throttle: Throttle,
    ) -> None:
        self.source = source
        self.sender = sender
        self.limits = limits
        self.clock = clock
        self.sessions = sessions
        self.throttle = throttle
        self._replicas = replicas
        self._copies = copies
        self._history = HistoryCheck(source, checked, assign=self.assign, retry=self.retry)
        self.sizes = FetchSizes(
            limits.fetch_min_bytes,
            limits.fetch_max_bytes,
            limits.fetch_partition_max_bytes,
            limits.reads_committed,
            limits.rack,
        )
        self.age = Tally()
        self.requests = 0
        self.retries = 0
        self.throttled_ms = 0
        self.wants_metadata = asyncio.Event()
        self.deadline = 0.0
        self.is_stopped = False
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._loop = asyncio.get_running_loop()

    def start(self, tasks: asyncio.TaskGroup, deadline: float) -> None:
        """Begin; *deadline* is the event loop's time at which no fetch may be under way any more."""
        self._tasks, self.deadline = tasks, deadline

    async def finish(self) -> None:
        """Ask for nothing more; fetches under way are given a moment to be answered, then given up."""
        self.is_stopped = True
        self.throttle.stop()
        self.sender.has_room.set()
        for fetcher in self._fetchers.values():
            fetcher.wake()
        tasks = [fetcher.task for fetcher in self._fetchers.values() if fetcher.task is not None]
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_FINISH_S)
            for fetcher in self._fetchers.values():
                if fetcher.task in late:
                    fetcher.give_up()

    def assign(self, copy: PartitionCopy) -> None:
        """Assign *copy* to the fetcher of its broker; without a leader, retry soon."""
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
            self._history.ask(copy, self._tasks)
            return
        named = self._replicas.of(self.source.alias, copy.plan.source, self._loop.time())
        if named is not None and named in self.source.brokers:
            node = named
        fetching = copy.fetching
        fetching.node = node
        fetching.position.leader_epoch = self.source.leader_epoch(copy.plan.source)
        place = (node, _lane_of(fetching.position))
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = self._fetchers[place] = Fetcher(self, *place)
            fetcher.task = self._tasks.create_task(fetcher.run(), name=f"fetcher {place[1]} of broker {node}")
        fetcher.add(copy)

    def read_nearer(self, copy: PartitionCopy, node: int) -> None:
        """Read *copy* from the replica on *node*, which the leader has named."""
        self._replicas.note(self.source.alias, copy.plan.source, node, self._loop.time())
        self.assign(copy)

    def read_leader(self, copy: PartitionCopy) -> bool:
        """Read *copy* from its leader again; False if it already is."""
        return self._replicas.forget(self.source.alias, copy.plan.source)

    def retry(self, copy: PartitionCopy, why: str, error: BrokerConnectionError | None = None) -> None:
        """Take *copy* from its fetcher and look its leader up after a pause."""
        self.read_leader(copy)
        fetching = copy.fetching
        fetching.node = None
        fetching.retries += 1
        self.retries += 1
        copy.trouble = kept_out(error) or tried_again(why, "source")
        self.wants_metadata.set()
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
        """Whether a connection is being opened."""
        return any(fetcher.is_connecting for fetcher in self._fetchers.values())

    def resume_paused(self, copy: PartitionCopy) -> None:
        """Fetch *copy* again once its share of the buffer has drained by half, and its topic's limit allows it."""
        fetching = copy.fetching
        is_drained = copy.buffer.size_bytes * 2 <= self.limits.partition_buffer_bytes
        if fetching.is_paused and is_drained and not self.throttle.hold_s(copy.plan.source.topic):
            fetching.is_paused = False
            if fetching.node is not None and not copy.has_ended:
                self._fetchers[fetching.node, _lane_of(fetching.position)].add(copy)


def _lane_of(position: FetchPosition) -> int:
    """
    Return the fetcher of a partition; the same in each epoch, so that its session knows the partition already.

    Those with an unknown topic id have fetchers of their own: no session may mix ids and names.
    """
    lane = (crc32(position.topic) + position.partition) % _LANES
    return lane if position.topic_id is not None else lane + _LANES


class Fetcher:
    """Keeps one fetch in flight to one broker."""

    def __init__(self, reader: SourceReader, node: int, lane: int) -> None:
        self.node = node
        self.lane = lane
        self.task: asyncio.Task[None] | None = None
        self._reader = reader
        self._copies: dict[FetchPosition, PartitionCopy] = {}
        #: In the order in which they are fetched again.
        self._paused: dict[PartitionCopy, None] = {}
        self._session: FetchSession | None = None
        self._has_work = asyncio.Event()
        #: When the broker is to have answered the fetch under way.
        self._due_at = math.inf

    @property
    def held_bytes(self) -> int:
        """Return how much memory its answers hold, as far as it is counted."""
        return 0 if self._session is None else self._session.connection.held_bytes

    @property
    def is_connecting(self) -> bool:
        return self._session is None and bool(self._copies)

    def add(self, copy: PartitionCopy) -> None:
        self._copies[copy.fetching.position] = copy
        self._limit(copy)
        if self._session is not None:
            self._session.want(copy.fetching.position)
        self._has_work.set()

    def _limit(self, copy: PartitionCopy) -> None:
        """Ask for no more of *copy* than its topic's limit allows."""
        reader = self._reader
        most = reader.sizes.partition_max_bytes
        copy.fetching.position.max_bytes = reader.throttle.partition_bytes(copy, most)

    def _hold_back(self) -> None:
        """Leave out the partitions of topics that have used up what their limits allow."""
        held = self._reader.throttle.held_topics()
        for copy in [it for it in self._copies.values() if it.plan.source.topic in held] if held else ():
            self._pause(copy)

    def _pause(self, copy: PartitionCopy) -> None:
        """Leave *copy* out until `SourceReader.resume_paused` finds that it may be fetched again."""
        copy.fetching.is_paused = True
        self._paused[copy] = None
        self.remove(copy)

    def give_up(self) -> None:
        """
        End, the epoch being over; say so where the broker has answered nothing in all that time.

        The connection would say so itself, but the request timeout may be longer than epochs are.
        """
        if self.is_connecting or asyncio.get_running_loop().time() - self._due_at >= _SILENT_S:
            why = f"broker {self.node} at the source answered nothing within the epoch's time"
            for copy in self._copies.values():
                copy.trouble = copy.trouble or PartitionFailure(
                    why, "check that broker and the network to it; if it is only far away, raise copy.epoch.ms"
                )
        if self.task is not None:
            self.task.cancel()

    def wake(self) -> None:
        """Make a fetcher without work look whether the epoch is over."""
        self._has_work.set()

    def remove(self, copy: PartitionCopy) -> None:
        self._copies.pop(copy.fetching.position, None)
        if self._session is not None:
            self._session.drop(copy.fetching.position)

    async def run(self) -> None:
        """Fetch until cancelled. A fetch given up under way closes its connection, since its answer would come."""
        reader = self._reader
        while not reader.is_stopped:
            self._unpause()
            if not self._copies:
                # Without anything to fetch no connection is opened: the broker may be gone.
                await self._wait_for_work()
                continue
            try:
                await self._connect()
                await self._fetch_while_open()
            except BrokerConnectionError as error:
                self._lose_session()
                copies, self._copies = list(self._copies.values()), {}
                for copy in copies:
                    reader.retry(copy, str(error), error)

    @property
    def _session_key(self) -> tuple[str, int, int]:
        return self._reader.source.alias, self.node, self.lane

    async def _connect(self) -> None:
        """Enter this broker's session of the last epoch, or a new one, with exactly our partitions."""
        reader = self._reader
        connection = await reader.source.connection(self.node, f"fetch {self.lane}")
        key = self._session_key
        session = reader.sessions.get(key)
        if session is None or session.connection is not connection:
            session = reader.sessions[key] = FetchSession(connection, has_ids=self.lane < _LANES)
        session.keep_only(self._copies)
        for position in self._copies:
            session.adopt(position)
        self._session = session

    def _lose_session(self) -> None:
        if self._session is not None:
            self._session.connection.close("the fetch was given up")
            self._reader.sessions.pop(self._session_key, None)
            self._session = None

    async def _fetch_while_open(self) -> None:
        reader = self._reader
        session = self._session
        while session is not None and not reader.is_stopped:
            await self._wait_for_room()
            await reader.throttle.turn(reader.deadline)
            reader.spare_memory()
            self._unpause()
            self._hold_back()
            if not self._copies or reader.is_stopped:
                return
            left_ms = int((reader.deadline - asyncio.get_running_loop().time()) * 1000) - _ANSWER_EARLY_MS
            wait_ms = min(self._longest_wait_ms(), left_ms)
            if left_ms <= 0:
                reader.is_stopped = True
                return
            is_answered = False
            self._due_at = asyncio.get_running_loop().time() + wait_ms / 1000
            try:
                answer = await session.fetch(reader.throttle.sizes(reader.sizes, reader.fetchers), wait_ms)
                is_answered = True
            finally:
                if not is_answered:
                    self._lose_session()
            self._due_at = math.inf
            reader.requests += 1
            if answer.error_code != NONE:
                reader.retries += 1
                await reader.clock.sleep(reader.limits.retry_backoff_ms / 1000 if reader.retries > 1 else 0)
                continue
            await self._take(answer.partitions)
            if answer.throttle_ms > 0:
                reader.throttled_ms += answer.throttle_ms
                await reader.clock.sleep(answer.throttle_ms / 1000)

    def _longest_wait_ms(self) -> int:
        longest_ms = self._reader.limits.fetch_max_wait_ms
        if self._paused:
            release_ms = int(self._reader.throttle.release_s(self._paused) * 1000) + 1
            return min(longest_ms, max(_WAIT_WHILE_PAUSED_MS, release_ms))
        return longest_ms

    async def _wait_for_work(self) -> None:
        reader = self._reader
        if self._paused:
            await reader.throttle.pause(max(_PAUSED_POLL_S, reader.throttle.release_s(self._paused)), reader.deadline)
        else:
            self._has_work.clear()
            await self._has_work.wait()

    async def _wait_for_room(self) -> None:
        sender = self._reader.sender
        while sender.buffered_bytes >= self._reader.limits.buffer_bytes and not self._reader.is_stopped:
            sender.has_room.clear()
            await sender.has_room.wait()

    def _unpause(self) -> None:
        for copy in [c for c in self._paused if not c.fetching.is_paused or c.has_ended]:
            del self._paused[copy]
        for copy in list(self._paused):
            self._reader.resume_paused(copy)
            if not copy.fetching.is_paused:
                del self._paused[copy]

    async def _take(self, answers: list[PartitionAnswer]) -> None:
        reader = self._reader
        sender = reader.sender
        now_ms = reader.clock.wall_ms()
        for answer in answers:
            copy: PartitionCopy = answer.position.owner
            if copy.has_ended:
                self.remove(copy)
                continue
            if answer.error_code != NONE:
                self._failed(copy, answer)
                continue
            fetching = copy.fetching
            if fetching.retries:
                copy.overcome_at_source()
            fetching.high_watermark = answer.high_watermark
            if reader.limits.reads_committed:
                fetching.last_stable_offset = answer.last_stable_offset
            fetching.log_start_offset = answer.log_start_offset
            if not answer.record_set:
                if answer.preferred_replica not in (-1, self.node):
                    self.remove(copy)
                    reader.read_nearer(copy, answer.preferred_replica)
                continue
            is_rebuilt = self._ingest(copy, answer, now_ms)
            sender.offer(copy)
            if is_rebuilt:
                # Building took a while: what is built leaves now, and other answers get their turn.
                sender.pump()
                await reader.clock.sleep(0)
        sender.pump()

    def _ingest(self, copy: PartitionCopy, answer: PartitionAnswer, now_ms: int) -> bool:
        """Queue what came for *copy*; say whether batches had to be built for it."""
        reader = self._reader
        buffer, fetch, queue = copy.buffer, copy.fetching.position, copy.buffer.queue
        before_bytes, before_parcels = buffer.size_bytes, len(queue)
        ingest(copy, answer, reader.limits)
        if reader.throttle.is_limiting:
            records = sum(queue[index].record_count for index in range(before_parcels, len(queue)))
            reader.throttle.charge(copy, answer.record_set, records)
            self._limit(copy)
            if fetch in self._copies:  # the others first, where some must wait
                self._copies[fetch] = self._copies.pop(fetch)
        reader.sender.take(copy, before_bytes)
        is_uncounted = len(answer.record_set.obj) < POOLED_FROM_BYTES  # type: ignore[arg-type]
        is_stuck = before_parcels >= _PARCELS_IN_PLACE and is_uncounted
        age = copy.fetching.age
        for index in range(before_parcels, len(queue)):
            buffered = queue[index]
            if is_stuck:
                buffered.detach()
            if buffered.max_timestamp >= 0:
                age_ms = now_ms - buffered.max_timestamp
                reader.age.add(age_ms, buffered.record_count)
                age.add(age_ms, buffered.record_count)
        if copy.has_ended:
            self.remove(copy)
        elif buffer.size_bytes >= reader.limits.partition_buffer_bytes:
            self._pause(copy)
        elif self._session is not None:
            self._session.want(fetch)
        return len(queue) > before_parcels and queue[-1].is_rebuilt

    def _failed(self, copy: PartitionCopy, answer: PartitionAnswer) -> None:
        self.remove(copy)
        source, offset, code = copy.plan.source, copy.fetching.position.offset, answer.error_code
        where = f"source answered {name_of(code)} for {source} at offset {offset}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reader.read_leader(copy):
            self._reader.assign(copy)  # a replica may hold less than its leader
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The topic may have been re-created: the next attempt must check.
            self._reader.wants_metadata.set()
            copy.end(Ended.OUT_OF_RANGE, PartitionFailure(where, HINT_OUT_OF_RANGE, name_of(code), offset))
        elif code in _REFUSED:
            hint = _REFUSED[ErrorCode(code)]
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                hint = lacks(self._reader.source.endpoint, "READ", source.topic)
            copy.end(Ended.FAILED, PartitionFailure(where, hint, name_of(code), offset))
        else:
            self._reader.retry(copy, where)
