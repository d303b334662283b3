"""The commands' client for a running daemon: address, credentials, and errors. Secrets come from the environment, from
files, or from a prompt; never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import getpass
import json
import os
import ssl
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

import aiohttp
import attrs
from yarl import URL

from mm2py.cli.command import ArgumentsError
from mm2py.errors import Mm2Error


DEFAULT_URL = "http://127.0.0.1:8083"

#: A change is stored on the target cluster before it is answered; Kafka clients time out after half a minute.
_ANSWER_WITHIN_S = 60.0
_CONNECT_WITHIN_S = 10.0
#: The daemon sends something at least this often while events are followed, if only a comment.
_SILENCE_S = 60.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})


@attrs.define(eq=False)
class DaemonNotReachableError(Mm2Error):
    """No daemon responds at the address."""

    hint: ClassVar[str] = (
        "is it running (mm2py mirror mm2.properties), and does its setting listeners name this address? Give another "
        "one with --url or MM2PY_URL"
    )

    url: str
    cause: str

    def __str__(self) -> str:
        return f"no daemon answers at {self.url}: {self.cause}"


@attrs.define(eq=False)
class NotADaemonError(Mm2Error):
    """A server responds, but not with JSON."""

    hint: ClassVar[str] = "is --url (or MM2PY_URL) the address of mm2py, and is its setting listeners on?"

    url: str
    status: int

    def __str__(self) -> str:
        return f"what answers at {self.url} is no mm2py daemon (HTTP status {self.status})"


@attrs.define(eq=False)
class AuthenticationRequiredError(Mm2Error):
    """The daemon requires credentials, or does not accept those given (401)."""

    hint: ClassVar[str] = (
        "a token comes from MM2PY_TOKEN or --token-file; a user from --user with MM2PY_PASSWORD or --password-file; "
        "a certificate from --cert and --key"
    )

    url: str
    what: str
    said: str

    def __str__(self) -> str:
        return f"the daemon at {self.url} does not know who asks ({self.what}): {self.said}"


@attrs.define(eq=False)
class NotAllowedError(Mm2Error):
    """The caller is authenticated, but lacks the permission (403)."""

    url: str
    right: str
    said: str

    def __str__(self) -> str:
        return f"this needs permission to {self.right} at {self.url}: {self.said}"


@attrs.define(eq=False)
class NotFoundError(Mm2Error):
    """The daemon has no such resource (404); its message suggests similar names."""

    said: str

    def __str__(self) -> str:
        return self.said


@attrs.define(eq=False)
class RefusedError(Mm2Error):
    """The daemon refused: 400 an invalid request, 409 a conflict, 503 the target cluster is unreachable."""

    status: int
    said: str
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n  ".join([self.said, *(problem for problem in self.problems if problem not in self.said)])


@attrs.frozen
class Address:
    """A daemon's address and credentials; `who` describes the credentials in messages."""

    url: URL
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    tls: ssl.SSLContext | None = None
    who: str = "no credentials were given"

    def __str__(self) -> str:
        return str(self.url.with_user(None).with_query(None))


@attrs.frozen
class ServerEvent:
    """One server-sent event."""

    kind: str
    data: str
    id: str = ""


def add_arguments(parser: argparse.ArgumentParser, *, is_inner: bool = False) -> None:
    """Declare the connection options. An inner parser must not overwrite parsed options with its defaults."""
    group = parser.add_argument_group("the daemon")
    absent: Any = argparse.SUPPRESS if is_inner else None

    def declare(name: str, metavar: str, text: str, kind: type = str) -> None:
        group.add_argument(name, metavar=metavar, type=kind, default=absent, help=text)

    declare("--url", "URL", f"its address; MM2PY_URL, else {DEFAULT_URL}")
    declare("--token-file", "FILE", "a file with a bearer token; or MM2PY_TOKEN", Path)
    declare("--user", "NAME", "log in by name; MM2PY_USER")
    declare("--password-file", "FILE", "a file with the user's password; or MM2PY_PASSWORD, or a prompt", Path)
    declare("--cacert", "FILE", "CA of the daemon's certificate (PEM); MM2PY_CACERT", Path)
    declare("--cert", "FILE", "a client certificate (PEM)", Path)
    declare("--key", "FILE", "its private key (PEM), if not in --cert", Path)
    switch: Any = argparse.SUPPRESS if is_inner else False
    group.add_argument(
        "--insecure", action="store_true", default=switch, help="accept any certificate: for tests, never with secrets"
    )


