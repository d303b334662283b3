"""
One connection to one broker.

It is a protocol of its own, because the copy path must not pay for what a stream reader does: an answer is received
straight into a buffer of its own size (`wire.frames`), and a request leaves as the pieces it is made of. Ordinary
requests are aiokafka's request classes. Logging in comes last (`wire.security.sasl`), and again before the broker's
session ends; requests are held back meanwhile.

Every request has a deadline. When the oldest one passes it the connection is closed, and everything unanswered on it
fails with `BrokerConnectionError`: a broker answers in order, so nothing after a lost answer would ever arrive.
"""

from __future__ import annotations

import asyncio
import collections
import errno
import math
import os
import resource
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, cast

import attrs
from aiokafka.protocol.admin import ApiVersionRequest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.addresses import connected, host_and_port
from mm2py.wire.answers import MalformedAnswerError, read_response
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.frames import FrameReader
from mm2py.wire.security.access import (
    WANTS_LOGIN,
    WANTS_PLAINTEXT,
    WANTS_TLS,
    BrokerAccessError,
    LoginRefusedError,
    Refused,
    lost_before_answer,
    tls_refusal,
)
from mm2py.wire.security.contexts import SecuritySettingsError, principal_of, tls_context
from mm2py.wire.security.sasl import Send, Session, log_in
from mm2py.wire.security.tls_probe import speaks_tls


_SIZE = struct.Struct(">i")
_CODE = struct.Struct(">h")
#: The request that begins a SASL login, and a mechanism to ask for: what a listener without SASL says of any.
_SASL_HANDSHAKE = 17
_SOME_MECHANISM = b"\x00\x05PLAIN"
_HEADER_V1 = struct.Struct(">ihhih")
_HEADER_V1_AFTER_SIZE = _HEADER_V1.size - _SIZE.size
#: What opening a connection raises beside what the network does, where names or ports make no sense.
_NONSENSE = (ValueError, OverflowError, TypeError)
_HUNG_UP = "it closed the new connection at once: it is stopping, or allows no more of them (max.connections.per.ip)"
_HUNG_UP_AT_LOGIN = (
    "it closed the connection in the middle of the login: it is stopping, or has no keys or users of its own to check "
    "one with, which is in its log"
)
_FOREIGN = "what it said is not how a Kafka broker answers, or it was cut off: is this the port of one?"

#: How long a broker has to answer without TLS.
_PROBE_MS = 2_000
#: Longer answers, of tens of thousands of partitions, are decoded in a thread: that takes up to a second.
_READ_HERE_BYTES = 64 * 1024

Buffer = bytes | bytearray | memoryview


class FrameHandler(Protocol):
    """Who waits for a raw answer."""

    def frame_received(self, frame: memoryview) -> None:
        """
        Take the answer, from its correlation id on. The memory is the handler's to keep and change.

        Raise `MalformedAnswerError` if it is invalid: the connection is closed, and the answer is lost.
        """
        ...

    def frame_lost(self, error: BrokerConnectionError) -> None:
        """Learn that no answer will come."""
        ...


class _FutureFrame:
    """Passes an answer to its awaiter."""

    __slots__ = ("future",)

    def __init__(self, future: asyncio.Future[memoryview]) -> None:
        self.future = future

    def frame_received(self, frame: memoryview) -> None:
        if not self.future.done():
            self.future.set_result(frame)

    def frame_lost(self, error: BrokerConnectionError) -> None:
        if not self.future.done():
            self.future.set_exception(error)


def held_back_s(request: Any) -> float:
    """Return for how long a broker may hold the answer to *request* back until other clients have asked, too."""
    return float(getattr(request, "held_back_s", 0.0))


