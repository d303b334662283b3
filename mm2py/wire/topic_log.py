"""
A compacted topic as a log: made when it is missing, read to its end, appended to.

MM2 keeps positions, offset syncs, checkpoints and heartbeats in such topics. Reading and appending go through the
`Cluster` and its connections, and follow leaders that move until the request timeout has passed without progress.
An append whose answer was lost is sent again: a record may then stand in the log twice, which a log of latest values
does not mind. What belongs to a transaction has a sequence, and stands there once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar

import attrs
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.partitioner import DefaultPartitioner
from aiokafka.protocol.fetch import FetchRequest
from aiokafka.protocol.produce import ProduceRequest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, CorruptBatchError, Mm2Error
from mm2py.model.flow import TopicPartition
from mm2py.model.topic import NewTopic
from mm2py.wire.answers import by_asked
from mm2py.wire.batches.batch import MalformedRecordSetError, batches
from mm2py.wire.batches.rebuild import UNDECODABLE
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of, is_retriable
from mm2py.wire.patience import Patience
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topics.admin import Admin
from mm2py.wire.transactions import TransactionalProducer


_PURPOSE = "log"
#: Others have a turn of the event loop once as much is decoded.
_FETCH_MAX_BYTES = 1024 * 1024
_FETCH_WAIT_MS = 100
_BATCH_BYTES = 256 * 1024
#: After so many records others have a turn of the event loop: a flow may write tens of thousands of positions at once.
_RECORDS_A_TURN = 500
_MAGIC = 2
_ACKS_ALL = -1
#: The markers of a transaction that was just committed take milliseconds; one that is open takes longer.
_MARKERS_S = 0.005
_OPEN_S = 0.1

_COMPACTED = {"cleanup.policy": "compact"}
#: What a broker answers that lets clients choose only some configs, or values of them.
_REFUSES_CONFIGS = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.POLICY_VIOLATION})
#: Errors of a creation to ignore: the topic exists, or we may not create it.
_FINE_WHEN_CREATING = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


@attrs.define(eq=False)
class TooFewBrokersError(Mm2Error):
    """A topic is to have more replicas than the cluster has brokers."""

    hint: ClassVar[str] = "lower the setting, or add brokers"

    cluster: str
    topic: str
    setting: str
    wanted: int | str
    brokers: int

    def __str__(self) -> str:
        brokers = f"{self.brokers} broker{'' if self.brokers == 1 else 's'} of cluster {self.cluster}"
        is_plain = isinstance(self.wanted, int) and self.wanted > self.brokers
        why = f"{self.wanted} > {brokers}" if is_plain else f"is {self.wanted}, with {brokers}"
        return f"cannot create topic {self.topic}: {self.setting} {why}"


@attrs.frozen
class LogRecord:
    """
    One record of the log.

    When appended, a missing partition follows from the key as Java's producer chooses it, and a missing timestamp is
    the present; the offset is the broker's to give.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int | None = None
    offset: int | None = None
    timestamp_ms: int | None = None


