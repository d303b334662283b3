"""
Java's key stores, read without Java: JKS by its published layout, PKCS12 with the `cryptography` package.

Java itself reads either kind whatever ``ssl.*.type`` says (``keystore.type.compat``), and so does this: the first bytes
tell. Certificates come out as DER, private keys as PEM (PKCS8).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import io
import struct
from collections.abc import Iterator
from typing import Final

import attrs


_JKS_MAGIC: Final = 0xFEEDFEED
_JCEKS_MAGIC: Final = 0xCECECECE
_PRIVATE_KEY, _TRUSTED = 1, 2
_SALT_BYTES: Final = 20
#: What Sun put between password and data, to make dictionaries of hashes useless.
_WHITENER: Final = b"Mighty Aphrodite"
_ASN1_SEQUENCE, _ASN1_OCTETS = 0x30, 0x04
_LONG_LENGTH: Final = 0x80


class StoreError(ValueError):
    """A store cannot be read. The message shows nothing of what is in it."""


@attrs.frozen
class Identity:
    """A private key with its certificate chain, the owner's certificate first."""

    key_pem: str = attrs.field(repr=False)
    chain: tuple[bytes, ...]


@attrs.frozen
class Store:
    """What a store holds: the first private key, and all certificates that are trusted."""

    identity: Identity | None
    trusted: tuple[bytes, ...]


def read_store(data: bytes, password: str | None, key_password: str | None = None) -> Store:
    """Read a JKS or PKCS12 store. *key_password* is for the private key where it differs from the store's."""
    if len(data) < 4:  # noqa: PLR2004 - a magic number
        raise StoreError("the file is empty")
    (magic,) = struct.unpack_from(">I", data)
    if magic == _JKS_MAGIC:
        return _read_jks(data, password, key_password or password)
    if magic == _JCEKS_MAGIC:
        raise StoreError("it is a JCEKS store; convert it with keytool -importkeystore -deststoretype PKCS12")
    if data.lstrip().startswith(b"-----BEGIN"):
        raise StoreError("it holds PEM text; set the store's type to PEM")
    if data[0] != _ASN1_SEQUENCE:
        raise StoreError("it is neither a JKS nor a PKCS12 store")
    return _read_pkcs12(data, password)


def pem_of(der: bytes, label: str = "CERTIFICATE") -> str:
    """Write DER as PEM."""
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _read_pkcs12(data: bytes, password: str | None) -> Store:
    # Only such stores need the package, and it costs time and memory in every Spark worker.
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415
        Encoding,
        NoEncryption,
        PrivateFormat,
        pkcs12,
    )

    try:
        found = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except ValueError as error:
        raise StoreError("it is damaged, or the password is wrong") from error
    others = tuple(it.certificate.public_bytes(Encoding.DER) for it in found.additional_certs)
    if found.key is None:
        own = (found.cert.certificate.public_bytes(Encoding.DER),) if found.cert else ()
        return Store(None, (*own, *others))
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    if found.cert is None:
        raise StoreError("its private key has no certificate")
    # Kafka's truststores hold no keys, so what comes with a key is its chain, and trusted too where this is one.
    return Store(Identity(key, (found.cert.certificate.public_bytes(Encoding.DER), *others)), others)


def _read_jks(data: bytes, password: str | None, key_password: str | None) -> Store:
    if password is not None:
        seal = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + data[:-_SALT_BYTES]).digest()  # noqa: S324
        if not hmac.compare_digest(seal, data[-_SALT_BYTES:]):
            raise StoreError("it is damaged, or the password is wrong")
    try:
        entries = list(_jks_entries(io.BytesIO(data)))
    except (struct.error, UnicodeDecodeError) as error:
        raise StoreError("it is damaged") from error
    trusted = tuple(chain[0] for locked, chain in entries if locked is None)
    identity = next(((locked, chain) for locked, chain in entries if locked is not None), None)
    if identity is None:
        return Store(None, trusted)
    locked, chain = identity
    key = _unlock(locked or b"", key_password or "")
    return Store(Identity(pem_of(key, "PRIVATE KEY"), chain), trusted)


def _jks_entries(stream: io.BytesIO) -> Iterator[tuple[bytes | None, tuple[bytes, ...]]]:
    """Return each entry's protected key, None for a trusted certificate, and its certificates."""
    _, version, count = struct.unpack(">III", stream.read(12))
    for _ in range(count):
        (kind,) = struct.unpack(">I", stream.read(4))
        _take(stream, ">H")  # the alias
        stream.read(8)  # when it was made
        if kind == _PRIVATE_KEY:
            locked = _take(stream, ">I")
            (length,) = struct.unpack(">I", stream.read(4))
            yield locked, tuple(_certificate(stream, version) for _ in range(length))
        elif kind == _TRUSTED:
            yield None, (_certificate(stream, version),)
        else:
            raise StoreError("it holds an entry of an unknown kind")


def _certificate(stream: io.BytesIO, version: int) -> bytes:
    if version == 2:  # noqa: PLR2004 - the layout since Java 1.2
        _take(stream, ">H")  # "X.509"
    return _take(stream, ">I")


def _take(stream: io.BytesIO, length_format: str) -> bytes:
    (length,) = struct.unpack(length_format, stream.read(struct.calcsize(length_format)))
    taken = stream.read(length)
    if len(taken) < length:
        raise StoreError("it is cut off")
    return taken


def _unlock(locked: bytes, password: str) -> bytes:
    """
    Undo JKS's own protection of a private key (JavaSoft's 1.3.6.1.4.1.42.2.17.1.1).

    The key is combined with a stream of SHA-1 digests that begins with a salt; a digest of the key follows it.
    """
    outer, _ = _asn1(locked, 0, _ASN1_SEQUENCE)
    _, behind_algorithm = _asn1(outer, 0, _ASN1_SEQUENCE)
    protected, _ = _asn1(outer, behind_algorithm, _ASN1_OCTETS)
    secret = password.encode("utf-16-be")
    salt, body, check = protected[:_SALT_BYTES], protected[_SALT_BYTES:-_SALT_BYTES], protected[-_SALT_BYTES:]
    stream, block = bytearray(), salt
    while len(stream) < len(body):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's own
        stream += block
    key = bytes(a ^ b for a, b in zip(body, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324
        raise StoreError("the password of its private key is wrong (ssl.key.password)")
    return key


def _asn1(data: bytes, at: int, tag: int) -> tuple[bytes, int]:
    """Return the content of the element at *at*, and where the next one begins."""
    if at + 2 > len(data) or data[at] != tag:
        raise StoreError("its private key is damaged")
    length, begin = data[at + 1], at + 2
    if length & _LONG_LENGTH:
        size = length & ~_LONG_LENGTH
        length, begin = int.from_bytes(data[begin : begin + size], "big"), begin + size
    return data[begin : begin + length], begin + length