class BrokerConnection(asyncio.BufferedProtocol):
    """
    An open connection. Requests are answered in the order they were sent.

    Create it with `open`. It never reopens itself: on `is_closed` the caller opens another one.
    """

    def __init__(
        self, endpoint: ClusterEndpoint, broker: str, versions: dict[int, tuple[int, int]], *, host: str = ""
    ) -> None:
        self.versions = versions
        #: Whether it is closed, and whether the broker closed it.
        self.is_closed = self.is_hung_up = False
        #: Until when, by the loop's time, the broker reads nothing from it: a quota was exceeded (KIP-219).
        self.muted_until = -math.inf
        #: How long the broker's first answer took, which needs no work: it is so far away.
        self.round_trip_s = 0.0
        self._host = host
        self._is_answered = False
        #: Whether the broker hung up without having answered anything.
        self._was_silent = False
        self._renew_at = math.inf
        #: Awaits a renewal of the login, or refuses it; the one that opens connections decides, see `Door`.
        self.renewed: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]] = _at_once
        #: Requests that wait for a renewed login, and the task that renews it; it ends with the connection.
        self._held: list[tuple[bytes, int, float, FrameHandler]] | None = None
        self._renewal: asyncio.Task[None] | None = None
        self._endpoint = endpoint
        self._broker = broker
        self._client_id = endpoint.client_id.encode()
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: collections.deque[tuple[int, float, FrameHandler]] = collections.deque()
        self._correlation_id = 0
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._frames = FrameReader()

    @classmethod
    async def open(cls, endpoint: ClusterEndpoint, host: str, port: int) -> BrokerConnection:
        """Connect to the broker at *host*:*port* and log in if required. Raise `BrokerAccessError` if the broker
        refuses the login, `BrokerConnectionError` if it is unreachable.
        """
        broker = host_and_port(host, port)
        try:
            context = tls_context(endpoint)
        except SecuritySettingsError as error:
            raise _kept_out(endpoint, broker, Refused(str(error), error.hint)) from error
        connection = cls(endpoint, broker, {}, host=host)
        try:
            await connection._connect(port, context)
        except (OSError, TimeoutError, BrokerConnectionError) as error:
            is_lost = connection._was_silent or lost_before_answer(error)
            refused = await _refusal(endpoint, host, port, tls_refusal(error), is_lost=is_lost)
            if refused is not None:
                raise _kept_out(endpoint, broker, refused) from error
            raise BrokerConnectionError(endpoint.alias, broker, connection._why_lost(error, is_lost=is_lost)) from error
        except _NONSENSE as error:
            raise BrokerConnectionError(endpoint.alias, broker, f"its address makes no sense: {error}") from error
        if endpoint.security.uses_sasl:
            await connection._first_login()
        return connection

    async def _connect(self, port: int, context: ssl.SSLContext | None) -> None:
        """Connect to one of the host's addresses, and learn which versions of requests the broker takes."""
        # An alert of TLS, or what a web server says, claims to be hundreds of megabytes.
        self._frames.trust(is_broker=False)
        try:
            async with asyncio.timeout(self._endpoint.request_timeout_ms / 1000):
                line = await connected(self._host, port)
                await self._loop.create_connection(
                    lambda: self, sock=line, ssl=context, server_hostname=self._host if context else None
                )
            asked_at = self._loop.time()
            answer = await self.send(ApiVersionRequest())
            self.round_trip_s = self._loop.time() - asked_at
        except BaseException:
            self.close("it was not opened")
            raise
        self._frames.trust(is_broker=True)
        self.versions = {key: (lowest, highest) for key, lowest, highest in answer.api_versions}
        self._is_answered = False  # with a login missing, that is all that a broker answers

    def _why_lost(self, error: Exception, *, is_lost: bool) -> str:
        """Return why it could not be opened, in words; *is_lost*: the other end hung up."""
        # No hand-shake, and the beginning of an answer, if it is one.
        is_foreign = isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError)
        if is_lost and (is_foreign or self.is_receiving):
            return _FOREIGN
        return _HUNG_UP if is_lost else _why(error)

    async def _first_login(self) -> None:
        try:
            await self._log_in(self.send)
        except BrokerAccessError:
            self.close("the login was refused")
            raise
        except BrokerConnectionError as error:
            if self.is_hung_up:
                raise BrokerConnectionError(self._endpoint.alias, self._broker, _HUNG_UP_AT_LOGIN) from error
            raise
        except BaseException:
            self.close("the login was given up")
            raise

    async def _log_in(self, send: Send) -> None:
        try:
            self._take_session(await log_in(self._endpoint, self._host, send))
        except LoginRefusedError as error:
            raise _kept_out(self._endpoint, self._broker, error.refused, error.principal) from error

    def _take_session(self, session: Session) -> None:
        after_s = session.renew_after_s
        self._renew_at = math.inf if after_s is None else self._loop.time() + after_s

    async def _renew_login(self) -> None:
        """Log in again on this connection (KIP-368), then send what was held back meanwhile."""
        try:
            async with asyncio.timeout(self._endpoint.request_timeout_ms / 1000):
                await self.renewed(lambda: self._log_in(self._send_ahead))
        except Exception as error:  # noqa: BLE001 - whatever it is, what was held back must not wait for ever
            # The next connection attempt gets the reason.
            self.close(f"the login could not be renewed: {_why(error)}")
            return
        held, self._held, self._renewal = self._held or [], None, None
        for message, correlation_id, deadline, handler in held:
            self._put([message], correlation_id, deadline, handler)

    @property
    def held_bytes(self) -> int:
        """The memory of large answers that are still referenced."""
        return self._frames.held_bytes

    @property
    def is_receiving(self) -> bool:
        """Whether an answer has arrived in part."""
        return self._frames.has_begun

    async def send(self, request: Any) -> Any:
        """Send one of aiokafka's requests and give its decoded response."""
        return await self._ask(request, self._write)

    async def _send_ahead(self, request: Any) -> Any:
        """Send like `send`, in front of what is held back."""
        return await self._ask(request, self._write_ahead)

    async def _ask(self, request: Any, write: Callable[[Sequence[Buffer], int, FrameHandler, float], None]) -> Any:
        prepared = request.prepare(self.versions)
        correlation_id = self._next_correlation_id()
        header = prepared.build_request_header(correlation_id=correlation_id, client_id=self._endpoint.client_id)
        message = header.encode() + prepared.encode()
        future: asyncio.Future[memoryview] = self._loop.create_future()
        write([_SIZE.pack(len(message)), message], correlation_id, _FutureFrame(future), held_back_s(request))
        try:
            frame = await future
        except BrokerConnectionError as error:
            is_refusal = self._was_silent and self.versions and not self._endpoint.security.uses_sasl
            if is_refusal and await self._wants_login():
                raise _kept_out(self._endpoint, self._broker, WANTS_LOGIN) from error
            raise
        try:
            if len(frame) <= _READ_HERE_BYTES:
                return read_response(prepared, frame)
            return await asyncio.to_thread(read_response, prepared, frame)
        except MalformedAnswerError as error:
            raise self.give_up(str(error)) from error

    def send_raw(
        self,
        api_key: int,
        api_version: int,
        pieces: Sequence[Buffer],
        handler: FrameHandler,
        *,
        extra_wait_s: float = 0.0,
    ) -> None:
        """
        Send a request with a version 1 header whose body is *pieces*.

        The pieces must stay as they are until the answer comes: from Python 3.12 on, what the socket does not take at
        once is not copied. *extra_wait_s* is added to the request timeout, for requests that the broker holds back on
        purpose.
        """
        size = _HEADER_V1_AFTER_SIZE + len(self._client_id) + sum(map(len, pieces))
        correlation_id = self._next_correlation_id()
        header = _HEADER_V1.pack(size, api_key, api_version, correlation_id, len(self._client_id))
        self._write([header, self._client_id, *pieces], correlation_id, handler, extra_wait_s)

    async def request_raw(
        self, api_key: int, api_version: int, pieces: Sequence[Buffer], *, extra_wait_s: float = 0.0
    ) -> memoryview:
        """Send like `send_raw` and await the answer."""
        future: asyncio.Future[memoryview] = self._loop.create_future()
        self.send_raw(api_key, api_version, pieces, _FutureFrame(future), extra_wait_s=extra_wait_s)
        return await future

    def close(self, cause: str = "closed by us", because: Exception | None = None) -> None:
        """Close at once; unanswered requests fail."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._deadline_timer is not None:
            self._deadline_timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        error = BrokerConnectionError(self._endpoint.alias, self._broker, cause)
        error.__cause__ = because
        waiting, self._waiting = self._waiting, collections.deque()
        held, self._held = self._held or [], None
        for handler in (*(handler for _, _, handler in waiting), *(handler for *_, handler in held)):
            handler.frame_lost(error)
        if self._renewal is not None and self._renewal is not asyncio.current_task():
            self._renewal.cancel()
        # What was given knows this connection: its buffers would wait for a collection of old garbage, which is rare.
        self.renewed = _at_once

    def give_up(self, cause: str) -> BrokerConnectionError:
        """Close, because the broker is silent or violates the protocol; return the error."""
        self.close(cause)
        return BrokerConnectionError(self._endpoint.alias, self._broker, cause)

    def _write(self, pieces: Sequence[Buffer], correlation_id: int, handler: FrameHandler, extra_wait_s: float) -> None:
        if self.is_closed or self._transport is None:
            raise BrokerConnectionError(self._endpoint.alias, self._broker, "connection is closed")
        now = self._loop.time()
        deadline = now + self._endpoint.request_timeout_ms / 1000 + extra_wait_s
        if self._held is None and now >= self._renew_at:
            self._held = []
            # Neither an epoch nor a flow owns it: it belongs to the connection, and `close` ends it.
            self._renewal = self._loop.create_task(self._renew_login(), name=f"renew login at {self._broker}")
        if self._held is not None:
            self._held.append((b"".join(pieces), correlation_id, deadline, handler))
        else:
            self._put(pieces, correlation_id, deadline, handler)

    def _write_ahead(
        self, pieces: Sequence[Buffer], correlation_id: int, handler: FrameHandler, extra_wait_s: float
    ) -> None:
        if self.is_closed:
            raise BrokerConnectionError(self._endpoint.alias, self._broker, "connection is closed")
        deadline = self._loop.time() + self._endpoint.request_timeout_ms / 1000 + extra_wait_s
        self._put(pieces, correlation_id, deadline, handler)

    def _put(self, pieces: Sequence[Buffer], correlation_id: int, deadline: float, handler: FrameHandler) -> None:
        assert self._transport is not None  # noqa: S101 - every caller has checked
        self._waiting.append((correlation_id, deadline, handler))
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)
        # One that has failed may not have said so yet. Python 3.12 to 3.13.5 would wait until its socket takes more,
        # even once that is closed, and the next connection with the number of that socket would never open.
        if not self._transport.is_closing():
            self._transport.writelines(pieces)

    def _check_deadline(self) -> None:
        self._deadline_timer = None
        if not self._waiting:
            return
        deadline = self._waiting[0][1]
        if deadline <= self._loop.time():
            self.close("a request was not answered in time")
        else:
            self._deadline_timer = self._loop.call_at(deadline, self._check_deadline)

    def _next_correlation_id(self) -> int:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        return self._correlation_id

    # The transport's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        _size_buffers(transport.get_extra_info("socket"), self._endpoint)
        self._transport = cast("asyncio.Transport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's signature
        return self._frames.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._frames.filled(nbytes):
                self._deliver(frame)
                if self.is_closed:
                    return
        except MalformedAnswerError as error:
            self.close(str(error))

    def _deliver(self, frame: memoryview) -> None:
        (correlation_id,) = _SIZE.unpack_from(frame)
        if not self._waiting or self._waiting[0][0] != correlation_id:
            self.close(f"an answer arrived for request {correlation_id}, which is not the oldest")
            return
        _, _, handler = self._waiting.popleft()
        self._is_answered = True
        try:
            handler.frame_received(frame)
        except MalformedAnswerError as error:
            handler.frame_lost(self.give_up(str(error)))

    def eof_received(self) -> bool:
        self._lost("the broker closed the connection")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._lost(str(exc) if exc else "the broker closed the connection", exc)

    def _lost(self, cause: str, because: Exception | None = None) -> None:
        if not self.is_closed:
            self._was_silent, self.is_hung_up = not self._is_answered, True
            self.close(cause, because)

    async def _wants_login(self) -> bool:
        """Whether the broker, which hung up at the first request, expects SASL. One that just ended, or whose proxy
        takes connections without it, does so too, but answers no hand-shake.
        """
        _, _, port = self._broker.rpartition(":")
        try:
            probe = await BrokerConnection.open(self._endpoint, self._host, int(port))
        except BrokerConnectionError:
            return False
        try:
            answer = await probe.request_raw(_SASL_HANDSHAKE, 1, [_SOME_MECHANISM])
        except BrokerConnectionError:
            return False
        finally:
            probe.close()
        (code,) = _CODE.unpack_from(answer, _SIZE.size)
        return bool(code != ErrorCode.ILLEGAL_SASL_STATE)


def _size_buffers(line: Any, endpoint: ClusterEndpoint) -> None:
    """Size the socket's buffers as the settings ask for; a long-distance connection needs them as large as its
    bandwidth-delay product.
    """
    wanted = {socket.SO_SNDBUF: endpoint.send_buffer_bytes, socket.SO_RCVBUF: endpoint.receive_buffer_bytes}
    for option, size in wanted.items():
        if size >= 0:
            line.setsockopt(socket.SOL_SOCKET, option, size)


async def _at_once(log_in: Callable[[], Awaitable[None]]) -> None:
    await log_in()


def _why(error: BaseException) -> str:
    """Return why a connection failed: the system's message, without the address, which is reported separately."""
    if isinstance(error, BrokerConnectionError):
        return error.cause
    if isinstance(error, socket.gaierror):
        return f"the host's name is not known ({error.strerror})"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return f"this process has as many files open as it may, {most}: raise ulimit -n (LimitNOFILE= of systemd)"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


