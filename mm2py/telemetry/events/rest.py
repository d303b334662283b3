"""Events of the REST server."""

from __future__ import annotations

import attrs

from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class RestListening(Event):
    """The REST server answers at an address; `who`: what unauthenticated clients may do there."""

    url: str
    who: str


@attrs.frozen
class RestUnavailable(Event):
    """The REST server cannot listen at an address; mirroring continues, and the listener is retried."""

    level = Level.WARN

    url: str
    reason: str
    hint: str
    retry_s: float


@attrs.frozen
class RestFailed(Event):
    """A request failed because of a bug."""

    level = Level.ERROR

    method: str
    path: str
    error: str
    traceback: str


@attrs.frozen
class RestChangeFailed(Event):
    """A change failed after its client had disconnected, or had been answered that it takes too long."""

    level = Level.WARN

    method: str
    path: str
    error: str
    hint: str


@attrs.frozen
class RestLoginRefused(Event):
    """A login at the REST server with wrong credentials; reported once per address until the attempts stop."""

    level = Level.WARN

    address: str
    user: str
    reason: str


@attrs.frozen
class RestUsersRefused(Event):
    """The file with REST's users, or lines of it, cannot be read; the users concerned cannot log in."""

    level = Level.WARN

    path: str
    problems: tuple[str, ...]
