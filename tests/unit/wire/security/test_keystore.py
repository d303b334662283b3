"""Java's key stores, made by Java's own keytool."""

from __future__ import annotations

import shutil
import subprocess

import attrs
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from hypothesis import given
from hypothesis import strategies as st

from mm2py.wire.security.keystore import StoreError, pem_of, read_store


STORE_PASSWORD, KEY_PASSWORD = "st0re-pw", "k3y-pw-ü"


@attrs.frozen
class Stores:
    """A key store with a key under a password of its own, and a truststore with two certificates."""

    own_jks: bytes
    trust_jks: bytes
    trust_pkcs12: bytes
    certificate: bytes


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    if shutil.which("keytool") is None:
        pytest.skip("Java's keytool is not installed")
    folder = tmp_path_factory.mktemp("stores")

    def keytool(*words: str) -> None:
        quick = ["keytool", "-J-XX:TieredStopAtLevel=1", "-J-Dfile.encoding=UTF-8", "-J-Dsun.jnu.encoding=UTF-8"]
        subprocess.run([*quick, *words], cwd=folder, check=True, capture_output=True)

    jks = ["-storetype", "JKS", "-storepass", STORE_PASSWORD, "-noprompt"]
    (folder / "pw").write_text(KEY_PASSWORD, encoding="utf-8")
    # The list goes one way for all: a key, its certificate, and two that are trusted.
    keytool(
        "-genkeypair", "-alias", "own", "-dname", "CN=mm2", "-keyalg", "EC", "-keystore", "own.jks", *jks,
        "-keypass:file", "pw",
    )  # fmt: skip
    keytool("-exportcert", "-alias", "own", "-keystore", "own.jks", "-file", "own.der", *jks)
    keytool("-importcert", "-alias", "one", "-file", "own.der", "-keystore", "trust.jks", *jks)
    keytool(
        "-importkeystore", "-srckeystore", "trust.jks", "-srcstorepass", STORE_PASSWORD, "-destkeystore", "trust.p12",
        "-deststoretype", "PKCS12", "-deststorepass", STORE_PASSWORD, "-noprompt",
    )  # fmt: skip
    names = ("own.jks", "trust.jks", "trust.p12", "own.der")
    return Stores(*((folder / name).read_bytes() for name in names))


def test_a_jks_key_with_a_password_of_its_own(stores: Stores) -> None:
    """A private key in a JKS store is opened with its own password and belongs to the certificate beside it."""
    store = read_store(stores.own_jks, STORE_PASSWORD, KEY_PASSWORD)

    assert store.identity is not None
    key = load_pem_private_key(store.identity.key_pem.encode(), None)
    certificate = x509.load_der_x509_certificate(store.identity.chain[0])
    assert certificate.public_key() == key.public_key()
    assert store.trusted == ()
    assert store.identity.key_pem not in repr(store)


@pytest.mark.parametrize("password", [STORE_PASSWORD, None])
def test_a_jks_truststore(stores: Stores, password: str | None) -> None:
    """Trusted certificates are read with the password, which proves them whole, and without, as in Java."""
    store = read_store(stores.trust_jks, password)

    assert store.identity is None
    assert store.trusted == (stores.certificate,)
    certificate = x509.load_der_x509_certificate(stores.certificate)
    assert pem_of(stores.certificate) == certificate.public_bytes(Encoding.PEM).decode()


def test_a_pkcs12_truststore(stores: Stores) -> None:
    """Java's trusted certificates in a PKCS12 store are found."""
    assert read_store(stores.trust_pkcs12, STORE_PASSWORD).trusted == (stores.certificate,)


def test_what_cannot_be_read(stores: Stores) -> None:
    """Wrong passwords, other kinds of files and damage are told apart, and no password is shown."""
    damaged = bytearray(stores.trust_jks)
    damaged[40] ^= 1
    told = []
    for data, password, key_password in (
        (stores.own_jks, "wrong-one", None),
        (stores.own_jks, STORE_PASSWORD, "wrong-one"),
        (stores.trust_pkcs12, "wrong-one", None),
        (bytes(damaged), STORE_PASSWORD, None),
        (b"\xce\xce\xce\xce" + bytes(20), "wrong-one", None),
        (b"-----BEGIN CERTIFICATE-----", None, None),
        (b"#!/bin/sh", None, None),
        (b"", None, None),
    ):
        with pytest.raises(StoreError) as caught:
            read_store(data, password, key_password)
        told.append(str(caught.value))

    assert told == [
        "it is damaged, or the password is wrong",
        "the password of its private key is wrong (ssl.key.password)",
        "it is damaged, or the password is wrong",
        "it is damaged, or the password is wrong",
        "it is a JCEKS store; convert it with keytool -importkeystore -deststoretype PKCS12",
        "it holds PEM text; set the store's type to PEM",
        "it is neither a JKS nor a PKCS12 store",
        "the file is empty",
    ]


@given(st.data())
def test_damage_is_refused_in_words(stores: Stores, data: st.DataObject) -> None:
    """Whatever bytes are wrong in a store that is read without a password, it is read or refused, nothing else."""
    damaged = bytearray(stores.own_jks)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(damaged)))
    try:
        read_store(bytes(damaged[:cut]), None, KEY_PASSWORD)
    except StoreError:
        return
