"""
The logs of one partition at both clusters, read from their leaders one answer after the other.

For finding out what has arrived; what is copied comes through `mm2py.pipeline.copy.fetching`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Final, NamedTuple

from mm2py.core.lag import RETENTION_CONFIGS
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.ingest import DataFilter
from mm2py.pipeline.copy.partition import PartitionCopy
from mm2py.pipeline.copy.refusals import lacks
from mm2py.pipeline.copy.slow_lines import SlowLines
from mm2py.wire.batches.batch import MAGIC_V2, RecordBatchView, batches
from mm2py.wire.batches.codecs import BAD_CHECKSUM
from mm2py.wire.batches.payloads import read
from mm2py.wire.batches.rebuild import UnreadableBatchError
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of, needs_metadata
from mm2py.wire.fetch import fetch_from_leader
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes, PartitionAnswer
from mm2py.wire.requests import EARLIEST, EARLIEST_LOCAL, id_bytes
from mm2py.wire.topics.admin import Admin


_WALK_BYTES: Final = 4 * 1024 * 1024
#: How long a moving leader is awaited; the resume is retried.
_PATIENCE_S: Final = 1.0


class NotThereError(Exception):
    """The records that the target should hold cannot be read; *hint* is what would help, if that is known."""

    def __init__(self, why: str, hint: str = "") -> None:
        super().__init__(why)
        self.hint = hint


class WalkedRecord(NamedTuple):
    """One record, to compare two sides with: all that a consumer sees is in `timestamp` and `payload`."""

    offset: int
    timestamp: int
    payload: bytes

    def matches(self, other: WalkedRecord, *, ignore_timestamp: bool = False) -> bool:
        """Whether both hold the same, wherever they lie."""
        return self.payload == other.payload and (ignore_timestamp or self.timestamp == other.timestamp)

    def digest(self, *, ignore_timestamp: bool = False) -> int:
        """Return a number that is the same for records that match."""
        return hash((self.payload, None if ignore_timestamp else self.timestamp))


def records_of(batch: RecordBatchView) -> list[WalkedRecord]:
    """Return the records of a data batch, or of a message of magic 0 or 1. Raises `UnreadableBatchError`."""
    found = read(batch)
    return [WalkedRecord(offset, *content) for offset, content in zip(found.offsets, found.contents, strict=True)]


class LogWalker:
    """Reads what lies at both ends of a copy."""

    def __init__(
        self, source: Cluster, target: Cluster, *, reads_committed: bool, slow_lines: SlowLines, epoch_ms: int
    ) -> None:
        self._slow_lines = slow_lines
        self._epoch_ms = epoch_ms
        self._source = source
        self._target = target
        self._reads_committed = reads_committed

    async def walk(self, copy: PartitionCopy, start: int) -> AsyncGenerator[tuple[RecordBatchView, int], None]:
        """Return the source's data batches from *start* to the current end, each with the offset after it."""
        fetch = copy.fetching.position
        position = FetchPosition(fetch.topic, fetch.partition, start, -1, None, topic_id=fetch.topic_id)
        while True:
            answer = await self._ask(self._source, position, reads_committed=self._reads_committed)
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and position.offset < copy.position:
                position.offset = copy.position
                continue
            if answer.error_code:
                detail = f"{copy.plan.source} at offset {position.offset}"
                raise error_of(answer.error_code, self._source.alias, "Fetch", detail)
            end = answer.last_stable_offset if self._reads_committed else answer.high_watermark
            if not answer.record_set and position.offset >= end:
                return
            data = DataFilter(answer.aborted)
            for batch in batches(answer.record_set):
                after = _offset_behind(batch)
                if after <= position.offset:
                    continue
                position.offset = after
                copy.fetching.read_under(batch.leader_epoch, batch.base_offset)
                if batch.magic < MAGIC_V2 or (data.is_data(batch) and batch.record_count):
                    yield batch, after
            if position.offset >= end:
                return

    async def target_batches(
        self, copy: PartitionCopy, start: int, downstream: int
    ) -> AsyncGenerator[tuple[RecordBatchView, list[WalkedRecord] | None], None]:
        """
        Return the target's batches from *start* on with their records, up to the one at *downstream*.

        None for transactions' markers, and what was aborted: they take offsets, but are no records to consumers.
        """
        topic_id = id_bytes(copy.plan.remote_topic_id)
        position = FetchPosition(copy.sending.topic, copy.remote.partition, start, -1, None, topic_id=topic_id)
        while position.offset <= downstream:
            answer = await self._ask(self._target, position, reads_committed=True)
            if answer.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # If it must not be described either, nothing can be written to it, and the comparison can wait.
                await self.target_start(copy.remote)
                why = f"{copy.remote} cannot be compared with its source without READ on it"
                raise NotThereError(why, lacks(self._target.endpoint, "READ", copy.remote.topic))
            if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                position.offset = max(position.offset + 1, await self.target_start(copy.remote))
                continue
            if answer.error_code:
                raise error_of(answer.error_code, self._target.alias, "Fetch", str(copy.remote))
            whole = list(batches(answer.record_set))
            if not whole:
                await self._refuse_remote(copy.remote, position.offset)
                # Compaction has removed it.
                position.offset += 1
            data = DataFilter(answer.aborted)
            for batch in whole:
                try:
                    found = records_of(batch) if batch.magic < MAGIC_V2 or data.is_data(batch) else None
                except UnreadableBatchError as error:
                    raise NotThereError(f"{copy.remote} at downstream offset {error.offset}: {error.detail}") from error
                yield batch, found and [record for record in found if record.offset <= downstream]
                position.offset = batch.last_offset + 1

    async def search_bounds(self, source: TopicPartition, timestamp: int) -> tuple[int, int | None]:
        """
        Return where the source's log begins, and from where on it may hold a record of that *timestamp*.

        None where all that it holds is older. It saves reading what is: a search may begin at the log's start.
        """
        starts = await self._source.list_offsets([source], EARLIEST)
        found = starts if timestamp < 0 else await self._source.list_offsets([source], timestamp)
        start, first = starts[source], found[source]
        if isinstance(start, BrokerAnsweredError):
            raise start
        if isinstance(first, BrokerAnsweredError):
            raise first
        return start, None if first < 0 else max(start, first)

    async def target_from(self, remote: TopicPartition, timestamp: int) -> int | None:
        """Return the target's first offset whose record is of that *timestamp*, or later; None if there is none."""
        found = (await self._target.list_offsets([remote], timestamp))[remote]
        if isinstance(found, BrokerAnsweredError):
            raise found
        return None if found < 0 else found

    async def _refuse_remote(self, remote: TopicPartition, offset: int) -> None:
        """
        Raise an error if *offset*, of which nothing came, may be in the brokers' remote storage (KIP-405).

        They answer without records if that takes longer than they wait. No compacted topic is stored there.
        """
        found = (await self._target.list_offsets([remote], EARLIEST_LOCAL))[remote]
        if isinstance(found, BrokerAnsweredError):
            if found.code == ErrorCode.UNSUPPORTED_VERSION:
                return  # from before there was such storage
            raise found
        if offset < found:
            wait = "the brokers' remote.fetch.max.wait.ms"
            detail = f"remote storage did not bring offset {offset} of {remote} within {wait}"
            raise error_of(ErrorCode.OFFSET_NOT_AVAILABLE, self._target.alias, "Fetch", detail)

    async def target_cleanup(self, topic: str) -> tuple[Mapping[str, str | None], int]:
        """Return what configures the cleanup of a remote topic, nothing where that may not be read; and the time."""
        found = (await Admin(self._target).topic_configs([topic], RETENTION_CONFIGS))[topic]
        entries = {} if isinstance(found, BrokerAnsweredError) else found
        return {key: entry.value for key, entry in entries.items()}, self._target.clock.wall_ms()

    async def target_start(self, remote: TopicPartition) -> int:
        """Return where the target's log begins."""
        start = (await self._target.list_offsets([remote], EARLIEST))[remote]
        if isinstance(start, BrokerAnsweredError):
            raise start
        return start

    async def _ask(self, cluster: Cluster, position: FetchPosition, *, reads_committed: bool) -> PartitionAnswer:
        """Return an answer, or an error that looking up the leader again does not help."""
        sizes = FetchSizes(1, _WALK_BYTES, _WALK_BYTES, reads_committed)
        place = TopicPartition(position.topic.decode(), position.partition)
        answer: PartitionAnswer | None = None
        begun, line = cluster.clock.monotonic(), (cluster.alias, cluster.leader(place))
        try:
            answer = await fetch_from_leader(
                cluster,
                position,
                self._slow_lines.limited(line, sizes),
                "resume",
                patience_s=_PATIENCE_S,
                is_final=lambda answer: not needs_metadata(answer.error_code),
            )
        finally:
            part = (cluster.clock.monotonic() - begun) * 1000 / self._epoch_ms
            if answer is not None:
                self._slow_lines.answered(line, part, [answer], sizes)
            else:
                self._slow_lines.given_up(line, part, sizes)
        return answer


def _offset_behind(batch: RecordBatchView) -> int:
    """Return the upstream offset after *batch*, which must be what its producer made."""
    if batch.magic < MAGIC_V2:
        return records_of(batch)[-1].offset + 1
    if not batch.matches_crc():
        raise UnreadableBatchError(batch.base_offset, BAD_CHECKSUM)
    return batch.last_offset + 1
