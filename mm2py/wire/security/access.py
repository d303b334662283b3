"""Refused logins, as errors that name the principal and what to fix. A refused login is different from an unreachable
cluster: repeated attempts may lock an account, so they are made at growing intervals (`Penalty`), and nothing is gained
by trying the next broker.
"""

from __future__ import annotations

import re
import ssl
from typing import ClassVar, Final

import attrs

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error, shortened
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.security.contexts import principal_of


_FIRST_PAUSE_S: Final = 2.0
#: Once wrong, credentials are tried at most so often: less than what directories lock accounts for.
_LONGEST_PAUSE_S: Final = 300.0
#: Certificates do not lock accounts.
_LONGEST_TLS_PAUSE_S: Final = 30.0


@attrs.define(eq=False)
class BrokerAccessError(BrokerConnectionError):
    """A broker did not let this client in, or the client did not trust the broker."""

    principal: str
    hint: str  # type: ignore[misc] # it depends on what is wrong
    #: Do attempts count against an account?
    may_lock: bool = False

    def __str__(self) -> str:
        return f"cluster {self.cluster}, broker {self.broker}, {self.principal}: {self.cause}"


@attrs.define(eq=False)
class ClusterAccessError(ClusterUnreachableError):
    """None of a cluster's brokers let this client in."""

    principal: str
    hint: str  # type: ignore[misc] # it depends on what is wrong

    def __str__(self) -> str:
        return f"cluster {self.cluster} at {self.servers}, {self.principal}: {self.cause}"


@attrs.define(eq=False)
class NotAuthorizedError(BrokerAnsweredError):
    """A broker knows this client and does not let it do what it asked for; `grant` is what it lacks."""

    hint: ClassVar[str] = "mm2py docs security has all permissions that are needed"

    grant: str = ""

    def hint_for(self, principal: str) -> str:
        """Return what to grant to whom."""
        where = f" {self.cluster}" if self.grant.endswith("the cluster") else f" of cluster {self.cluster}"
        return f"grant {principal} {self.grant}{where}; {self.hint}"


def hint_at(error: Mm2Error, endpoint: ClusterEndpoint) -> str:
    """Return the hint of an *error* at *endpoint*; it says to whom there what is missing is to be granted."""
    return error.hint_for(principal_of(endpoint)) if isinstance(error, NotAuthorizedError) else error.hint


@attrs.define
class Penalty:
    """When a cluster that kept us out may be asked again, and what it said."""

    error: BrokerAccessError
    until: float
    failures: int
    #: The credentials' fingerprint; changed ones may be tried at once.
    state: object
    since: float


def next_penalty(before: Penalty | None, error: BrokerAccessError, now: float, state: object, jitter: float) -> Penalty:
    """Return the pause that follows from one more refusal, doubled each time, spread by a fifth."""
    failures = before.failures + 1 if before is not None and before.state == state else 1
    longest_s = _LONGEST_PAUSE_S if error.may_lock else _LONGEST_TLS_PAUSE_S
    pause_s = min(longest_s, _FIRST_PAUSE_S * 2.0 ** min(failures - 1, 16)) * (0.8 + 0.4 * jitter)
    return Penalty(error, now + pause_s, failures, state, now)


@attrs.frozen
class Refused:
    """What is wrong, and what to do about it."""

    cause: str = attrs.field(converter=shortened)
    hint: str
    may_lock: bool = False


class LoginRefusedError(Exception):
    """The broker did not accept a login, or there is nothing to log in with."""

    def __init__(self, refused: Refused, principal: str | None = None) -> None:
        super().__init__(refused.cause)
        self.refused = refused
        self.principal = principal


