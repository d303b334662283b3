"""Offset syncs, which tell Java MirrorMaker and its tools where records went; written as acknowledgements arrive. For
each partition only its newest sync is pending, so that none is lost under load, or while the cluster with their topic
is unreachable, in bounded memory. Existing syncs are read once: they are all that is known of records that a Java
MirrorMaker copied.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing
from typing import ClassVar

import attrs

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.offsets.stored_translations import SYNCS_PARTITION, syncs_in
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.plugins import policy_of
from mm2py.connectors.source.group import SourceLife
from mm2py.connectors.supervise import until_set
from mm2py.core import internal_topics
from mm2py.core.backoff import Backoff
from mm2py.core.offsets.offset_syncs import SyncProgress, advance
from mm2py.core.offsets.translation import Translated
from mm2py.core.source.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.epoch import PartitionOutcome
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync, encode_offset_sync, offset_sync_headers
from mm2py.model.topic import is_other_topic
from mm2py.storage.compacted_topic import CompactedTopic
from mm2py.telemetry.events import OffsetSyncsRead, OffsetSyncsWritten
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topic_log import LogRecord


_RETRY_PAUSES = Backoff(1.0, 15.0)
_READ, _WRITE = "read offset syncs", "write offset syncs"
#: How long after a refusal existing syncs are read once more.
_READ_AGAIN_S = 60.0
#: How often idle partitions are checked.
_TICK_S = 1.0
#: Most syncs in one request.
_AT_ONCE = 5_000
_REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.POLICY_VIOLATION,
    }
)


@attrs.define(eq=False)
class OffsetSyncsRefusedError(Mm2Error):
    """The cluster of the offset syncs does not let the mirror read or write them."""

    hint: ClassVar[str] = (
        "grant the mirror's principal READ, WRITE and DESCRIBE on that topic, and CREATE if it does not exist; or set "
        "offset-syncs.topic.location = target, or emit.offset-syncs.enabled = false"
    )

    cluster: str
    topic: str
    error: str

    def __str__(self) -> str:
        return f"offset syncs topic {self.topic} on cluster {self.cluster} is closed to the mirror: {self.error}"


@attrs.frozen
class _Delayed:
    """A sync that is not due yet, and since when its partition has been idle."""

    sync: OffsetSync
    since: float


class OffsetSyncs(BackgroundLoop):
    """The offset syncs of one flow: a background loop of the source group."""

    name = "offset-syncs"

    def __init__(self, context: SourceContext, translations: Translations, life: SourceLife) -> None:
        """Create it for the partitions of a *life* of the source group."""
        config = context.config
        is_at_source = config.offset_syncs.location == "source"
        self._flow = config.flow
        self._config = config.offset_syncs
        self._cluster = life.source if is_at_source else life.target
        #: At the source nothing fences a node that was replaced.
        self._writer = None if is_at_source else context.writers.tasks
        self._is_certain = context.writers.is_certain
        topic = internal_topics.offset_syncs(config, policy_of(config))
        self._log = CompactedTopic(
            self._flow, self._cluster, topic, context.events, self._contents, writer=self._writer
        )
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._jitter = context.jitter
        self._passed_over = context.passed_over
        self._translations = translations
        self._ledger = life.tasks.ledger
        self._states = self._ledger.states
        self._still_s = config.copying.epoch_ms / 1000
        self._progress: dict[TopicPartition, SyncProgress] = {}
        self._delayed: dict[TopicPartition, _Delayed] = {}
        self._pending: dict[TopicPartition, OffsetSync] = {}
        self._has_pending = asyncio.Event()
        self._is_topic_sure = False
        #: When existing syncs are read next; never once they are, unless more partitions are taken over than by then.
        self._read_at = 0.0
        self._taken_over = 0
        life.tasks.outcomes.listeners.append(self.note)

    def note(self, outcome: PartitionOutcome, begun_at: int) -> None:
        """Add an epoch's acknowledgements of a partition."""
        del begun_at
        if not outcome.runs or not self._config.is_emitted:
            return
        source, last = outcome.source, outcome.runs[-1]
        progress = advance(self._progress.get(source, SyncProgress()), outcome.runs, lag_max=self._config.lag_max)
        upstream, downstream = last.upstream + last.length - 1, last.downstream + last.length - 1
        sync = OffsetSync(source, upstream, downstream, self._remote_id(source))
        if progress.is_due:
            self._delayed.pop(source, None)
            self._put(sync)
        else:
            self._delayed[source] = _Delayed(sync, self._clock.monotonic())
        self._progress[source] = attrs.evolve(progress, is_due=False)

    def _remote_id(self, source: TopicPartition) -> str | None:
        """Return the id of the remote topic that a partition is copied to."""
        state = self._states.get(source)
        return None if state is None else state.remote_topic_id

    def _put(self, sync: OffsetSync) -> None:
        self._pending[sync.source] = sync
        self._has_pending.set()

    # Running.

    async def run(self) -> None:
        """Read existing syncs, and write due ones, until cancelled."""
        pauses = _RETRY_PAUSES.pauses(self._jitter)
        is_emitted = self._config.is_emitted
        while is_emitted or self._read_at < math.inf:
            self._promote(before=self._clock.monotonic() - self._still_s)
            if self._ledger.taken_over != self._taken_over:
                self._read_at = 0.0
            is_done = self._clock.monotonic() < self._read_at or await self._once(_READ, self._read)
            if not self._may_write():
                self._has_pending.clear()
            elif self._pending or self._log.is_look_due or (is_emitted and not self._is_topic_sure):
                is_done = await self._once(_WRITE, self._write) and is_done
            if is_done:
                pauses = _RETRY_PAUSES.pauses(self._jitter)
                await until_set(self._has_pending, _TICK_S)
            else:
                await self._clock.sleep(next(pauses))

    async def finish(self) -> None:
        """Write all pending syncs, including those not due."""
        if self._config.is_emitted:
            self._promote(before=None)
            if self._pending and self._may_write():
                await self._once(_WRITE, self._write)

    def _may_write(self) -> bool:
        """Whether no node that took over can have written newer ones; at the target older ones are refused."""
        return self._writer is not None or self._is_certain()

    def _promote(self, *, before: float | None) -> None:
        """
        Write syncs that are not due but have no newer one, so that an idle partition's last record is exact. Those of a
        partition that another node has by now are left to that: it may have written newer ones.
        """
        for source, delayed in list(self._delayed.items()):
            if before is None or delayed.since <= before:
                del self._delayed[source]
                if source in self._states:
                    self._put(delayed.sync)

    async def _once(self, step: str, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Try a *step* once. What is refused is reported once."""

        async def tried() -> None:
            try:
                await attempt()
            except BrokerAnsweredError as error:
                if error.code not in _REFUSALS:
                    raise
                self._is_topic_sure = False
                raise OffsetSyncsRefusedError(self._cluster.alias, self._log.topic, error.name) from error
            except Mm2Error:
                self._is_topic_sure = False
                raise

        return await self._reach.done(step, [self._cluster.alias], tried)

    async def _make_sure(self) -> None:
        """Create the topic if it may be missing."""
        if not self._is_topic_sure:
            await self._log.ensure()
            self._is_topic_sure = True

    async def _read(self) -> None:
        """Read existing syncs. Where that is refused it is tried again later: writing is what matters."""
        self._taken_over = self._ledger.taken_over
        try:
            is_there = await self._is_there()
            newest = await self._read_all() if is_there else {}
        except BrokerAnsweredError as error:
            if error.code in _REFUSALS:
                self._read_at = self._clock.monotonic() + _READ_AGAIN_S
            raise
        self._read_at = math.inf
        if is_there or self._config.is_emitted:
            self._catch_up(newest)
            self._events.emit(OffsetSyncsRead(self._flow, self._log.topic, self._cluster.alias, len(newest)))

    async def _is_there(self) -> bool:
        """Whether there is a topic to be read. One that we do not write to may be hidden: that needs no permission."""
        try:
            return await self._cluster.has_topic(self._log.topic)
        except BrokerAnsweredError as error:
            if self._config.is_emitted or error.code not in _REFUSALS:
                raise
            return False

    async def _read_all(self) -> dict[TopicPartition, OffsetSync]:
        """Learn from all syncs of the log, and return the newest of each partition."""
        newest: dict[TopicPartition, OffsetSync] = {}
        needed: dict[TopicPartition, bool] = {}
        strange: list[tuple[LogRecord, str]] = []
        async with aclosing(self._log.read_from({})) as chunks:
            async for chunk in chunks:
                for sync in syncs_in(chunk, strange):
                    source = sync.source
                    if is_other_topic(sync.remote_topic_id, self._remote_id(source)):
                        continue
                    newest[source] = sync
                    if source not in needed:
                        needed[source] = self._translations.needs_syncs(source)
                    if needed[source]:
                        self._translations.learn(sync)
                # A Java MirrorMaker writes one for every hundred records: millions may be there.
                await self._clock.sleep(0)
        self._passed_over.note(self._log.topic, strange)
        return newest

    def _catch_up(self, newest: dict[TopicPartition, OffsetSync]) -> None:
        """Write syncs that were still pending before a restart, for partitions that are now idle."""
        if not self._config.is_emitted:
            return
        for source, state in self._states.items():
            known, sync = newest.get(source), self._standing(state)
            if sync is None:
                continue
            # Java's exactly-once mode leaves markers: one may be at `downstream`, and what is known is better.
            is_known = known is not None and (known.upstream == sync.upstream or known.downstream >= sync.downstream)
            if source not in self._progress and not is_known:
                self._delayed.setdefault(source, _Delayed(sync, self._clock.monotonic()))

    async def _contents(self) -> Sequence[LogRecord]:
        """Return the newest sync of each partition, to refill a new topic."""
        standing = [sync for state in self._states.values() if (sync := self._standing(state)) is not None]
        return _records(standing)

    def _standing(self, state: PartitionState) -> OffsetSync | None:
        """Return where a partition's last record went, if known."""
        if state.position < 1 or state.downstream is None:
            return None
        # Its own offset may be a transaction marker's: then the record before it is there, which is not ahead either.
        # After a resume that proved nothing it may be that of the position's own record: then translations know less.
        known = self._translations.by_runs(state.source, state.position)
        downstream = min(state.downstream, known.offset - 1) if isinstance(known, Translated) else state.downstream
        if downstream < 0:
            return None
        return OffsetSync(state.source, state.position - 1, downstream, state.remote_topic_id)

    async def _write(self) -> None:
        """Create the topic if need be, and write what is pending; it stays so where that fails, or a newer one does."""
        if self._writer is not None and self._pending:
            await self._writer.ready()
        await self._make_sure()
        if self._log.is_look_due:
            await self._log.look()
        if not self._pending:
            return
        self._has_pending.clear()
        pending, self._pending = self._pending, {}
        begun = self._clock.monotonic()
        left = list(pending.values())
        try:
            while left:
                some = left[:_AT_ONCE]
                await self._log.append(_records(some))
                del left[: len(some)]
        finally:
            self._pending = {sync.source: sync for sync in left} | self._pending
        if len(self._progress) > len(self._states):  # topics come and go
            self._progress = {source: it for source, it in self._progress.items() if source in self._states}
        took_ms = (self._clock.monotonic() - begun) * 1000
        self._events.emit(OffsetSyncsWritten(self._flow, self._log.topic, self._cluster.alias, len(pending), took_ms))


def _records(syncs: Iterable[OffsetSync]) -> list[LogRecord]:
    return [LogRecord(*encode_offset_sync(it), offset_sync_headers(it), partition=SYNCS_PARTITION) for it in syncs]
