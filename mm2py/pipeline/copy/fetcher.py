"""One fetch in flight to one broker of the source, for some of its partitions."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from typing import Final, Protocol
from zlib import crc32

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure
from mm2py.pipeline.copy.far_behind import FarBehind
from mm2py.pipeline.copy.ingest import ingest
from mm2py.pipeline.copy.metadata import WantedTopics
from mm2py.pipeline.copy.partition import PartitionCopy, Tally
from mm2py.pipeline.copy.refusals import SILENT_S, hint_at_fetch, silent
from mm2py.pipeline.copy.sending import BatchSender
from mm2py.pipeline.copy.slow_lines import SlowLines
from mm2py.pipeline.copy.throttle import Throttle
from mm2py.pipeline.copy.waiting import WAIT_WHILE_PAUSED_MS, WaitingPartitions
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, name_of
from mm2py.wire.fetch import NONE, FetchAnswer, FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.frames import POOLED_FROM_BYTES


#: The last fetch of an epoch is to be answered just before the epoch ends, so that its connection can be kept.
_ANSWER_EARLY_MS: Final = 2
#: What of an epoch the answer's way may take at most.
_FAR_SHARE: Final = 1 / 4

#: A partition with more batches waiting does not get on: its next ones move out of the answers they came in, which
#: may be far larger than they are. Where answers are so large that their memory is counted, `spare_memory` sees to it.
_BATCHES_IN_PLACE: Final = 64

#: Fetchers for each broker, of each kind.
_FETCHERS: Final = 2
#: Added for those of topics with an unknown id: no session may mix ids and names.
_WITHOUT_IDS: Final = 2
#: Added for those of quiet partitions.
_QUIET: Final = 4
#: Added for those of partitions that are far behind.
_BEHIND: Final = 8

#: What to do about a position that the source does not hold.
HINT_OUT_OF_RANGE: Final = (
    "retention overtook the mirror, or the source was truncated: copy.on.source.* defines what to do"
)


def fetcher_id_of(position: FetchPosition, *, is_quiet: bool, is_behind: bool = False) -> int:
    """Return the fetcher of a partition; the same in each epoch, so that its session knows the partition already."""
    fetcher_id = (crc32(position.topic) + position.partition) % _FETCHERS
    fetcher_id += 0 if position.topic_id is not None else _WITHOUT_IDS
    return behind_fetcher_id(fetcher_id) if is_behind else fetcher_id + (_QUIET if is_quiet else 0)


def busy_fetcher_id(fetcher_id: int) -> int:
    """Return the fetcher of busy partitions that belongs to one of quiet ones, or of those that are far behind."""
    return fetcher_id % _QUIET


def is_for_quiet(fetcher_id: int) -> bool:
    """Whether it is the fetcher of quiet partitions, where there are many."""
    return _QUIET <= fetcher_id < _BEHIND


def behind_fetcher_id(fetcher_id: int) -> int:
    """Return the fetcher of what is far behind that belongs to another."""
    return busy_fetcher_id(fetcher_id) + _BEHIND


class Reading(Protocol):
    """What all fetchers of an epoch share; see `mm2py.pipeline.copy.fetching.SourceReader`."""

    source: Cluster
    sender: BatchSender
    limits: CopyLimits
    clock: Clock
    sessions: dict[tuple[str, int, int], FetchSession]
    throttle: Throttle
    far_behind: FarBehind
    slow_lines: SlowLines
    epoch_ms: int
    sizes: FetchSizes
    age: Tally
    heard: set[PartitionCopy]
    touched: set[PartitionCopy]
    requests: int
    retries: int
    throttled_ms: int
    wants_metadata: WantedTopics
    deadline: float
    is_stopped: bool
    are_assigned: asyncio.Event
    quiet_early_ms: int
    quiet_wait_ms: int

    @property
    def fetchers(self) -> int: ...

    def left_s(self, early_s: float) -> float: ...

    def assign(self, copy: PartitionCopy) -> None: ...

    def retry(self, copy: PartitionCopy, why: str, error: BrokerConnectionError | None = None) -> None: ...

    def sort(self, copies: Iterable[PartitionCopy], fetcher: Fetcher) -> None: ...

    def read_nearer(self, copy: PartitionCopy, node: int) -> None: ...

    def read_leader(self, copy: PartitionCopy) -> bool: ...

    def resume_paused(self, copy: PartitionCopy) -> None: ...

    def spare_memory(self) -> None: ...


class Fetcher:
    """Keeps one fetch in flight to one broker."""

    def __init__(self, reader: Reading, node: int, fetcher_id: int) -> None:
        self.node = node
        self.fetcher_id = fetcher_id
        self.task: asyncio.Task[None] | None = None
        self._reader = reader
        self._copies: dict[FetchPosition, PartitionCopy] = {}
        self._waiting = WaitingPartitions(reader.throttle, reader.resume_paused)
        self._session: FetchSession | None = None
        self._has_work = asyncio.Event()
        #: Partitions that were quiet or far behind, and the fetchers that have them until our next fetch.
        self._expected: dict[PartitionCopy, Fetcher] = {}
        #: Whether there is no time left for another fetch.
        self._is_over = False
        #: When the broker is to have answered the fetch under way.
        self._due_at = math.inf
        #: Whether there are partitions that were in no fetch yet; others may follow them.
        self._has_new = False
        #: Whether the broker has answered a fetch in which all of them were.
        self._has_answered = False

    @property
    def held_bytes(self) -> int:
        """Return how much memory its answers hold, as far as it is counted."""
        return 0 if self._session is None else self._session.connection.held_bytes

    @property
    def has_told(self) -> bool:
        """Whether the broker has said in this epoch what there is of each partition."""
        return self._has_answered or all(it.fetching.high_watermark >= 0 for it in self._copies.values())

    @property
    def is_connecting(self) -> bool:
        return self._session is None and bool(self._copies)

    @property
    def is_in_long_fetch(self) -> bool:
        """Whether the broker may still hold the fetch under way back for longer than any other."""
        left_s = self._due_at - asyncio.get_running_loop().time()
        return self._reader.limits.fetch_max_wait_ms / 1000 < left_s < math.inf

    def add(self, copy: PartitionCopy) -> None:
        copy.fetching.ask_for(self._most(copy))
        self._copies[copy.fetching.position] = copy
        self._has_new, self._has_answered = True, self._has_answered and copy.fetching.high_watermark >= 0
        if self._session is not None:
            self._session.want(copy.fetching.position)
        self._has_work.set()

    def add_as_before(self, copies: Mapping[FetchPosition, PartitionCopy]) -> None:
        """Fetch *copies* as they were in the last epoch, without a look at each; nothing limits how much."""
        self._copies.update(copies)
        self._has_new, self._has_answered = True, False
        if self._session is not None:
            for position in copies:
                self._session.want(position)
        self._has_work.set()

    @property
    def is_for_quiet(self) -> bool:
        return is_for_quiet(self.fetcher_id)

    @property
    def is_for_behind(self) -> bool:
        return self.fetcher_id >= _BEHIND

    def expect(self, copies: Iterable[PartitionCopy], other: Fetcher) -> None:
        """
        Take over *copies* from another fetcher with the next fetch.

        Until then that one fetches them; what it has under way for them is ignored.
        """
        self._expected.update(dict.fromkeys(copies, other))
        self._has_work.set()

    def _take_over(self) -> None:
        expected, self._expected = self._expected, {}
        for copy, other in expected.items():
            if other.has(copy):
                other.remove(copy)
                copy.fetching.fetcher_id = self.fetcher_id
                self.add(copy)

    def has(self, copy: PartitionCopy) -> bool:
        """Whether *copy* is fetched here."""
        return self._copies.get(copy.fetching.position) is copy

    def _most(self, copy: PartitionCopy) -> int | None:
        """Return how much a fetch may bring of *copy* by its topic's limit, or because it is behind."""
        reader = self._reader
        return reader.throttle.partition_bytes(copy, reader.sizes.partition_max_bytes)

    def _hold_back(self) -> None:
        """Leave out the partitions of which limits allow nothing more now, and those behind that have to wait."""
        for copy in self._reader.throttle.held(self._copies.values()):
            self._pause(copy)

    def _pause(self, copy: PartitionCopy) -> None:
        """Leave *copy* out until `SourceReader.resume_paused` finds that it may be fetched again."""
        self._reader.touched.add(copy)
        self._waiting.add(copy)
        self.remove(copy)

    def give_up(self) -> None:
        """
        End, the epoch being over; say so where the broker has answered nothing in all that time.

        The connection would say so itself, but the request timeout may be longer than epochs are.
        """
        if self.is_connecting or asyncio.get_running_loop().time() - self._due_at >= SILENT_S:
            self._reader.touched.update(self._copies.values())
            for copy in self._copies.values():
                copy.retried_failure = copy.retried_failure or silent(self.node, self._reader.source.alias)
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
        if self.fetcher_id >= _QUIET:
            await reader.are_assigned.wait()
        while not (reader.is_stopped or self._is_over):
            self._waiting.release()
            self._take_over()
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
        return self._reader.source.alias, self.node, self.fetcher_id

    async def _connect(self) -> None:
        """Enter this broker's session of the last epoch, or a new one, with exactly our partitions."""
        reader = self._reader
        connection = await reader.source.connection(self.node, f"fetch {self.fetcher_id}")
        key = self._session_key
        session = reader.sessions.get(key)
        if session is None or session.connection is not connection:
            has_ids = busy_fetcher_id(self.fetcher_id) < _WITHOUT_IDS
            session = reader.sessions[key] = FetchSession(connection, has_ids=has_ids)
        session.enter(self._copies)
        self._session = session

    def _lose_session(self) -> None:
        if self._session is not None:
            self._session.connection.close("the fetch was given up")
            self._reader.sessions.pop(self._session_key, None)
            self._session = None

    async def _fetch_while_open(self) -> None:
        reader = self._reader
        session = self._session
        if session is not None:
            self._count_hold(session)
        while session is not None and not reader.is_stopped:
            await self._wait_for_quota(session)
            await self._wait_for_room()
            await reader.throttle.turn(reader.deadline)
            reader.spare_memory()
            self._waiting.release()
            self._take_over()
            self._hold_back()
            if not self._copies or reader.is_stopped:
                return
            wait_ms = self._wait_ms(session)
            if wait_ms is None:
                self._is_over = True
                return
            answer = await self._fetch(session, wait_ms)
            reader.requests += 1
            if answer.error_code != NONE:
                reader.retries += 1
                await reader.clock.sleep(reader.limits.retry_backoff_ms / 1000 if reader.retries > 1 else 0)
                continue
            self._has_answered = not self._has_new
            await self._take(answer.partitions)
            if answer.throttle_ms > 0:
                session.connection.muted_until = asyncio.get_running_loop().time() + answer.throttle_ms / 1000
                self._count_hold(session)

    def _wait_ms(self, session: FetchSession) -> int | None:
        """Return how long the broker may hold the next fetch back; None if no time is left for it in this epoch."""
        reader, most_ms = self._reader, self._reader.limits.fetch_max_wait_ms
        # A slow first answer, of a busy broker, must not keep us from fetching.
        early_ms = min(session.connection.round_trip_s * 1000, reader.epoch_ms * _FAR_SHARE)
        early_ms += reader.quiet_early_ms if self.is_for_quiet else _ANSWER_EARLY_MS
        left_ms = int(reader.left_s(early_ms / 1000) * 1000)
        # Of a fetch by name, the broker may find another topic with that name at its end.
        if self.is_for_quiet and session.is_by_id and not self._has_new:
            most_ms = max(most_ms, reader.quiet_wait_ms)
        if not reader.are_assigned.is_set():
            most_ms = min(most_ms, WAIT_WHILE_PAUSED_MS)  # those that are not assigned yet would wait as well
        return min(self._waiting.longest_wait_ms(most_ms), left_ms) if left_ms > 0 else None

    async def _fetch(self, session: FetchSession, wait_ms: int) -> FetchAnswer:
        reader, loop = self._reader, asyncio.get_running_loop()
        answer: FetchAnswer | None = None
        self._has_new = False
        begun, line = loop.time(), (reader.source.alias, self.node)
        self._due_at = begun + wait_ms / 1000
        sizes = reader.throttle.sizes(reader.sizes, reader.fetchers)
        try:
            answer = await session.fetch(reader.slow_lines.limited(line, sizes), wait_ms)
        finally:
            self._due_at = math.inf
            part = (loop.time() - begun) * 1000 / reader.epoch_ms
            if answer is not None:
                reader.slow_lines.answered(line, part, answer.partitions, sizes)
            else:
                # Before its first byte a broker may hold it back for records, or be far away.
                if session.connection.is_receiving:
                    reader.slow_lines.given_up(line, part, sizes)
                self._lose_session()
        return answer

    async def _wait_for_quota(self, session: FetchSession) -> None:
        """Wait while the broker reads nothing from us, as it has said in this epoch or in an earlier one."""
        left_s = session.connection.muted_until - asyncio.get_running_loop().time()
        if left_s > 0:
            await self._reader.clock.sleep(left_s)

    def _count_hold(self, session: FetchSession) -> None:
        """
        Count the part of a quota's hold that falls into this epoch.

        Other brokers may answer in it that nothing is new; of this one's partitions that is not known.
        """
        left_s = session.connection.muted_until - asyncio.get_running_loop().time()
        if left_s > 0:
            self._reader.throttled_ms += max(1, round(min(left_s, self._reader.left_s(0.0)) * 1000))

    async def _wait_for_work(self) -> None:
        if not await self._waiting.pause(self._reader.deadline):
            self._has_work.clear()
            await self._has_work.wait()

    async def _wait_for_room(self) -> None:
        reader, sender, loop = self._reader, self._reader.sender, asyncio.get_running_loop()
        while not reader.is_stopped and not reader.far_behind.has_room(
            sender, reader.deadline - loop.time(), is_behind=self.is_for_behind
        ):
            sender.has_room.clear()
            await sender.has_room.wait()

    async def _take(self, answers: list[PartitionAnswer]) -> None:
        reader = self._reader
        sender = reader.sender
        now_ms, now = reader.clock.wall_ms(), asyncio.get_running_loop().time()
        heard: list[PartitionCopy] = []
        for answer in answers:
            copy: PartitionCopy = answer.position.owner
            if not self.has(copy):
                # While others had their turn, a fetcher took it over; that one fetches this from its position on.
                continue
            reader.touched.add(copy)
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
                self._note_empty(copy, answer)
                if fetching.is_behind is not self.is_for_behind:
                    heard.append(copy)
                continue
            fetching.heard_at = now
            reader.heard.add(copy)
            heard.append(copy)
            is_rebuilt = self._ingest(copy, answer, now_ms)
            sender.offer(copy)
            if is_rebuilt:
                # Building took a while: what is built leaves now, and other answers get their turn.
                sender.pump()
                await reader.clock.sleep(0)
        sender.pump()
        reader.sort(heard, self)

    def _note_empty(self, copy: PartitionCopy, answer: PartitionAnswer) -> None:
        """Take an answer without records: it may name a nearer replica, or show whether *copy* is behind."""
        reader = self._reader
        reader.far_behind.note(copy, 0, 0)
        if reader.throttle.learns(copy):
            copy.fetching.position.max_bytes = self._most(copy)
            if self._session is not None:
                self._session.want(copy.fetching.position)
        if answer.preferred_replica not in (-1, self.node):
            self.remove(copy)
            reader.read_nearer(copy, answer.preferred_replica)

    def _ingest(self, copy: PartitionCopy, answer: PartitionAnswer, now_ms: int) -> bool:
        """Queue what came for *copy*; say whether batches had to be built for it."""
        reader = self._reader
        buffer, fetch, queue = copy.buffer, copy.fetching.position, copy.buffer.queue
        before_bytes, before_batches, before_offset = buffer.size_bytes, len(queue), fetch.offset
        ingest(copy, answer, reader.limits)
        reader.far_behind.note(copy, fetch.offset - before_offset, len(answer.record_set))
        if reader.throttle.is_limiting:
            records = sum(queue[index].record_count for index in range(before_batches, len(queue)))
            reader.throttle.charge(copy, answer.record_set, records)
            fetch.max_bytes = self._most(copy)
            if fetch in self._copies:  # the others first, where some must wait
                self._copies[fetch] = self._copies.pop(fetch)
        reader.sender.take(copy, before_bytes)
        is_uncounted = len(answer.record_set.obj) < POOLED_FROM_BYTES  # type: ignore[arg-type]
        is_stuck = before_batches >= _BATCHES_IN_PLACE and is_uncounted
        age = copy.fetching.age
        for index in range(before_batches, len(queue)):
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
        return len(queue) > before_batches and queue[-1].is_rebuilt

    def _failed(self, copy: PartitionCopy, answer: PartitionAnswer) -> None:
        self.remove(copy)
        source, offset, code = copy.plan.source, copy.fetching.position.offset, answer.error_code
        where = f"source answered {name_of(code)} for {source} at offset {offset}"
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and self._reader.read_leader(copy):
            self._reader.assign(copy)  # a replica may hold less than its leader
        elif code == ErrorCode.OFFSET_OUT_OF_RANGE:
            # The topic may have been re-created: the next attempt must check.
            self._reader.wants_metadata.add(source.topic)
            copy.end(Ended.OUT_OF_RANGE, PartitionFailure(where, HINT_OUT_OF_RANGE, name_of(code), offset))
        elif hint := hint_at_fetch(code, self._reader.source.endpoint, source.topic):
            copy.end(Ended.FAILED, PartitionFailure(where, hint, name_of(code), offset))
        else:
            self._reader.retry(copy, where)
