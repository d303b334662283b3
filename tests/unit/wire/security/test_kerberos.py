"""Kerberos: which tickets a login takes, and what becomes of the library's errors. The library is a fake."""

from __future__ import annotations

import asyncio
import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security import kerberos
from mm2py.wire.security.access import LoginRefusedError, Refused
from mm2py.wire.security.sasl import log_in


_MODULE = "com.sun.security.auth.module.Krb5LoginModule required"
_TABLE = 2**32 - 1765328384
_EXPIRED, _NOT_FOUND, _UNREACHABLE = _TABLE + 32, _TABLE + 141, _TABLE + 156


class LibraryError(Exception):
    """An error of the library: its own words are only behind the number."""

    def __init__(self, min_code: int, words: str) -> None:
        super().__init__(f"Major (851968): Unspecified GSS failure, Minor ({min_code}): {words}")
        self.min_code = min_code
        self._words = words

    def get_all_statuses(self, code: int, is_maj: bool) -> list[str]:
        assert (code, is_maj) == (self.min_code, False)
        return [self._words]


class FakeGssapi(types.ModuleType):
    """Stands for the library: a broker gets the name and the store of whom the library would log in."""

    def __init__(self) -> None:
        super().__init__("gssapi")
        self.__spec__ = importlib.machinery.ModuleSpec("gssapi", None)
        self.NameType = types.SimpleNamespace(hostbased_service="service", kerberos_principal="principal")
        self.MechType = types.SimpleNamespace(kerberos="kerberos")
        self.stores: list[dict[str, str] | None] = []
        #: What the next logins meet instead of a ticket, by the place where they do.
        self.errors: list[tuple[str, LibraryError]] = []

    def Name(self, name: str, _kind: str) -> Any:  # noqa: N802
        return types.SimpleNamespace(name=name, canonicalize=lambda _mechanism: name)

    def Credentials(self, *, name: Any, usage: str, store: dict[str, str] | None) -> str:  # noqa: N802
        assert usage == "initiate"
        self.stores.append(store)
        self._fail("credentials")
        return f"{name and name.name}"

    def SecurityContext(self, *, name: str, creds: str, usage: str) -> Any:  # noqa: N802
        def step(token: bytes | None) -> bytes | None:
            self._fail("step")
            context.complete = token is not None
            return None if token else f"{creds} to {name} ({usage})".encode()

        def message(text: bytes, _is_secret: object = None) -> Any:
            return types.SimpleNamespace(message=text)

        context = types.SimpleNamespace(complete=False, step=step, unwrap=message, wrap=message, initiator_name=creds)
        return context

    def _fail(self, where: str) -> None:
        if self.errors and self.errors[0][0] == where:
            raise self.errors.pop(0)[1]


@pytest.fixture
def gssapi(monkeypatch: pytest.MonkeyPatch) -> FakeGssapi:
    """The library, whose calls are over at once: virtual time does not wait for threads."""

    def start(work: Callable[[], Any], call: asyncio.Future[Any]) -> None:
        try:
            call.set_result(work())
        except LoginRefusedError as error:
            call.set_exception(error)

    monkeypatch.setitem(sys.modules, "gssapi", fake := FakeGssapi())
    monkeypatch.setattr(kerberos, "_start", start)
    for known in ("_hung", "_given_up", "_refused_at"):
        monkeypatch.setattr(kerberos, known, {})
    return fake


@attrs.define
class Broker:
    """Answers a login's requests: the hand-shake, then each step; *refuses* says from which step on it does not."""

    refuses: int = 99
    received: list[bytes] = attrs.field(factory=list)

    async def __call__(self, request: Any) -> Any:
        if hasattr(request, "_mechanism"):
            return types.SimpleNamespace(error_code=0, enabled_mechanisms=["GSSAPI"])
        self.received.append(request._payload)
        said = (b"ok", b"\7\0\1\0", b"")[min(len(self.received), 3) - 1]
        code = 58 if len(self.received) > self.refuses else 0
        return types.SimpleNamespace(error_code=code, error_message="no", sasl_auth_bytes=said, session_lifetime_ms=0)