class TopicLog:
    """One compacted topic of one cluster. It opens nothing of its own, so there is nothing to close."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.topic = topic
        self._cluster = cluster
        #: Why the topic could not be created: it says more than that the topic is unknown.
        self.refusal: BrokerAnsweredError | None = None

    @property
    def cluster(self) -> Cluster:
        """The cluster that has the topic."""
        return self._cluster

    # Creating.

    async def create(
        self, partitions: int, replication_factor: int, *, setting: str, configs: Mapping[str, str] | None = None
    ) -> bool:
        """
        Create the topic where it is missing, and wait until it has leaders; say whether it was created.

        *setting* names the key that the replication factor comes from, for the error that says to lower it. Brokers
        that refuse the *configs*, as a provider's may, create it without. An existing topic is taken as it is, and so
        is one that we may not create or not see. What it lacks leaders of is missed where it is read or written.
        """
        await self._cluster.refresh_metadata({self.topic})
        if self._cluster.partitions_of(self.topic):
            self.refusal = None
            return False
        topic = NewTopic(self.topic, partitions, replication_factor, {**_COMPACTED, **(configs or {})})
        error = (await Admin(self._cluster).create_topics([topic]))[self.topic]
        if configs and error is not None and error.code in _REFUSES_CONFIGS:
            topic = attrs.evolve(topic, configs=_COMPACTED)
            error = (await Admin(self._cluster).create_topics([topic]))[self.topic]
        if error is not None and error.code == ErrorCode.INVALID_REPLICATION_FACTOR:
            raise TooFewBrokersError(
                self._cluster.alias, self.topic, setting, replication_factor, len(self._cluster.brokers)
            ) from error
        if error is not None and error.code not in _FINE_WHEN_CREATING:
            raise error
        if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            self.refusal = error
            return False
        self.refusal = None
        await self._partitions()
        return error is None

    async def _partitions(self, led: Iterable[TopicPartition] | None = None) -> tuple[TopicPartition, ...]:
        """
        Return the topic's partitions once each has a leader, or those that are to be *led*.

        Raise the broker's error when the time is over.
        """
        patience = self._patience()
        while True:
            partitions = tuple(TopicPartition(self.topic, number) for number in self._cluster.partitions_of(self.topic))
            leaderless = [tp for tp in (partitions if led is None else led) if self._cluster.leader(tp) is None]
            if partitions and not leaderless:
                return partitions
            metadata = self._cluster.metadata.topics.get(self.topic)
            code = ErrorCode.LEADER_NOT_AVAILABLE if partitions else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            error = self._error((metadata.error_code if metadata else 0) or code, "Metadata", _named(leaderless))
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self.refusal is not None:
                error = self.refusal
            await self._retry_after(error, patience)

    # Reading.

    async def read_all(self) -> list[LogRecord]:
        """Read every committed record up to the ends the partitions have now, by partition and offset."""
        records: list[LogRecord] = []
        async with aclosing(self.read_from({})) as chunks:
            async for chunk in chunks:
                records += chunk
        return sorted(records, key=lambda record: (record.partition or 0, record.offset or 0))

    async def await_stable(self) -> None:
        """
        Wait until every transaction that is open now has ended: reading stops at an open one, of any producer.

        Raise CONCURRENT_TRANSACTIONS where one stays open for longer than a request may take.
        """
        await self._cluster.refresh_metadata({self.topic})
        partitions = await self._partitions()
        ends = await self._offsets(partitions, LATEST, reads_committed=False)
        patience, pause_s = self._patience(), _MARKERS_S
        while True:
            stable = await self._offsets(partitions, LATEST)
            held = [tp for tp, end in ends.items() if stable[tp] < end]
            if not held:
                return
            if pause_s < _OPEN_S:
                await self._cluster.clock.sleep(pause_s)
                pause_s *= 2
                continue
            detail = f"a transaction that is still open keeps {held[0]} from being read past offset {stable[held[0]]}"
            await self._retry_after(self._error(ErrorCode.CONCURRENT_TRANSACTIONS, "ListOffsets", detail), patience)

    async def read_from(self, positions: Mapping[int, int]) -> AsyncGenerator[list[LogRecord], None]:
        """
        Read on, from *positions* up to the ends that the partitions have now, and give what each fetch brings.

        A partition that *positions* leaves out, whose records up to there were deleted, or that ends before that,
        because an election lost records, is read from its start. Within a partition records come in order.
        """
        await self._cluster.refresh_metadata({self.topic})
        partitions = await self._partitions()
        ends = await self._offsets(partitions, LATEST)
        starts = await self._offsets(partitions, EARLIEST)
        begun = {tp: positions.get(tp.partition, 0) for tp in partitions}
        whole = {tp: at for tp, at in begun.items() if at <= ends[tp]}
        readings = [_Reading(tp, max(starts[tp], whole.get(tp, 0)), ends[tp]) for tp in partitions]
        patience = self._patience()
        while unread := [reading for reading in readings if reading.position < reading.end]:
            before = sum(reading.position for reading in unread)
            error = await self._fetch_once(unread)
            if found := [record for reading in unread for record in reading.give()]:
                yield found
            if sum(reading.position for reading in unread) > before:
                patience.renew()
            elif error is None:
                error = self._error(ErrorCode.REQUEST_TIMED_OUT, "Fetch", "no record came")
            if error is not None:
                await self._retry_after(error, patience)

    async def read_on(self, partition: int, position: int) -> tuple[list[LogRecord], int]:
        """
        Fetch once what follows *position* in a partition, and return it with the next position.

        This is one request, for a log that is followed; any error is raised at once. Leaders must be known.
        """
        reading = _Reading(TopicPartition(self.topic, partition), position, position)
        if self._cluster.leader(reading.tp) is None:
            raise self._error(ErrorCode.LEADER_NOT_AVAILABLE, "Metadata", str(reading.tp))
        error = await self._fetch_once([reading])
        if error is not None:
            raise error
        return reading.give(), reading.position

    async def _offsets(
        self, partitions: Sequence[TopicPartition], when: int, *, reads_committed: bool = True
    ) -> dict[TopicPartition, int]:
        offsets = {}
        answers = await self._cluster.list_offsets(partitions, when, reads_committed=reads_committed)
        for tp, answer in answers.items():
            if isinstance(answer, BrokerAnsweredError):
                raise answer
            offsets[tp] = answer
        return offsets

    async def _fetch_once(self, readings: Sequence[_Reading]) -> BrokerAnsweredError | None:
        """Ask every leader once; give an error after which the same may be tried again, raise any other."""
        by_number = {reading.tp.partition: reading for reading in readings}
        later: BrokerAnsweredError | None = None

        async def fetch(node_id: int, numbers: list[int]) -> None:
            nonlocal later
            wanted = [(number, by_number[number].position, _FETCH_MAX_BYTES) for number in numbers]
            request = FetchRequest(_FETCH_WAIT_MS, 1, _FETCH_MAX_BYTES, READ_COMMITTED, [(self.topic, wanted)])
            try:
                response = await self._cluster.send_to(node_id, request, _PURPOSE)
            except BrokerConnectionError as error:
                later = self._error(ErrorCode.NETWORK_EXCEPTION, "Fetch", str(error))
                return
            rows = ((row[0], row) for name, answers in response.topics if name == self.topic for row in answers)
            for number, row in by_asked(numbers, rows, None).items():
                later = (self._take(by_number[number], row) if row is not None else None) or later

        await self._at_leaders([reading.tp for reading in readings], fetch)
        return later

    def _take(self, reading: _Reading, row: Sequence[Any]) -> BrokerAnsweredError | None:
        _number, code, _high_watermark, _last_stable_offset, log_start_offset, aborted, *_, record_set = row
        if code == ErrorCode.OFFSET_OUT_OF_RANGE and log_start_offset > reading.position:
            reading.position = log_start_offset  # the broker deleted what lay before, while we read
        elif code:
            return self._error(code, "Fetch", str(reading.tp))
        elif record_set:
            reading.take(record_set, aborted or [])
        return None

    # Appending.

    async def append(self, records: Sequence[LogRecord], producer: TransactionalProducer | None = None) -> None:
        """
        Append *records* and wait until all in-sync replicas have them; what goes to one partition stays in order.

        When this raises, some of them may have been written. With a *producer* they become part of its transaction, to
        which the partitions that they go to belong already (`places`), and stand in the log once.
        """
        if not records:
            return
        waiting = await self._batches(records)
        if producer is not None:
            waiting = {tp: [producer.signed(tp, batch) for batch in batches] for tp, batches in waiting.items()}
        limit_ms = self._cluster.endpoint.request_timeout_ms if producer is None else producer.patience_ms
        patience = Patience(self._cluster.clock, limit_ms / 1000)
        while waiting:
            sent = {tp: batches[0] for tp, batches in waiting.items()}
            errors = await self._produce_once(sent, limit_ms, producer.transactional_id if producer else None)
            for tp in sent.keys() - errors.keys():
                waiting[tp].pop(0)
                patience.renew()
            waiting = {tp: batches for tp, batches in waiting.items() if batches}
            if errors:
                await self._retry_after(max(errors.values(), key=lambda error: not is_retriable(error.code)), patience)

    async def places(self, records: Sequence[LogRecord]) -> set[TopicPartition]:
        """Return which partitions *records* go to."""
        return set(await self.placed(records))

    async def placed(self, records: Sequence[LogRecord]) -> dict[TopicPartition, list[LogRecord]]:
        """Return *records* by the partitions that they go to, once those have leaders."""
        await self._cluster.ensure_metadata({self.topic})
        chosen = await self._chosen(records, await self._partitions(led=()))
        await self._partitions(chosen)
        return chosen

    async def _batches(self, records: Sequence[LogRecord]) -> dict[TopicPartition, list[bytes]]:
        placed = await self.placed(records)
        now_ms, found = self._cluster.clock.wall_ms(), dict[TopicPartition, list[bytes]]()
        for tp, some in placed.items():
            for batch in _built(some, now_ms):
                found.setdefault(tp, []).append(batch)
                await self._cluster.clock.sleep(0)
        return found

    async def _chosen(
        self, records: Sequence[LogRecord], partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, list[LogRecord]]:
        """Return *records* by partition, each with its number."""
        choose = DefaultPartitioner()
        numbers = [tp.partition for tp in partitions]
        chosen: dict[TopicPartition, list[LogRecord]] = {}
        for count, one in enumerate(records, 1):
            number = choose(one.key, numbers, numbers) if one.partition is None else one.partition
            placed = LogRecord(one.key, one.value, one.headers, number, one.offset, one.timestamp_ms)
            chosen.setdefault(TopicPartition(self.topic, number), []).append(placed)
            if not count % _RECORDS_A_TURN:
                await self._cluster.clock.sleep(0)
        return chosen

    async def _produce_once(
        self, batches: Mapping[TopicPartition, bytes], limit_ms: int, transactional_id: str | None
    ) -> dict[TopicPartition, BrokerAnsweredError]:
        """Send one batch per partition; give the errors of those that were not written."""
        known, missing = self._cluster.partitions_of(self.topic), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        codes = {tp: ErrorCode.LEADER_NOT_AVAILABLE if tp.partition in known else missing for tp in batches}
        errors = {tp: self._error(code, "Produce", str(tp)) for tp, code in codes.items()}
        timeout_ms = limit_ms * 3 // 4

        async def produce(node_id: int, numbers: list[int]) -> None:
            rows = [(number, batches[TopicPartition(self.topic, number)]) for number in numbers]
            request = ProduceRequest(transactional_id, _ACKS_ALL, timeout_ms, [(self.topic, rows)])
            try:
                response = await self._cluster.send_to(node_id, request, _PURPOSE)
            except BrokerConnectionError as error:
                lost = self._error(ErrorCode.NETWORK_EXCEPTION, "Produce", str(error))
                errors.update({TopicPartition(self.topic, number): lost for number in numbers})
                return
            codes = ((it[0], int(it[1])) for name, answers in response.topics if name == self.topic for it in answers)
            for number, code in by_asked(numbers, codes, int(ErrorCode.UNKNOWN_SERVER_ERROR)).items():
                tp = TopicPartition(self.topic, number)
                if code:
                    errors[tp] = self._error(code, "Produce", str(tp))
                else:
                    del errors[tp]

        await self._at_leaders(list(batches), produce)
        return errors

    async def _at_leaders(
        self, partitions: Iterable[TopicPartition], ask: Callable[[int, list[int]], Coroutine[Any, Any, None]]
    ) -> None:
        """Ask all leaders at once, each about its own *partitions*; one without a leader is left out."""
        by_leader: dict[int, list[int]] = {}
        for tp in partitions:
            leader = self._cluster.leader(tp)
            if leader is not None:
                by_leader.setdefault(leader, []).append(tp.partition)
        if len(by_leader) == 1:
            [(node_id, numbers)] = by_leader.items()
            await ask(node_id, numbers)
            return
        failed: list[Mm2Error] = []

        async def guarded(node_id: int, numbers: list[int]) -> None:
            try:
                await ask(node_id, numbers)
            except Mm2Error as error:
                failed.append(error)

        async with asyncio.TaskGroup() as tasks:
            for node_id, numbers in by_leader.items():
                tasks.create_task(guarded(node_id, numbers), name=f"{self._cluster.alias}/{self.topic}/{node_id}")
        if failed:
            raise failed[0]

    def _patience(self) -> Patience:
        return Patience(self._cluster.clock, self._cluster.endpoint.request_timeout_ms / 1000)

    async def _retry_after(self, error: BrokerAnsweredError, patience: Patience) -> None:
        """Pause and look the leaders up again; raise *error* where that is no use, or no longer."""
        if patience.is_over_for(error.code):
            raise error
        await patience.pause()
        await self._cluster.refresh_metadata({self.topic})

    def _error(self, code: int, request: str, detail: str = "") -> BrokerAnsweredError:
        return error_of(code, self._cluster.alias, request, detail or self.topic)


def _named(partitions: Sequence[TopicPartition]) -> str:
    """Name the first of *partitions*, and how many more there are."""
    others = f" and {len(partitions) - 1} more" if partitions[1:] else ""
    return f"{partitions[0]}{others}" if partitions else ""


@attrs.define(eq=False)
class _Reading:
    """How far a partition has been read."""

    tp: TopicPartition
    position: int
    end: int
    records: list[LogRecord] = attrs.field(factory=list)

    def give(self) -> list[LogRecord]:
        """Return what was taken since the last time."""
        given, self.records = self.records, []
        return given

    def take(self, record_set: bytes, aborted: Sequence[tuple[int, int]]) -> None:
        """
        Take what a fetch brought. aiokafka's reader leaves out control batches and aborted ones.

        Brokers take records whose headers no client can read. The rest of such a batch is left out, and a record that
        is empty stands in its place.
        """
        rows = PartitionRecords(
            self.tp,
            MemoryRecords(record_set),
            aborted,
            self.position,
            key_deserializer=None,
            value_deserializer=None,
            check_crcs=True,
            isolation_level=READ_COMMITTED,
        )
        try:
            self.records.extend(
                LogRecord(row.key, row.value, row.headers, row.partition, row.offset, row.timestamp) for row in rows
            )
        except (CorruptRecordException, *UNDECODABLE) as error:
            at = rows.next_fetch_offset
            behind = _behind_unreadable(record_set, at)
            if behind is None:
                raise CorruptBatchError(self.tp.topic, self.tp.partition, at, str(error)) from error
            self.records.append(LogRecord(None, None, (), self.tp.partition, at))
            self.position = behind
            return
        self.position = rows.next_fetch_offset


def _behind_unreadable(record_set: bytes, offset: int) -> int | None:
    """
    Return the offset after the batch that contains *offset*, if it is intact.

    None where it was damaged since: another replica may have what it said.
    """
    try:
        for batch in batches(memoryview(record_set)):
            if batch.last_offset >= offset:
                return batch.last_offset + 1 if batch.magic == _MAGIC and batch.matches_crc() else None
    except MalformedRecordSetError:
        return None
    return None


def _built(records: Sequence[LogRecord], now_ms: int) -> Iterator[bytes]:
    """Put *records* into batches of a size that every topic takes by default."""
    builder, count = _new_builder(), 0
    for record in records:
        timestamp = now_ms if record.timestamp_ms is None else record.timestamp_ms
        if builder.append(count, timestamp, record.key, record.value, list(record.headers)) is None:
            yield bytes(builder.build())
            builder, count = _new_builder(), 0
            builder.append(count, timestamp, record.key, record.value, list(record.headers))
        count += 1
    if count:
        yield bytes(builder.build())


def _new_builder() -> Any:
    return DefaultRecordBatchBuilder(
        _MAGIC, 0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1, batch_size=_BATCH_BYTES
    )
