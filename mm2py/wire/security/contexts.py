"""
What a connection needs in order to be let in: TLS, and as whom it comes.

Java client keys (``ssl.*``) become an `ssl.SSLContext`. Trust and key material is PEM, in files or in the settings
themselves (KIP-651), or a key store in one of Java's own formats. Files are looked at for every connection, so that
certificates may be replaced while the flow runs.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Final

import attrs

from mm2py.errors import Mm2Error, Verdict
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.jaas import JaasError, parse_jaas
from mm2py.wire.security.keystore import Store, StoreError, pem_of, read_store


#: Settings that name files which may change while a flow runs.
_FILES: Final = ("ssl.truststore.location", "ssl.keystore.location")
_TLS_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CIPHER: Final = re.compile(r"TLS_(?:(\w+)_)?WITH_(\w+?)(?:_CBC)?_(SHA\d*)")
_CONTEXTS_KEPT: Final = 8
ANONYMOUS: Final = "User:ANONYMOUS"
_NAMELESS: Final = "the mirror's principal"

_contexts: dict[Security, tuple[object, ssl.SSLContext]] = {}


@attrs.define(eq=False)
class SecuritySettingsError(Mm2Error):
    """A cluster's security settings, or the files that they name, cannot be used as they stand."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "fix the file, or correct the key; it can be set per cluster, as <alias>.<key>"

    cluster: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.key} of cluster {self.cluster}: {self.problem}"


def state_of_files(security: Security) -> tuple[tuple[str, int, int, int], ...]:
    """Return the state of the files in *security*, which changes whenever they do."""
    keys = dict(security.client_keys)
    found = []
    for path in (*map(keys.get, _FILES), _keytab(keys.get("sasl.jaas.config", ""))):
        if path:
            try:
                status = os.stat(path)  # noqa: PTH116 - pathlib is not imported in workers
                found.append((path, status.st_mtime_ns, status.st_size, status.st_ino))
            except OSError:
                found.append((path, 0, 0, 0))
    return tuple(found)


def _keytab(line: str) -> str | None:
    """Return the keytab that a JAAS *line* names."""
    try:
        return parse_jaas(line).options.get("keyTab", "").removeprefix("FILE:") if "keyTab" in line else None
    except JaasError:
        return None


def tls_context(endpoint: ClusterEndpoint) -> ssl.SSLContext | None:
    """Return the TLS context for *endpoint*, created again where its files have changed; None where it needs no TLS."""
    security = endpoint.security
    if not security.uses_tls:
        return None
    state = state_of_files(security)
    known = _contexts.get(security)
    if known is not None and known[0] == state:
        return known[1]
    context = context_of_keys(endpoint.alias, dict(security.client_keys))
    while len(_contexts) >= _CONTEXTS_KEPT:
        _contexts.pop(next(iter(_contexts)))
    _contexts[security] = (state, context)
    return context


def context_of_keys(cluster: str, keys: Mapping[str, str]) -> ssl.SSLContext:
    """Make a TLS context from ``ssl.*`` *keys*; raise `SecuritySettingsError` where that fails."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # An empty value is Kafka's way to switch the check of the host name off.
    context.check_hostname = bool(keys.get("ssl.endpoint.identification.algorithm", "https").strip())
    # Java trusts whatever certificate a truststore holds, be it an authority's or a broker's own.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    _take(context, cluster, keys, _TRUST, _IDENTITY, _VERSIONS, _CIPHERS)
    return context


def server_context(owner: str, keys: Mapping[str, str], client_auth: str) -> ssl.SSLContext:
    """
    Make a server's TLS context; *client_auth* is Kafka's none, requested or required.

    Raise `SecuritySettingsError` where that fails.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if client_auth != "none":
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.verify_mode = ssl.CERT_REQUIRED if client_auth == "required" else ssl.CERT_OPTIONAL
        _take(context, owner, keys, _TRUST)
    _take(context, owner, keys, _IDENTITY, _VERSIONS, _CIPHERS)
    return context


def renew_server_context(context: ssl.SSLContext, owner: str, keys: Mapping[str, str]) -> None:
    """Have new connections of *context* use the stores as they are now; raise `SecuritySettingsError`."""
    if context.verify_mode is not ssl.CERT_NONE:
        _take(context, owner, keys, _TRUST)
    _take(context, owner, keys, _IDENTITY)


_Step = tuple[str, Callable[[ssl.SSLContext, Mapping[str, str]], None]]


def _take(context: ssl.SSLContext, cluster: str, keys: Mapping[str, str], *steps: _Step) -> None:
    """Do *steps*, each for what its key names."""
    for key, step in steps:
        try:
            step(context, keys)
        except ssl.SSLError as error:
            problem = f"it cannot be used: {(error.reason or str(error)).replace('_', ' ').lower()}"
            if key == "ssl.keystore.*":
                problem += "; is ssl.key.password right, and does the certificate belong to the key?"
            raise SecuritySettingsError(cluster, key, problem) from error
        except OSError as error:
            named = f" {error.filename}" if error.filename else ""
            raise SecuritySettingsError(cluster, key, f"{error.strerror or error}{named}") from error
        except ValueError as error:
            raise SecuritySettingsError(cluster, key, str(error)) from error


def _store(keys: Mapping[str, str], name: str) -> Store | str | None:
    """Return the store: read where it is one of Java's, its path where it is PEM, None where there is none."""
    location = keys.get(f"ssl.{name}.location", "").strip()
    if not location:
        return None
    if keys.get(f"ssl.{name}.type", "JKS").strip().upper() == "PEM":
        # OpenSSL's own error does not name the file.
        with open(location, "rb"):  # noqa: PTH123
            return location
    with open(location, "rb") as file:  # noqa: PTH123
        data = file.read()
    password = keys.get(f"ssl.{name}.password")
    try:
        return read_store(data, password, keys.get("ssl.key.password"))
    except StoreError as error:
        raise StoreError(f"{location}: {error}") from error


