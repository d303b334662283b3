"""From Java's client keys to the arguments of a connection."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path

import attrs
import pytest

from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.security import SecuritySettingsError, connection_arguments, jaas_options


PLAIN_LINE = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="mm2" password="s3;cr=t";'


def endpoint(protocol: str, **keys: str) -> ClusterEndpoint:
    pairs = tuple((key.replace("_", "."), value) for key, value in keys.items())
    return ClusterEndpoint("B", ("b:9092",), security=Security(protocol, pairs))


@attrs.frozen
class Pem:
    """A self-signed certificate, its key, and the key under a password."""

    certificate: str
    key: str
    locked_key: str


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    folder = tmp_path_factory.mktemp("pem")
    run = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2"]
    subprocess.run([*run, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, check=True, capture_output=True)
    lock = ["openssl", "pkcs8", "-topk8", "-in", "key.pem", "-out", "locked.pem", "-passout", "pass:hush"]
    subprocess.run(lock, cwd=folder, check=True, capture_output=True)
    return Pem(*((folder / name).read_text() for name in ("cert.pem", "key.pem", "locked.pem")))


def test_plaintext_needs_nothing() -> None:
    """Without security there is nothing but the protocol."""
    arguments = connection_arguments(endpoint("PLAINTEXT"))

    assert arguments == {"security_protocol": "PLAINTEXT"}


def test_unknown_protocol() -> None:
    """A protocol that Kafka does not know is refused with the key, the cluster, and what there is."""
    with pytest.raises(SecuritySettingsError, match=r"security.protocol of cluster B: 'TLS' is none of PLAINTEXT, SSL"):
        connection_arguments(endpoint("TLS"))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_user_and_password(mechanism: str) -> None:
    """User and password come out of the JAAS line."""
    arguments = connection_arguments(endpoint("sasl_plaintext", sasl_mechanism=mechanism, sasl_jaas_config=PLAIN_LINE))

    assert {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": "mm2",
        "sasl_plain_password": "s3;cr=t",
    } == arguments


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({}, "sasl.mechanism of cluster B: GSSAPI is not supported, only PLAIN"),
        ({"sasl_mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not supported"),
        ({"sasl_mechanism": "PLAIN"}, "sasl.jaas.config of cluster B: username=... is missing"),
        ({"sasl_mechanism": "PLAIN", "sasl_jaas_config": 'x required username="u";'}, "password=... is missing"),
    ],
)
def test_sasl_problems(keys: dict[str, str], problem: str) -> None:
    """What is missing or not supported is named by its key."""
    with pytest.raises(SecuritySettingsError) as caught:
        connection_arguments(endpoint("SASL_SSL", **keys))

    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("line", "options"),
    [
        (PLAIN_LINE, {"username": "mm2", "password": "s3;cr=t"}),
        (r'M required password="a\"b\\c" username=bare;', {"password": r'a"b\c', "username": "bare"}),
        ('M required\n  username = "u"\n  password = ""\n;', {"username": "u", "password": ""}),
        ("", {}),
    ],
)
def test_jaas_lines(line: str, options: dict[str, str]) -> None:
    """Options may be quoted or bare, spread over lines, with escapes."""
    read = jaas_options(line)

    assert options == read


def test_tls_checks_certificate_and_host() -> None:
    """Unless told otherwise, certificates are checked against what the machine trusts, and so is the host's name."""
    context = connection_arguments(endpoint("SSL"))["ssl_context"]

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


def test_host_check_is_switched_off_by_an_empty_value() -> None:
    """An empty ssl.endpoint.identification.algorithm keeps the certificate's check and drops the host's."""
    context = connection_arguments(endpoint("SSL", ssl_endpoint_identification_algorithm=""))["ssl_context"]

    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, False)


def test_a_truststore_replaces_what_the_machine_trusts(pem: Pem, tmp_path: Path) -> None:
    """With a PEM truststore, in a file or in the settings, nothing else is trusted."""
    file = tmp_path / "trust.pem"
    file.write_text(pem.certificate)
    from_file = connection_arguments(endpoint("SSL", ssl_truststore_type="PEM", ssl_truststore_location=str(file)))
    from_text = connection_arguments(
        endpoint("SSL", ssl_truststore_type="PEM", ssl_truststore_certificates=pem.certificate)
    )

    assert [len(arguments["ssl_context"].get_ca_certs()) for arguments in (from_file, from_text)] == [1, 1]


@pytest.mark.parametrize("kind", ["file", "text", "locked file", "locked text"])
def test_client_certificates(pem: Pem, tmp_path: Path, kind: str) -> None:
    """The client's own key and chain are taken from a file or the settings, under a password or not."""
    key = pem.locked_key if "locked" in kind else pem.key
    keys = {"ssl_keystore_type": "PEM", "ssl_key_password": "hush"}
    if "file" in kind:
        file = tmp_path / "store.pem"
        file.write_text(key + pem.certificate)
        keys["ssl_keystore_location"] = str(file)
    else:
        keys |= {"ssl_keystore_key": key, "ssl_keystore_certificate_chain": pem.certificate}
    arguments = connection_arguments(endpoint("SSL", **keys))

    assert isinstance(arguments["ssl_context"], ssl.SSLContext)


def test_wrong_password(pem: Pem) -> None:
    """A key that cannot be opened is refused at once, without a question on the terminal."""
    keys = {"ssl_keystore_key": pem.locked_key, "ssl_keystore_certificate_chain": pem.certificate}
    with pytest.raises(SecuritySettingsError, match=r"ssl.keystore"):
        connection_arguments(endpoint("SSL", **keys))


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"ssl_truststore_location": "/x.jks"}, "ssl.truststore.type of cluster B: JKS cannot be read, only PEM"),
        ({"ssl_keystore_location": "/x", "ssl_keystore_type": "PKCS12"}, "ssl.keystore.type of cluster B: PKCS12"),
        ({"ssl_truststore_location": "/none.pem", "ssl_truststore_type": "PEM"}, "No such file"),
        ({"ssl_truststore_certificates": "rubbish"}, "ssl.truststore.* of cluster B"),
    ],
)
def test_tls_problems(keys: dict[str, str], problem: str) -> None:
    """Stores that cannot be read are named by their key."""
    with pytest.raises(SecuritySettingsError) as caught:
        connection_arguments(endpoint("SSL", **keys))

    assert problem in str(caught.value)


def test_passwords_stay_out_of_print() -> None:
    """An endpoint never prints its keys."""
    printed = repr(endpoint("SASL_SSL", sasl_jaas_config=PLAIN_LINE))

    assert "s3;cr=t" not in printed