def read_address(options: argparse.Namespace, env: Mapping[str, str] = os.environ) -> Address:
    """Return the daemon's address and the credentials. Raise `ArgumentsError` if the options are invalid."""
    url = _read_url(options.url or env.get("MM2PY_URL") or DEFAULT_URL)
    headers, who = _credentials(options, env)
    tls = _tls(options, env) if url.scheme == "https" else None
    if url.scheme == "http" and (options.cert or options.cacert or options.insecure):
        raise ArgumentsError(f"--cert, --cacert and --insecure are for https; {url} is not")
    if options.cert and not headers:
        who = f"the certificate {options.cert}"
    if url.scheme == "http" and headers and url.host not in _LOOPBACK:
        print(f"mm2py: warning: credentials go to {url.host} unencrypted; use https", file=sys.stderr)
    return Address(url, headers, tls, who)


def _read_url(text: str) -> URL:
    try:
        url = URL(text if "://" in text else f"http://{text}")
    except ValueError as error:
        raise ArgumentsError(f"{text} is not a URL: {error}") from error
    if url.scheme not in {"http", "https"} or not url.host:
        raise ArgumentsError(f"{text} is not an http or https URL")
    if url.user is not None:
        raise ArgumentsError("the URL contains a user: use --user, and MM2PY_PASSWORD for the password")
    return url


