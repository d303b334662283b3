"""The REST server at real sockets: listeners, TLS, and addresses that are in use."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import attrs
import pytest

from mm2py.cli.position_changes import answering_node
from mm2py.clock import SystemClock
from mm2py.devkit.ports import HOST, free_ports
from mm2py.model.flow import Flow
from mm2py.rest import server as rest_server
from mm2py.rest.access.users import hash_password
from mm2py.rest.connections import MOST_CONNECTIONS, MOST_HANDSHAKES
from mm2py.rest.server import RestServer
from mm2py.telemetry.events import RestListening, RestUnavailable
from tests.support.certificates import Authority, Certificate
from tests.support.eventually import eventually, scaled
from tests.support.rest_asking import PlainMetrics, basic
from tests.support.rest_node import NodeDouble, node_double


_FLOW = "/from:A/to:B"


@attrs.frozen
class Serving:
    """A server that runs, and where it listens."""

    server: RestServer
    node: NodeDouble

    def urls(self) -> list[str]:
        return [event.url for event in self.node.events.of(RestListening)]

    async def url(self) -> str:
        """Wait until it listens; return the address."""
        return (await eventually(self.urls, within_s=10, what="the server listens"))[0]


@asynccontextmanager
async def serving(folder: Path, *lines: str) -> AsyncIterator[Serving]:
    """Run a server with these lines of settings."""
    clock = SystemClock()
    node = node_double(folder, clock, *lines)
    server = RestServer(node, clock=clock, events=node.events, metrics=PlainMetrics(), jitter=lambda: 0.0)
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(server.run())
        try:
            yield Serving(server, node)
        finally:
            running.cancel()


async def _get(url: str, *, tls: ssl.SSLContext | None = None, **headers: str) -> tuple[int, str]:
    async with (
        aiohttp.ClientSession(headers=headers) as session,
        session.get(url, ssl=tls if tls is not None else True) as answer,
    ):
        return answer.status, await answer.text()


async def test_several_listeners(tmp_path: Path) -> None:
    """Each address answers; a port chosen by the system is in an event, and is part of worker_id."""
    async with serving(tmp_path, "listeners = http://127.0.0.1:0, http://localhost:0") as running:
        urls = await eventually(
            lambda: running.urls() if len(running.urls()) == 2 else None, within_s=10, what="both listen"
        )
        # Which of them listens first is chance; a worker is called by the one that the settings name first.
        urls = sorted(urls)
        answers = [await _get(url + "/status") for url in urls]
        port = urls[0].removeprefix("http://127.0.0.1:")

    assert [status for status, _ in answers] == [200, 200]
    assert f'"worker_id":"127.0.0.1:{port}"' in answers[0][1]


async def test_all_addresses(tmp_path: Path) -> None:
    """Java's form without a host listens on all addresses, where everyone may read and changes are refused."""
    async with serving(tmp_path, "listeners = http://:0") as running:
        port = (await running.url()).rpartition(":")[2]
        [event] = running.node.events.of(RestListening)
        shown, _ = await _get(f"http://127.0.0.1:{port}/status")
        async with (
            aiohttp.ClientSession() as session,
            session.put(f"http://127.0.0.1:{port}{_FLOW}/connectors/MirrorSourceConnector/pause") as answer,
        ):
            changed = answer.status

    assert event.who == "everyone may read"
    assert (shown, changed) == (200, 403)


async def test_a_node_that_runs_a_flow_is_found_by_its_listener(tmp_path: Path) -> None:
    """So its positions are not written; other flows, and a node that has ended, do not matter."""
    (port,) = free_ports(1)
    async with serving(tmp_path, f"listeners = http://{HOST}:0, http://{HOST}:{port}") as running:
        await eventually(lambda: len(running.urls()) == 2, within_s=10, what="both listen")
        found = await answering_node(running.node.settings, Flow("A", "B"))
        other = await answering_node(running.node.settings, Flow("A", "C"))
    ended = await answering_node(running.node.settings, Flow("A", "B"))

    assert found is not None
    assert (found.flow, found.rest) == ("A->B", f"http://{HOST}:{port}")
    assert (other, ended) == (None, None)


@pytest.fixture
def _has_ipv6() -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("this machine has no ::1")


@pytest.mark.usefixtures("_has_ipv6")
async def test_ipv6(tmp_path: Path) -> None:
    """An address in brackets is one of IPv6."""
    async with serving(tmp_path, "listeners = http://[::1]:0") as running:
        status, _ = await _get(await running.url() + "/status")

    assert status == 200


@pytest.mark.usefixtures("_has_ipv6")
async def test_all_addresses_in_ipv6_s_form(tmp_path: Path) -> None:
    """As in Java, that also listens at those of IPv4; unless another listener has that port of these."""
    (port,) = free_ports(1)
    async with serving(tmp_path, "listeners = http://[::]:0") as running:
        alone, _ = await _get(f"http://127.0.0.1:{(await running.url()).rpartition(':')[2]}/status")
    async with serving(tmp_path, f"listeners = http://[::]:{port}, http://127.0.0.1:{port}") as running:
        await eventually(lambda: len(running.urls()) == 2, within_s=10, what="both listen")

    assert alone == 200


