"""Certificates made in a test: an authority, and what it signs, in every form that Kafka's users keep them in."""

from __future__ import annotations

import datetime as dt
import ipaddress
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


PASSWORD = "store-s3cr3t"
_DAY = dt.timedelta(days=1)


@attrs.frozen
class Certificate:
    """A certificate with its private key, and who signed it."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    authority: x509.Certificate

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()

    def locked_key_pem(self, password: str = PASSWORD) -> str:
        locked = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked).decode()

    def pkcs12(self, path: Path, password: str = PASSWORD) -> Path:
        """Write key and chain as a PKCS12 key store."""
        locked = BestAvailableEncryption(password.encode())
        path.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", self.key, self.certificate, [self.authority], locked)
        )
        return path

    def write_pem(self, path: Path, *, key: str | None = None) -> Path:
        """Write key and chain as a PEM key store."""
        path.write_text((key or self.key_pem) + self.pem)
        return path


class Authority:
    """Signs certificates; `pem` is its own."""

    def __init__(self, name: str = "Test Authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key(), days=30)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(self._key, hashes.SHA256())

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def sign(self, name: str, *hosts: str, days: float = 30) -> Certificate:
        """Make a key and a certificate for *name*, good for *hosts* and *days*; fewer than none have passed already."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "mm2py"),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        builder = self._builder(subject, key.public_key(), days=days)
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName([_name_of(host) for host in hosts]), False)
        return Certificate(builder.sign(self._key, hashes.SHA256()), key, self.certificate)

    def pkcs12(self, path: Path, password: str = PASSWORD) -> Path:
        """Write a PKCS12 truststore as keytool does: Java wants its own mark on trusted certificates."""
        locked = BestAvailableEncryption(password.encode())
        certificate = pkcs12.PKCS12Certificate(self.certificate, b"authority")
        path.write_bytes(pkcs12.serialize_java_truststore([certificate], locked))
        return path

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, days: float) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, now + days * _DAY) - _DAY)
            .not_valid_after(now + days * _DAY)
        )


def _name_of(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
