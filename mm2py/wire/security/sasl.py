"""
Logging in over a connection: SASL in Kafka's own frames (KIP-152), and again before the session is over (KIP-368).

The exchange of a mechanism is aiokafka's where it has one that is right; the frames go through the connection that is
used afterwards, so that the same code logs in for the first time and for the next.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import attrs
from aiokafka.conn import SaslPlainAuthenticator, ScramAuthenticator
from aiokafka.protocol.admin import SaslAuthenticateRequest, SaslHandShakeRequest

from mm2py.errors import Mm2Error
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.jaas import JaasError, parse_jaas
from mm2py.wire.error_codes import ErrorCode, name_of
from mm2py.wire.security.access import (
    NO_SASL,
    LoginRefusedError,
    Refused,
    login_failure,
    login_refusal,
    mechanism_refusal,
)
from mm2py.wire.security.contexts import subject_of_token
from mm2py.wire.security.kerberos import KerberosExchange
from mm2py.wire.security.oauth import TokenError, forget_token, token_for


#: Java's own choice where nothing is set.
DEFAULT_MECHANISM: Final = "GSSAPI"
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI", "AWS_MSK_IAM")
#: The part of a session after which it is renewed, as in Java: of connections that were opened together, one after the
#: other, so that all learn of it if one is refused. Brokers ignore a renewal within the first second.
_RENEW_SHARE, _RENEW_SPREAD = 0.85, 0.10
_SOONEST_S: Final = 1.1
#: Kafka's brokers use 16 384 at most; this many take a second.
_MOST_ITERATIONS: Final = 1_000_000

Send = Callable[[Any], Awaitable[Any]]


class _Exchange(Protocol):
    """What a mechanism does: give the next bytes for the broker, or None when it is content."""

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None: ...


@attrs.frozen
class Session:
    """A login that was accepted; `renew_after_s` is None where it does not end."""

    renew_after_s: float | None = None


async def log_in(endpoint: ClusterEndpoint, host: str, send: Send) -> Session:
    """Log in through *send*, to the broker on *host*; raise `LoginRefusedError`, and what *send* raises of ours."""
    mechanism = dict(endpoint.security.client_keys).get("sasl.mechanism", DEFAULT_MECHANISM).strip().upper()
    spoken = "OAUTHBEARER" if mechanism == "AWS_MSK_IAM" else mechanism
    principal: str | None = None
    try:
        # Made before the first frame: what it needs, a token for example, may take its time.
        exchange, principal = await _exchange(endpoint, spoken, host)
        return await _log_in(spoken, exchange, send)
    except LoginRefusedError as error:
        error.principal = error.principal or principal
        # A broker that refuses a token may take the next one.
        forget_token(endpoint)
        raise
    except Mm2Error:
        raise
    except Exception as error:
        # A class of the user's own has errors that no caller knows.
        raise LoginRefusedError(login_failure(f"{type(error).__name__}: {error}"), principal) from error


async def _log_in(mechanism: str, exchange: _Exchange, send: Send) -> Session:
    answer = await send(SaslHandShakeRequest(mechanism))
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise LoginRefusedError(NO_SASL)
    if answer.error_code or mechanism not in answer.enabled_mechanisms:
        raise LoginRefusedError(mechanism_refusal(mechanism, list(answer.enabled_mechanisms)))
    said: bytes | None = None
    life_ms = 0
    while (step := await _step(exchange, mechanism, said)) is not None:
        answer = await send(SaslAuthenticateRequest(step[0]))
        if answer.error_code:
            if isinstance(exchange, KerberosExchange):
                exchange.give_up_tickets()
            raise LoginRefusedError(login_refusal(mechanism, answer.error_message or name_of(answer.error_code)))
        said = answer.sasl_auth_bytes
        life_ms = getattr(answer, "session_lifetime_ms", 0)
    share = _RENEW_SHARE + _RENEW_SPREAD * random.random()  # noqa: S311 - it guards nothing
    return Session(max(_SOONEST_S, life_ms / 1000 * share) if life_ms > 0 else None)


async def _step(exchange: _Exchange, mechanism: str, said: bytes | None) -> tuple[bytes, bool] | None:
    try:
        return await exchange.step(said)
    except (ValueError, KeyError, AssertionError) as error:
        words = "its answer does not prove that it knows the same password"
        raise LoginRefusedError(login_refusal(mechanism, words)) from error


async def _exchange(endpoint: ClusterEndpoint, mechanism: str, host: str) -> tuple[_Exchange, str | None]:
    if mechanism == "OAUTHBEARER":
        try:
            token = await token_for(endpoint)
        except TokenError as error:
            hint = "check the token endpoint, and the client's id and secret"
            raise LoginRefusedError(Refused(f"no token: {error}", hint, may_lock=error.may_lock)) from error
        subject = subject_of_token(token.text)
        return _BearerExchange(token.text, token.extensions), f"User:{subject}" if subject else None
    keys = dict(endpoint.security.client_keys)
    try:
        options = dict(parse_jaas(keys.get("sasl.jaas.config", "")).options)
    except JaasError as error:
        raise LoginRefusedError(Refused(f"sasl.jaas.config: {error}", "correct sasl.jaas.config")) from error
    if mechanism == "GSSAPI":
        service = keys.get("sasl.kerberos.service.name") or options.get("serviceName") or "kafka"
        return KerberosExchange(endpoint, service, host, options), None
    username, password = options.get("username"), options.get("password")
    if username is None or password is None:
        missing = "username" if username is None else "password"
        raise LoginRefusedError(Refused(f"sasl.jaas.config has no {missing}", "correct sasl.jaas.config"))
    loop = asyncio.get_running_loop()
    if mechanism == "PLAIN":
        plain: _Exchange = SaslPlainAuthenticator(loop=loop, sasl_plain_username=username, sasl_plain_password=password)
        return plain, f"User:{username}"
    kind = _DelegationScram if options.get("tokenauth", "").lower() == "true" else _Scram
    scram: _Exchange = kind(
        loop=loop, sasl_plain_username=username, sasl_plain_password=password, sasl_mechanism=mechanism
    )
    return scram, f"User:{username}"


class _Scram(ScramAuthenticator):  # type: ignore[misc] # aiokafka has no types
    """SCRAM with a broker that may ask for any work before it has shown that it knows the password."""

    def create_salted_password(self, salt: bytes, iterations: int) -> None:
        if not 0 < iterations <= _MOST_ITERATIONS:
            raise ValueError(f"{iterations} iterations")
        super().create_salted_password(salt, iterations)


class _DelegationScram(_Scram):
    """SCRAM with a delegation token's id and key (KIP-48)."""

    def first_message(self) -> str:
        self._auth_message = f"n={self._sasl_plain_username},r={self._nonce},tokenauth=true"
        return f"n,,{self._auth_message}"


class _BearerExchange:
    """Hands a token over (RFC 7628). A broker that refuses it says why, and wants that confirmed."""

    def __init__(self, token: str, extensions: Any) -> None:
        more = "".join(f"\x01{name}={value}" for name, value in extensions.items())
        self._first = f"n,,\x01auth=Bearer {token}{more}\x01\x01".encode()
        self._is_sent = False

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        if not self._is_sent:
            self._is_sent = True
            return self._first, True
        if not answer:
            return None
        try:
            status = str(json.loads(answer).get("status", "refused"))
        except (ValueError, AttributeError, RecursionError):
            status = "refused"
        raise LoginRefusedError(login_refusal("OAUTHBEARER", status))
