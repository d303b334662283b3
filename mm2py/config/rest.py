"""
From the lines of a file to the settings of the REST server.

Files are not checked here: users and certificates are read, and may be corrected, while the server runs.
"""

from __future__ import annotations

import enum
import ipaddress
import re
from collections.abc import Iterator, Mapping

import attrs

from mm2py.config.keys.rest import CLIENT_AUTH, parse_listener
from mm2py.config.keys.row import trimmed
from mm2py.config.layers import Layers
from mm2py.config.problem import Problem
from mm2py.config.resolve import ProcessReader


_HTTPS = "listeners.https."
#: Methods allowed to pages of another origin by default; Jetty's, as in Connect.
_CORS_METHODS = ("GET", "HEAD", "POST")
#: Of a page as browsers name it, that of a file, or all of them.
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/*\s]+|null|\*")
#: Methods that change nothing.
SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


class Right(enum.IntEnum):
    """Permissions; each includes those before it."""

    NONE = 0
    READ = 1
    WRITE = 2


@attrs.frozen
class Listener:
    """An address of the REST server. An empty host stands for all addresses of the machine."""

    scheme: str
    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


@attrs.frozen
class RestSettings:
    """Where the REST server listens, and its access control. The defaults are those of an empty file."""

    listeners: tuple[Listener, ...] = (Listener("http", "127.0.0.1", 8083),)
    #: Kafka's ``ssl.*`` keys of https listeners, sorted.
    tls: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    #: none, requested or required.
    client_auth: str = "none"
    advertised_host: str = ""
    advertised_port: int | None = None
    advertised_listener: str = ""
    users_file: str = ""
    read_tokens: tuple[str, ...] = attrs.field(default=(), repr=False)
    write_tokens: tuple[str, ...] = attrs.field(default=(), repr=False)
    #: Permissions of unauthenticated clients; None: they depend on the listener.
    anonymous: Right | None = None
    #: Whether clients who may write see the secrets of connectors.
    shows_secrets: bool = False
    allow_origins: tuple[str, ...] = ()
    allow_methods: tuple[str, ...] = _CORS_METHODS

    @property
    def has_users(self) -> bool:
        """Whether any users or tokens are configured."""
        return bool(self.users_file or self.read_tokens or self.write_tokens)

    def of_anonymous(self, listener: Listener) -> Right:
        """Return the permissions of unauthenticated clients on *listener*."""
        if self.anonymous is not None:
            return self.anonymous
        if self.has_users:
            return Right.NONE
        return Right.WRITE if listener.is_loopback else Right.READ


def rest_settings(layers: Layers) -> RestSettings:
    """Read the REST server's settings; invalid ones are skipped, `judge_rest` and the lint report them."""
    of = ProcessReader(layers)
    tls = _tls(layers)
    anonymous = of.text("rest.auth.anonymous")
    return RestSettings(
        listeners=tuple(Listener(*parse_listener(text)) for text in of.texts("listeners")),
        tls=tuple(sorted(tls.items())),
        client_auth=tls.get("ssl.client.auth", of.text("ssl.client.auth")).lower(),
        advertised_host=of.text("rest.advertised.host.name"),
        advertised_port=of.number_if_set("rest.advertised.port"),
        advertised_listener=of.text("rest.advertised.listener"),
        users_file=of.text("rest.auth.users.file"),
        read_tokens=_words(of.text("rest.auth.read.tokens")),
        write_tokens=_words(of.text("rest.auth.write.tokens")),
        shows_secrets=of.flag("rest.show.secrets"),
        anonymous=None if anonymous == "auto" else Right[anonymous.upper()],
        allow_origins=_words(of.text("access.control.allow.origin")),
        allow_methods=tuple(word.upper() for word in of.texts("access.control.allow.methods")) or _CORS_METHODS,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _tls(layers: Layers) -> dict[str, str]:
    """Return the keys of the https listeners, or else the top level's: all or nothing, as in Java."""
    texts = {line.counts_as: trimmed(line.text) for line in layers.lines()}
    own = {key.removeprefix(_HTTPS): text for key, text in texts.items() if key.startswith(_HTTPS + "ssl.")}
    return own or {key: text for key, text in texts.items() if key.startswith("ssl.")}


def judge_rest(layers: Layers) -> Iterator[Problem]:
    """Find problems of the REST server's settings across several lines."""
    settings = rest_settings(layers)
    line = layers.get("listeners")
    where = line.where if line else ""
    seen: set[tuple[str, int]] = set()
    for listener in settings.listeners:
        if listener.port and (listener.host, listener.port) in seen:
            yield Problem(where, "listeners", f"port {listener.port} is named more than once")
        seen.add((listener.host, listener.port))
    yield from _judge_origins(layers, settings)
    if not any(listener.scheme == "https" for listener in settings.listeners):
        return
    yield from _judge_tls(layers, dict(settings.tls), settings.client_auth, where)


def _judge_origins(layers: Layers, settings: RestSettings) -> Iterator[Problem]:
    if "*" not in settings.allow_origins or set(settings.allow_methods) <= {*SAFE_METHODS}:
        return
    open_to_all = [listener for listener in settings.listeners if settings.of_anonymous(listener) is Right.WRITE]
    if open_to_all:
        line = layers.get("access.control.allow.origin")
        message = f"any web page could change the mirror: {open_to_all[0]} needs no login for that"
        hint = "name the origins, or set access.control.allow.methods = GET"
        yield Problem(line.where if line else "", "access.control.allow.origin", message, hint)


def _judge_tls(layers: Layers, tls: Mapping[str, str], client_auth: str, where: str) -> Iterator[Problem]:
    stem = _HTTPS if any(line.counts_as.startswith(_HTTPS) for line in layers.lines()) else ""
    if reason := CLIENT_AUTH(client_auth):
        yield Problem(where, f"{stem}ssl.client.auth", reason)
    if not any(tls.get(key, "").strip() for key in ("ssl.keystore.location", "ssl.keystore.certificate.chain")):
        hint = f"set {_HTTPS}ssl.keystore.location, or {_HTTPS}ssl.keystore.certificate.chain and …keystore.key"
        yield Problem(where, "listeners", "an https listener needs its own certificate", hint)
    trusted = any(tls.get(key, "").strip() for key in ("ssl.truststore.location", "ssl.truststore.certificates"))
    if client_auth in {"requested", "required"} and not trusted:
        message = "client certificates are requested, but there is no truststore to check them"
        yield Problem(where, f"{stem}ssl.client.auth", message, f"set {_HTTPS}ssl.truststore.location")


def note_rest(settings: RestSettings, layers: Layers) -> Iterator[Problem]:
    """Return notes on settings that may not be intended."""
    line = layers.get("listeners")
    for listener in settings.listeners:
        if listener.is_loopback or settings.has_users or settings.client_auth == "required":
            continue
        if settings.anonymous is Right.WRITE:
            message = f"everyone who reaches {listener} may change the mirror: rest.auth.anonymous is write"
            yield Problem(line.where if line else "", "listeners", message, "set rest.auth.users.file")
        elif settings.anonymous is None:
            message = f"everyone who reaches {listener} may read, and changes are refused"
            yield Problem(
                line.where if line else "", "listeners", message, "set rest.auth.users.file, see mm2py docs rest"
            )
    line = layers.get("access.control.allow.origin")
    for origin in settings.allow_origins:
        if line is not None and _ORIGIN.fullmatch(origin) is None:
            message = line.reason(ValueError(f"no browser names an origin {origin!r}, so it allows nothing"))
            yield Problem(line.where, line.key, message, "write https://host or https://host:port, nothing behind it")