def endpoint(options: str) -> ClusterEndpoint:
    keys = {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{_MODULE} {options};"}
    return ClusterEndpoint("B", ("b:1",), security=Security("SASL_SSL", tuple(sorted(keys.items()))))


@pytest.fixture
def keytab(tmp_path: Path) -> str:
    path = tmp_path / "mm2.keytab"
    path.write_bytes(b"keys")
    return str(path)


async def refusal(end: ClusterEndpoint, broker: Broker | None = None) -> Refused:
    with pytest.raises(LoginRefusedError) as caught:
        await log_in(end, "b", broker or Broker())
    return caught.value.refused


async def test_it_needs_its_extra() -> None:
    """Without the Kerberos package it is said what to install."""
    if importlib.util.find_spec("gssapi") is not None:
        pytest.skip("gssapi is installed")

    assert "pip install 'mm2py[kerberos]'" in (await refusal(endpoint("useKeyTab=true"))).hint


async def test_it_needs_the_system_s_library(gssapi: FakeGssapi, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package may have been copied to a machine without the library that it was compiled for."""

    def without(_name: str) -> Any:
        raise ImportError("libgssapi_krb5.so.2: cannot open shared object file")

    monkeypatch.setattr(importlib, "import_module", without)
    refused = await refusal(endpoint("useTicketCache=true"))

    assert refused.cause.endswith("not installed here: libgssapi_krb5.so.2: cannot open shared object file")
    assert "system's Kerberos library" in refused.hint
    assert gssapi.stores == []


async def test_each_keytab_has_tickets_of_its_own(gssapi: FakeGssapi, tmp_path: Path) -> None:
    """Two clusters in one process have two keytabs, of two realms; connections of one share its tickets."""
    brokers = []
    for realm, host in (("R1", "one"), ("R2", "two"), ("R1", "more")):
        (path := tmp_path / f"{realm}.keytab").touch()
        brokers.append(Broker())
        end = endpoint(f'useKeyTab=true keyTab="{path}" principal="mm2@{realm}"')
        await log_in(end, host, brokers[-1])
    first, second, third = gssapi.stores

    assert brokers[1].received == [b"mm2@R2 to kafka@two (initiate)", b"", b"\1\0\0\0mm2@R2"]
    assert first is not None
    assert second is not None
    assert first["client_keytab"] == str(tmp_path / "R1.keytab")
    assert first["ccache"] != second["ccache"]
    assert first == third


@pytest.mark.parametrize(
    ("options", "store", "client"),
    [
        ("useTicketCache=true", None, b"None"),
        ('useTicketCache=true ticketCache="/run/cc" principal="mm2@R"', {"ccache": "/run/cc"}, b"mm2@R"),
        ('useTicketCache=false ticketCache="/run/cc"', None, b"None"),
        ('useKeyTab=false keyTab="/none" useTicketCache=true principal="mm2"', None, b"mm2"),
    ],
)
async def test_a_ticket_cache(gssapi: FakeGssapi, options: str, store: object, client: bytes) -> None:
    """Java's options name the cache that kinit filled, and whose tickets are to be in it."""
    await log_in(endpoint(options), "b", broker := Broker())

    assert gssapi.stores == [store]
    assert broker.received[0].split(b" to ")[0] == client


@pytest.mark.parametrize(
    ("number", "hint", "may_lock"),
    [
        (7, "advertised.listeners", False),
        (18, "klist", True),
        (24, "have a new keytab made", True),
        (37, "clocks", False),
        (156, "KRB5_CONFIG", False),
    ],
)
async def test_each_error_has_a_hint_and_only_those_of_the_account_may_lock_it(
    gssapi: FakeGssapi, keytab: str, number: int, hint: str, may_lock: bool
) -> None:
    """
    The library's own words are shown, without what is around them.

    What has nothing to do with the account holds up neither other brokers, nor anything for minutes.
    """
    gssapi.errors = [("step", LibraryError(_TABLE + number, "its words"))]
    refused = await refusal(endpoint(f'keyTab="{keytab}"'))

    assert refused.cause == "no Kerberos ticket: its words"
    assert hint in refused.hint
    assert refused.may_lock == may_lock


async def test_a_keytab_of_no_use(gssapi: FakeGssapi, keytab: str) -> None:
    """A keytab that is missing or without the principal's key is named; the library speaks of a credentials cache."""
    gssapi.errors = [("credentials", LibraryError(_TABLE + 195, "No credentials cache found"))]
    missing = await refusal(endpoint('keyTab="/no/such.keytab"'))
    other = await refusal(endpoint(f'keyTab="{keytab}" principal="mm2@R"'))

    assert missing.cause == "keyTab /no/such.keytab: No such file or directory"
    assert other.cause == f"no Kerberos ticket: keyTab {keytab} holds no key of mm2@R, or it is damaged"


async def test_tickets_that_could_not_be_renewed(gssapi: FakeGssapi, keytab: str) -> None:
    """A keytab's ticket that is over, because the KDC was away: what is reported is the KDC, and it comes back."""
    over, away = LibraryError(_EXPIRED, "Ticket expired"), LibraryError(_UNREACHABLE, "Cannot contact any KDC")
    gssapi.errors = [("step", over), ("credentials", away), ("credentials", away)]
    found = [(await refusal(endpoint(f'keyTab="{keytab}"'))).cause for _ in range(2)]
    await log_in(endpoint(f'keyTab="{keytab}"'), "b", Broker())
    caches = [store["ccache"] for store in gssapi.stores if store]

    assert set(found) == {"no Kerberos ticket: Cannot contact any KDC"}
    assert len(caches) == 4
    assert len(set(caches)) == 2


async def test_a_login_while_another_thread_gets_the_ticket(gssapi: FakeGssapi, keytab: str) -> None:
    """The library empties the cache before it puts a new ticket there, and another login may look in between."""
    gssapi.errors = [("step", LibraryError(_NOT_FOUND, "Matching credential not found"))]
    await log_in(endpoint(f'keyTab="{keytab}"'), "b", Broker())
    first, second = gssapi.stores

    assert first == second


async def test_a_ticket_cache_that_is_over(gssapi: FakeGssapi) -> None:
    """A cache that kinit filled is not renewed, which the hint says."""
    gssapi.errors = [("step", LibraryError(_EXPIRED, "Ticket expired"))]

    assert "kinit" in (await refusal(endpoint("useTicketCache=true"))).hint


async def test_a_broker_with_another_key_gets_another_ticket(gssapi: FakeGssapi, keytab: str) -> None:
    """A ticket from before the broker's key changed would be refused for hours; if it goes on, that was not why."""
    end = endpoint(f'keyTab="{keytab}"')
    await log_in(end, "b", Broker())
    for _ in range(3):
        refused = await refusal(end, Broker(refuses=0))
    await log_in(end, "b", Broker())
    caches = [store["ccache"] for store in gssapi.stores if store]

    assert not refused.may_lock
    assert refused.cause == "the broker refused the ticket: no"
    assert caches[0] == caches[1]
    assert len({*caches[2:]} - {caches[0]}) == len({*caches[2:]}) == 1


async def test_a_kdc_that_hangs(gssapi: FakeGssapi, monkeypatch: pytest.MonkeyPatch, keytab: str) -> None:
    """
    A login is over before the connection's time is, so that what is missing is named; few threads are left behind.

    When the KDC answers, or is no longer waited for, the next login asks it.
    """
    calls: list[asyncio.Future[Any]] = []
    monkeypatch.setattr(kerberos, "_start", lambda _work, call: calls.append(call))
    end, loop = endpoint(f'keyTab="{keytab}"'), asyncio.get_running_loop()
    began = loop.time()
    causes = {(await refusal(end)).cause for _ in range(10)}
    took_s, asked = loop.time() - began, len(calls)
    calls[0].set_result(None)
    await refusal(end)
    after_an_answer = len(calls)
    await asyncio.sleep(900)
    await refusal(end)

    assert causes == {"no Kerberos ticket: the KDC does not answer"}
    assert took_s < 4 * min(end.connection_setup_ms, end.request_timeout_ms) / 1000
    assert (asked, after_an_answer, len(calls)) == (4, 5, 6)