WANTS_PLAINTEXT: Final = Refused(
    "the broker does not speak TLS on this port",
    "set security.protocol to what this listener takes (PLAINTEXT or SASL_PLAINTEXT), or name a TLS listener's port",
)
WANTS_TLS: Final = Refused(
    "the broker speaks TLS on this port, and security.protocol says that it does not",
    "set security.protocol to SSL or SASL_SSL for this cluster, or name a plaintext listener's port",
)
WANTS_LOGIN: Final = Refused(
    "the broker closed the connection at the first request, as one does that expects SASL",
    "set security.protocol to SASL_PLAINTEXT or SASL_SSL for this cluster, with sasl.mechanism and sasl.jaas.config",
)
_CLIENT_CERTIFICATE_HINT: Final = (
    "set ssl.keystore.* to a key and certificate that the brokers' truststore accepts; it may have expired there too"
)
#: Alerts by which a broker says what it does not like about us, by OpenSSL's names of them.
_ALERTS: Final = {
    "CERTIFICATE_REQUIRED": "the broker asks for a client certificate and got none",
    "BAD_CERTIFICATE": "the broker does not accept the client's certificate",
    "CERTIFICATE_UNKNOWN": "the broker does not accept the client's certificate",
    "UNKNOWN_CA": "the broker does not trust the authority that signed the client's certificate",
    "CERTIFICATE_EXPIRED": "the broker says that the client's certificate has expired",
    "CERTIFICATE_REVOKED": "the broker says that the client's certificate was revoked",
    "UNSUPPORTED_CERTIFICATE": "the broker does not accept this kind of client certificate",
}
_NOTHING_IN_COMMON: Final = ("PROTOCOL_VERSION", "HANDSHAKE_FAILURE", "INSUFFICIENT_SECURITY", "NO_CIPHERS")
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF")


def tls_refusal(error: BaseException | None) -> Refused | None:
    """Return the cause of a failed TLS handshake; None if it was not about TLS."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        if isinstance(error, ssl.SSLCertVerificationError):
            return _untrusted(error)
        if isinstance(error, ssl.SSLError):
            return _refused_hand_shake(error)
        error = error.__cause__ or error.__context__
    return None


def _untrusted(error: ssl.SSLCertVerificationError) -> Refused:
    said = error.verify_message or str(error)
    lower = said.lower()
    if "expired" in lower or "not yet valid" in lower:
        return Refused(f"the broker's certificate: {said}", "renew the broker's certificate, or correct the clocks")
    if "mismatch" in lower or "not valid for" in lower:
        hint = (
            "use the name that the certificate has in bootstrap.servers and advertised.listeners, or have it reissued; "
            "an empty ssl.endpoint.identification.algorithm switches the check off"
        )
        return Refused(f"the broker's certificate is for another host: {said}", hint)
    hint = "add the authority that signed the broker's certificate to ssl.truststore.*, or correct its location"
    return Refused(f"the broker's certificate is not trusted: {said}", hint)


def _refused_hand_shake(error: ssl.SSLError) -> Refused:
    reason = (error.reason or str(error)).upper()
    for alert, cause in _ALERTS.items():
        if f"ALERT_{alert}" in reason or reason.endswith(alert):
            return Refused(cause, _CLIENT_CERTIFICATE_HINT)
    if any(word in reason for word in _NOT_TLS) or isinstance(error, ssl.SSLEOFError):
        return WANTS_PLAINTEXT
    if any(word in reason for word in _NOTHING_IN_COMMON):
        hint = "compare ssl.enabled.protocols and ssl.cipher.suites with the brokers', or set ssl.keystore.*"
        return Refused(f"no TLS version or cipher in common, or no certificate: {reason.lower()}", hint)
    return Refused(f"the TLS hand-shake failed: {reason.lower()}", "check ssl.* of this cluster and the broker's log")


def mechanism_refusal(mechanism: str, enabled: list[str]) -> Refused:
    """Return the error for an unsupported mechanism."""
    known = ", ".join(sorted(enabled)) or "none"
    return Refused(
        f"the broker does not take sasl.mechanism {mechanism}; it takes {known}",
        "set sasl.mechanism to one that this listener has, or enable this one there (sasl.enabled.mechanisms)",
    )


NO_SASL: Final = Refused(
    "the broker does no SASL on this port",
    "set security.protocol to PLAINTEXT or SSL for this cluster, or name a SASL listener's port",
)


_TICKET_HINT: Final = (
    "the broker's log may say why: its keytab is not that of its key in the KDC, its clock is wrong, or none of its "
    "sasl.kerberos.principal.to.local.rules applies to the principal"
)
_TOKEN_HINT: Final = "correct the client id and secret, the scope, or what the broker expects of a token"  # noqa: S105
_PASSWORD_HINT: Final = "correct username and password in sasl.jaas.config, or create the user on the cluster"  # noqa: S105


def login_refusal(mechanism: str, said: str) -> Refused:
    """Return the error for refused credentials; *said* is the broker's message."""
    kinds = {"GSSAPI": ("ticket", _TICKET_HINT), "OAUTHBEARER": ("token", _TOKEN_HINT)}
    what, hint = kinds.get(mechanism, ("user name or password", _PASSWORD_HINT))
    words = f": {said}" if said else ""
    # What a broker thinks of a ticket counts against no account, and is its own: another one may take it.
    return Refused(f"the broker refused the {what}{words}", hint, may_lock=what != "ticket")


