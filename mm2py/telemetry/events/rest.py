"""REST."""

from __future__ import annotations

import attrs

from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class RestListening(Event):
    """
    The status page and REST answer at an address.

    `url` is the address, and `who` says what clients that did not log in may do there.
    """

    url: str
    who: str


@attrs.frozen
class RestUnavailable(Event):
    """
    REST cannot listen at an address. Mirroring continues, and listening is tried again.

    What to do: see `hint`.
    """

    level = Level.WARN

    url: str
    reason: str
    hint: str
    retry_s: float


@attrs.frozen
class RestFailed(Event):
    """
    A request failed because of a bug. Mirroring continues.

    What to do: report it with its `traceback`.
    """

    level = Level.ERROR

    method: str
    path: str
    error: str
    traceback: str


@attrs.frozen
class RestChangeFailed(Event):
    """
    A change failed after its client had disconnected, or had been answered that it takes too long.

    What to do: see `error` and `hint`, and ask again.
    """

    level = Level.WARN

    method: str
    path: str
    error: str
    hint: str


@attrs.frozen
class RestLoginRefused(Event):
    """
    A login had a wrong password or token. Logged once for each address until the attempts stop.

    What to do: find out who is at `address`.
    """

    level = Level.WARN

    address: str
    user: str
    reason: str


@attrs.frozen
class RestUsersRefused(Event):
    """
    The file with REST's users, or a line of it, cannot be read. The users concerned cannot log in.

    What to do: correct the file; `mm2py rest-user` prints valid lines.
    """

    level = Level.WARN

    path: str
    problems: tuple[str, ...]
