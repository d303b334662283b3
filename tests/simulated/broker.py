"""
A broker: an address, its connections, and requests that are answered in Kafka's bytes, one after the other.

What it answers is decided in `requests`, a file for each kind.
"""

from __future__ import annotations

import collections
import struct
from typing import TYPE_CHECKING, Any

from mm2py.wire.error_codes import ErrorCode
from tests.simulated import requests
from tests.simulated.codec import decoder, encoded
from tests.simulated.coverage import codes_in
from tests.simulated.log import Partition
from tests.simulated.loop import Host
from tests.simulated.network import Connection


if TYPE_CHECKING:
    from tests.simulated.cluster import Cluster


_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">hhih")
_MOST_BYTES = 100 * 1024 * 1024


class Line:
    """A broker's end of a connection: the next request is read once the last is answered, as by a muted channel."""

    def __init__(self, broker: Broker, connection: Connection) -> None:
        self.broker = broker
        self.connection = connection
        self.client = connection.client
        #: As it calls itself.
        self.client_id = ""
        self.is_lost = False
        self._bytes = bytearray()
        self._queue: collections.deque[bytes] = collections.deque()
        self._is_busy = False

    def received(self, data: bytes) -> None:
        """Take bytes; a whole request is worked on when those before it are answered."""
        if not self._bytes and len(data) > 4 and _SIZE.unpack_from(data)[0] == len(data) - 4:
            self._queue.append(data[4:])  # as it is nearly always
            self._go_on()
            return
        self._bytes += data
        while len(self._bytes) >= 4:
            (size,) = _SIZE.unpack_from(self._bytes)
            if not 0 < size <= _MOST_BYTES:  # a TLS client's hello
                self.connection.close_by_server()
                return
            if len(self._bytes) < size + 4:
                break
            self._queue.append(bytes(self._bytes[4 : size + 4]))
            del self._bytes[: size + 4]
        self._go_on()

    def lost(self) -> None:
        """The client is gone; what has arrived is executed still."""
        self.is_lost = True
        self.broker.lines.pop(self, None)

    def _unmute(self) -> None:
        self._is_busy = False
        self._go_on()

    def _go_on(self) -> None:
        if self._queue and not self._is_busy and self.broker.host.is_up:
            self._is_busy = True
            times, draw = self.broker.cluster.times, self.broker.cluster.random
            self.broker.host.call_later(times.work_s * (0.5 + draw.random()), self._work)

    def _work(self) -> None:
        self.execute(self._queue.popleft())

    def execute(self, frame: bytes) -> None:
        """Do what a request asks for; its answer may come later."""
        key, version, correlation, client_size = _HEADER.unpack_from(frame)
        at = _HEADER.size + max(0, client_size)
        if not self.client_id:
            self.client_id = frame[_HEADER.size : at].decode()
        kind, has_tags = requests.STRUCTS[key, version]
        request = decoder(kind)(frame, at + has_tags)
        self.broker.cluster.heard(self, key, frame)

        def reply(answer: Any) -> None:
            if key not in requests.HOT:
                self.broker.cluster.codes.update(codes_in(answer))
            body = answer if isinstance(answer, bytes) else encoded(answer)
            body = b"\x00" + body if has_tags else body
            if not self.is_lost:
                self.connection.to_client.send(_SIZE.pack(len(body) + 4) + _SIZE.pack(correlation) + body)
            if key in requests.THROTTLED and (muted_ms := self.broker.cluster.throttle_ms):
                self.broker.host.call_later(muted_ms / 1000, self._unmute)  # the answer says so (KIP-219)
            else:
                self._unmute()

        cluster = self.broker.cluster
        if cluster.ambush is not None and cluster.ambush(self, request, is_before=True):
            return  # the broker is gone, or the request with its connection
        answer = requests.HANDLERS[key](self.broker, self, request, reply)
        if answer is not None:
            reply(answer)
        if cluster.ambush is not None:
            cluster.ambush(self, request, is_before=False)


class Broker:
    """A broker: what it serves, and whether it does."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.address = f"{cluster.name.lower()}{node}"
        #: Where clients are told that it listens.
        self.advertised: tuple[str, int] = (self.address, 9092)
        self.host = Host(cluster.loop, self.address)
        self.lines: dict[Line, None] = {}
        #: Fetch sessions by their numbers.
        self.sessions: dict[int, Any] = {}
        self.session_numbers = node * 1_000_000
        #: Metadata as it was, while this broker hears of nothing new.
        self.stale: Any = None

    @property
    def accepts(self) -> bool:
        """Whether it takes connections: the kernel does, for a process that hangs."""
        return not self.host.is_dead

    @property
    def is_up(self) -> bool:
        """Whether it answers."""
        return self.host.is_up

    def accepted(self, connection: Connection) -> Line:
        """Take a connection."""
        line = Line(self, connection)
        self.lines[line] = None
        return line

    def code(self, partition: Partition, epoch: int) -> int:
        """Return the error for one that asks this broker about a partition, knowing *epoch* (KIP-320)."""
        if self.cluster.denies(partition.topic):
            return int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if partition.leader != self.node:
            return int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if epoch >= 0 and epoch != partition.leader_epoch:
            return int(
                ErrorCode.FENCED_LEADER_EPOCH if epoch < partition.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
            )
        return 0

    #: The error for one that fetches from a partition.
    fetch_code = code
