"""From Java's client keys to TLS contexts and principals."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security.contexts import (
    SecuritySettingsError,
    principal_of,
    state_of_files,
    subject_of_token,
    tls_context,
)
from tests.support.certificates import PASSWORD, Authority, Certificate
from tests.support.secure_clusters import plain_line, unsecured_line


def endpoint(protocol: str, **keys: str) -> ClusterEndpoint:
    pairs = tuple((key.replace("_", "."), value) for key, value in keys.items())
    return ClusterEndpoint("B", ("b:9092",), security=Security(protocol, pairs))


def context(**keys: str) -> ssl.SSLContext:
    made = tls_context(endpoint("SSL", **keys))
    assert made is not None
    return made


def refusal(**keys: str) -> str:
    with pytest.raises(SecuritySettingsError) as caught:
        context(**keys)
    return str(caught.value)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def client(authority: Authority) -> Certificate:
    return authority.sign("mm2")


def identity(client: Certificate, *, trusts: str) -> dict[str, str]:
    """Return the keys of a client that trusts these certificates alone."""
    own = {"ssl_keystore_key": client.key_pem, "ssl_keystore_certificate_chain": client.pem}
    return own | {"ssl_truststore_certificates": trusts}


def shakes_hands(client_context: ssl.SSLContext, authority: Authority, server: Certificate) -> bool:
    """Let *client_context* meet a server that asks for a client's certificate; say whether both are content."""
    server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_context.verify_mode = ssl.CERT_REQUIRED
    server_context.load_verify_locations(cadata=authority.pem)
    descriptor = os.memfd_create("server")
    os.write(descriptor, (server.key_pem + server.pem).encode())
    server_context.load_cert_chain(f"/proc/self/fd/{descriptor}")
    os.close(descriptor)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client_context.wrap_bio(to_client, to_server, server_hostname="b"),
        server_context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLError:
                return False
    return ends[1].getpeercert() is not None


def test_plaintext_needs_nothing() -> None:
    """Without TLS there is no context, and the principal is anonymous."""
    assert tls_context(endpoint("PLAINTEXT", ssl_truststore_location="/none")) is None
    assert principal_of(endpoint("PLAINTEXT")) == "User:ANONYMOUS"


@pytest.mark.parametrize(("keys", "checks_host"), [({}, True), ({"ssl_endpoint_identification_algorithm": ""}, False)])
def test_tls_checks_certificate_and_host(keys: dict[str, str], *, checks_host: bool) -> None:
    """Certificates are checked against what the machine trusts, and hosts' names unless an empty value says no."""
    made = context(**keys)

    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, checks_host)
    assert made.minimum_version == ssl.TLSVersion.TLSv1_2


@pytest.mark.parametrize("kind", ["file", "text", "PKCS12", "PKCS12 called JKS"])
def test_a_truststore_replaces_what_the_machine_trusts(authority: Authority, tmp_path: Path, kind: str) -> None:
    """With a truststore, in a file or in the settings, nothing else is trusted."""
    (tmp_path / "trust.pem").write_text(authority.pem)
    path = str(authority.pkcs12(tmp_path / "trust.p12"))
    made = {
        "file": lambda: context(ssl_truststore_type="PEM", ssl_truststore_location=str(tmp_path / "trust.pem")),
        "text": lambda: context(ssl_truststore_type="PEM", ssl_truststore_certificates=authority.pem),
        "PKCS12": lambda: context(
            ssl_truststore_type="PKCS12", ssl_truststore_location=path, ssl_truststore_password=PASSWORD
        ),
        "PKCS12 called JKS": lambda: context(ssl_truststore_location=path, ssl_truststore_password=PASSWORD),
    }[kind]()

    assert len(made.get_ca_certs()) == 1


