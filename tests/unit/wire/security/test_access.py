"""Why a client is kept out, in words."""

from __future__ import annotations

import ssl

import pytest

from mm2py.wire.error_codes import error_of
from mm2py.wire.security.access import (
    BrokerAccessError,
    NotAuthorizedError,
    grant_for,
    login_refusal,
    next_penalty,
    tls_refusal,
    unseen,
)


def _alert(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}] {reason.lower()}")
    error.reason = reason
    return error


def _untrusted(message: str) -> ssl.SSLCertVerificationError:
    error = ssl.SSLCertVerificationError(1, message)
    error.verify_message = message
    return error


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (_untrusted("certificate has expired"), "the broker's certificate: certificate has expired"),
        (_untrusted("certificate is not yet valid"), "the broker's certificate: certificate is not yet valid"),
        (_untrusted("Hostname mismatch, certificate is not valid for 'b'."), "is for another host"),
        (_untrusted("self-signed certificate"), "the broker's certificate is not trusted: self-signed"),
        (_untrusted("unable to get local issuer certificate"), "the broker's certificate is not trusted"),
        (_alert("TLSV13_ALERT_CERTIFICATE_REQUIRED"), "asks for a client certificate and got none"),
        (_alert("TLSV1_ALERT_UNKNOWN_CA"), "does not trust the authority that signed the client's certificate"),
        (_alert("SSLV3_ALERT_CERTIFICATE_EXPIRED"), "says that the client's certificate has expired"),
        (_alert("SSLV3_ALERT_BAD_CERTIFICATE"), "does not accept the client's certificate"),
        (_alert("TLSV1_ALERT_PROTOCOL_VERSION"), "no TLS version or cipher in common"),
        (_alert("WRONG_VERSION_NUMBER"), "the broker does not speak TLS on this port"),
        (_alert("SOMETHING_NEW"), "the TLS hand-shake failed: something_new"),
    ],
)
def test_failed_hand_shakes(error: ssl.SSLError, cause: str) -> None:
    """What OpenSSL says, be it wrapped in another error, becomes what is wrong and what to do about it."""
    outer = RuntimeError("connection closed")
    outer.__cause__ = error
    refused = tls_refusal(outer)

    assert refused is not None
    assert cause in refused.cause
    assert refused.hint
    assert not refused.may_lock


def test_what_is_not_about_tls() -> None:
    """Other failures are left to others, errors that cause each other in a ring included."""
    one, two = RuntimeError("one"), RuntimeError("two")
    one.__cause__, two.__cause__ = two, one

    assert tls_refusal(one) is None
    assert tls_refusal(ConnectionRefusedError()) is None


def test_pauses_grow_to_what_accounts_can_bear() -> None:
    """Credentials are tried every five minutes at most in the end, certificates every half a minute."""
    password = BrokerAccessError("B", "b:1", "no", "User:x", "mend", may_lock=True)
    certificate = BrokerAccessError("B", "b:1", "no", "User:x", "mend")
    last = {}
    for error in (password, certificate):
        penalty = None
        for _ in range(20):
            penalty = next_penalty(penalty, error, 0.0, "same", 0.5)
        assert penalty is not None
        last[error.may_lock] = penalty.until
        last[error.may_lock, "changed"] = next_penalty(penalty, error, 0.0, "other", 0.5).until

    assert last == {True: 300.0, False: 30.0, (True, "changed"): 2.0, (False, "changed"): 2.0}


@pytest.mark.parametrize(
    ("request_name", "detail", "grant"),
    [
        ("CreateTopics", "A.orders: Authorization failed.", "CREATE on topic A.orders"),
        ("Produce", "orders-7-18", "WRITE on topic orders-7"),
        ("MetadataRequest", "orders", "DESCRIBE on topic orders"),
        ("InitProducerId", "", "IDEMPOTENT_WRITE on the cluster"),
        ("SomethingNew", "orders", "what SomethingNew on orders needs"),
    ],
)
def test_what_to_grant(request_name: str, detail: str, grant: str) -> None:
    """A refused request names the operation and the resource that it needs."""
    assert grant_for(request_name, detail) == grant


@pytest.mark.parametrize(
    ("code", "request_name", "detail", "grant"),
    [
        *((code, "Fetch", "orders", "READ on topic orders of cluster B") for code in (29, 30, 53)),
        (31, "CreateTopics", "A.orders: no", "CREATE on the cluster B; "),
    ],
)
def test_authorization_errors_know_what_lacks(code: int, request_name: str, detail: str, grant: str) -> None:
    """Each of Kafka's authorization errors is one of ours that says what to grant to whom, on what."""
    error = error_of(code, "B", request_name, detail)

    assert isinstance(error, NotAuthorizedError)
    assert error.hint_for("User:x").startswith(f"grant User:x {grant}")


def test_a_topic_that_is_there_but_not_shown() -> None:
    """A topic that cannot be created because it exists, though we cannot see it, needs DESCRIBE."""
    error = unseen(error_of(36, "B", "CreateTopics", "A.orders: Topic 'A.orders' already exists."))
    other = error_of(44, "B", "CreateTopics", "A.orders: no")

    assert isinstance(error, NotAuthorizedError)
    assert error.hint_for("User:x").startswith("grant User:x DESCRIBE on topic A.orders of cluster B; ")
    assert unseen(other) is other


def test_brokers_words_are_kept() -> None:
    """What a broker says about a login is passed on."""
    assert login_refusal("PLAIN", "no such user").cause.endswith("user name or password: no such user")
    assert login_refusal("OAUTHBEARER", "").cause == "the broker refused the token"
    assert login_refusal("GSSAPI", "").cause == "the broker refused the ticket"
    assert [login_refusal(it, "").may_lock for it in ("PLAIN", "OAUTHBEARER", "GSSAPI")] == [True, True, False]
