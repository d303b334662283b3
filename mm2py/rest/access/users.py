"""
Users of REST: names with passwords, tokens, and certificates, each with a permission.

The users' file has a line for each: ``RIGHT NAME SECRET``, where RIGHT is ``read`` or ``write`` and SECRET is
``scrypt$…`` (a password), ``token$…`` (a bearer token) or ``certificate`` (the name is the subject of a certificate).
Passwords are hashed with scrypt, which is slow on purpose. Tokens are long and random, so a plain hash is sufficient.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from collections.abc import Iterable
from typing import Final

import attrs

from mm2py.config.rest import Right


_RIGHTS: Final = {"read": Right.READ, "write": Right.WRITE}
_LINE: Final = re.compile(r"(\S+)\s+(\S.*\S|\S)\s+(\S+)")
#: scrypt's cost: 16 MiB, five times, as OWASP advises for logins.
_COST, _BLOCK, _LANES = 2**14, 8, 5
_MOST_MEMORY: Final = 128 * 1024 * 1024
_TOKEN: Final = "token$"  # noqa: S105 - a prefix
_SCRYPT: Final = "scrypt$"
_CERTIFICATE: Final = "certificate"


@attrs.frozen
class User:
    """A user of REST. `secret` is a hash, never the credential itself."""

    name: str
    right: Right
    secret: str = attrs.field(repr=False)

    @property
    def has_password(self) -> bool:
        return self.secret.startswith(_SCRYPT)


@attrs.frozen
class Users:
    """All users of REST; `problems` are invalid lines, which admit no one."""

    users: tuple[User, ...] = ()
    problems: tuple[str, ...] = ()

    def of_token(self, token: str) -> User | None:
        """Return the user with this bearer token, in constant time."""
        found, shown = None, hash_token(token)
        for user in self.users:
            if hmac.compare_digest(user.secret.encode(), shown.encode()):
                found = user
        return found

    def of_subject(self, subject: str) -> User | None:
        """Return the user of a certificate, by its subject in RFC 4514 form; the strongest permission applies."""
        named = [user for user in self.users if user.secret == _CERTIFICATE and _same_name(user.name, subject)]
        return max(named, key=lambda user: user.right, default=None)

    def of_name(self, name: str) -> User | None:
        """Return the user with this name and a password."""
        return next((user for user in self.users if user.has_password and user.name == name), None)


def read_users(text: str, *, name: str) -> Users:
    """Parse a users' file; *name* appears in problems."""
    users, problems = [], []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        match = _LINE.fullmatch(stripped)
        right = _RIGHTS.get(match.group(1).lower()) if match else None
        if match is None or right is None or not _is_secret(match.group(3)):
            problems.append(f"{name}:{number}: not a line such as: read NAME scrypt$… (mm2py rest-user prints them)")
            continue
        users.append(User(match.group(2), right, match.group(3)))
    return Users(tuple(users), tuple(problems))


def users_of_tokens(read: Iterable[str], write: Iterable[str]) -> tuple[User, ...]:
    """Return users for the tokens in the settings."""
    pairs = [*((token, Right.READ) for token in read), *((token, Right.WRITE) for token in write)]
    return tuple(
        User(f"token with the right to {right.name.lower()}", right, hash_token(token)) for token, right in pairs
    )


def _is_secret(text: str) -> bool:
    return text == _CERTIFICATE or bool(re.fullmatch(r"token\$[0-9a-f]{64}", text)) or _parts(text) is not None


def _same_name(one: str, other: str) -> bool:
    """Compare two distinguished names, ignoring spaces around their parts and the case of the types."""
    return _normal(one) == _normal(other)


def _normal(name: str) -> tuple[str, ...]:
    parts = [part.strip() for part in re.split(r"(?<!\\),", name)]
    return tuple(
        f"{kind.strip().upper()}={value.strip()}" for kind, _, value in (part.partition("=") for part in parts)
    )


# Secrets.


def make_token() -> str:
    """Return a new bearer token."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return a token's hash for the users' file."""
    return _TOKEN + hashlib.sha256(token.encode()).hexdigest()


def hash_password(password: str, *, cost: int = _COST) -> str:
    """Return a password's hash for the users' file; takes some 0.2 s."""
    salt = secrets.token_bytes(16)
    digest = _scrypt(password, salt, cost, _BLOCK, _LANES)
    packed = (base64.b64encode(part).decode().rstrip("=") for part in (salt, digest))
    return _SCRYPT + "$".join((str(cost), str(_BLOCK), str(_LANES), *packed))


def is_password(password: str, secret: str) -> bool:
    """Whether *secret* is the hash of *password*; takes some 0.2 s."""
    parts = _parts(secret)
    if parts is None:
        return False
    cost, block, lanes, salt, digest = parts
    return hmac.compare_digest(_scrypt(password, salt, cost, block, lanes), digest)


def _parts(secret: str) -> tuple[int, int, int, bytes, bytes] | None:
    match = re.fullmatch(r"scrypt\$(\d{1,8})\$(\d{1,3})\$(\d{1,3})\$([\w+/]+)\$([\w+/]+)", secret, re.ASCII)
    if match is None:
        return None
    cost, block, lanes = (int(match.group(at)) for at in (1, 2, 3))
    # Invalid costs, or costs that need more memory than allowed, would fail at each login.
    if cost < 2 or cost & (cost - 1) or not block or not lanes or 132 * cost * block > _MOST_MEMORY:  # noqa: PLR2004
        return None
    try:
        salt, digest = (base64.b64decode(text + "=" * (-len(text) % 4)) for text in match.group(4, 5))
    except binascii.Error:
        return None
    return cost, block, lanes, salt, digest


def _scrypt(password: str, salt: bytes, cost: int, block: int, lanes: int) -> bytes:
    return hashlib.scrypt(password.encode(), salt=salt, n=cost, r=block, p=lanes, maxmem=2 * _MOST_MEMORY, dklen=32)
