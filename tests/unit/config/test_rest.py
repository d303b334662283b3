"""What a file says about the REST server: where it listens, whom it lets in, and what cannot be."""

from __future__ import annotations

import pytest

from mm2py.config.rest import Listener, RestSettings, Right
from mm2py.core.herder.reload import needing_restart
from tests.support.config_files import ConfigFile


def test_by_default_only_this_machine_reaches_it(config: ConfigFile) -> None:
    """A file that says nothing gets Connect's port on loopback, where everything may be done."""
    rest = config.load().rest

    assert rest == RestSettings()
    assert [str(listener) for listener in rest.listeners] == ["http://127.0.0.1:8083"]
    assert rest.of_anonymous(rest.listeners[0]) is Right.WRITE


def test_an_empty_list_switches_it_off(config: ConfigFile) -> None:
    """No listener, no server."""
    assert config.load("listeners =").rest.listeners == ()


@pytest.mark.parametrize(
    ("text", "listener", "is_loopback"),
    [
        ("http://:8083", Listener("http", "", 8083), False),
        ("HTTP://localhost:80", Listener("http", "localhost", 80), True),
        ("http://[::1]:9000", Listener("http", "::1", 9000), True),
        ("http://[::]:9000", Listener("http", "::", 9000), False),
        ("http://[::1234]:1", Listener("http", "::1234", 1), False),
        ("http://127.example.com:1", Listener("http", "127.example.com", 1), False),
        ("http://0.0.0.0", Listener("http", "0.0.0.0", 8083), False),
        ("http://127.0.0.7:0/", Listener("http", "127.0.0.7", 0), True),
    ],
    ids=str,
)
def test_listeners_are_written_as_in_java(config: ConfigFile, text: str, listener: Listener, is_loopback: bool) -> None:
    """Without a host it is all addresses, IPv6 stands in brackets, and loopback is known as such."""
    found = config.load(f"listeners = {text}").rest.listeners

    assert found == (listener,)
    assert listener.is_loopback is is_loopback


@pytest.mark.parametrize("text", ["8083", "ftp://a:1", "http://a:99999", "http://a b:1", "http://a:1/b"])
def test_what_is_no_listener_is_a_problem(config: ConfigFile, text: str) -> None:
    """A listener that cannot be is named."""
    [problem] = config.refusals(f"listeners = {text}")

    assert "listeners" in problem


def test_a_port_twice_is_a_problem(config: ConfigFile) -> None:
    """Two listeners cannot share an address; any free port may be asked for twice."""
    [problem] = config.refusals("listeners = http://:8083, http://:8083/")

    assert "8083" in problem
    assert len(config.load("listeners = http://localhost:0, http://127.0.0.1:0").rest.listeners) == 2


def test_other_machines_may_only_read(config: ConfigFile) -> None:
    """On other addresses clients without credentials may only read, with a note; with users, not even that."""
    settings = config.load("listeners = http://:8083")
    guarded = config.load("listeners = http://:8083", "rest.auth.users.file = /etc/users").rest
    opened = config.load("listeners = http://:8083", "rest.auth.anonymous = write")

    assert settings.rest.of_anonymous(settings.rest.listeners[0]) is Right.READ
    assert "changes are refused" in str(settings.notes)
    assert guarded.of_anonymous(guarded.listeners[0]) is Right.NONE
    assert opened.rest.of_anonymous(opened.rest.listeners[0]) is Right.WRITE
    assert "everyone who reaches http://:8083 may change the mirror" in str(opened.notes)


def test_tokens_are_secrets(config: ConfigFile) -> None:
    """Tokens are read, and shown nowhere."""
    settings = config.load("rest.auth.read.tokens = see-1, see-2", "rest.auth.write.tokens = do-1")

    assert settings.rest.read_tokens == ("see-1", "see-2")
    assert settings.rest.write_tokens == ("do-1",)
    assert settings.rest.has_users
    assert "see-1" not in repr(settings)
    assert "do-1" not in repr(settings)


def test_https_needs_a_certificate(config: ConfigFile) -> None:
    """A listener with TLS and without a key store is a problem, and so is asking clients for what cannot be checked."""
    [no_key] = config.refusals("listeners = https://:8443")
    [no_trust] = config.refusals(
        "listeners = https://:8443",
        "listeners.https.ssl.keystore.location = rest.p12",
        "ssl.client.auth = required",
    )

    assert "needs its own certificate" in no_key
    assert "no truststore to check them" in no_trust


def test_its_tls_is_its_own_or_the_top_level_s(config: ConfigFile) -> None:
    """One listeners.https. line, and none of the top level's counts, as in Java."""
    top = config.load("listeners = https://:8443", "ssl.keystore.location = all.p12", "ssl.key.password = hunter-2")
    own = config.load(
        "listeners = https://:8443",
        "ssl.keystore.location = all.p12",
        "ssl.key.password = hunter-2",
        "listeners.https.ssl.keystore.location = rest.p12",
    )

    assert dict(top.rest.tls) == {"ssl.keystore.location": "all.p12", "ssl.key.password": "hunter-2"}
    assert dict(own.rest.tls) == {"ssl.keystore.location": "rest.p12"}
    assert "hunter-2" not in repr(top)


def test_other_listeners_need_a_restart(config: ConfigFile) -> None:
    """Users change while the server runs; where it listens does not."""
    before, after = config.load(), config.load("listeners = http://127.0.0.1:9000")
    guarded = config.load("rest.auth.users.file = /etc/users")

    assert needing_restart(before, after) == ("listeners",)
    assert needing_restart(before, guarded) == ()


@pytest.mark.parametrize(
    "lines",
    [
        (),
        ("listeners = http://:8083, http://localhost:80",),
        ("listeners = http://:8083", "rest.auth.anonymous = write"),
    ],
    ids=str,
)
def test_any_page_must_not_change_things(config: ConfigFile, lines: tuple[str, ...]) -> None:
    """All origins together with anonymous writing would let any page that a user opens change the mirror."""
    [problem] = config.refusals("access.control.allow.origin = *", *lines)

    assert "any web page" in problem
    assert "name the origins" in problem


@pytest.mark.parametrize(
    "line",
    [
        "access.control.allow.methods = get, HEAD",
        "rest.auth.anonymous = read",
        "rest.auth.write.tokens = do-1",
        "listeners = http://:8083",
        "listeners =",
    ],
)
def test_any_page_may_read(config: ConfigFile, line: str) -> None:
    """All origins are taken if a page of theirs could change nothing, or not without a login."""
    assert config.load("access.control.allow.origin = *", line).rest.allow_origins == ("*",)


@pytest.mark.parametrize("origin", ["host", "https://host/", "https://*.example.com", "https://"])
def test_an_origin_that_no_browser_names_is_noted(config: ConfigFile, origin: str) -> None:
    """Jetty takes patterns; here an origin is compared with what a browser sends."""
    settings = config.load(f"access.control.allow.origin = https://a.example, null, http://b:8080, {origin}")

    (note,) = [str(note) for note in settings.notes]
    assert note.startswith(f"mm2.properties:5: access.control.allow.origin: no browser names an origin '{origin}'")
