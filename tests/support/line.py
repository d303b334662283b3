"""A connection to a broker whose other end is the test."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator, Mapping

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection


ENDPOINT = ClusterEndpoint("A", ("b:9092",), client_id="mm2py", request_timeout_ms=5_000)
_VERSIONS = {18: (0, 3)}


class FakeTransport(asyncio.Transport):
    """Keeps what was written; bytes come in through `BrokerConnection.get_buffer`."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_aborted = False
        self.has_failed = False

    def is_closing(self) -> bool:
        return self.is_aborted or self.has_failed

    def writelines(self, list_of_data: object) -> None:
        self.written.append(b"".join(list_of_data))  # type: ignore[call-overload]

    def abort(self) -> None:
        self.is_aborted = True


class Frames:
    """Takes raw answers."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.lost: list[BrokerConnectionError] = []

    def frame_received(self, frame: memoryview) -> None:
        self.received.append(bytes(frame))

    def frame_lost(self, error: BrokerConnectionError) -> None:
        self.lost.append(error)


class Line:
    """A connection whose other end is the test."""

    def __init__(
        self, endpoint: ClusterEndpoint = ENDPOINT, versions: Mapping[int, tuple[int, int]] = _VERSIONS
    ) -> None:
        self.connection = BrokerConnection(endpoint, "b:9092", dict(versions), host="b")
        self.transport = FakeTransport()
        self.connection._transport = self.transport
        self.frames = Frames()

    def ask(self, *, extra_wait_s: float = 0.0, handler: Frames | None = None) -> None:
        self.connection.send_raw(1, 11, [b"body"], handler or self.frames, extra_wait_s=extra_wait_s)

    def feed(self, data: bytes, chunks: Iterator[int] | None = None) -> None:
        """Hand in bytes as the event loop does: as many as fit into the buffer, or fewer."""
        at = 0
        while at < len(data) and not self.connection.is_closed:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data) - at, next(chunks) if chunks else len(data))
            buffer[:size] = data[at : at + size]
            at += size
            self.connection.buffer_updated(size)


def frame(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, correlation_id) + body
