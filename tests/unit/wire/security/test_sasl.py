"""Logging in, frame by frame."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security import sasl
from mm2py.wire.security.access import LoginRefusedError
from mm2py.wire.security.sasl import Session, log_in
from tests.support.secure_clusters import plain_line, scram_line, unsecured_line


@attrs.define
class Answer:
    """What a broker answers."""

    error_code: int = 0
    enabled_mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER", "GSSAPI")
    error_message: str | None = None
    sasl_auth_bytes: bytes = b""
    session_lifetime_ms: int = 0


class Broker:
    """Answers a hand-shake and then each step by *steps*; the last one is repeated."""

    def __init__(self, *steps: Callable[[bytes], Answer], hand_shake: Answer | None = None) -> None:
        self._hand_shake = hand_shake or Answer()
        self._steps = list(steps) or [lambda _bytes: Answer()]
        self.mechanism = ""
        self.received: list[bytes] = []

    async def __call__(self, request: Any) -> Answer:
        if hasattr(request, "_mechanism"):
            self.mechanism = request._mechanism
            return self._hand_shake
        self.received.append(request._payload)
        step = self._steps.pop(0) if len(self._steps) > 1 else self._steps[0]
        return step(request._payload)


def _endpoint(mechanism: str, jaas: str = "", **more: str) -> ClusterEndpoint:
    keys = {"sasl.mechanism": mechanism, "sasl.jaas.config": jaas, **more}
    return ClusterEndpoint("B", ("b:1",), security=Security("SASL_SSL", tuple(sorted(keys.items()))))


async def _refusal(endpoint: ClusterEndpoint, broker: Broker) -> LoginRefusedError:
    with pytest.raises(LoginRefusedError) as caught:
        await log_in(endpoint, "b", broker)
    return caught.value


async def test_plain() -> None:
    """User and password go as RFC 4616 has them; a session without an end needs no renewal."""
    broker = Broker()
    session = await log_in(_endpoint("plain", plain_line("alice", "p;w")), "b", broker)

    assert (broker.mechanism, broker.received) == ("PLAIN", [b"alice\0alice\0p;w"])
    assert session == Session(None)


async def test_sessions_end() -> None:
    """A session is renewed before its end, each at another time, never within the second in which brokers ignore it."""
    endpoint = _endpoint("PLAIN", plain_line())
    long = [await log_in(endpoint, "b", Broker(lambda _it: Answer(session_lifetime_ms=100_000))) for _ in range(9)]
    short = await log_in(endpoint, "b", Broker(lambda _it: Answer(session_lifetime_ms=1_000)))

    found = {session.renew_after_s for session in long}
    assert len(found) == 9
    assert all(after_s is not None and 85 <= after_s <= 95 for after_s in found)
    assert short.renew_after_s == 1.1


class ScramServer:
    """The other side of RFC 5802, as far as a client can tell."""

    def __init__(self, password: str) -> None:
        self._password = password.encode()
        self.first = ""

    def open(self, payload: bytes) -> Answer:
        self.first = payload.decode().removeprefix("n,,")
        nonce = self.first.split("r=")[1].split(",")[0]
        self.said = f"r={nonce}srv,s={base64.b64encode(b'salt').decode()},i=4096"
        return Answer(sasl_auth_bytes=self.said.encode())

    def close(self, payload: bytes) -> Answer:
        without_proof = payload.decode().rsplit(",p=", 1)[0]
        salted = hashlib.pbkdf2_hmac("sha256", self._password, b"salt", 4096)
        key = hmac.new(salted, b"Server Key", "sha256").digest()
        text = f"{self.first},{self.said},{without_proof}"
        signature = hmac.new(key, text.encode(), "sha256").digest()
        return Answer(sasl_auth_bytes=b"v=" + base64.b64encode(signature))


async def test_scram_proves_both_sides() -> None:
    """A broker that knows the password is believed, one that does not is told apart from it."""
    true, false = ScramServer("right"), ScramServer("other")
    endpoint = _endpoint("SCRAM-SHA-256", scram_line("alice", "right"))
    session = await log_in(endpoint, "b", Broker(true.open, true.close))
    error = await _refusal(endpoint, Broker(false.open, false.close))

    assert session == Session(None)
    assert "its answer does not prove that it knows the same password" in error.refused.cause
    assert error.refused.may_lock


async def test_delegation_tokens() -> None:
    """tokenauth says that user and password are a delegation token's."""
    server = ScramServer("key")
    line = scram_line("token-id", "key")[:-1] + ' tokenauth="true";'
    await log_in(_endpoint("SCRAM-SHA-256", line), "b", Broker(server.open, server.close))

    assert server.first.startswith("n=token-id,r=")
    assert server.first.endswith(",tokenauth=true")


