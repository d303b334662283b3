"""
Authentication: identifies callers, slows down guessing, and admits or refuses.

A password is checked by a slow hash in a thread, at most two at a time; a correct one is cached for some minutes as a
keyed hash, so that a scraper costs nothing. After a wrong one, further logins from that address are delayed; it is
reported once as an event.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.config.providers import Machine
from mm2py.config.rest import RestSettings, Right
from mm2py.core.backoff import Backoff
from mm2py.rest.access.rules import BearerToken, Guest, MalformedCredentials, Password, Shown, credentials
from mm2py.rest.access.users import User, Users, is_password, read_users, users_of_tokens
from mm2py.rest.errors import RestError
from mm2py.telemetry.events import RestLoginRefused, RestUsersRefused
from mm2py.telemetry.journal import EventLog


#: How long a correct password is not checked again, and how often the users' file is checked for changes.
_REMEMBERED_S: Final = 300.0
_LOOK_EVERY_S: Final = 2.0
#: After this time without a failure, a failed login from an address is reported again.
_FORGIVEN_S: Final = 300.0
_PAUSES: Final = Backoff(0.25, 5.0, spread=0.0)
_MOST_ADDRESSES: Final = 1_000
_MOST_REMEMBERED: Final = 1_000
#: Pending logins per address.
_MOST_WAITING: Final = 8
_CHECKS_AT_ONCE: Final = 2


@attrs.define(eq=False)
class _Address:
    """Failed logins of one address."""

    failures: int = 0
    last_s: float = 0.0
    waiting: int = 0
    turn: asyncio.Lock = attrs.field(factory=asyncio.Lock)


class Gate:
    """Knows all users of REST, from the current settings and users' file."""

    def __init__(self, clock: Clock, events: EventLog) -> None:
        self._clock = clock
        self._events = events
        self._key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, float] = OrderedDict()
        self._addresses: OrderedDict[str, _Address] = OrderedDict()
        self._checks = asyncio.Semaphore(_CHECKS_AT_ONCE)
        self._users = Users()
        self._looking = asyncio.Lock()
        self._known: tuple[str, tuple[tuple[str, ...], ...], object] | None = None
        self._looked_s = float("-inf")
        #: The file that could not be read at the last attempt, and why.
        self._unreadable: tuple[str, str] | None = None

    async def who(self, shown: Shown, address: str, settings: RestSettings, anonymous: Right) -> Guest:
        """Return the caller. Raise the 401 or 429 answer if the credentials are wrong."""
        users = await self._look(settings)
        found = credentials(shown)
        if found is None:
            user = users.of_subject(shown.subject) if shown.subject else None
            return Guest("", anonymous) if user is None else Guest(user.name, user.right)
        if not settings.has_users and anonymous is not Right.NONE:
            return Guest("", anonymous)  # without configured users credentials are ignored
        user = users.of_token(found.token) if isinstance(found, BearerToken) else None
        if isinstance(found, Password):
            user = self._recall(users, found) or await self._check(users, found, address)
        elif user is None:
            why = found.why if isinstance(found, MalformedCredentials) else "unknown token"
            await self._refuse(why, address)
        if user is None:
            raise RestError(401, "wrong name or password")
        return Guest(user.name, user.right)

    async def has_passwords(self, settings: RestSettings) -> bool:
        """Whether any user logs in with a password."""
        return any(user.has_password for user in (await self._look(settings)).users)

    # Passwords.

    def _digest(self, user: User, shown: Password) -> bytes:
        return hmac.digest(self._key, f"{user.name}\0{user.secret}\0{shown.password}".encode(), hashlib.sha256)

    def _recall(self, users: Users, shown: Password) -> User | None:
        """Return the user if the same password was accepted recently; a changed line in the file invalidates it."""
        user = users.of_name(shown.name)
        if user is None:
            return None
        until = self._remembered.get(self._digest(user, shown))
        return user if until is not None and self._clock.monotonic() < until else None

    async def _check(self, users: Users, shown: Password, address: str) -> User | None:
        """Check a password; for each address one at a time."""
        async with self._turn(address) as here:
            user = users.of_name(shown.name)
            # Unknown names take as long as known ones.
            secret = _NOBODY if user is None else user.secret
            async with self._checks:
                is_right = await asyncio.to_thread(is_password, shown.password, secret)
            if user is not None and is_right:
                here.failures = 0
                self._remember(self._digest(user, shown))
                return user
            await self._pause("wrong name or password", shown.name, address)
        return None

    def _remember(self, digest: bytes) -> None:
        self._remembered[digest] = self._clock.monotonic() + _REMEMBERED_S
        while len(self._remembered) > _MOST_REMEMBERED:
            self._remembered.popitem(last=False)

    # Failed logins.

    async def _refuse(self, why: str, address: str) -> None:
        async with self._turn(address):
            await self._pause(why, "", address)
        raise RestError(401, why)

    @contextlib.asynccontextmanager
    async def _turn(self, address: str) -> AsyncIterator[_Address]:
        """Wait until no other login of *address* is checked; raise the 429 answer if too many wait."""
        here = self._address(address)
        if here.waiting >= _MOST_WAITING:
            raise RestError(429, "too many pending logins from this address", (), ("Retry-After", "5"))
        here.waiting += 1
        try:
            async with here.turn:
                yield here
        finally:
            here.waiting -= 1

    async def _pause(self, why: str, name: str, address: str) -> None:
        here, now = self._address(address), self._clock.monotonic()
        if here.failures and now - here.last_s > _FORGIVEN_S:
            here.failures = 0
        here.failures += 1
        here.last_s = now
        if here.failures == 1:
            self._events.emit(RestLoginRefused(address, name, why))
        await self._clock.sleep(_PAUSES.pause_s(here.failures, 0.5))

    def _address(self, address: str) -> _Address:
        here = self._addresses.setdefault(address, _Address())
        self._addresses.move_to_end(address)
        while len(self._addresses) > _MOST_ADDRESSES:
            self._addresses.popitem(last=False)
        return here

    # The users' file.

    async def _look(self, settings: RestSettings) -> Users:
        """Return the current users; the file is checked for changes every few seconds."""
        path, tokens = settings.users_file, (settings.read_tokens, settings.write_tokens)
        async with self._looking:
            now = self._clock.monotonic()
            is_same = self._known is not None and self._known[:2] == (path, tokens)
            if is_same and now - self._looked_s < _LOOK_EVERY_S:
                return self._users
            stamp = await asyncio.to_thread(Machine().stamp, path) if path else None
            known = (path, tokens, stamp)
            # One that could not be read is tried again: corrected permissions do not change its stamp.
            if known != self._known or self._unreadable is not None:
                self._users = await self._read(path, users_of_tokens(*tokens))
            self._known, self._looked_s = known, now
        return self._users

    async def _read(self, path: str, of_tokens: tuple[User, ...]) -> Users:
        unreadable, self._unreadable = self._unreadable, None
        if not path:
            return Users(of_tokens)
        try:
            text = await asyncio.to_thread(Path(path).read_text, encoding="utf-8")
        except (OSError, ValueError) as error:
            # Admit no user of the file: a removed user must not be admitted because the file is missing.
            why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8"
            self._unreadable = (path, why)
            if self._unreadable != unreadable:
                self._events.emit(RestUsersRefused(path, (why,)))
            return Users(of_tokens)
        found = read_users(text, name=Path(path).name)
        if found.problems:
            self._events.emit(RestUsersRefused(path, found.problems))
        return attrs.evolve(found, users=(*of_tokens, *found.users))


#: A hash that no password matches; checking it takes as long as any.
_NOBODY: Final = "scrypt$16384$8$5$" + "A" * 22 + "$" + "A" * 43
