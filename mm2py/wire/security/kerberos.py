"""
Kerberos, SASL's GSSAPI: the tickets of one cluster's settings, and what the system's library says of them.

Tickets come from a keytab, or from a cache that kinit fills. Each login names its own to the library, because the
clusters of a process may be in several realms.

A thread asks the KDC, for 18 seconds if it is silent, and for ever if it accepts a connection and is silent then. So
each login has a thread of its own, which is left behind once its time is over, and does not keep the process from
ending. Only a few are, or a KDC that hangs for days would take all threads that the system has.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import math
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, TypeVar

import attrs
from aiokafka.conn import SASL_QOP_AUTH

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security.access import LoginRefusedError, Refused


_T = TypeVar("_T")

#: The part of a connection's time that the first step of its login has: else only that would be over.
_TIME_SHARE: Final = 0.8
#: How many logins to a broker may hang at a time, and after how long one no longer counts.
_HUNG_MAX: Final = 4
_FORGOTTEN_S: Final = 900.0
#: How often tickets are given up because of one broker; the memory of old ones is never freed.
_GIVEN_UP_EVERY_S: Final = 300.0

#: Where the numbers of krb5's own errors begin.
_TABLE: Final = -1765328384
_EXPIRED: Final = 32
_NOT_FOUND: Final = 141
_NO_CACHE: Final = 195
#: What is wrong with the account or its key, which a KDC counts: unknown, revoked, expired, another key.
_OF_ACCOUNT: Final = (1, 6, 18, 23, 24, 31)
_KDC_HINT: Final = (
    "check that a KDC of that realm is up, and what krb5.conf says of it; KRB5_CONFIG in the environment names another "
    "file than /etc/krb5.conf"
)
_HINTS: Final = {
    7: "brokers are known as sasl.kerberos.service.name/host: check that, and the host in bootstrap.servers and "
    "advertised.listeners; dns_canonicalize_hostname and rdns in krb5.conf decide whether DNS may replace the host",
    **dict.fromkeys((24, 31), "the key in the keytab is not the account's: have a new keytab made"),
    _EXPIRED: "get a new ticket with kinit, or name a keyTab in sasl.jaas.config; nothing here renews a ticket cache",
    37: "set the clocks of this host, of the KDC and of the brokers right",
    **dict.fromkeys((154, 156, 220), _KDC_HINT),
}
_HINT: Final = "check the principal and its keytab, or the ticket cache (klist)"
_NOT_INSTALLED: Final = "sasl.mechanism GSSAPI needs Kerberos, which is not installed here"
_SILENT: Final = Refused("no Kerberos ticket: the KDC does not answer", _KDC_HINT)

#: Logins that hang, by settings and host, and since when.
_hung: dict[tuple[Security, str], list[tuple[asyncio.Future[Any], float]]] = {}
#: How often a keytab's tickets were given up, and when last because of a broker's refusal.
_given_up: dict[Security, int] = {}
_refused_at: dict[tuple[Security, str], float] = {}


@attrs.frozen
class Tickets:
    """Where the tickets of a login come from; without either, from the process's own cache (KRB5CCNAME)."""

    client: str | None = None
    keytab: str | None = None
    cache: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Tickets:
        """Read the options of Java's Krb5LoginModule."""

        def file(name: str, switch: str) -> str | None:
            is_off = options.get(switch, "").lower() == "false"
            return None if is_off else options.get(name)

        keytab = file("keyTab", "useKeyTab")
        return cls(options.get("principal"), keytab, None if keytab else file("ticketCache", "useTicketCache"))

    def store(self, given_up: int) -> dict[str, str] | None:
        """Return what names them to the library; other ones of a keytab than those that were *given_up*."""
        if self.keytab:
            # All connections of these settings share the tickets, and the library renews them by the keytab.
            cache = f"MEMORY:mm2py {given_up} {self.client or ''} {self.keytab}"
            return {"client_keytab": self.keytab, "ccache": cache}
        return {"ccache": self.cache} if self.cache else None


