"""
What a connection needs in order to be let in: TLS and SASL.

Java client keys (``ssl.*``, ``sasl.*``) become the keyword arguments that aiokafka's connections, consumers and
producers take alike. Trust and key material is PEM, in files or in the settings themselves (KIP-651); a keystore in
one of Java's own formats is refused by name, with the way to convert it.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import attrs

from mm2py.errors import Mm2Error, Verdict
from mm2py.model.endpoint import ClusterEndpoint


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

#: One ``name="value"`` option of a JAAS line; a quoted value may hold backslash escapes.
_JAAS_OPTION = re.compile(r'([\w.-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;"]+))', re.DOTALL)


@attrs.define(eq=False)
class SecuritySettingsError(Mm2Error):
    """A cluster's security settings cannot be used as they stand."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "correct the key in the properties file; it can be set per cluster, as <alias>.<key>"

    cluster: str
    key: str
    problem: str

    def __str__(self) -> str:
        return f"{self.key} of cluster {self.cluster}: {self.problem}"


def connection_arguments(endpoint: ClusterEndpoint) -> dict[str, Any]:
    """
    Give the keyword arguments that make an aiokafka connection to *endpoint* secure.

    Files are read anew for every connection, so that certificates may be replaced while the flow runs.
    """
    protocol = endpoint.security.protocol.upper()
    if protocol not in _PROTOCOLS:
        problem = f"{endpoint.security.protocol!r} is none of {', '.join(_PROTOCOLS)}"
        raise SecuritySettingsError(endpoint.alias, "security.protocol", problem)
    keys = dict(endpoint.security.client_keys)
    arguments: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        arguments["ssl_context"] = _ssl_context(endpoint.alias, keys)
    if protocol.startswith("SASL"):
        arguments.update(_sasl_arguments(endpoint.alias, keys))
    return arguments


def _ssl_context(cluster: str, keys: Mapping[str, str]) -> ssl.SSLContext:
    for store in ("truststore", "keystore"):
        kind = keys.get(f"ssl.{store}.type", "JKS")
        if keys.get(f"ssl.{store}.location") and kind.upper() != "PEM":
            problem = f"{kind} cannot be read, only PEM; convert the {store} with keytool and openssl"
            raise SecuritySettingsError(cluster, f"ssl.{store}.type", problem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # An empty value is Kafka's way to switch the check of the host name off.
    context.check_hostname = bool(keys.get("ssl.endpoint.identification.algorithm", "https").strip())
    try:
        _load_trust(context, keys)
    except OSError as error:  # ssl.SSLError is one
        raise SecuritySettingsError(cluster, "ssl.truststore.*", str(error)) from error
    try:
        _load_identity(context, keys)
    except OSError as error:
        raise SecuritySettingsError(cluster, "ssl.keystore.*", str(error)) from error
    return context


def _load_trust(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    """Trust what the truststore holds and nothing else; without a truststore, what the machine trusts."""
    certificates = keys.get("ssl.truststore.certificates")
    location = keys.get("ssl.truststore.location")
    if certificates or location:
        context.load_verify_locations(cafile=location or None, cadata=certificates or None)
    else:
        context.load_default_certs()


def _load_identity(context: ssl.SSLContext, keys: Mapping[str, str]) -> None:
    """Load the client's own certificate where one is set. A PEM keystore holds the key and the chain in one text."""
    password = keys.get("ssl.key.password", "")
    chain = keys.get("ssl.keystore.certificate.chain")
    location = keys.get("ssl.keystore.location")
    # The password is given as a function even where there is none: else OpenSSL asks for it on the terminal.
    if location:
        context.load_cert_chain(location, password=lambda: password)
    elif chain:
        with _private_file(f"{keys.get('ssl.keystore.key', '')}\n{chain}\n") as path:
            context.load_cert_chain(path, password=lambda: password)


@contextlib.contextmanager
def _private_file(text: str) -> Iterator[str]:
    """Put *text* where only this user can read it, for as long as OpenSSL, which takes keys from files only, needs."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(text)
        file.flush()
        yield file.name


def _sasl_arguments(cluster: str, keys: Mapping[str, str]) -> dict[str, Any]:
    mechanism = keys.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        problem = f"{mechanism} is not supported, only {', '.join(_MECHANISMS)}"
        raise SecuritySettingsError(cluster, "sasl.mechanism", problem)
    options = jaas_options(keys.get("sasl.jaas.config", ""))
    for option in ("username", "password"):
        if option not in options:
            raise SecuritySettingsError(cluster, "sasl.jaas.config", f"{option}=... is missing")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }


def jaas_options(line: str) -> dict[str, str]:
    """Give the options of a JAAS *line*: ``some.LoginModule required username="u" password="p";``."""
    options = {}
    for name, quoted, bare in _JAAS_OPTION.findall(line):
        options[name] = bare or re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL)
    return options
