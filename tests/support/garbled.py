"""Brokers whose answers are garbled: values that no broker sends, and bytes that are no answer at all."""

from __future__ import annotations

import asyncio
import functools
import importlib
import pkgutil
import struct
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from aiokafka.protocol import types
from aiokafka.protocol.api import Request

import mm2py.wire
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection
from tests.support.fake_brokers import FakeBrokers


_SIZE = struct.Struct(">i")
_HEADER = struct.Struct(">ihhih")
#: Where lengths and counts may stand, what they may become: 2^31-1, -1, -2^31, a varint of 2^35 - 1.
_INFLATED = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x7f", b"\x7f\xff", b"\x80\0")
_WIDTHS = {types.Int8: 8, types.Int16: 16, types.Int32: 32, types.Int64: 64}
#: Error codes: none, and some whose meaning depends on the request.
_CODES = (0, 0, 0, 0, 3, 6, 15, 16, 25, 27, 29, 35, 36, 69, 79, 90, -1, 9_999)
_TEXTS = ("", "t", "t", "g", "g", "h", "tx", "0", "Dead", "Stable", "consumer", "b0", "é\0\n", "x" * 300)


@functools.cache
def structs() -> dict[tuple[int, int], Any]:
    """Return the structs of all requests that `mm2py.wire` makes ordinarily, by API key and version."""
    found: dict[tuple[int, int], Any] = {}
    for module in pkgutil.walk_packages(mm2py.wire.__path__, "mm2py.wire."):
        for value in vars(importlib.import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, Request) and value is not Request:
                found |= {(it.API_KEY, it.API_VERSION): it for it in value._CLASSES}
    return found


def answer_to(kind: Any, random: Random) -> bytes:
    """Return what a broker may answer to a request of that struct, from behind the correlation id on."""
    header = b"\0" if kind.FLEXIBLE_VERSION else b""
    return header + b"".join(field.encode(_value(name, field, random)) for name, field in _fields(kind.RESPONSE_TYPE))


def damaged(answer: bytes, random: Random) -> bytes:
    """Return *answer* cut off, with other bits or lengths, or something else altogether."""
    at = random.randrange(len(answer) + 1)
    match random.randrange(5):
        case 0:
            return answer[:at]
        case 1 if answer:
            at = min(at, len(answer) - 1)
            return answer[:at] + bytes([answer[at] ^ 1 << random.randrange(8)]) + answer[at + 1 :]
        case 2:
            length = random.choice(_INFLATED)
            return answer[:at] + length + answer[at + len(length) :]
        case 3:
            return answer[:at] + random.randbytes(random.randrange(1, 20)) + answer[at:]
    return random.choice((b"", b"\0", b"\xff", b"\x01")) * random.randrange(200) + random.randbytes(random.randrange(9))


def _fields(response: Any) -> Iterator[tuple[str, Any]]:
    return zip(response.SCHEMA.names, response.SCHEMA.fields, strict=True)


def _value(name: str, kind: Any, random: Random) -> Any:
    if isinstance(kind, types.Schema):
        return [_value(*field, random) for field in zip(kind.names, kind.fields, strict=True)]
    if kind in _WIDTHS:
        return random.choice(_CODES) if "code" in name else _number(2 ** (_WIDTHS[kind] - 1), random)
    if kind in (types.TaggedFields, types.Boolean):
        return {} if kind is types.TaggedFields else random.random() < 0.5
    return None if random.random() < 0.03 else _nullable(name, kind, random)


def _nullable(name: str, kind: Any, random: Random) -> Any:
    if isinstance(kind, types.Array):
        return [_value(name, kind.array_of, random) for _ in range(random.choice((0, 1, 1, 1, 2, 3)))]
    if isinstance(kind, types.CompactString) and random.random() < 0.01:
        return "x" * 40_000
    if isinstance(kind, types.String):
        return random.choice(_TEXTS)
    return random.choice((b"", b"{", random.randbytes(70))) if kind in (types.Bytes, types.CompactBytes) else None


def _number(end: int, random: Random) -> int:
    return random.choice((0, 0, 0, 1, 1, 2, 3, -1, -2, end - 1, -end))


class _Transport(asyncio.Transport):
    """The line to a broker that answers with what *answer* returns; None: it hangs up."""

    def __init__(self, connection: BrokerConnection, answer: Callable[[bytes], bytes | None]) -> None:
        super().__init__()
        self._connection = connection
        self._answer = answer

    def is_closing(self) -> bool:
        return False

    def writelines(self, list_of_data: Any) -> None:
        message = b"".join(list_of_data)
        asyncio.get_running_loop().call_later(0.001, self._say, self._answer(message), message[8:12])

    def _say(self, answer: bytes | None, correlation_id: bytes) -> None:
        if answer is None:
            self._connection.connection_lost(None)
            return
        frame = _SIZE.pack(len(answer) + 4) + correlation_id + answer
        while frame and not self._connection.is_closed:
            buffer = self._connection.get_buffer(-1)
            size = min(len(buffer), len(frame))
            buffer[:size] = frame[:size]
            frame = frame[size:]
            self._connection.buffer_updated(size)

    def abort(self) -> None:
        return


class GarbledBrokers(FakeBrokers):
    """Brokers that mostly find each other, answer nonsense to the rest, and are gone after so many answers."""

    def __init__(self, random: Random, answers: int) -> None:
        super().__init__()
        self.random = random
        self.left = answers
        newest: dict[int, int] = {}
        for key, version in structs():
            newest[key] = max(newest.get(key, 0), version)
        oldest = {key: min(version for known, version in structs() if known == key) for key in newest}
        is_old = random.random() < 0.3
        self.versions = {key: (0, (oldest if is_old else newest)[key]) for key in newest}

    @property
    def endpoint(self) -> ClusterEndpoint:
        servers = tuple(f"{host}:9092" for host in self.hosts.values())
        return ClusterEndpoint("A", servers, client_id="mm2py", request_timeout_ms=2_000)

    async def open(self, endpoint: ClusterEndpoint, host: str, port: int) -> Any:
        node = next((node for node, known in self.hosts.items() if known == host), None)
        await asyncio.sleep(self.latency_s)
        if node is None or self.left <= 0:
            raise BrokerConnectionError(endpoint.alias, f"{host}:{port}", "connection refused")
        connection = BrokerConnection(endpoint, f"{host}:{port}", self.versions, host=host)
        connection._transport = _Transport(connection, lambda message: self._answer(node, message))
        return connection

    def _answer(self, node: int, message: bytes) -> bytes | None:
        self.left -= 1
        if self.left < 0:
            return None
        _, key, version, _, client_id = _HEADER.unpack_from(message)
        kind = structs()[key, version]
        if key in (3, 10, 2) and self.random.random() < 0.8:
            at = _HEADER.size + client_id + kind.FLEXIBLE_VERSION
            answer = self.answer(node, kind.decode(message[at:])).encode()
            return b"\0" + answer if kind.FLEXIBLE_VERSION else answer
        answer = answer_to(kind, self.random)
        return damaged(answer, self.random) if self.random.random() < 0.3 else answer