class KerberosExchange:
    """A login with a ticket for the broker on a host (RFC 4752)."""

    def __init__(self, endpoint: ClusterEndpoint, service: str, host: str, options: Mapping[str, str]) -> None:
        if importlib.util.find_spec("gssapi") is None:
            raise LoginRefusedError(Refused(_NOT_INSTALLED, "pip install 'mm2py[kerberos]', on executors too"))
        self._service = f"{service}@{host}"
        self._whose = endpoint.security, host
        self._limit_s = _TIME_SHARE * min(endpoint.request_timeout_ms, endpoint.connection_setup_ms) / 1000
        self._tickets = Tickets.of(options)
        self._context: Any = None
        self._is_over = False

    async def step(self, answer: bytes | None) -> tuple[bytes, bool] | None:
        """Return what to send next; None at the end."""
        if self._context is None:
            self._context, first = await _in_thread(self._whose, self._begin, self._limit_s)
            return first, True
        if self._is_over:
            return None
        try:
            if not self._context.complete:
                return self._context.step(answer) or b"", True
            self._is_over = True
            return self._choice(answer), False
        except Exception as error:
            raise LoginRefusedError(self._refused(error)) from error

    def _begin(self) -> tuple[Any, bytes]:
        try:
            if self._tickets.keytab:
                # The library does not mention a file that it cannot read.
                with open(self._tickets.keytab.removeprefix("FILE:"), "rb"):  # noqa: PTH123
                    pass
            return self._first_step()
        except OSError as error:
            cause = f"keyTab {self._tickets.keytab}: {error.strerror}"
            raise LoginRefusedError(Refused(cause, "correct keyTab in sasl.jaas.config, or the file")) from error
        except ImportError as error:
            hint = "install the system's Kerberos library (MIT's), on executors too; Debian's is libgssapi-krb5-2"
            raise LoginRefusedError(Refused(f"{_NOT_INSTALLED}: {error}", hint)) from error
        except Exception as error:
            raise LoginRefusedError(self._refused(error)) from error

    def _first_step(self) -> tuple[Any, bytes]:
        count = _given_up.get(self._whose[0], 0)
        context = self._new_context(count)
        try:
            return context, context.step(None) or b""
        except Exception as error:
            number = _number(error)
            if not self._tickets.keytab or number not in {_EXPIRED, _NOT_FOUND}:
                raise
        # The ticket is not found if another thread is about to put one there, and has emptied the cache for it.
        if number == _EXPIRED:
            # The library got no new one for the keytab. Why, it says only if there is no old one.
            count += 1
            _given_up[self._whose[0]] = count
        context = self._new_context(count)
        return context, context.step(None) or b""

    def give_up_tickets(self) -> None:
        """Let the next login get new tickets: the broker, which refuses these, may have another key by now."""
        now = SystemClock().monotonic()
        if now - _refused_at.get(self._whose, -math.inf) >= _GIVEN_UP_EVERY_S:
            _refused_at[self._whose] = now
            _given_up[self._whose[0]] = _given_up.get(self._whose[0], 0) + 1

    def _new_context(self, given_up: int) -> Any:
        gssapi = importlib.import_module("gssapi")
        service = gssapi.Name(self._service, gssapi.NameType.hostbased_service)
        client = self._tickets.client
        name = gssapi.Name(client, gssapi.NameType.kerberos_principal) if client else None
        return gssapi.SecurityContext(
            name=service.canonicalize(gssapi.MechType.kerberos),
            creds=gssapi.Credentials(name=name, usage="initiate", store=self._tickets.store(given_up)),
            usage="initiate",
        )

    def _choice(self, offered: bytes | None) -> bytes:
        """Choose of the layers that the broker offers none but authentication; as oneself, as Java's client does."""
        layers = self._context.unwrap(offered).message
        chosen = bytes([layers[0] & SASL_QOP_AUTH, 0, 0, 0]) + str(self._context.initiator_name).encode()
        wrapped: bytes = self._context.wrap(chosen, False).message  # noqa: FBT003 - gssapi's signature
        return wrapped

    def _refused(self, error: Exception) -> Refused:
        """Return what is wrong; to be called in the thread of the *error*, or the library has forgotten its words."""
        statuses, code = getattr(error, "get_all_statuses", None), getattr(error, "min_code", 0)
        if statuses is None or not code:
            return Refused(f"no Kerberos ticket: {type(error).__name__}: {error}", _HINT)
        number, said = _number(error), "; ".join(statuses(code, is_maj=False))
        if number == _NO_CACHE and self._tickets.keytab:
            whose = f"no key of {self._tickets.client}" if self._tickets.client else "no key"
            said = f"keyTab {self._tickets.keytab} holds {whose}, or it is damaged"
        return Refused(f"no Kerberos ticket: {said}", _HINTS.get(number, _HINT), may_lock=number in _OF_ACCOUNT)


def _number(error: Exception) -> int:
    """Return the number of an error in krb5's own table; something else if it is none of these."""
    return int(getattr(error, "min_code", 0) - _TABLE) % 2**32


async def _in_thread(whose: tuple[Security, str], work: Callable[[], _T], limit_s: float) -> _T:
    """Do *work* in a thread; raise `LoginRefusedError` if it takes too long, or too much of it hangs already."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    hung = _hung.setdefault(whose, [])
    hung[:] = [(call, since) for call, since in hung if not call.done() and begun - since < _FORGOTTEN_S]
    if len(hung) >= _HUNG_MAX:
        raise LoginRefusedError(_SILENT)
    call: asyncio.Future[_T] = loop.create_future()
    _start(work, call)
    try:
        async with asyncio.timeout(limit_s):
            return await asyncio.shield(call)
    except TimeoutError:
        raise LoginRefusedError(_SILENT) from None
    finally:
        if not call.done():
            hung.append((call, begun))
            call.add_done_callback(lambda it: it.exception())  # nothing awaits it any more


def _start(work: Callable[[], _T], call: asyncio.Future[_T]) -> None:
    def run() -> None:
        settle: Callable[[], None]
        try:
            settle = partial(call.set_result, work())
        except Exception as error:  # noqa: BLE001 - it is the awaiter's
            settle = partial(call.set_exception, error)
        with suppress(RuntimeError):  # the loop may have ended meanwhile
            call.get_loop().call_soon_threadsafe(settle)

    threading.Thread(target=run, name="kerberos", daemon=True).start()
