"""
The door of a cluster: where connections are opened, and where those who were turned away wait.

A broker that is not there may be tried again at once. One that does not let us in is not, and where it does not like
our credentials, nor are its siblings: accounts get locked. Until the pause is over the same error is raised
again without a request; changed files of certificates end the pause. Then one connection tries the credentials, and
the others wait for what comes of it: a worker opens many at once, and each refusal counts against the account. So does
one of a login that is renewed on an open connection, and each of these would make the same attempt.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import TypeVar
from weakref import WeakKeyDictionary

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.addresses import host_and_port
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.security.access import BrokerAccessError, Penalty, next_penalty
from mm2py.wire.security.contexts import state_of_files


_Address = tuple[str, int]
#: By broker; under None where the credentials themselves are refused, which no other broker will take.
_Penalties = dict[_Address | None, Penalty]
_Done = TypeVar("_Done")


@attrs.define(eq=False)
class _Record:
    """What a cluster refused, and whose turn it is to try credentials that are in doubt."""

    penalties: _Penalties = attrs.field(factory=dict)
    #: Whether the last login with these credentials was refused, or may have been.
    is_in_doubt: bool = False
    turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)


_records: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[object, _Record]] = WeakKeyDictionary()

Opener = Callable[[ClusterEndpoint, str, int], Awaitable[BrokerConnection]]


class Door:
    """Opens connections to one cluster's brokers."""

    def __init__(self, endpoint: ClusterEndpoint, clock: Clock, opener: Opener) -> None:
        self._endpoint = endpoint
        self._clock = clock
        self._opener = opener
        self._limit_s = min(endpoint.request_timeout_ms, endpoint.connection_setup_ms) / 1000
        # It spreads load and guards nothing.
        self._random = random.Random()  # noqa: S311

    async def open(self, host: str, port: int) -> BrokerConnection:
        """Open a connection; raise `BrokerConnectionError`, or `BrokerAccessError` where we are not let in."""
        broker = host, port
        connection = await self._in_turn(partial(self._open, broker), broker, (None, broker))
        connection.renewed = partial(self._renew, broker, connection)
        return connection

    async def _renew(
        self, broker: _Address, connection: BrokerConnection, log_in: Callable[[], Awaitable[None]]
    ) -> None:
        """Renew the login of an open connection; where the broker is not trusted any more, too."""
        try:
            await self._in_turn(log_in, broker, (None,))
        except asyncio.CancelledError:
            # A broker refuses it by closing the connection, without a word: the next login finds out.
            self._record.is_in_doubt |= connection.is_hung_up
            raise

    async def _open(self, broker: _Address) -> BrokerConnection:
        try:
            async with asyncio.timeout(self._limit_s):
                return await self._opener(self._endpoint, *broker)
        except TimeoutError as error:
            raise self._not_connected(broker) from error

    async def _in_turn(
        self, log_in: Callable[[], Awaitable[_Done]], broker: _Address, whose: tuple[_Address | None, ...]
    ) -> _Done:
        """Log in, alone if the credentials are in doubt; not before the penalties of *whose* are over."""
        record = self._record
        self._serve_penalty(record, whose)
        if record.is_in_doubt:
            await self._take_turn(record, broker)
            try:
                self._serve_penalty(record, whose)
                if record.is_in_doubt:
                    return await self._try(record, broker, log_in)
            finally:
                record.turn.release()
        return await self._try(record, broker, log_in)

    async def _take_turn(self, record: _Record, broker: _Address) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await record.turn.acquire()
        except TimeoutError as error:
            raise self._not_connected(broker) from error

    async def _try(self, record: _Record, broker: _Address, log_in: Callable[[], Awaitable[_Done]]) -> _Done:
        began, penalties = self._clock.monotonic(), record.penalties
        try:
            done = await log_in()
        except BrokerAccessError as error:
            now, state = self._clock.monotonic(), state_of_files(self._endpoint.security)
            whose = None if error.may_lock else broker
            record.is_in_doubt |= error.may_lock
            before = penalties.get(whose)
            # What was under way when another was refused is the same failure: it makes no pause longer.
            if before is None or before.since < began:
                penalties[whose] = next_penalty(before, error, now, state, self._random.random())
            raise
        record.is_in_doubt = False
        penalties.pop(None, None)
        penalties.pop(broker, None)
        return done

    def _not_connected(self, broker: _Address) -> BrokerConnectionError:
        return BrokerConnectionError(
            self._endpoint.alias, host_and_port(*broker), f"not connected within {self._limit_s:g} s"
        )

    @property
    def _record(self) -> _Record:
        """What was refused, shared by all doors to a cluster: a flow has several connections, and one account."""
        endpoint = self._endpoint
        whose = (endpoint.alias, endpoint.bootstrap_servers, endpoint.security)
        return _records.setdefault(asyncio.get_running_loop(), {}).setdefault(whose, _Record())

    def _serve_penalty(self, record: _Record, whose: Iterable[_Address | None]) -> None:
        for penalty in map(record.penalties.get, whose):
            if penalty is None or penalty.until <= self._clock.monotonic():
                continue
            if penalty.state == state_of_files(self._endpoint.security):
                raise attrs.evolve(penalty.error) from penalty.error
