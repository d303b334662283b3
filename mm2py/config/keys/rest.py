"""Rows of the key table: the REST server, its access control and TLS."""

from __future__ import annotations

import re

from mm2py.config.keys.row import LAST_PORT, Key, Kind, Place, Section, one_of, one_of_in_any_case, port_from


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
_LISTENER = re.compile(r"(https?)://(\[[0-9a-fA-F:.%]+\]|[^\s\[\]:/]*)(?::([0-9]{1,5}))?/?", re.IGNORECASE)
_PORTS = {"http": 8083, "https": 8443}


def parse_listener(text: str) -> tuple[str, str, int]:
    """Parse ``http://host:port``: scheme, host without brackets, port. An empty host means all addresses, as in Java.
    Raise ValueError with what is expected.
    """
    match = _LISTENER.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not of the form http://host:port or https://host:port")
    scheme, host, port = match.group(1).lower(), match.group(2).strip("[]"), match.group(3)
    number = _PORTS[scheme] if port is None else int(port)
    if number > LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {number}")
    return scheme, host, number


def _listeners(value: object) -> str | None:
    for text in value if isinstance(value, tuple) else ():
        try:
            parse_listener(text)
        except ValueError as error:
            return str(error)
    return None


def _methods(value: object) -> str | None:
    unknown = [word for word in value if word.upper() not in _METHODS] if isinstance(value, tuple) else []
    return f"unknown are {', '.join(unknown)}; known are {', '.join(_METHODS)}" if unknown else None


CLIENT_AUTH = one_of_in_any_case("none", "requested", "required")

REST = Section(
    "REST",
    "Written at the top level. [rest.md](rest.md) has every route, and how to configure access.",
    (
        Key("listeners", Kind.LIST, "http://127.0.0.1:8083", Place.TOP,
            "Addresses of the REST server and its page: `http://host:port` or `https://host:port`, separated by "
            "commas. `http://:8083` listens on all of the machine's addresses, as Java does by default. An empty "
            "value switches the server off.", check=_listeners),
        Key("listeners.https.*", Kind.PASSWORD, None, Place.TOP,
            "TLS of `https` listeners, in Kafka's names: `listeners.https.ssl.keystore.location` and so on. If none "
            "of them is set, the top-level `ssl.*` lines apply.", is_secret=True),
        Key("ssl.client.auth", Kind.STRING, "none", Place.TOP,
            "Whether `https` listeners ask clients for a certificate: `none`, `requested` or `required`. "
            "`listeners.https.ssl.client.auth` takes precedence.", check=CLIENT_AUTH),
        Key("rest.advertised.host.name", Kind.STRING, None, Place.TOP,
            "The host name that clients use for this node: it is part of `worker_id`, and accepted in requests."),
        Key("rest.advertised.port", Kind.INT, None, Place.TOP, "The port for that host name.", check=port_from(1)),
        Key("rest.advertised.listener", Kind.STRING, None, Place.TOP,
            "The listener in `worker_id`: `http` or `https`; the first if unset.",
            check=one_of("http", "https")),
        Key("rest.auth.users.file", Kind.STRING, None, Place.TOP,
            "File with the users of REST, one per line: `RIGHT NAME SECRET`. `mm2py rest-user` prints such lines. It "
            "is reread when it changes."),
        Key("rest.auth.read.tokens", Kind.PASSWORD, None, Place.TOP,
            "Bearer tokens with read permission, separated by commas; best as a reference, `${file:…}`.",
            is_secret=True),
        Key("rest.auth.write.tokens", Kind.PASSWORD, None, Place.TOP,
            "Bearer tokens with read and write permission.", is_secret=True),
        Key("rest.auth.anonymous", Kind.STRING, "auto", Place.TOP,
            "What unauthenticated clients may do: `none`, `read`, `write`; or `auto`: nothing if users or tokens are "
            "configured, else everything on loopback listeners and reading on others. `/health/live` and "
            "`/health/ready` need no login.", check=one_of("auto", "none", "read", "write")),
        Key("rest.show.secrets", Kind.BOOLEAN, "false", Place.TOP,
            "Whether a Connect worker shows the secrets in its connectors' configs to clients who may write, for tools "
            "that wait until they read what they wrote (Terraform). Others see `***`, and so does everyone by default. "
            "`${file:…}` references are always shown as they are, and need no such setting."),
        Key("access.control.allow.origin", Kind.STRING, "", Place.TOP,
            "Other origins whose pages may use REST in a browser: `https://host`, separated by commas, or `*`, which "
            "is refused if they could then change something without a login, as on loopback by default. None by "
            "default."),
        Key("access.control.allow.methods", Kind.LIST, "", Place.TOP,
            "Methods that pages of other origins may use; GET, HEAD and POST if unset.", check=_methods),
    ),
)  # fmt: skip
