"""What happens at the REST server."""

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
    """The REST server cannot listen at an address; mirroring goes on, and it is tried again."""

    level = Level.WARN

    url: str
    reason: str
    hint: str
    retry_s: float


@attrs.frozen
class RestFailed(Event):
    """A request met a bug."""

    level = Level.ERROR

    method: str
    path: str
    error: str
    traceback: str


@attrs.frozen
class RestLoginRefused(Event):
    """Somebody showed wrong credentials at the REST server; told once for an address until it is quiet for a while."""

    level = Level.WARN

    address: str
    user: str
    reason: str


@attrs.frozen
class RestUsersRefused(Event):
    """The file with REST's users, or lines of it, cannot be read; whom they name is not let in."""

    level = Level.WARN

    path: str
    problems: tuple[str, ...]
