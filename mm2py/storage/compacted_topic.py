"""
A compacted topic whose owner knows its content: if the topic is deleted, it is recreated and refilled, with an event.

The topic may be deleted, the cluster's disks wiped, or another program may create a topic with that name. The owner
would continue to append changes to a topic that lacks everything else. So with each append, and otherwise every few
seconds, it is checked that the topic exists and is the same one (KIP-516); if not, everything that the owner knows is
written first. A topic whose records would expire is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import chain
from typing import ClassVar, Final

import attrs

from mm2py.core.internal_topics import InternalTopic
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.flow import Flow
from mm2py.telemetry.events import InternalTopicExpires, InternalTopicRecreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, is_retriable
from mm2py.wire.fenced_writer import LogWriter
from mm2py.wire.topic_log import LogRecord, TopicLog
from mm2py.wire.topics.admin import Admin
from mm2py.wire.transactions import TransactionalProducer


Contents = Callable[[], Awaitable[Sequence[LogRecord]]]

_LOOK_EVERY_S: Final = 5.0
_POLICY: Final = "cleanup.policy"
_COMPACT: Final = "compact"
_MISSING: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@attrs.define(eq=False)
class TopicVanishedError(BrokerAnsweredError):
    """A topic that was in use is gone, and the cluster does not let us make it again."""

    hint: ClassVar[str] = (
        "create the topic with cleanup.policy = compact, or let the mirror create it; what is known of what it held is "
        "written into it then"
    )


async def nothing() -> Sequence[LogRecord]:
    """Refill a topic with nothing: its records are obsolete."""
    return ()


class CompactedTopic(TopicLog):
    """
    One internal topic of a flow on one cluster.

    *contents* gives all that it has to hold, as far as its owner knows, and must not append to it. Where others write
    there too, *correct* checks the refilled records, and returns what to write after them, until that is nothing. All
    is written by *writer*, if there is one.

    a. Appended records come after *contents*, in any topic.
    b. One append at a time: nothing older can come after something newer.
    """

    def __init__(
        self,
        flow: Flow,
        cluster: Cluster,
        topic: InternalTopic,
        events: EventLog,
        contents: Contents = nothing,
        *,
        correct: Contents | None = None,
        writer: LogWriter | None = None,
    ) -> None:
        super().__init__(cluster, topic.name)
        self._new = topic
        self._flow = flow
        self._events = events
        self._writer = writer
        self._contents = contents
        self._correct = correct
        self._turn = asyncio.Lock()
        #: Whether the topic is to be there from now on.
        self._is_wanted = False
        self._looked_at = 0.0
        #: Whether the topic existed and was filled at the last check.
        self._is_sure = False
        #: Brokers learn of a new topic one after the other, so an old one may still show after a new one did.
        self._ids: set[str] = set()
        self._was_there = False
        self._is_owed = False
        self._was_made = False

    @property
    def is_look_due(self) -> bool:
        """Whether a check of the topic is due."""
        return self._is_wanted and self._cluster.clock.monotonic() - self._looked_at >= _LOOK_EVERY_S

    async def ensure(self) -> None:
        """Create the topic if it is missing; refill it if it existed before."""
        async with self._turn:
            if self._is_wanted:
                await self._look()
                return
            was_made = await create(self, self._new)
            self._is_wanted, self._is_sure = True, self.refusal is None
            self._looked_at = self._cluster.clock.monotonic()
            self._note()
            if self._is_sure and not was_made:
                await report_expiry(self._cluster, self.topic, self._events)

    async def look(self) -> bool:
        """Fill the topic again if it is gone, or another one than before; True, or raise what keeps us from that."""
        async with self._turn:
            await self._look()
        return True

    async def append(self, records: Sequence[LogRecord], producer: TransactionalProducer | None = None) -> None:
        await self.append_in_order([records], producer)

    async def append_in_order(
        self, steps: Sequence[Sequence[LogRecord]], producer: TransactionalProducer | None = None
    ) -> None:
        """Append the records of each step once those before are safe, or all of them in one transaction."""
        if not any(steps):
            return
        async with self._turn:
            if not self._is_sure or self.is_look_due:
                await self._look()
            try:
                await self._write(steps, producer)
            except BrokerAnsweredError as error:
                if error.code not in _MISSING or not self._is_wanted:
                    raise
            else:
                if not self._is_new():
                    return
            await self._look()
            await self._write(steps, producer)

    async def _write(self, steps: Sequence[Sequence[LogRecord]], producer: TransactionalProducer | None = None) -> None:
        plain = super().append
        if self._writer is None or producer is not None:
            for records in steps:
                await plain(records, producer)
            return
        # Hashing the keys takes most of the time, so it is done once.
        placed = [await self.placed(records) for records in steps if records]
        if not placed:
            return
        fixed = [list(chain.from_iterable(step.values())) for step in placed]

        async def append(transaction: TransactionalProducer | None) -> None:
            for records in [list(chain.from_iterable(fixed))] if transaction is not None else fixed:
                await plain(records, transaction)

        await self._writer.write(self._cluster, {tp for step in placed for tp in step}, append)

    async def _look(self) -> None:
        if not self._is_wanted:
            return
        self._is_sure, self._looked_at = False, self._cluster.clock.monotonic()
        try:
            was_made = await create(self, self._new)
        except BrokerAnsweredError as error:
            raise _vanished(error) from error
        if self.refusal is not None:
            raise _vanished(self.refusal)
        if self._was_there:
            self._was_made |= was_made
            self._is_owed |= was_made or self._is_new()
        self._note()
        if self._is_owed:
            await self._fill()
        self._is_sure = True

    async def _fill(self) -> None:
        records = await self._contents()
        await self._write([records])
        while self._correct is not None and (corrections := await self._correct()):
            await self._write([corrections])
        refilled = await recreated(self._flow, self._cluster, self.topic, len(records), was_made=self._was_made)
        self._is_owed = self._was_made = False
        self._events.emit(refilled)

    def _is_new(self) -> bool:
        """Whether the topic, as it was seen last, is one that was not there before."""
        topic_id = self._cluster.topic_id(self.topic)
        return topic_id is not None and bool(self._ids) and topic_id not in self._ids

    def _note(self) -> None:
        """Note what was seen, unless the cluster refuses us the topic."""
        self._was_there |= self.refusal is None
        topic_id = self._cluster.topic_id(self.topic)
        if topic_id is not None:
            self._ids.add(topic_id)


async def create(log: TopicLog, topic: InternalTopic) -> bool:
    """Create the *topic* of a log if it is missing; return whether it was created."""
    return await log.create(topic.partitions, topic.replication_factor, setting=topic.setting, configs=topic.configs)


async def recreated(
    flow: Flow, cluster: Cluster, topic: str, records: int, *, was_made: bool
) -> InternalTopicRecreated:
    """Return the event for *records* that were written again to an internal topic, which we or others created."""
    cause = "it was deleted" if was_made else "another one has taken its place, or it lost all its records"
    policy = await _wrong_policy(cluster, topic)
    hint = "" if policy is None else f"its cleanup.policy is {policy}: set it to compact, or what it holds expires"
    return InternalTopicRecreated(flow, cluster.alias, topic, cause, records, hint)


async def report_expiry(cluster: Cluster, topic: str, events: EventLog) -> None:
    """Report that what *topic* holds is deleted some day, if we may see that."""
    policy = None
    with suppress(Mm2Error):
        policy = await _wrong_policy(cluster, topic)
    if policy is not None:
        events.emit(InternalTopicExpires(cluster.alias, topic, policy))


async def _wrong_policy(cluster: Cluster, topic: str) -> str | None:
    """Return the cleanup policy of *topic* where it does not keep the newest record of each key; else None."""
    described = (await Admin(cluster).topic_configs([topic], [_POLICY]))[topic]
    entry = None if isinstance(described, BrokerAnsweredError) else described.get(_POLICY)
    policy = entry.value if entry is not None else None
    return policy if policy is not None and policy.strip() != _COMPACT else None


def _vanished(error: BrokerAnsweredError) -> BrokerAnsweredError:
    """Return what can be done where a topic that was there before cannot be made, unless *error* says so itself."""
    if error.hint or is_retriable(error.code):
        return error
    return TopicVanishedError(error.cluster, error.request, error.code, error.name, error.detail)
