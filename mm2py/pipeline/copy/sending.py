"""
To the target: batches leave in requests to the leaders of their partitions.

A broker has two `BrokerSender`s. They work by callbacks, not by a task that wakes up: a batch that was just fetched
is written to the socket in the same turn of the event loop, and an answer sends the next request at once.

Possible failures of a partition, and their handling:

- its leader moved, its broker is unavailable, too few replicas: nothing of that partition is sent until all its
  requests have been answered or lost; then its unacknowledged batches are sent again, in order, with their sequences.
  The broker recognises those that it has already appended.
- sequences do not fit, because a batch of an earlier epoch arrived late, or the broker has forgotten our producer: the
  partition ends its epoch unsure, and the next one compares the target with the source before it writes.
- the broker refuses the batch itself, or appends it where the target should be longer: the partition ends visibly.
  Others go on.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping
from typing import Final

from mm2py.clock import Clock
from mm2py.errors import TooFewReplicasError
from mm2py.model.epoch import CopyLimits, Ended, PartitionFailure
from mm2py.pipeline.copy.broker_sender import BrokerSender
from mm2py.pipeline.copy.metadata import HINT_REWOUND, WantedTopics, end_remade, is_remade
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy, SendingHalf, Tally
from mm2py.pipeline.copy.refusals import lacks, leaderless, tried_again
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, name_of
from mm2py.wire.produce import PartitionAck


#: The broker expects another sequence: it holds more of ours than we know, or less.
_CONTESTED: Final = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})

#: The broker no longer accepts our producer id.
_FORGOTTEN: Final = frozenset(
    {
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.PRODUCER_FENCED,
    }
)

_HINT_COMPARED: Final = "the next epoch compares target and source and continues by itself"

_RETRIED: Final[Mapping[int, str]] = {
    ErrorCode.KAFKA_STORAGE_ERROR: (
        "it is tried again by itself; a disk of the broker that leads it at the target is full, or has failed"
    ),
    ErrorCode.NOT_ENOUGH_REPLICAS: TooFewReplicasError.hint,
}
_REFUSED: Final = {
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the remote topic, or message.max.bytes of its brokers",
    ErrorCode.RECORD_LIST_TOO_LARGE: "raise segment.bytes of the remote topic",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant the principal of the target cluster WRITE on the remote topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "grant the principal IDEMPOTENT_WRITE on the target cluster",
    ErrorCode.INVALID_TIMESTAMP: (
        "raise message.timestamp.before.max.ms and message.timestamp.after.max.ms of the remote topic"
    ),
    ErrorCode.INVALID_RECORD: (
        "if it is about records without a key, let the remote topic's cleanup.policy be delete until they are copied; "
        "else compare its settings with the source's"
    ),
    ErrorCode.CORRUPT_MESSAGE: "the batch was damaged on its way: check the network and the memory of this host",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the target's brokers are too old for the source's codec",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "raise message.format.version of the remote topic",
    ErrorCode.POLICY_VIOLATION: "a policy of the target cluster refuses the batch",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the target does not take that topic name",
}


class BatchSender:
    """
    All broker senders of an epoch, and what they share: the target, the buffer's fill, the measurements.

    The copier waits for `wants_metadata`, the fetchers for `has_room`.
    """

    def __init__(
        self,
        target: Cluster,
        limits: CopyLimits,
        clock: Clock,
        transactional_id: str = "",
        *,
        last_send_at: float = math.inf,
        void_after_ms: int | None = None,
    ) -> None:
        #: By the loop's time. A process that was stopped finds queued batches on waking, before any timer signals that
        #: its time is over and another node may have taken over.
        self._last_send_at = last_send_at
        #: By wall time: the loop's time stands still while the machine is suspended.
        self._void_after_ms = math.inf if void_after_ms is None else void_after_ms
        self.target = target
        #: Empty where batches belong to no transaction.
        self.transactional_id = transactional_id.encode()
        self.limits = limits
        self.clock = clock
        self.latency = Tally()
        self.buffered_bytes = self.freed_bytes = 0
        self.has_room = asyncio.Event()
        self.wants_metadata = WantedTopics()
        self.drained = asyncio.Event()
        self.all_answered = asyncio.Event()
        self.unanswered = 0
        self.requests = 0
        self.retries = 0
        self.throttled_ms = 0
        #: See `mm2py.pipeline.copy.catch_up.CatchUp.answered`.
        self.on_answer: Callable[[float, float, int], None] | None = None
        self.is_stopped = False
        #: Of each broker, the one for what is not far behind and the one for what is.
        self._broker_senders: dict[int, tuple[BrokerSender, BrokerSender]] = {}
        self._tasks: asyncio.TaskGroup | None = None
        self._openings: set[asyncio.Task[None]] = set()
        self.loop = asyncio.get_running_loop()

    def start(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks

    def stop(self) -> None:
        """Send nothing more, even if queued, and wait for no connection that is being opened."""
        self.is_stopped = True
        for opening in self._openings:
            opening.cancel()

    @property
    def may_send(self) -> bool:
        is_in_time = self.loop.time() < self._last_send_at and self.clock.wall_ms() <= self._void_after_ms
        return not self.is_stopped and is_in_time

    def close_unanswered(self) -> None:
        """Close the connections on which an answer is still due: it would never be read."""
        for senders in self._broker_senders.values():
            for broker_sender in senders:
                broker_sender.close_if_unanswered()

    def is_held(self, copy: PartitionCopy, until: float) -> bool:
        """Whether a quota keeps *copy* from being sent before *until*."""
        node = self.target.leader(copy.remote)
        senders = None if node is None else self._broker_senders.get(node)
        return senders is not None and senders[copy.sending.is_behind].held_until > until

    @property
    def is_connecting(self) -> bool:
        """Whether a connection is being opened."""
        return bool(self._openings)

    def offer(self, copy: PartitionCopy) -> None:
        """
        Offer a partition whose queue has something to send, or that may continue after a failure.

        One that has fallen behind, or caught up, changes its sender once nothing of it is unanswered.
        """
        sending = copy.sending
        if sending.is_ready or sending.is_failing or sending.is_waiting or not copy.buffer.queue or self.is_stopped:
            return
        if copy.has_moved:
            if sending.unanswered:
                return
            sending.is_behind = not sending.is_behind
        node = self.target.leader(copy.remote)
        if node is None:
            self.pause(copy, leaderless(copy.remote, self.target.alias))
            return
        if is_remade(self.target, copy):
            self._hold_back_remade(copy)
            return
        senders = self._broker_senders.get(node)
        if senders is None:
            senders = self._broker_senders[node] = BrokerSender.pair(self, node)
        senders[sending.is_behind].add(copy)

    def _hold_back_remade(self, copy: PartitionCopy) -> None:
        """Send nothing to a topic that is not the one we know; what is known here may be old, so look once more."""
        if not copy.sending.retries:
            self.pause(
                copy,
                tried_again(
                    f"{copy.remote.topic} at the target is another topic of that name", "target", self.target.alias
                ),
            )
            return
        end_remade(copy)
        copy.sending.is_failing = copy.sending.is_given_up = True
        self._when_all_answered(copy)

    def pump(self) -> None:
        for senders in self._broker_senders.values():
            for broker_sender in senders:
                broker_sender.pump()

    def open_in_background(self, broker_sender: BrokerSender) -> None:
        if self._tasks is not None:
            opening = self._tasks.create_task(broker_sender.open(), name=f"sender to broker {broker_sender.node}")
            self._openings.add(opening)
            opening.add_done_callback(self._openings.discard)

    def pause(self, copy: PartitionCopy, why: PartitionFailure) -> None:
        """Leave *copy* alone for a moment and look the leader up meanwhile."""
        sending = copy.sending
        copy.retried_failure = why
        sending.is_waiting = True
        sending.retries += 1
        self.retries += 1
        self.wants_metadata.add(copy.remote.topic)
        self.loop.call_later(self.limits.retry_pause_s(sending.retries), self._resume, copy)

    def _resume(self, copy: PartitionCopy) -> None:
        copy.sending.is_waiting = False
        self.offer(copy)
        self.pump()

    def discard(self, copy: PartitionCopy) -> None:
        """Forget what *copy* has queued. What of it was sent once may be at the target, or arrive there yet."""
        buffer = copy.buffer
        if buffer.may_have_arrived:
            copy.is_unsure = True
        self.free(buffer.drop(buffer.queue))

    def free(self, size_bytes: int) -> None:
        self.buffered_bytes -= size_bytes
        self.freed_bytes += size_bytes
        self.has_room.set()
        if self.buffered_bytes == 0:
            self.drained.set()

    def take(self, copy: PartitionCopy, before_bytes: int) -> None:
        """Count what was queued for *copy* since it had *before_bytes*."""
        self.buffered_bytes += copy.buffer.size_bytes - before_bytes
        if self.buffered_bytes:
            self.drained.clear()

    # Answers.

    def settle(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck, now_ms: int) -> None:
        """Take the broker's word on one batch."""
        sending = copy.sending
        self._answered(sending)
        if not sending.is_failing:
            if ack.error_code:
                self._fail(copy, buffered, ack)
            elif copy.downstream is not None and ack.base_offset <= copy.downstream:
                self._rewound(copy, buffered, ack)
            elif ack.append_ms >= 0 and _is_of_another_writer(copy, buffered, ack):
                self._overtaken(copy, buffered, ack)
            else:
                self._acknowledge(copy, buffered, ack, now_ms)
                return
        self._when_all_answered(copy)

    def _acknowledge(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck, now_ms: int) -> None:
        sending = copy.sending
        copy.buffer.in_flight.popleft()
        if not sending.has_ack or not sending.unanswered:
            sending.has_ack = True
            self.offer(copy)  # it may have waited for this answer
        sending.retries = 0
        copy.retried_failure = None
        if copy.downstream is not None and ack.base_offset > copy.downstream + 1 and not copy.foreign_records:
            self.wants_metadata.add(copy.remote.topic)  # another writer, or another topic of that name
        copy.account(buffered, ack.base_offset)
        self.free(buffered.size_bytes)
        if buffered.max_timestamp >= 0:
            latency_ms = now_ms - buffered.max_timestamp
            self.latency.add(latency_ms, buffered.record_count)
            sending.latency.add(latency_ms, buffered.record_count)

    def lost(self, copy: PartitionCopy, why: str) -> None:
        """Learn that a request with a batch of *copy* will not be answered."""
        sending = copy.sending
        self._answered(sending)
        if not sending.is_failing:
            sending.is_failing = True
            copy.retried_failure = tried_again(why, "target", self.target.alias)
        self._when_all_answered(copy)

    def sent(self, sending: SendingHalf) -> None:
        sending.unanswered += 1
        self.unanswered += 1
        self.all_answered.clear()

    def _answered(self, sending: SendingHalf) -> None:
        sending.unanswered -= 1
        self.unanswered -= 1
        if not self.unanswered:
            self.all_answered.set()

    def _fail(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck) -> None:
        sending = copy.sending
        sending.is_failing = True
        name = name_of(ack.error_code)
        detail = f": {ack.message}" if ack.message else ""
        where = f"target answered {name} for {copy.remote} (upstream offset {buffered.first_upstream}){detail}"
        if ack.error_code in _CONTESTED or ack.error_code in _FORGOTTEN:
            sending.is_contested = True
            if ack.error_code in _FORGOTTEN:
                sending.forget_producer()
            self._give_up(
                copy, Ended.INTERRUPTED, PartitionFailure(where, _HINT_COMPARED, name, buffered.first_upstream)
            )
        elif ack.error_code in _REFUSED:
            hint = _REFUSED[ErrorCode(ack.error_code)]
            if ack.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                hint = lacks(self.target.endpoint, "WRITE", copy.remote.topic)
            self._give_up(copy, Ended.FAILED, PartitionFailure(where, hint, name, buffered.first_upstream))
        else:
            hint = _RETRIED.get(ack.error_code, tried_again(where, "target", "").hint)
            copy.retried_failure = PartitionFailure(where, hint, name, buffered.first_upstream)

    def _rewound(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck) -> None:
        sending = copy.sending
        sending.is_failing = True
        where = (
            f"{copy.remote} took upstream offset {buffered.first_upstream} at {ack.base_offset}, but offset "
            f"{copy.downstream} had been written to it"
        )
        failure = PartitionFailure(where, HINT_REWOUND, "TargetRewound", buffered.first_upstream)
        sending.stray_from = ack.base_offset
        sending.forget_producer()
        self._give_up(copy, Ended.TARGET_REWOUND, failure)

    def _overtaken(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck) -> None:
        """Have the next epoch compare what the target has with the source. Two nodes number the same records alike. But
        one may have read the source before a compaction, and the other after it: the numbers then hide other records.
        """
        copy.sending.is_failing = True
        theirs = "a batch sent earlier, or by another node,"
        where = f"{theirs} is at offset {ack.base_offset} of {copy.remote} in place of ours"
        failure = PartitionFailure(where, _HINT_COMPARED, "Overtaken", buffered.first_upstream)
        self._give_up(copy, Ended.INTERRUPTED, failure)

    @staticmethod
    def _give_up(copy: PartitionCopy, ended: Ended, failure: PartitionFailure) -> None:
        """End *copy* where it is. The next attempt begins with the sequence of its position: a refused batch may have
        been sent before, with an answer that was lost.
        """
        copy.is_unsure = True
        copy.sending.is_given_up = True
        copy.end(ended, failure)

    def _when_all_answered(self, copy: PartitionCopy) -> None:
        sending, buffer = copy.sending, copy.buffer
        if sending.unanswered:
            return
        if sending.is_given_up:
            self.free(buffer.drop(buffer.in_flight))
            self.discard(copy)
            return
        buffer.send_again()
        sending.is_failing = False
        self.pause(copy, copy.retried_failure or tried_again("target is away", "target", self.target.alias))


def _is_of_another_writer(copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck) -> bool:
    """Whether the broker had a batch with our sequences that we have not sent."""
    is_ours = buffered.is_repeated and ack.append_ms == buffered.max_timestamp
    return copy.plan.keeps_timestamps and not is_ours