@pytest.mark.parametrize("kind", ["file", "text", "locked file", "locked text", "PKCS12"])
def test_client_certificates(authority: Authority, client: Certificate, tmp_path: Path, kind: str) -> None:
    """The client's own key and chain, from a file, the settings or a key store, convince a server."""
    key = client.locked_key_pem() if "locked" in kind else client.key_pem
    keys = {"ssl_keystore_type": "PEM", "ssl_key_password": PASSWORD, "ssl_truststore_certificates": authority.pem}
    if "file" in kind:
        keys["ssl_keystore_location"] = str(client.write_pem(tmp_path / "own.pem", key=key))
    elif "text" in kind:
        keys |= {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": client.pem}
    else:
        path = str(client.pkcs12(tmp_path / "own.p12"))
        keys |= {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": path, "ssl_keystore_password": PASSWORD}
    end = endpoint("SSL", **keys)
    made = tls_context(end)

    assert made is not None
    assert shakes_hands(made, authority, authority.sign("b", "b"))
    assert principal_of(end) == "User:CN=mm2,O=mm2py"


def test_a_certificate_for_another_host_is_refused(authority: Authority, client: Certificate) -> None:
    """The name that was connected to must be in the broker's certificate, unless the check is switched off."""
    keys = identity(client, trusts=authority.pem)
    server = authority.sign("other", "other")

    assert not shakes_hands(context(**keys), authority, server)
    assert shakes_hands(context(**keys, ssl_endpoint_identification_algorithm=""), authority, server)


def test_a_truststore_may_hold_the_broker_s_own_certificate(authority: Authority, client: Certificate) -> None:
    """As in Java, a certificate in the truststore is trusted by itself; others of its authority are not."""
    server = authority.sign("b", "b")
    keys = identity(client, trusts=server.pem)

    assert shakes_hands(context(**keys), authority, server)
    assert not shakes_hands(context(**keys), authority, authority.sign("b", "b"))


def test_replaced_files_are_noticed(authority: Authority, tmp_path: Path) -> None:
    """The same context serves until a file changes; then its new content counts."""
    path = tmp_path / "trust.pem"
    path.write_text(authority.pem)
    end = endpoint("SSL", ssl_truststore_type="PEM", ssl_truststore_location=str(path))
    first, again = tls_context(end), tls_context(end)
    before = state_of_files(end.security)
    path.write_text(authority.pem + Authority("Second").pem)
    second = tls_context(end)

    assert first is again
    assert first is not None
    assert second is not None
    assert [len(made.get_ca_certs()) for made in (first, second)] == [1, 2]
    assert state_of_files(end.security) != before


@pytest.mark.parametrize("prefix", ["", "FILE:"])
def test_a_replaced_keytab_is_noticed(tmp_path: Path, prefix: str) -> None:
    """A refused login is tried again at once when its keytab is another one."""
    keytab = tmp_path / "mm2.keytab"
    line = f'x.Krb5LoginModule required useKeyTab=true keyTab="{prefix}{keytab}";'
    security = endpoint("SASL_SSL", sasl_jaas_config=line).security
    missing = state_of_files(security)
    keytab.write_bytes(b"key")

    assert missing != state_of_files(security)


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ssl_truststore_location": "/none.jks"}, "ssl.truststore.* of cluster B: No such file or directory /none"),
        ({"ssl_truststore_location": "/none.pem", "ssl_truststore_type": "PEM"}, "No such file or directory"),
        ({"ssl_truststore_certificates": "rubbish"}, "ssl.truststore.* of cluster B"),
        ({"ssl_enabled_protocols": "TLSv9"}, "ssl.enabled.protocols of cluster B: expected are some of TLSv1, TLSv1.1"),
        ({"ssl_cipher_suites": "X_WITH_Y"}, "ssl.cipher.suites of cluster B: X_WITH_Y is not a cipher suite"),
    ],
)
def test_tls_problems(keys: dict[str, str], problem: str) -> None:
    """What cannot be read is named by its key."""
    assert problem in refusal(**keys)


def test_wrong_password(client: Certificate, tmp_path: Path) -> None:
    """A key that cannot be opened is refused at once, without a question on the terminal."""
    in_text = refusal(
        ssl_keystore_key=client.locked_key_pem(), ssl_keystore_certificate_chain=client.pem, ssl_key_password="wr0ng"
    )
    in_store = refusal(ssl_keystore_location=str(client.pkcs12(tmp_path / "own.p12")), ssl_keystore_password="wr0ng")

    assert "is ssl.key.password right" in in_text
    assert "it is damaged, or the password is wrong" in in_store
    assert "wr0ng" not in in_text + in_store


def test_versions_and_ciphers() -> None:
    """TLS versions and cipher suites are limited to those that Java's names mean."""
    made = context(
        ssl_enabled_protocols="TLSv1.2",
        ssl_cipher_suites="TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,"
        "TLS_RSA_WITH_AES_128_CBC_SHA,TLS_AES_128_GCM_SHA256",
    )
    older = {cipher["name"] for cipher in made.get_ciphers() if cipher["protocol"] != "TLSv1.3"}

    assert (made.minimum_version, made.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert older == {"ECDHE-RSA-AES256-GCM-SHA384", "ECDHE-ECDSA-CHACHA20-POLY1305", "AES128-SHA"}


def test_secrets_stay_out_of_print() -> None:
    """An endpoint never prints its keys."""
    printed = repr(endpoint("SASL_SSL", sasl_jaas_config=plain_line(password="hush")))

    assert "hush" not in printed


@pytest.mark.parametrize(
    ("keys", "principal"),
    [
        ({"sasl_jaas_config": plain_line("alice")}, "User:alice"),
        ({"sasl_jaas_config": unsecured_line("bob")}, "User:bob"),
        ({"sasl_oauthbearer_client_credentials_client_id": "shop"}, "User:shop"),
        ({"sasl_jaas_config": 'x.Krb5LoginModule required principal="mm2/host@SHOP";'}, "User:mm2"),
        ({"sasl_jaas_config": "not a line"}, "the mirror's principal"),
    ],
)
def test_who_comes(keys: dict[str, str], principal: str) -> None:
    """Messages name the principal that a broker sees, as far as the settings tell."""
    assert principal_of(endpoint("SASL_SSL", **keys)) == principal


def test_subjects_of_tokens() -> None:
    """A token's subject is read where the token is one that has it."""
    assert subject_of_token("e30.eyJzdWIiOiJtbTIifQ.") == "mm2"
    assert [subject_of_token(text) for text in ("", "a.b.c", "e30.e30.", "opaque")] == [None] * 4


def test_keys_touch_no_disk(client: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A private key from the settings is handed to OpenSSL in memory: no file is made, not even for a moment."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    seen: list[str] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, **more: object) -> None:
        seen.append(str(Path(path).readlink()))
        load(self, path, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    context(ssl_keystore_key=client.key_pem, ssl_keystore_certificate_chain=client.pem)

    assert [name.startswith("/memfd:") for name in seen] == [True]