async def test_metrics_are_compressed_for_clients_that_accept_it(tmp_path: Path) -> None:
    """Both forms hold the same text."""
    found = {}
    async with serving(tmp_path, "listeners = http://127.0.0.1:0") as running, aiohttp.ClientSession() as client:
        for encoding in ("gzip", "identity"):
            async with client.get(await running.url() + "/metrics", headers={"Accept-Encoding": encoding}) as answer:
                found[encoding] = answer.headers.get("Content-Encoding"), await answer.text()

    assert [encoding for encoding, _ in found.values()] == ["gzip", None]
    assert found["gzip"][1] == found["identity"][1]


async def test_a_port_in_use_is_tried_again(tmp_path: Path) -> None:
    """Only the listener fails: it is reported once, with a hint, and gets its port when that is free."""
    # A port of the system's choice may be given to another process once it is free.
    (port,) = free_ports(1)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with serving(tmp_path, f"listeners = http://127.0.0.1:{port}, http://127.0.0.1:0") as running:
            other = await running.url()
            [event] = await eventually(
                lambda: running.node.events.of(RestUnavailable), within_s=10, what="the port is in use"
            )
            taken.close()
            await eventually(
                lambda: f"http://127.0.0.1:{port}" in running.urls(), within_s=30, what="it listens after all"
            )
            answers = [await _get(url + "/health/live") for url in (other, f"http://127.0.0.1:{port}")]

    assert event.url == f"http://127.0.0.1:{port}"
    assert "another process" in event.hint
    assert [status for status, _ in answers] == [200, 200]


async def test_off(tmp_path: Path) -> None:
    """Without listeners there is no server, and its run is over at once."""
    node = node_double(tmp_path, SystemClock(), "listeners =")
    server = RestServer(node, clock=SystemClock(), events=node.events, metrics=PlainMetrics())

    async with asyncio.timeout(scaled(5)):
        await server.run()

    assert not list(node.events)


# TLS.


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def _client(authority: Authority, folder: Path, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=authority.pem)
    # Python 3.13 would insist on key identifiers, which these certificates lack.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if own is not None:
        context.load_cert_chain(own.write_pem(folder / "client.pem"))
    return context


def _https(folder: Path, authority: Authority, *, kind: str = "PEM") -> list[str]:
    certificate = authority.sign("localhost", "localhost", "127.0.0.1")
    stem = "listeners.https.ssl.keystore"
    if kind == "PEM":
        certificate.write_pem(folder / "rest.pem")
        return ["listeners = https://localhost:0", f"{stem}.type = PEM", f"{stem}.location = {folder / 'rest.pem'}"]
    certificate.pkcs12(folder / "rest.p12")
    return [
        "listeners = https://localhost:0",
        f"{stem}.type = PKCS12",
        f"{stem}.location = {folder / 'rest.p12'}",
        f"{stem}.password = store-s3cr3t",
    ]


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
async def test_https(tmp_path: Path, authority: Authority, kind: str) -> None:
    """A listener speaks TLS with the certificate of its settings, in any form that Kafka's users keep one."""
    async with serving(tmp_path, *_https(tmp_path, authority, kind=kind)) as running:
        status, _ = await _get(await running.url() + "/status", tls=_client(authority, tmp_path))

    assert status == 200


async def test_a_certificate_that_cannot_be_used(tmp_path: Path, authority: Authority) -> None:
    """It is an event, the server waits for a better one, and takes it when it is there."""
    lines = _https(tmp_path, authority)
    good = (tmp_path / "rest.pem").read_text()
    (tmp_path / "rest.pem").write_text("nothing")
    async with serving(tmp_path, *lines) as running:
        [event] = await eventually(
            lambda: running.node.events.of(RestUnavailable), within_s=10, what="the certificate is refused"
        )
        (tmp_path / "rest.pem").write_text(good)
        status, _ = await _get(await running.url() + "/status", tls=_client(authority, tmp_path))

    assert "keystore" in event.reason
    assert status == 200


async def test_mutual_tls(tmp_path: Path, authority: Authority) -> None:
    """The subject of a client's certificate has the right that the users' file gives it; others have none."""
    users = tmp_path / "users"
    users.write_text("write CN=ops,O=mm2py certificate\nread CN=looker,O=mm2py certificate\n")
    (tmp_path / "trust.pem").write_text(authority.pem)
    lines = [
        *_https(tmp_path, authority),
        "listeners.https.ssl.truststore.type = PEM",
        f"listeners.https.ssl.truststore.location = {tmp_path / 'trust.pem'}",
        "listeners.https.ssl.client.auth = requested",
        f"rest.auth.users.file = {users}",
    ]
    found = {}
    async with serving(tmp_path, *lines) as running:
        url = await running.url()
        for name in ("ops", "looker", "stranger", None):
            tls = _client(authority, tmp_path, authority.sign(name) if name else None)
            async with aiohttp.ClientSession() as session:
                async with session.get(url + "/status", ssl=tls) as answer:
                    read = answer.status
                async with session.put(f"{url}{_FLOW}/connectors/MirrorSourceConnector/pause", ssl=tls) as answer:
                    found[name] = (read, answer.status)
        stranger = Authority("Somebody Else").sign("ops")
        with pytest.raises((aiohttp.ClientError, OSError)):
            await _get(url + "/status", tls=_client(authority, tmp_path, stranger))

    assert found == {"ops": (200, 202), "looker": (200, 403), "stranger": (401, 401), None: (401, 401)}