def login_failure(said: str) -> Refused:
    """Return the error for a login that failed before the broker decided, in the user's own class."""
    return Refused(f"the login failed: {said}", "check sasl.* of this cluster")


def lost_before_answer(error: BaseException) -> bool:
    """Whether a connection was closed by its other end, rather than never opened."""
    return isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLError)


#: Requests whose answers speak of topic-partitions; permissions are on topics.
_OF_PARTITIONS: Final = ("Produce", "Fetch", "ListOffsets")
#: Which operation on what a request needs; what is in braces is the answer's detail, mostly a topic.
_GRANTS: Final = {
    "Metadata": "DESCRIBE on topic {}",
    "MetadataRequest": "DESCRIBE on topic {}",
    "ListOffsets": "DESCRIBE on topic {}",
    "Fetch": "READ on topic {}",
    "Produce": "WRITE on topic {}",
    "CreateTopics": "CREATE on topic {}",
    "CreatePartitions": "ALTER on topic {}",
    "DescribeConfigs": "DESCRIBE_CONFIGS on topic {}",
    "IncrementalAlterConfigs": "ALTER_CONFIGS on topic {}",
    "AlterConfigs": "ALTER_CONFIGS on topic {}",
    "DeleteRecords": "DELETE on topic {}",
    "InitProducerId": "IDEMPOTENT_WRITE on the cluster",
    "FindTransactionCoordinator": "WRITE on transactional id {}",  # which implies DESCRIBE, and is needed next
    "InitTransactions": "WRITE on transactional id {}",
    "AddPartitionsToTxn": "WRITE on transactional id {}",
    "EndTxn": "WRITE on transactional id {}",
    "DescribeAcls": "DESCRIBE on the cluster",
    "CreateAcls": "ALTER on the cluster",
    "ListGroups": "DESCRIBE on the groups, or on the cluster",
    "DescribeGroups": "DESCRIBE on group {}",
    "OffsetFetch": "DESCRIBE on group {} and on its topics",
    "OffsetCommit": "READ on group {} and on its topics",
    "FindCoordinator": "DESCRIBE on group {}",
    "JoinGroup": "READ on group {}",
    "SyncGroup": "READ on group {}",
    "Heartbeat": "READ on group {}",
    "LeaveGroup": "READ on group {}",
}


def unseen(error: BrokerAnsweredError) -> BrokerAnsweredError:
    """Return the permission that is missing when a topic exists although no listing shows it."""
    if error.name != "TOPIC_ALREADY_EXISTS":
        return error
    grant = f"DESCRIBE on topic {error.detail.split(':', 1)[0]}"
    return NotAuthorizedError(error.cluster, error.request, error.code, error.name, error.detail, grant)


def grant_for(request: str, detail: str, *, on_cluster: bool = False) -> str:
    """Return what a principal lacks whose *request* was refused; *detail* begins with the resource's name."""
    name = request.removesuffix("Request")
    resource = detail.split(":", 1)[0].strip() or "(see the message)"
    if name in _OF_PARTITIONS:
        resource = re.sub(r"-\d+\Z", "", resource)
    known = _GRANTS.get(name)
    if known and on_cluster:
        return f"{known.split(' on ')[0]} on the cluster"
    return known.format(resource) if known else f"what {request} on {resource} needs"