def _credentials(options: argparse.Namespace, env: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return the authentication headers. Options take precedence over the environment."""
    if options.token_file and options.user:
        raise ArgumentsError("--token-file and --user exclude each other")
    if options.token_file:
        return _bearer(_secret(options.token_file)), f"the token of {options.token_file}"
    user = options.user
    if user is None and (token := env.get("MM2PY_TOKEN")):
        return _bearer(token), "the token of MM2PY_TOKEN"
    user = user or env.get("MM2PY_USER")
    if user is None:
        if options.password_file:
            raise ArgumentsError("--password-file needs --user")
        return {}, "no credentials were given"
    password = _password(user, options, env)
    if ":" in user:
        raise ArgumentsError("a user's name cannot contain a colon")
    encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"Authorization": f"Basic {encoded}"}, f"user {user}"


def _bearer(token: str) -> dict[str, str]:
    if not token.isascii() or not token.isprintable():
        raise ArgumentsError("the token has characters that are not allowed in a header")
    return {"Authorization": f"Bearer {token}"}


def _password(user: str, options: argparse.Namespace, env: Mapping[str, str]) -> str:
    if options.password_file:
        return _secret(options.password_file)
    if (password := env.get("MM2PY_PASSWORD")) is not None:
        return password
    if not sys.stdin.isatty():
        raise ArgumentsError(f"the password of {user} comes from --password-file or MM2PY_PASSWORD")
    return getpass.getpass(f"Password of {user}: ", stream=sys.stderr)


def _secret(file: Path) -> str:
    """Read the first line of a file."""
    try:
        lines = file.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentsError(f"{file} cannot be read: {error}") from error
    if not lines or not lines[0].strip():
        raise ArgumentsError(f"{file} is empty")
    return lines[0].strip()


def _tls(options: argparse.Namespace, env: Mapping[str, str]) -> ssl.SSLContext:
    authority = options.cacert or env.get("MM2PY_CACERT") or None
    try:
        context = ssl.create_default_context(cafile=authority)
        # Python 3.13 and newer would refuse certificates without key identifiers, which Kafka's clients take.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if options.cert:
            context.load_cert_chain(options.cert, options.key)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (authority, options.cert, options.key) if file)
        raise ArgumentsError(f"the certificates of {files} cannot be used: {error}") from error
    if options.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class RestClient:
    """A daemon, reached over HTTP. Redirects are not followed, so that credentials go nowhere else."""

    def __init__(self, address: Address, session: aiohttp.ClientSession) -> None:
        self.address = address
        self._session = session

    async def ask(self, method: str, path: str, *, query: Mapping[str, str] | None = None, body: object = None) -> Any:
        """Send a request and return the answer's JSON, None if it has no body. Raise on any other outcome."""
        try:
            async with (
                asyncio.timeout(_ANSWER_WITHIN_S),
                self._session.request(method, self._url(path, query), json=body, allow_redirects=False) as response,
            ):
                text = await response.text(errors="replace")
                status = response.status
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DaemonNotReachableError(str(self.address), _cause(error)) from error
        return self._answer(method, status, text)

    async def follow(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[ServerEvent]:
        """Return the server-sent events of a stream, until it ends."""
        try:
            headers = {"Accept": "text/event-stream"}
            async with self._session.get(self._url(path, query), headers=headers, allow_redirects=False) as response:
                if response.status != 200:  # noqa: PLR2004  # HTTP's OK
                    self._answer("GET", response.status, await response.text(errors="replace"))
                    raise NotADaemonError(str(self.address), response.status)
                lines = EventLines()
                while True:
                    async with asyncio.timeout(_SILENCE_S):
                        line = await response.content.readline()
                    if not line:
                        return
                    if (event := lines.take(line.decode(errors="replace"))) is not None:
                        yield event
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise DaemonNotReachableError(str(self.address), _cause(error)) from error

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        base = str(self.address.url.with_query(None).with_fragment(None)).rstrip("/")
        return URL(base + path, encoded=True).update_query(dict(query or {}))

    def _answer(self, method: str, status: int, text: str) -> Any:
        try:
            answer = json.loads(text) if text.strip() else None
        except ValueError:
            raise NotADaemonError(str(self.address), status) from None
        judge_answer(self.address, method, status, answer)
        return answer


def judge_answer(address: Address, method: str, status: int, answer: object) -> None:
    """Raise the error for an answer that is not a success."""
    if 200 <= status < 300:  # noqa: PLR2004  # HTTP's successes
        return
    facts: Mapping[str, Any] = answer if isinstance(answer, dict) else {}
    said = str(facts.get("message") or f"HTTP status {status}")
    if status == 401:  # noqa: PLR2004
        raise AuthenticationRequiredError(str(address), address.who, said)
    if status == 403:  # noqa: PLR2004
        raise NotAllowedError(str(address), "read" if method == "GET" else "write", said)
    if status == 404 and facts:  # noqa: PLR2004
        raise NotFoundError(said)
    if not facts:
        raise NotADaemonError(str(address), status)
    problems = facts.get("problems")
    raise RefusedError(status, said, tuple(map(str, problems)) if isinstance(problems, list) else ())


class EventLines:
    """Assembles the lines of a stream into events, as chapter 9.2 of the HTML standard defines."""

    def __init__(self) -> None:
        self._kind, self._data, self._id = "", list[str](), ""

    def take(self, line: str) -> ServerEvent | None:
        """Take a line with its end; return the event that it completes, if any."""
        line = line.rstrip("\r\n")
        if not line:
            data, kind = self._data, self._kind
            self._data, self._kind = [], ""
            return ServerEvent(kind or "message", "\n".join(data), self._id) if data else None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            self._data.append(value)
        elif field == "event":
            self._kind = value
        elif field == "id":
            self._id = value
        return None


def _cause(error: BaseException) -> str:
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not trusted ({error.certificate_error}); --cacert names who signs it"
    if isinstance(error, aiohttp.ClientConnectorError):
        error = error.os_error
        if isinstance(error, ssl.SSLError):  # its number is none of the system's
            return f"TLS failed: {error}"
        if error.errno and error.errno > 0:
            return os.strerror(error.errno).lower()
    return str(error) or type(error).__name__


@asynccontextmanager
async def connected(address: Address) -> AsyncIterator[RestClient]:
    """Return a client of the daemon at *address*; it connects with the first request."""
    connector = aiohttp.TCPConnector(ssl=address.tls if address.tls is not None else True)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_WITHIN_S)
    async with aiohttp.ClientSession(connector=connector, headers=dict(address.headers), timeout=timeout) as session:
        yield RestClient(address, session)
