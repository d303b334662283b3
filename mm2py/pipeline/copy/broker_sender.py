"""
To one target broker: requests with one batch of each partition that has any.

A broker takes the requests of a connection one after the other. So what is far behind has a sender and a connection of
its own: else live records would wait for the requests that it fills. And small requests that would only wait at the
broker are not sent: what comes meanwhile goes with the next one, which has more room.
"""

from __future__ import annotations

import asyncio
import collections
import math
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.epoch import CopyLimits, PartitionFailure
from mm2py.pipeline.copy.partition import BufferedBatch, PartitionCopy, SendingHalf
from mm2py.pipeline.copy.refusals import kept_out, tried_again
from mm2py.wire import produce
from mm2py.wire.batches.batch import next_sequence, sign
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.produce import PartitionAck


#: From so many buffered bytes on requests are not small: brokers and networks take several of them at a time.
_MUCH_BYTES: Final = 64 * 1024
#: From so long on a quota's hold may outlast an epoch.
_LONG_HOLD_S: Final = 1.0
#: Brokers look back so far, by default, to see whether a quota is exceeded.
_QUOTA_WINDOW_S: Final = 10.0


class Sending(Protocol):
    """What all senders of an epoch share; see `mm2py.pipeline.copy.sending.BatchSender`."""

    target: Cluster
    transactional_id: bytes
    limits: CopyLimits
    clock: Clock
    loop: asyncio.AbstractEventLoop
    buffered_bytes: int
    requests: int
    throttled_ms: int
    on_answer: Callable[[float, float, int], None] | None

    @property
    def may_send(self) -> bool: ...

    def open_in_background(self, broker_sender: BrokerSender) -> None: ...

    def offer(self, copy: PartitionCopy) -> None: ...

    def pause(self, copy: PartitionCopy, why: PartitionFailure) -> None: ...

    def sent(self, sending: SendingHalf) -> None: ...

    def settle(self, copy: PartitionCopy, buffered: BufferedBatch, ack: PartitionAck, now_ms: int) -> None: ...

    def lost(self, copy: PartitionCopy, why: str) -> None: ...


@attrs.define(eq=False)
class _Request:
    """A produce request under way: whose batches it carries."""

    broker_sender: BrokerSender
    #: How many are under way with it.
    in_flight: int
    sent_at: float
    version: int
    carried: dict[tuple[bytes, int], tuple[PartitionCopy, BufferedBatch]] = attrs.field(factory=dict)

    def told_topic(self, sending: SendingHalf) -> bytes:
        """Return what the broker is told of a partition's topic: its id, or its name."""
        return sending.topic_id if self.version >= produce.BY_ID_API_VERSION else sending.topic

    def frame_received(self, frame: memoryview) -> None:
        self.broker_sender.answered(self, frame)

    def frame_lost(self, error: BrokerConnectionError) -> None:
        self.broker_sender.lost(self, error)


