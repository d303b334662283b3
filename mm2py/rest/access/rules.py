"""
Access rules: who may do what, decided from a request's headers. No I/O, no aiohttp.

Three questions, in this order. Is the request meant for this host? (Another site may let its own name resolve to this
machine: DNS rebinding.) Was it made by a page of another origin? Who is the caller, and what are their permissions?
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
from collections.abc import Collection
from typing import Final

import attrs
from yarl import URL

from mm2py.config.rest import SAFE_METHODS, Listener, RestSettings, Right


_OURS: Final = ("same-origin", "none")
_LOCAL_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


@attrs.frozen
class Shown:
    """The parts of a request that access rules use; missing ones are empty."""

    method: str
    host: str = ""
    origin: str = ""
    fetch_site: str = ""
    authorization: str = attrs.field(default="", repr=False)
    #: The subject of the client's certificate, as RFC 4514 writes it.
    subject: str = ""


@attrs.frozen
class Guest:
    """An admitted caller. `name` is empty for unauthenticated clients; `why_not` says why they may not write."""

    name: str
    right: Right
    why_not: str = ""


@attrs.frozen
class Password:
    """A name and a password to be checked."""

    name: str
    password: str = attrs.field(repr=False)


@attrs.frozen
class BearerToken:
    """A bearer token to be checked."""

    token: str = attrs.field(repr=False)


@attrs.frozen
class MalformedCredentials:
    """An invalid Authorization header."""

    why: str


def credentials(shown: Shown) -> Password | BearerToken | MalformedCredentials | None:
    """Parse the Authorization header (RFC 7617 and 6750); None if there is none."""
    if not shown.authorization:
        return None
    scheme, _, rest = shown.authorization.partition(" ")
    if scheme.lower() == "bearer" and rest.strip():
        return BearerToken(rest.strip())
    if scheme.lower() != "basic":
        return MalformedCredentials("the Authorization header is neither Basic nor Bearer")
    try:
        name, colon, password = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return MalformedCredentials("the Basic credentials are not base64 of name:password")
    return Password(name, password) if colon else MalformedCredentials("the Basic credentials have no colon")


def judge_host(host: str, listener: Listener, settings: RestSettings) -> str:
    """Return why a request with this Host header is not for this node; empty if it is. Only loopback listeners check
    it: another name that resolves to loopback is an attack, while other addresses may have any name.
    """
    if not listener.is_loopback:
        return ""
    name = host_name(host)
    ours = _LOCAL_NAMES | {listener.host.lower(), settings.advertised_host.lower()}
    if name and (name in ours or _is_loopback(name)):
        return ""
    return (
        f"the request is for host {name or 'nothing'}, which is not this one; "
        "set rest.advertised.host.name to the name that it is reached by"
    )


def host_name(host: str) -> str:
    """Return the name in a Host header, without port and brackets, in lower case."""
    try:
        return (URL(f"http://{host}").host or "").lower()
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def judge_origin(shown: Shown, settings: RestSettings) -> str:
    """Return why the requesting page's origin may not change anything; empty if it may."""
    if shown.method in SAFE_METHODS or is_allowed_origin(shown, settings):
        return ""
    if shown.origin and not _is_same(shown.origin, shown.host):
        return f"pages of {shown.origin} may not change anything here; access.control.allow.origin lists those that may"
    if shown.fetch_site and shown.fetch_site not in _OURS and not shown.origin:
        return "pages of other sites may not change anything here"
    return ""


def is_allowed_origin(shown: Shown, settings: RestSettings) -> bool:
    """Whether the settings allow this to pages of the request's origin."""
    allowed = settings.allow_origins
    return bool(shown.origin) and (shown.origin in allowed or "*" in allowed) and shown.method in settings.allow_methods


def _is_same(origin: str, host: str) -> bool:
    """Whether a page has the same origin as the request's address."""
    try:
        of = URL(origin)
        to = URL(f"{of.scheme}://{host}")
    except ValueError:
        return False
    return bool(of.host) and (of.host, of.port) == (to.host, to.port)


def why_not(right: Right, listener: Listener, settings: RestSettings, *, is_known: bool) -> str:
    """Return why *right* is not sufficient, and what to do about it."""
    if is_known:
        return "you have read permission only; rest.auth.users.file defines who may write"
    if right is Right.NONE:
        return "log in with a bearer token, or with name and password"
    if settings.has_users or settings.anonymous is not None:
        return "without a login only reading is allowed here"
    return (
        f"{listener} is reachable from other machines without a login, so nothing can be changed there: set "
        "rest.auth.users.file or rest.auth.write.tokens, or a listener on 127.0.0.1"
    )


def challenges(*, has_passwords: bool) -> Collection[str]:
    """Return the WWW-Authenticate headers of a 401 answer."""
    return (
        ('Bearer realm="mm2py"', 'Basic realm="mm2py", charset="UTF-8"') if has_passwords else ('Bearer realm="mm2py"',)
    )
