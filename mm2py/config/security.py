"""From a cluster's security lines to `Security`: combinations of lines are checked here. Paths and passwords are not:
files are read, and may be corrected, while a flow runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from mm2py.config.keys.row import trimmed
from mm2py.config.keys.security import BUILT_IN_HANDLERS, MECHANISMS, PROTOCOLS
from mm2py.config.layers import Value
from mm2py.config.problem import Problem
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.jaas import JaasError, parse_jaas


_CLIENT_KEY = re.compile(r"(?:\A|\.)((?:ssl|sasl)\..+)\Z")
#: An empty value of any other key is none, as that of most is in Java.
_MAY_BE_EMPTY = {"ssl.endpoint.identification.algorithm"}
_FROM_URL = "sasl.oauthbearer.token.endpoint.url"
#: Java's module for the default mechanism, GSSAPI.
_MECHANISM_OF = {
    "PlainLoginModule": "PLAIN",
    "ScramLoginModule": "SCRAM-SHA-512",
    "OAuthBearerLoginModule": "OAUTHBEARER",
    "IAMLoginModule": "AWS_MSK_IAM",
}


#: What Amazon's plug-in for Java assumes a role with, and its signer for Python cannot: without them it would log in as
#: another principal, or be refused for no visible reason.
_NOT_SIGNED_WITH = ("awsRoleExternalId", "awsRoleAccessKeyId", "awsRoleSecretAccessKey", "awsRoleSessionToken")


#: Where tokens come from, and the client's id, secret and scope.
_FROM_ENDPOINT = ("token.endpoint.url", "client.credentials.client.id", "client.credentials.client.secret", "scope")
#: What Strimzi's handler calls the same in `sasl.jaas.config`.
_OF_STRIMZI = ("oauth.token.endpoint.uri", "oauth.client.id", "oauth.client.secret", "oauth.scope")
_JAVA_ROOTS = ("br.", "com.", "io.", "net.", "org.")


def client_key_in(written: str) -> str | None:
    """Return the ``ssl.*`` or ``sasl.*`` key that a line sets, at any level."""
    match = _CLIENT_KEY.search(written)
    return match.group(1) if match else None


def read_security(protocol: Value, lines: Mapping[str, Value]) -> Security | Problem:
    """Read a cluster's security from its strongest lines by key; return it with the first problem."""
    name = protocol.text.strip().upper()
    if name not in PROTOCOLS:
        hint = f"write one of {', '.join(PROTOCOLS)}"
        return Problem(protocol.where, protocol.key, f"unknown security protocol {protocol.text!r}", hint)
    if name == "PLAINTEXT":
        return Security()
    mechanism = lines.get("sasl.mechanism")
    if name.startswith("SASL") and mechanism is not None and not trimmed(mechanism.text):
        return _problem(mechanism, f"must not be empty with {name}", f"write one of {', '.join(MECHANISMS)}")
    lines = {key: line for key, line in lines.items() if trimmed(line.text) or key in _MAY_BE_EMPTY}
    security = Security(name, tuple(sorted((key, trimmed(line.text)) for key, line in lines.items())))
    problems = [
        *(_judge_stores(lines) if security.uses_tls else ()),
        *(_judge_login(protocol, lines) if security.uses_sasl else ()),
    ]
    return problems[0] if problems else security