async def test_a_token_that_is_refused() -> None:
    """A broker says what it does not like about a token; nothing of it is shown, and the next attempt has another."""
    broker = Broker(lambda _it: Answer(sasl_auth_bytes=b'{"status":"invalid_token"}'))
    error = await _refusal(_endpoint("OAUTHBEARER", unsecured_line("mm2")), broker)
    await asyncio.to_thread(time.sleep, 0.002)  # what is made within a millisecond is the same
    await log_in(_endpoint("OAUTHBEARER", unsecured_line("mm2")), "b", good := Broker())

    assert error.refused.cause == "the broker refused the token: invalid_token"
    assert error.principal == "User:mm2"
    assert broker.received[0].startswith(b"n,,\x01auth=Bearer ey")
    assert good.received != broker.received


async def test_msk_is_spoken_as_a_token() -> None:
    """AWS_MSK_IAM is Java's name; the broker is spoken to as with any token. Without Amazon's signer that is said."""
    error = await _refusal(_endpoint("AWS_MSK_IAM"), Broker())

    assert "pip install 'mm2py[aws]'" in error.refused.cause


class _BrokenLibrary:
    """A mechanism whose library fails with an error of its own."""

    async def step(self, _answer: bytes | None) -> tuple[bytes, bool] | None:
        raise TypeError("no such thing")


async def test_an_error_that_no_caller_knows_is_a_refused_login(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a library raises ends one login, not all that would handle a failed connection."""

    async def exchange(*_arguments: object) -> tuple[_BrokenLibrary, str]:
        return _BrokenLibrary(), "User:alice"

    monkeypatch.setattr(sasl, "_exchange", exchange)
    error = await _refusal(_endpoint("PLAIN"), Broker())

    assert error.refused.cause == "the login failed: TypeError: no such thing"
    assert not error.refused.may_lock
    assert error.principal == "User:alice"


async def test_a_connection_that_is_lost_is_no_refusal() -> None:
    """If the broker goes away during a login, that is what is reported."""

    async def send(_request: object) -> Answer:
        raise BrokerConnectionError("B", "b:1", "it went away")

    with pytest.raises(BrokerConnectionError, match="it went away"):
        await log_in(_endpoint("PLAIN", plain_line()), "b", send)


@pytest.mark.parametrize(
    ("broker", "cause"),
    [
        (
            Broker(hand_shake=Answer(33, ("SCRAM-SHA-512",))),
            "does not take sasl.mechanism PLAIN; it takes SCRAM-SHA-512",
        ),
        (Broker(hand_shake=Answer(34)), "the broker does no SASL on this port"),
        (Broker(lambda _it: Answer(58, error_message="Authentication failed")), "or password: Authentication failed"),
        (Broker(lambda _it: Answer(58)), "or password: SASL_AUTHENTICATION_FAILED"),
    ],
)
async def test_refusals(broker: Broker, cause: str) -> None:
    """Each way to be refused is said in its own words."""
    error = await _refusal(_endpoint("PLAIN", plain_line()), broker)

    assert cause in error.refused.cause