def _load_trust(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    """Trust what the truststore holds and nothing else; without a truststore, what the machine trusts."""
    certificates = keys.get("ssl.truststore.certificates")
    store = _store(keys, "truststore")
    if isinstance(store, Store):
        if not store.trusted:
            raise StoreError(f"{keys['ssl.truststore.location']}: it holds no trusted certificate")
        context.load_verify_locations(cadata="".join(map(pem_of, store.trusted)))
    elif store or certificates:
        context.load_verify_locations(cafile=store or None, cadata=certificates or None)
    else:
        context.load_default_certs()


def _load_identity(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    """Load the client's own certificate where one is set. A PEM keystore holds the key and the chain in one text."""
    password = keys.get("ssl.key.password", "")
    store = _store(keys, "keystore")
    # The password is given as a function even where there is none: else OpenSSL asks for it on the terminal.
    if isinstance(store, str):
        context.load_cert_chain(store, password=lambda: password)
        return
    if isinstance(store, Store):
        if store.identity is None:
            raise StoreError(f"{keys['ssl.keystore.location']}: it holds no private key")
        text, password = store.identity.key_pem + "".join(map(pem_of, store.identity.chain)), ""
    elif chain := keys.get("ssl.keystore.certificate.chain"):
        text = f"{keys.get('ssl.keystore.key', '')}\n{chain}\n"
    else:
        return
    with _in_memory(text) as path:
        context.load_cert_chain(path, password=lambda: password)


@contextlib.contextmanager
def _in_memory(text: str) -> Iterator[str]:
    """Return *text* as a file that lies on no disk: OpenSSL takes keys from files only."""
    descriptor = os.memfd_create("mm2py-key", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _limit_versions(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    named = keys.get("ssl.enabled.protocols", "").replace(" ", "")
    versions = [_TLS_VERSIONS.get(word) for word in named.split(",") if word] or [
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    ]
    usable = [version for version in versions if version is not None]
    if len(usable) < len(versions):
        raise ValueError(f"expected are some of {', '.join(_TLS_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(usable), max(usable)


def _limit_ciphers(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    """Take the suites that are left for TLS 1.2; those of TLS 1.3 are OpenSSL's own."""
    suites = [name.strip() for name in keys.get("ssl.cipher.suites", "").split(",") if name.strip()]
    older = [_openssl_name(name) for name in suites if "_WITH_" in name]
    if older:
        context.set_ciphers(":".join(older))


_TRUST: Final[_Step] = ("ssl.truststore.*", _load_trust)
_IDENTITY: Final[_Step] = ("ssl.keystore.*", _load_identity)
_VERSIONS: Final[_Step] = ("ssl.enabled.protocols", _limit_versions)
_CIPHERS: Final[_Step] = ("ssl.cipher.suites", _limit_ciphers)


def _openssl_name(suite: str) -> str:
    """Turn Java's name of a cipher suite into OpenSSL's: TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256."""
    match = _CIPHER.fullmatch(suite)
    if match is None:
        raise ValueError(f"{suite} is not a cipher suite as Java names them")
    exchange, cipher, digest = match.groups()
    name = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_", "-")
    before = "" if exchange in (None, "RSA") else exchange.replace("_", "-") + "-"
    return before + (name if name.startswith("CHACHA20") else f"{name}-{digest}")


def principal_of(endpoint: ClusterEndpoint) -> str:
    """Return as whom *endpoint* is entered, as Kafka writes principals; as far as that can be known from here."""
    security, keys = endpoint.security, dict(endpoint.security.client_keys)
    if security.uses_sasl:
        try:
            options = parse_jaas(keys.get("sasl.jaas.config", "")).options
        except JaasError:
            options = {}
        # Of a Kerberos principal, service/host@REALM, brokers keep the first part, unless they have rules of their own.
        kerberos = re.split("[/@]", options.get("principal", ""), maxsplit=1)[0]
        named = options.get("username") or kerberos or options.get("unsecuredLoginStringClaim_sub")
        client = keys.get("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId")
        return f"User:{named or client}" if named or client else _NAMELESS
    if security.uses_tls:
        try:
            subject = _subject(keys)
        except (OSError, ValueError):
            return _NAMELESS
        return f"User:{subject}" if subject else ANONYMOUS
    return ANONYMOUS


def _subject(keys: Mapping[str, str]) -> str | None:
    """Return the distinguished name in the client's certificate, which a broker takes for its principal by default."""
    store = _store(keys, "keystore")
    if isinstance(store, Store):
        der = store.identity.chain[0] if store.identity else None
    else:
        text = keys.get("ssl.keystore.certificate.chain", "")
        if store:
            with open(store, encoding="utf-8") as file:  # noqa: PTH123
                text = file.read()
        begin = text.find("-----BEGIN CERTIFICATE-----")
        der = ssl.PEM_cert_to_DER_cert(text[begin:].split("-----END")[0] + _PEM_END) if begin >= 0 else None
    if der is None:
        return None
    from cryptography import x509  # noqa: PLC0415 - only where a certificate's name is asked for

    return x509.load_der_x509_certificate(der).subject.rfc4514_string()


_PEM_END: Final = "-----END CERTIFICATE-----\n"


def subject_of_token(token: str) -> str | None:
    """Return the ``sub`` claim of a JSON web token, which a broker takes for its principal by default."""
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        return str(claims["sub"])
    except (IndexError, KeyError, TypeError, ValueError, RecursionError, binascii.Error):
        return None