def _judge_stores(lines: Mapping[str, Value]) -> Iterator[Problem]:
    texts = {
        "truststore": ("ssl.truststore.certificates",),
        "keystore": ("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    }
    for store, in_text in texts.items():
        given = [lines[key] for key in in_text if _is_set(lines, key)]
        location = f"ssl.{store}.location"
        if given and _is_set(lines, location):
            yield _problem(given[0], f"both this and {lines[location].key} are set", "remove one of them")
        elif given and len(given) < len(in_text):
            missing = next(key for key in in_text if not _is_set(lines, key))
            yield _problem(
                given[0], f"{_beside(given[0], missing)} is missing", "a key store needs the key and its certificates"
            )


def _judge_login(protocol: Value, lines: Mapping[str, Value]) -> Iterator[Problem]:
    mechanism_line, jaas = lines.get("sasl.mechanism"), lines.get("sasl.jaas.config")
    mechanism = mechanism_line.text.strip().upper() if mechanism_line else "GSSAPI"
    options: Mapping[str, str] = {}
    tokens = lines.get("sasl.login.callback.handler.class")
    if tokens is not None and _is_javas(tokens.text.strip()):
        yield _problem(tokens, "a Java class cannot be used here", _instead_of(tokens))
        return
    handler = lines.get("sasl.client.callback.handler.class")
    if handler is not None and not handler.text.strip().startswith(BUILT_IN_HANDLERS):
        hint = f"for tokens, name a Python class as {_beside(handler, 'sasl.login.callback.handler.class')}"
        yield _problem(handler, "only Kafka's and Amazon MSK's own classes are built in", hint)
    if jaas is not None:
        try:
            line = parse_jaas(jaas.text)
        except JaasError as error:
            yield _problem(jaas, str(error), "")
            return
        options = line.options
        if mechanism_line is None and (meant := _MECHANISM_OF.get(line.short_module)):
            yield _problem(
                jaas, "sasl.mechanism is missing, so it is GSSAPI", f"add {_beside(jaas, 'sasl.mechanism')} = {meant}"
            )
            return
    if mechanism == "PLAIN" or mechanism.startswith("SCRAM"):
        yield from _judge_password(protocol, jaas, options)
    elif mechanism == "OAUTHBEARER":
        yield from _judge_token(mechanism_line or protocol, jaas, lines, options)
    left_out = [name for name in _NOT_SIGNED_WITH if name in options]
    if jaas is not None and left_out and _is_signed_by_amazon(mechanism, lines):
        hint = 'put the role into a profile of the AWS configuration, and write awsProfileName="…"'
        yield _problem(jaas, f"{' and '.join(left_out)} cannot be used here", hint)


def _is_javas(handler: str) -> bool:
    is_java = handler.startswith(_JAVA_ROOTS) and handler.rpartition(".")[2].endswith("Handler")
    return is_java and not handler.startswith(BUILT_IN_HANDLERS)


def _instead_of(handler: Value) -> str:
    """Return what to write instead of a Java class that provides tokens."""
    name = handler.text.strip()
    url, client_id, secret, scope = (_beside(handler, f"sasl.oauthbearer.{key}") for key in _FROM_ENDPOINT)
    if name.startswith("io.strimzi."):
        pairs = ", ".join(
            f"{key} for {old}" for key, old in zip((url, client_id, secret, scope), _OF_STRIMZI, strict=True)
        )
        return f"leave it out, and write {pairs}; {url} = file:PATH for oauth.access.token.location"
    if name.startswith("com.google."):
        password = "its key in base64"  # noqa: S105 - what to write there
        return (
            f"write {_beside(handler, 'sasl.mechanism')} = PLAIN, with the service account as username and {password} "
            f"as password; or leave it out, run Google's kafka-auth-local-server, and write {url} = "
            f'http://localhost:14293 with clientId="unused" clientSecret="unused"'
        )
    if "azure" in name.lower() or name.startswith("com.microsoft."):
        return (
            f"leave it out, and write {url} = https://login.microsoftonline.com/TENANT/oauth2/v2.0/token, {client_id}, "
            f"{secret}, and {scope} = https://NAMESPACE.servicebus.windows.net/.default"
        )
    return f"write {url}, {client_id} and {secret}, or name a Python class, see mm2py docs security"


def _is_signed_by_amazon(mechanism: str, lines: Mapping[str, Value]) -> bool:
    handler = lines.get("sasl.login.callback.handler.class")
    return mechanism == "AWS_MSK_IAM" or (handler is not None and handler.text.strip().startswith("software.amazon."))


def _judge_password(protocol: Value, jaas: Value | None, options: Mapping[str, str]) -> Iterator[Problem]:
    missing = [name for name in ("username", "password") if name not in options]
    if jaas is None:
        key = _beside(protocol, "sasl.jaas.config")
        yield _problem(protocol, f"{key} is missing", f'add {key} = MODULE required username="…" password="…";')
    elif missing:
        yield _problem(jaas, f"{' and '.join(missing)} missing", 'write username="…" password="…"; after required')


def _judge_token(
    nearest: Value, jaas: Value | None, lines: Mapping[str, Value], options: Mapping[str, str]
) -> Iterator[Problem]:
    handler = lines.get("sasl.login.callback.handler.class")
    if handler is not None and not handler.text.strip().startswith("org.apache.kafka."):
        return
    url = lines.get(_FROM_URL)
    if url is None:
        if not any(name.startswith("unsecuredLogin") for name in options):
            line = jaas or nearest
            url_key, class_key = (_beside(line, key) for key in (_FROM_URL, "sasl.login.callback.handler.class"))
            yield _problem(line, "there is no source of tokens", f"add {url_key} = https://…, or {class_key}")
        return
    stem = "sasl.oauthbearer.client.credentials.client."
    wanted = {"clientId": f"{stem}id", "clientSecret": f"{stem}secret"}
    missing = [key for option, key in wanted.items() if option not in options and not _is_set(lines, key)]
    if missing and not trimmed(url.text).startswith("file:"):
        line = jaas or url
        hint = f'set {_beside(line, missing[0])}, or write clientId="…" clientSecret="…" in '
        hint += _beside(line, "sasl.jaas.config")
        yield _problem(line, "the client's id or secret is missing", hint)


def _is_set(lines: Mapping[str, Value], key: str) -> bool:
    return key in lines and bool(lines[key].text.strip())


def _beside(line: Value, key: str) -> str:
    """Return *key* as it would be written next to *line*: for the same cluster or flow."""
    own = client_key_in(line.key) or "security.protocol"
    return line.key.removesuffix(own) + key


def _problem(line: Value, message: str, hint: str) -> Problem:
    return Problem(line.where, line.key, message, hint)


def carries_secrets(endpoints: Sequence[ClusterEndpoint]) -> bool:
    """Whether plans with these endpoints contain secrets."""
    return any(endpoint.security.client_keys for endpoint in endpoints)


def is_on_this_machine(master: str) -> bool:
    """Whether Spark at *master* runs its tasks on this machine only."""
    return re.fullmatch(r"local(\[.*\])?|local-cluster\[.*\]", master.strip(), re.ASCII) is not None


def encrypts_traffic(spark: Mapping[str, str]) -> bool:
    """Whether Spark is configured to encrypt its network traffic and its spill files."""

    def is_on(key: str) -> bool:
        return spark.get(key, "").strip().lower() == "true"

    has_cipher = is_on("spark.network.crypto.enabled") or (
        is_on("spark.ssl.enabled") and is_on("spark.ssl.rpc.enabled")
    )
    return is_on("spark.authenticate") and has_cipher and is_on("spark.io.encryption.enabled")
