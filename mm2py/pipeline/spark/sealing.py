"""
How a plan that carries secrets crosses from the daemon to Spark's Python workers.

It travels in a job's function, over sockets and through memory that are not ours alone, so it is sealed with a key that
never travels: both ends read it from a file. On embedded Spark that file is made for each run in its private folder; on
a cluster an operator puts the same file on every machine. Plans without secrets go as they are.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import secrets
import stat
from typing import Any, ClassVar, Final, Protocol

import attrs
import cramjam

from mm2py.errors import Mm2Error, Verdict
from mm2py.model.endpoint import ClusterEndpoint


_OPEN, _SEALED = b"\x00", b"\x01"
_NONCE_BYTES: Final = 12
_LEAST_KEY_CHARACTERS: Final = 16
_KEY_PURPOSE: Final = b"mm2py plan 1\x00"
#: Larger plans, those of a hundred partitions and more, are compressed to a fifth: they cross into the JVM as text.
_LARGE_BYTES: Final = 16_384
_COMPRESSED: Final = b"\x28\xb5\x2f\xfd"  # as every frame of zstd begins, and no pickle

#: What a worker has read: paths, and the keys in them as of a moment of change.
_keys: dict[str, tuple[tuple[int, int, int], bytes]] = {}


@attrs.define(eq=False)
class SecretsKeyError(Mm2Error):
    """The key by which secrets reach Spark's workers cannot be used, or is another one than the daemon's."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = (
        "put the same file on this machine and on each of Spark's, readable only for the user of its processes "
        "(secrets.key.file, see mm2py docs security)"
    )

    path: str
    problem: str

    def __str__(self) -> str:
        return f"secrets.key.file {self.path}: {self.problem}"


def make_key_file(path: str) -> str:
    """Write a new key to *path*, readable only for this user; return the path. Nothing is left where it has no room."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(secrets.token_hex(32))
    except OSError:  # the disk is full: an empty one would be taken for a key
        os.unlink(path)  # noqa: PTH108
        raise
    return path


class SealedPlan(Protocol):
    """What a worker receives, with the credentials for both clusters."""

    @property
    def source(self) -> ClusterEndpoint: ...

    @property
    def target(self) -> ClusterEndpoint: ...


def seal(plan: SealedPlan, key_file: str | None) -> bytes:
    """
    Return *plan* as bytes that may be seen by others.

    *key_file* is None where Spark itself encrypts what it sends. Raise `SecretsKeyError` where the key cannot be used.
    """
    content = pickle.dumps(plan, protocol=5)
    if len(content) >= _LARGE_BYTES:
        content = bytes(cramjam.zstd.compress(content, 1))
    has_secrets = plan.source.security.client_keys or plan.target.security.client_keys
    if key_file is None or not has_secrets:
        return _OPEN + content
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415 - only where there are secrets

    nonce = os.urandom(_NONCE_BYTES)
    path = os.fsencode(key_file)
    sealed = AESGCM(_key_in(key_file)).encrypt(nonce, content, path)
    return b"".join((_SEALED, len(path).to_bytes(2, "big"), path, nonce, sealed))


def unseal(payload: bytes) -> Any:
    """Return the plan in *payload*; raise `SecretsKeyError` where the key here is not the daemon's."""
    if payload[:1] == _OPEN:
        return _unpacked(payload[1:])
    from cryptography.exceptions import InvalidTag  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

    behind_path = 3 + int.from_bytes(payload[1:3], "big")
    path = payload[3:behind_path]
    nonce, sealed = payload[behind_path : behind_path + _NONCE_BYTES], payload[behind_path + _NONCE_BYTES :]
    key_file = os.fsdecode(path)
    try:
        content = AESGCM(_key_in(key_file)).decrypt(nonce, sealed, path)
    except InvalidTag as error:
        raise SecretsKeyError(key_file, f"it is not the daemon's key on {os.uname().nodename}") from error
    return _unpacked(content)


def _unpacked(content: bytes) -> Any:
    if content.startswith(_COMPRESSED):
        content = bytes(cramjam.zstd.decompress(content))
    return pickle.loads(content)  # noqa: S301 (the daemon wrote it; what was sealed, no other process can have)


def check_key_file(path: str) -> None:
    """Raise `SecretsKeyError` where the key in *path* cannot be used."""
    _key_in(path)


def _key_in(path: str) -> bytes:
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is not imported in workers
            status = os.fstat(file.fileno())
            state = (status.st_mtime_ns, status.st_size, status.st_ino)
            if status.st_mode & stat.S_IRWXO:
                raise SecretsKeyError(path, f"every user on {os.uname().nodename} may read it; chmod 600")
            known = _keys.get(path)
            if known is not None and known[0] == state:
                return known[1]
            text = file.read().strip()
    except OSError as error:
        raise SecretsKeyError(path, f"{error.strerror} on {os.uname().nodename}") from error
    if len(text) < _LEAST_KEY_CHARACTERS:
        raise SecretsKeyError(path, f"it is too short; make one with: openssl rand -base64 32 > {path}")
    key = hashlib.sha256(_KEY_PURPOSE + text).digest()
    _keys[path] = (state, key)
    return key
