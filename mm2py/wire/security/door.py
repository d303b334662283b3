"""
The door of a cluster: where connections are opened, and where those who were turned away wait.

A broker that is not there may be tried again at once. One that does not let us in is not, and where it does not like
our credentials, nor are its siblings: accounts get locked. Until the pause is over the same error is raised
again without a request; changed files of certificates end the pause. Then one connection tries the credentials, and
the others wait for what comes of it: a worker opens many at once, and each refusal counts against the account.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from weakref import WeakKeyDictionary

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.security.access import BrokerAccessError, Penalty, next_penalty
from mm2py.wire.security.contexts import state_of_files


#: By broker; under None where the credentials themselves are refused, which no other broker will take.
_Penalties = dict[tuple[str, int] | None, Penalty]


@attrs.define(eq=False)
class _Record:
    """What a cluster refused, and whose turn it is to try refused credentials again."""

    penalties: _Penalties = attrs.field(factory=dict)
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
        record = self._record
        self._serve_penalty(record, (host, port))
        if None in record.penalties:
            await self._take_turn(record, host, port)
            try:
                self._serve_penalty(record, (host, port))
                if None in record.penalties:
                    return await self._try(record, host, port)
            finally:
                record.turn.release()
        return await self._try(record, host, port)

    async def _take_turn(self, record: _Record, host: str, port: int) -> None:
        try:
            async with asyncio.timeout(self._limit_s):
                await record.turn.acquire()
        except TimeoutError as error:
            raise self._not_connected(host, port) from error

    async def _try(self, record: _Record, host: str, port: int) -> BrokerConnection:
        began, penalties = self._clock.monotonic(), record.penalties
        try:
            async with asyncio.timeout(self._limit_s):
                connection = await self._opener(self._endpoint, host, port)
        except TimeoutError as error:
            raise self._not_connected(host, port) from error
        except BrokerAccessError as error:
            now, state = self._clock.monotonic(), state_of_files(self._endpoint.security)
            whose = None if error.may_lock else (host, port)
            before = penalties.get(whose)
            # What was under way when another was refused is the same failure: it makes no pause longer.
            if before is None or before.since < began:
                penalties[whose] = next_penalty(before, error, now, state, self._random.random())
            raise
        penalties.pop(None, None)
        penalties.pop((host, port), None)
        return connection

    def _not_connected(self, host: str, port: int) -> BrokerConnectionError:
        return BrokerConnectionError(
            self._endpoint.alias, f"{host}:{port}", f"not connected within {self._limit_s:g} s"
        )

    @property
    def _record(self) -> _Record:
        """What was refused, shared by all doors to a cluster: a flow has several connections, and one account."""
        endpoint = self._endpoint
        whose = (endpoint.alias, endpoint.bootstrap_servers, endpoint.security)
        return _records.setdefault(asyncio.get_running_loop(), {}).setdefault(whose, _Record())

    def _serve_penalty(self, record: _Record, broker: tuple[str, int]) -> None:
        for penalty in (record.penalties.get(None), record.penalties.get(broker)):
            if penalty is None or penalty.until <= self._clock.monotonic():
                continue
            if penalty.state == state_of_files(self._endpoint.security):
                raise attrs.evolve(penalty.error) from penalty.error
