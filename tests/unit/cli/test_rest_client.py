"""How commands reach a daemon: who asks, what its refusals mean, how its events are read."""

from __future__ import annotations

import argparse
import base64
import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from yarl import URL

from mm2py.cli import rest_client
from mm2py.cli.command import ArgumentsError
from mm2py.cli.rest_client import (
    Address,
    AuthenticationRequiredError,
    EventLines,
    NotADaemonError,
    NotAllowedError,
    NotFoundError,
    RefusedError,
    ServerEvent,
    judge_answer,
    read_address,
)
from mm2py.errors import Mm2Error


HERE = Address(URL("http://127.0.0.1:8083"))


def read(*words: str, env: Mapping[str, str] | None = None) -> Address:
    parser = argparse.ArgumentParser()
    rest_client.add_arguments(parser)
    return read_address(parser.parse_args(words), env or {})


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("from-file\n")
    return file


def test_without_a_word_the_daemon_is_on_this_machine() -> None:
    """The default address is that of the daemon's own default listener, without credentials."""
    assert read() == Address(URL("http://127.0.0.1:8083"))


@pytest.mark.parametrize(
    ("words", "env", "url"),
    [
        ([], {"MM2PY_URL": "https://mirror:8443"}, "https://mirror:8443"),
        (["--url", "http://localhost:1"], {"MM2PY_URL": "https://mirror:8443"}, "http://localhost:1"),
        (["--url", "localhost:8084"], {}, "http://localhost:8084"),
        (["--url", "http://localhost/behind/proxy/"], {}, "http://localhost/behind/proxy/"),
    ],
)
def test_where_the_daemon_is(words: list[str], env: dict[str, str], url: str) -> None:
    """What is typed counts before the environment."""
    assert str(read(*words, env=env)) == url


def test_a_token_is_never_shown(token_file: Path) -> None:
    """Secrets travel in a header, and stand in no text that may be printed."""
    address = read("--token-file", str(token_file), env={"MM2PY_TOKEN": "from-env"})

    assert address.headers == {"Authorization": "Bearer from-file"}
    assert "from-file" not in repr(address) + str(address) + address.who


def test_a_user_logs_in(tmp_path: Path) -> None:
    """A name is typed or in the environment, its password is in a file or in the environment."""
    password = tmp_path / "password"
    password.write_text("p:äss\n")
    by_file = read("--user", "ann", "--password-file", str(password))
    by_env = read(env={"MM2PY_USER": "ann", "MM2PY_PASSWORD": "p:äss"})

    assert by_file.headers == by_env.headers
    assert base64.b64decode(by_file.headers["Authorization"].removeprefix("Basic ")).decode() == "ann:p:äss"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "ftp://x"], "is not an http or https URL"),
        (["--url", "http://ann:secret@x"], "use --user"),
        (["--user", "ann"], "comes from --password-file or MM2PY_PASSWORD"),
        (["--user", "ann", "--token-file", "x"], "exclude each other"),
        (["--password-file", "x"], "needs --user"),
        (["--token-file", "/nowhere"], "/nowhere cannot be read"),
        (["--insecure"], "are for https"),
        (["--url", "https://x", "--cacert", "/nowhere"], "/nowhere cannot be used"),
    ],
)
def test_ways_in_that_make_no_sense(words: list[str], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot work is refused before a request is sent; a script is never prompted for a password."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    with pytest.raises(ArgumentsError, match=said):
        read(*words)


def test_certificates_need_no_key_identifiers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.13 and newer insist on them by default; many an authority of one's own issues certificates without."""
    strict = ssl.create_default_context()
    strict.verify_flags |= ssl.VERIFY_X509_STRICT
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: strict)
    made = read("--url", "https://mirror:8443").tls

    assert made is not None
    assert not made.verify_flags & ssl.VERIFY_X509_STRICT


def test_secrets_on_open_lines_are_warned_of(token_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A token that leaves this machine unencrypted is worth a line."""
    read("--url", "http://mirror:8083", "--token-file", str(token_file))

    assert "credentials go to mirror unencrypted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, {"error_code": 401, "message": "who?"}, AuthenticationRequiredError(str(HERE), HERE.who, "who?")),
        (403, {"error_code": 403, "message": "no"}, NotAllowedError(str(HERE), "write", "no")),
        (404, {"error_code": 404, "message": "no flow"}, NotFoundError("no flow")),
        (404, None, NotADaemonError(str(HERE), 404)),
        (400, {"error_code": 400, "message": "a; b", "problems": ["a", "b"]}, RefusedError(400, "a; b", ("a", "b"))),
        (409, {"error_code": 409, "message": "later"}, RefusedError(409, "later")),
        (503, {"error_code": 503, "message": "B is away"}, RefusedError(503, "B is away")),
        (502, ["a proxy"], NotADaemonError(str(HERE), 502)),
        (302, None, NotADaemonError(str(HERE), 302)),
    ],
)
def test_what_a_refusal_means(status: int, answer: object, error: Mm2Error) -> None:
    """Each refusal becomes the error that says what to do about it."""
    with pytest.raises(type(error)) as raised:
        judge_answer(HERE, "PUT", status, answer)

    assert str(raised.value) == str(error)


def test_an_answer_of_success_is_none_of_these() -> None:
    """A success passes."""
    judge_answer(HERE, "PUT", 204, None)


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number"), "TLS failed: [SSL: WRONG"),
        (ConnectionRefusedError(111, "Connect call failed"), "connection refused"),
        (socket.gaierror(-2, "Name or service not known"), "[Errno -2] Name or service not known"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_why_no_connection_was_made(error: OSError, cause: str) -> None:
    """TLS has numbers of its own: 1 is not *operation not permitted* there."""
    kind = aiohttp.ClientConnectorSSLError if isinstance(error, ssl.SSLError) else aiohttp.ClientConnectorError
    failed = kind(cast("Any", SimpleNamespace(ssl=True, host="there", port=1)), error)

    assert rest_client._cause(failed).startswith(cause)


def test_events_of_a_stream() -> None:
    """Fields come in any order, data on several lines; comments and unknown fields are skipped."""
    lines = EventLines()
    text = ": hello\n\nid: 7\nevent: event\ndata: one\ndata:two\nretry: 5\n\r\nevent: end\n\ndata: x\n\n"

    events = [event for line in text.splitlines(keepends=True) if (event := lines.take(line))]
    assert events == [ServerEvent("event", "one\ntwo", "7"), ServerEvent("message", "x", "7")]