class BrokerSender:
    """
    Serves one target broker, for what is far behind or for all else: at most `produce_max_in_flight` requests on one
    connection.
    """

    def __init__(self, sender: Sending, node: int, *, is_for_far_behind: bool) -> None:
        self.node = node
        self._is_for_far_behind = is_for_far_behind
        self._purpose = "produce what is far behind" if is_for_far_behind else "produce"
        self._sender = sender
        #: The other one of this broker.
        self._other = self
        self._ready: collections.deque[PartitionCopy] = collections.deque()
        #: They are for the other one, once what is being filled has been sent.
        self._moved: list[PartitionCopy] = []
        self._connection: BrokerConnection | None = None
        self._is_opening = False
        self._in_flight = 0
        self._answered_at = -math.inf
        #: How long the quickest answer took, and how many requests at a time the broker needs to be busy.
        self._shortest_s = math.inf
        self._useful = sender.limits.produce_max_in_flight
        self._hold_timer: asyncio.TimerHandle | None = None

    @classmethod
    def pair(cls, sender: Sending, node: int) -> tuple[BrokerSender, BrokerSender]:
        """Make both senders of a broker: for what is not far behind, and for what is."""
        one, other = cls(sender, node, is_for_far_behind=False), cls(sender, node, is_for_far_behind=True)
        one._other, other._other = other, one
        return one, other

    @property
    def held_until(self) -> float:
        """Return until when, by the loop's time, the broker reads nothing: its quota was exceeded."""
        return -math.inf if self._hold_timer is None else self._hold_timer.when()

    def add(self, copy: PartitionCopy) -> None:
        copy.sending.is_ready = True
        self._ready.append(copy)

    def pump(self) -> None:
        """Send as much as the rules allow."""
        sender = self._sender
        if not self._ready or self._hold_timer is not None or not sender.may_send:
            return
        connection = self._connection
        if connection is None or connection.is_closed:
            if not self._is_opening:
                self._is_opening = True
                sender.open_in_background(self)
            return
        while self._ready and self._in_flight < self._most_in_flight():
            request = self._fill(connection.versions)
            if not request.carried:
                break
            self._send(connection, request)
        if self._moved:
            for copy in self._moved:
                sender.offer(copy)
            self._moved.clear()
            self._other.pump()

    def _most_in_flight(self) -> int:
        """Return how many requests may be under way: fewer than allowed if they are small and would wait there, and one
        after a long hold: what follows one that exceeds the quota is not read before the next hold is over.
        """
        if self._connection is not None and self._sender.loop.time() < self._connection.muted_until + _QUOTA_WINDOW_S:
            return 1
        limit, is_much = self._sender.limits.produce_max_in_flight, self._sender.buffered_bytes >= _MUCH_BYTES
        return limit if is_much or self._is_for_far_behind else min(self._useful, limit)

    def _learn(self, request: _Request, took_s: float) -> None:
        """
        Estimate from an answer how many requests are under way on the network and in the broker's hands.

        If answers take the longer the more are under way, the others wait at the broker; one more finds out (as TCP
        Vegas does with packets).
        """
        self._shortest_s = min(self._shortest_s, took_s)
        part = self._shortest_s / took_s if took_s > 0 else 1.0
        self._useful = 1 + round(request.in_flight * part)

    def _fill(self, versions: Mapping[int, tuple[int, int]]) -> _Request:
        """Take one batch of each ready partition, up to the request's size; at least one."""
        by_name = produce.spoken_version(versions)
        by_id = by_name if self._sender.transactional_id else produce.spoken_version(versions, has_ids=True)
        request = _Request(self, self._in_flight + 1, self._sender.loop.time(), by_name)
        room = self._sender.limits.produce_request_max_bytes
        again: list[PartitionCopy] = []
        while self._ready:
            copy = self._ready.popleft()
            sending, queue = copy.sending, copy.buffer.queue
            has_moved = copy.has_moved
            if sending.is_failing or sending.is_waiting or not queue or has_moved or self._awaits_first_ack(sending):
                sending.is_ready = False
                if has_moved:
                    self._moved.append(copy)
                continue
            buffered, version = queue[0], by_id if sending.topic_id else by_name
            if request.carried and (buffered.size_bytes > room or version != request.version):
                self._ready.appendleft(copy)
                break
            request.version = version
            queue.popleft()
            copy.buffer.in_flight.append(buffered)
            self._sender.sent(sending)
            if buffered.sequence < 0:
                buffered.sequence = sending.next_sequence
                sending.next_sequence = next_sequence(buffered.sequence, buffered.record_count)
                sign(
                    buffered.batch,
                    sending.producer_id,
                    sending.producer_epoch,
                    buffered.sequence,
                    is_transactional=bool(self._sender.transactional_id),
                )
            request.carried[request.told_topic(sending), copy.remote.partition] = (copy, buffered)
            room -= buffered.size_bytes
            if queue:
                again.append(copy)
            else:
                sending.is_ready = False
        self._ready.extend(again)
        return request

    @staticmethod
    def _awaits_first_ack(sending: SendingHalf) -> bool:
        """Hold back a partition's second batch until its first of the epoch is acknowledged. Brokers take any sequence
        from a producer id that they do not know (KIP-360): were the first batch refused while the second is under way,
        the second would be appended, and the first after it.
        """
        return sending.unanswered > 0 and not sending.has_ack

    def _send(self, connection: BrokerConnection, request: _Request) -> None:
        by_topic: dict[bytes, list[tuple[int, memoryview]]] = {}
        for (topic, number), (_, buffered) in request.carried.items():
            by_topic.setdefault(topic, []).append((number, buffered.batch))
        timeout_ms = self._sender.target.endpoint.request_timeout_ms
        pieces = produce.request_pieces(
            list(by_topic.items()), timeout_ms, self._sender.transactional_id, version=request.version
        )
        self._in_flight += 1
        self._sender.requests += 1
        try:
            # The broker's own wait for its replicas comes on top of ours.
            connection.send_raw(produce.API_KEY, request.version, pieces, request, extra_wait_s=timeout_ms / 1000)
        except BrokerConnectionError as error:
            self.lost(request, error)

    def answered(self, request: _Request, frame: memoryview) -> None:
        acks, throttle_ms = produce.read_answer(frame, request.version)
        self._in_flight -= 1
        sender, now_ms = self._sender, self._sender.clock.wall_ms()
        now = sender.loop.time()
        took_s, served_s = now - request.sent_at, now - max(request.sent_at, self._answered_at)
        self._answered_at = now
        self._learn(request, took_s)
        for ack in acks:
            carried = request.carried.pop((ack.topic, ack.partition), None)
            if carried is not None:
                sender.settle(*carried, ack, now_ms)
        for copy, _ in request.carried.values():
            sender.lost(copy, f"the target's answer does not mention {copy.remote}")
        if sender.on_answer is not None:
            sender.on_answer(took_s, served_s, sender.buffered_bytes)
        if throttle_ms > 0:
            sender.throttled_ms += throttle_ms
            self._hold(now + throttle_ms / 1000)
        # Not before: a partition has at most as many batches under way as a broker remembers (KIP-98).
        self.pump()
        self._other.pump()

    def lost(self, request: _Request, error: BrokerConnectionError) -> None:
        self._in_flight -= 1
        for copy, _ in request.carried.values():
            self._sender.lost(copy, str(error))

    def _hold(self, until: float) -> None:
        """Honour the broker's quota: it reads nothing from this connection meanwhile, in later epochs either. What is
        sent would have no answer when its epoch ends, and the next one would have to find out what has arrived.
        """
        if self._connection is not None and until - self._sender.loop.time() >= _LONG_HOLD_S:
            self._connection.muted_until = max(until, self._connection.muted_until)
        if self.held_until >= until:
            return
        if self._hold_timer is not None:
            self._hold_timer.cancel()
        self._hold_timer = self._sender.loop.call_at(until, self._release)

    def _release(self) -> None:
        self._hold_timer = None
        self.pump()

    async def open(self) -> None:
        """Open the connection; if that fails, let the partitions look up their leader again."""
        try:
            self._connection = await self._sender.target.connection(self.node, self._purpose)
            if self._connection.muted_until > self._sender.loop.time():
                self._hold(self._connection.muted_until)
        except BrokerConnectionError as error:
            unsent, self._ready = self._ready, collections.deque()
            for copy in unsent:
                copy.sending.is_ready = False
                self._sender.pause(copy, kept_out(error) or tried_again(str(error), "target", error.cluster))
        finally:
            self._is_opening = False
        self.pump()

    def close_if_unanswered(self) -> None:
        if self._in_flight and self._connection is not None:
            self._connection.close("a request was not answered before the epoch was over")