def _kept_out(
    endpoint: ClusterEndpoint, broker: str, refused: Refused, principal: str | None = None
) -> BrokerAccessError:
    who = principal or principal_of(endpoint)
    return BrokerAccessError(endpoint.alias, broker, refused.cause, who, refused.hint, refused.may_lock)


async def _refusal(
    endpoint: ClusterEndpoint, host: str, port: int, refused: Refused | None, *, is_lost: bool
) -> Refused | None:
    """Return why the broker keeps us out; None if it does not. *is_lost*: it hung up before it answered anything."""
    if refused is None and is_lost:
        refused = WANTS_PLAINTEXT if endpoint.security.uses_tls else WANTS_TLS
    # A broker that ends, or a proxy without its broker, hangs up just like one that is spoken to in the wrong way.
    if refused is WANTS_TLS:
        return refused if await speaks_tls(host, port) else None
    if refused is WANTS_PLAINTEXT:
        return refused if await _speaks_plaintext(endpoint, host, port) else None
    return refused


async def _speaks_plaintext(endpoint: ClusterEndpoint, host: str, port: int) -> bool:
    """Whether a broker answers there without TLS."""
    plain = attrs.evolve(endpoint, security=Security("PLAINTEXT"), request_timeout_ms=_PROBE_MS)
    try:
        opened = await BrokerConnection.open(plain, host, port)
    except BrokerConnectionError:
        return False
    opened.close()
    return True
