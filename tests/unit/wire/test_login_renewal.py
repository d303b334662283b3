"""A login is renewed on the connection that is in use (KIP-368)."""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka.protocol.admin import SaslAuthenticateResponse_v1, SaslHandShakeResponse_v1

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire import connection
from mm2py.wire.security.sasl import Session
from tests.support.line import Line, frame
from tests.support.secure_clusters import plain_line


_SECURITY = Security("SASL_PLAINTEXT", (("sasl.jaas.config", plain_line()), ("sasl.mechanism", "PLAIN")))
LOGIN_ENDPOINT = ClusterEndpoint("A", ("b:9092",), client_id="mm2py", request_timeout_ms=30_000, security=_SECURITY)
_HAND_SHAKE, _AUTHENTICATE, _FETCH = 17, 36, 1


class LoginLine(Line):
    """A connection that is logged in for ten seconds, and whose other end is the test."""

    def __init__(self) -> None:
        super().__init__(LOGIN_ENDPOINT, {_HAND_SHAKE: (0, 1), _AUTHENTICATE: (0, 1)})
        self.connection._take_session(Session(10.0))
        self._answered = 0

    @property
    def asked(self) -> list[int]:
        return [struct.unpack_from(">h", message, 4)[0] for message in self.transport.written]

    async def answer(self, body: bytes, *, asked: int = 0) -> None:
        """Answer the oldest request, and let what follows happen: see `settle`."""
        (correlation_id,) = struct.unpack_from(">i", self.transport.written[self._answered], 8)
        self._answered += 1
        self.feed(frame(correlation_id, body))
        await self.settle(asked=asked)

    async def settle(self, *, asked: int = 0) -> None:
        """Give threads of the login, and the loop, a moment; up to five seconds until so many requests were *asked*.
        Virtual time does not pass while the loop is not idle.
        """
        began = time.monotonic()
        for rounds in itertools.count():
            if rounds >= 20 and (len(self.asked) >= asked or time.monotonic() - began > 5):
                return
            await asyncio.sleep(0)
            time.sleep(0.001)  # noqa: ASYNC251


@pytest.fixture
async def login() -> AsyncIterator[LoginLine]:
    login = LoginLine()
    yield login
    login.connection.close()
    await login.settle()


_WELCOME = SaslHandShakeResponse_v1(0, ["PLAIN"]).encode()


def _let_in(life_ms: int) -> bytes:
    return bytes(SaslAuthenticateResponse_v1(0, None, b"", life_ms).encode())


async def test_requests_wait_while_the_login_is_renewed(login: LoginLine) -> None:
    """
    Near the end of a session the login is renewed; nothing goes in between, and nothing is lost or out of order.

    1. A request is under way when the time has come.
    2. The next ones wait: a broker takes nothing else during a login.
    3. The first answer comes, then those to the login; then the waiting requests go.
    """
    login.ask()
    await asyncio.sleep(10)
    login.ask()
    await login.settle(asked=2)
    login.ask()
    before = login.asked
    await login.answer(b"one")
    await login.answer(_WELCOME, asked=3)
    during = login.asked
    await login.answer(_let_in(100_000), asked=5)
    after = login.asked
    await login.answer(b"two")
    await login.answer(b"three")
    login.ask()

    assert before == [_FETCH, _HAND_SHAKE]
    assert during == [_FETCH, _HAND_SHAKE, _AUTHENTICATE]
    assert after == [_FETCH, _HAND_SHAKE, _AUTHENTICATE, _FETCH, _FETCH]
    assert login.asked[-1] == _FETCH
    assert [it[4:] for it in login.frames.received] == [b"one", b"two", b"three"]


async def test_a_session_without_an_end_is_left_alone(login: LoginLine) -> None:
    """If brokers do not limit sessions, a connection does not log in again."""
    login.connection._take_session(Session(None))
    await asyncio.sleep(1_000_000)
    login.ask()

    assert login.asked == [_FETCH]


async def test_a_refused_renewal_ends_the_connection(login: LoginLine) -> None:
    """When the broker takes the login no more, everything that waits is lost, and says so at once."""
    await asyncio.sleep(10)
    login.ask()
    await login.settle(asked=1)
    login.ask()
    await login.answer(_WELCOME, asked=2)
    await login.answer(bytes(SaslAuthenticateResponse_v1(58, "wrong password", b"", 0).encode()))

    assert login.connection.is_closed
    assert len(login.frames.lost) == 2
    assert "the login could not be renewed: the broker refused the user name or password" in str(login.frames.lost[0])


async def test_a_renewal_that_is_not_answered_times_out(login: LoginLine) -> None:
    """A broker that says nothing while the login is renewed is given up in the time of a request."""
    await asyncio.sleep(10)
    login.ask()
    await login.settle(asked=1)
    await asyncio.sleep(31)
    await login.settle()

    assert login.connection.is_closed
    assert [type(error) for error in login.frames.lost] == [BrokerConnectionError]


@pytest.mark.parametrize("takes_s", [0, 60])
async def test_a_renewal_that_fails_in_any_way_ends_the_connection(
    login: LoginLine, monkeypatch: pytest.MonkeyPatch, takes_s: float
) -> None:
    """A library has an error of its own, or waits without end: what was held back is lost in time."""

    async def log_in(*_arguments: object) -> Session:
        await asyncio.sleep(takes_s)
        raise RuntimeError("no KDC")

    monkeypatch.setattr(connection, "log_in", log_in)
    await asyncio.sleep(10)
    login.ask()
    login.ask()
    await asyncio.sleep(31)

    assert login.connection.is_closed
    assert len(login.frames.lost) == 2
    assert f"not be renewed: {'no answer in time' if takes_s else 'no KDC'}" in str(login.frames.lost[0])


async def test_closing_ends_a_renewal(login: LoginLine) -> None:
    """A connection that is closed leaves no task behind."""
    await asyncio.sleep(10)
    login.ask()
    await login.settle(asked=1)
    renewal = login.connection._renewal
    login.connection.close()
    await login.settle()

    assert renewal is not None
    assert renewal.done()
    assert len(login.frames.lost) == 1


async def test_a_broker_that_hangs_up_in_a_login(login: LoginLine) -> None:
    """A broker whose own keys are unusable answers the hand-shake and closes: no address or network is at fault."""
    entering = asyncio.gather(login.connection._first_login(), return_exceptions=True)
    await login.settle(asked=1)
    await login.answer(_WELCOME, asked=2)
    login.connection.connection_lost(None)
    (error,) = await entering

    assert isinstance(error, BrokerConnectionError)
    assert "in the middle of the login" in error.cause
