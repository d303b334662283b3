"""Kafka's error codes."""

from __future__ import annotations

import pickle

import pytest

from mm2py.errors import BrokerAnsweredError
from mm2py.wire.error_codes import ErrorCode, error_of, is_retriable, name_of, needs_lookup, needs_metadata


def test_the_table_has_no_gap() -> None:
    """Every code of Kafka 4.3 is there."""
    codes = [int(code) for code in ErrorCode]

    assert codes == list(range(-1, 134))


@pytest.mark.parametrize(
    ("code", "name", "verdicts"),
    [
        (0, "NONE", (False, False, False)),
        (3, "UNKNOWN_TOPIC_OR_PARTITION", (True, True, False)),
        (6, "NOT_LEADER_OR_FOLLOWER", (True, True, False)),
        (7, "REQUEST_TIMED_OUT", (True, False, False)),
        (10, "MESSAGE_TOO_LARGE", (False, False, False)),
        (16, "NOT_COORDINATOR", (True, False, True)),
        (29, "TOPIC_AUTHORIZATION_FAILED", (False, False, False)),
        (41, "NOT_CONTROLLER", (True, False, True)),
        (74, "FENCED_LEADER_EPOCH", (True, True, False)),
        (75, "UNKNOWN_LEADER_EPOCH", (True, False, False)),
        (87, "INVALID_RECORD", (False, False, False)),
        (133, "SHARE_SESSION_LIMIT_REACHED", (True, False, False)),
        (9_999, "ERROR_9999", (False, False, False)),
    ],
)
def test_what_may_be_done(code: int, name: str, verdicts: tuple[bool, bool, bool]) -> None:
    """A code has Kafka's name and Kafka's own verdict on whether to try again and what to look up before."""
    seen = (is_retriable(code), needs_metadata(code), needs_lookup(code))

    assert (name, verdicts) == (name_of(code), seen)


def test_error_of() -> None:
    """An error tells cluster, request, code and what the broker said, also after it crossed a process border."""
    error = pickle.loads(pickle.dumps(error_of(36, "B", "CreateTopics", "Topic 'foo' already exists.")))

    assert type(error) is BrokerAnsweredError
    assert str(error) == "cluster B answered CreateTopics with TOPIC_ALREADY_EXISTS [36] (Topic 'foo' already exists.)"


def test_a_record_of_ours_with_a_wrong_time_names_the_clocks() -> None:
    """A host whose clock is hours fast writes no positions: what to do is said, also after a process border."""
    error = pickle.loads(pickle.dumps(error_of(ErrorCode.INVALID_TIMESTAMP, "B", "Produce", "positions-1")))

    assert "clocks" in error.hint
    assert str(error) == "cluster B answered Produce with INVALID_TIMESTAMP [32] (positions-1)"


@pytest.mark.parametrize(
    ("code", "request_name", "message", "hint"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, "Metadata", "no broker of cluster B leads positions-1", "kafka-topics.sh"),
        (
            ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "FindTransactionCoordinator",
            "cluster B answered FindTransactionCoordinator with COORDINATOR_NOT_AVAILABLE [15] (positions-1)",
            "__transaction_state",
        ),
        (
            ErrorCode.NOT_ENOUGH_REPLICAS,
            "Produce",
            "cluster B answered Produce with NOT_ENOUGH_REPLICAS [19] (positions-1)",
            "min.insync.replicas",
        ),
        (
            ErrorCode.CONCURRENT_TRANSACTIONS,
            "EndTxn",
            "cluster B answered EndTxn with CONCURRENT_TRANSACTIONS [51] (positions-1)",
            "min.insync.replicas",
        ),
    ],
)
def test_what_is_away_is_named(code: ErrorCode, request_name: str, message: str, hint: str) -> None:
    """A partition without enough brokers, also if only the end of a transaction shows it: what to look at is said."""
    error = pickle.loads(pickle.dumps(error_of(code, "B", request_name, "positions-1")))

    assert str(error) == message
    assert hint in error.hint