async def test_a_password_over_tls(tmp_path: Path, authority: Authority) -> None:
    """A user with a name and a password may read; the answer to a request without them asks for them."""
    users = tmp_path / "users"
    users.write_text(f"read ann {hash_password('correct horse', cost=2)}\n")
    lines = [*_https(tmp_path, authority), f"rest.auth.users.file = {users}"]
    tls = _client(authority, tmp_path)
    async with serving(tmp_path, *lines) as running:
        url = await running.url() + "/status"
        right, _ = await _get(url, tls=tls, Authorization=basic("ann", "correct horse"))
        wrong, _ = await _get(url, tls=tls, Authorization=basic("ann", "wrong"))
        async with aiohttp.ClientSession() as session, session.get(url, ssl=tls) as answer:
            asked = answer.headers.getall("WWW-Authenticate")

    assert (right, wrong) == (200, 401)
    assert [one.partition(" ")[0] for one in asked] == ["Bearer", "Basic"]


# The end.


async def test_an_open_stream_does_not_hold_the_server(tmp_path: Path) -> None:
    """An open stream gets an `end` event, and the server ends within seconds."""
    async with asyncio.timeout(scaled(20)):
        async with serving(tmp_path, "listeners = http://127.0.0.1:0") as running:
            url = await running.url()
            session = aiohttp.ClientSession()
            stream = await session.get(url + "/stream")
            await stream.content.readline()
        rest = await stream.content.read()
        await session.close()

    assert b"event: end" in rest


async def test_connections_that_ask_for_nothing_give_way(tmp_path: Path) -> None:
    """
    Hundreds of connections, most without a request, one in the middle of it, and one that watches the page.

    The process needs its files for the mirror: the oldest ones that ask for nothing are closed, the page's is not.
    """
    async with serving(tmp_path, "listeners = http://127.0.0.1:0") as running, aiohttp.ClientSession() as session:
        url = await running.url()
        port = int(url.rpartition(":")[2])
        async with session.get(f"{url}/stream") as watched:
            await watched.content.readline()
            idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CONNECTIONS + 44)]
            idle[0][1].write(b"GET /status HTTP/1.1\r\nHost: localhost\r\n")
            status, _ = await _get(f"{url}/health/live")

            def closed() -> int:
                return sum(reader.at_eof() for reader, _ in idle)

            await eventually(lambda: closed() >= 45, within_s=10, what="the oldest connections are closed")
            by_age = [reader.at_eof() for reader, _ in idle]
            is_watched = not watched.content.at_eof()
        for _, writer in idle:
            writer.close()

    assert (status, is_watched) == (200, True)
    assert by_age == sorted(by_age, reverse=True)
    assert sum(by_age) < 60


async def test_a_handshake_does_not_take_a_minute(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until TLS is agreed on, a connection has a file of the process, and its client may have gone."""
    monkeypatch.setattr(rest_server, "_HANDSHAKE_S", 0.1)
    async with serving(tmp_path, *_https(tmp_path, authority)) as running:
        port = int((await running.url()).rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(scaled(10)):
            said = await reader.read()
        writer.close()

    assert said == b""


async def test_handshakes_that_do_not_end_give_way(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    A client opens many connections at once, and begins TLS on none.

    Each has a file of the process, which the mirror would soon lack: beyond some, the oldest ones are closed.
    """
    monkeypatch.setattr(rest_server, "_HANDSHAKE_S", 600.0)
    async with serving(tmp_path, *_https(tmp_path, authority)) as running:
        url = await running.url()
        port = int(url.rpartition(":")[2])
        begun = await asyncio.gather(*(asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_HANDSHAKES + 44)))
        status, _ = await _get(f"{url}/health/live", tls=_client(authority, tmp_path))

        def closed() -> int:
            return sum(reader.at_eof() for reader, _ in begun)

        await eventually(lambda: closed() >= 45, within_s=10, what="the oldest connections are closed")
        by_age = [reader.at_eof() for reader, _ in begun]
        for _, writer in begun:
            writer.close()

    assert status == 200
    assert by_age == sorted(by_age, reverse=True)


async def test_what_is_no_http_does_not_matter(tmp_path: Path) -> None:
    """Garbage and incomplete requests are answered or dropped, and the next request is served."""
    async with serving(tmp_path, "listeners = http://127.0.0.1:0") as running:
        url = await running.url()
        port = int(url.rpartition(":")[2])
        for rubbish in (b"\x16\x03\x01\x02\x00\x01", b"GET / HTTP/9.9\r\n\r\n", b"PUT /status HTTP/1.1\r\nHost: x\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(rubbish)
            await writer.drain()
            writer.close()
            del reader
        status, _ = await _get(url + "/status")

    assert status == 200
