"""What clusters refuse is said once for each reason, and once when it works."""

from __future__ import annotations

import pytest

from mm2py.connectors.topics.refusals import RefusalLog, hint_for
from mm2py.errors import ClusterUnreachableError, Mm2Error
from mm2py.model.flow import Flow
from mm2py.telemetry.events import TopicSyncFailed, TopicSyncRecovered
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode, error_of


FLOW = Flow("A", "B")
DENIED = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "B", "IncrementalAlterConfigs", "t1")
ALSO_DENIED = error_of(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "B", "IncrementalAlterConfigs", "t2")
INVALID = error_of(ErrorCode.INVALID_CONFIG, "B", "IncrementalAlterConfigs", "t1: Unknown topic config name: nope")


@pytest.fixture
def complaints(events: EventLog) -> RefusalLog:
    return RefusalLog(FLOW, "synchronise", events)


def test_many_topics_with_one_trouble_are_one_event(events: EventLog, complaints: RefusalLog) -> None:
    """Topics that are refused for the same reason are told together, ten of them by name."""
    complaints.note([], {f"t{number:02}": DENIED for number in range(30)})
    (event,) = events.of(TopicSyncFailed)

    assert (event.count, event.topics[0], len(event.topics)) == (30, "t00", 10)
    assert event.hint == "grant the mirror's principal ALTER_CONFIGS on the remote topics of B"


def test_a_refusal_is_told_until_its_reason_changes(events: EventLog, complaints: RefusalLog) -> None:
    """The same reason is not told again, though its words name another topic; another reason is."""
    complaints.note(["t1"], {"t1": DENIED})
    complaints.note(["t1"], {"t1": ALSO_DENIED})
    complaints.note(["t1"], {"t1": INVALID})

    assert [event.error.split()[5] for event in events.of(TopicSyncFailed)] == [
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_CONFIG",
    ]


def test_what_works_again_is_told_once(events: EventLog, complaints: RefusalLog) -> None:
    """Only a topic that was asked about, and was refused before, has recovered."""
    complaints.note(["t1", "t2"], {"t1": DENIED, "t2": DENIED})
    complaints.note(["t1", "t3"], {})
    complaints.note(["t1", "t3"], {})

    assert [event.topics for event in events.of(TopicSyncRecovered)] == [("t1",)]


def test_a_topic_that_is_gone_does_not_recover(events: EventLog, complaints: RefusalLog) -> None:
    """Trouble with a topic that is mirrored no longer is forgotten; when it comes back, it is reported again."""
    complaints.note(["t1"], {"t1": DENIED})
    complaints.forget([])
    complaints.note(["t1"], {"t1": DENIED})

    assert (len(events.of(TopicSyncFailed)), events.of(TopicSyncRecovered)) == (2, ())


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        (error_of(29, "A", "DescribeConfigs"), "grant the mirror's principal DESCRIBE_CONFIGS on the topics of A"),
        (error_of(31, "A", "DescribeAcls"), "grant the mirror's principal DESCRIBE on the cluster of A"),
        (error_of(31, "B", "CreateAcls"), "grant the mirror's principal ALTER on the cluster of B"),
        (INVALID, "the target does not accept these values; exclude the keys with config.properties.exclude"),
        (ClusterUnreachableError("B", "b:1", "refused"), ClusterUnreachableError.hint),
    ],
)
def test_hints_say_what_to_grant(error: Mm2Error, hint: str) -> None:
    """A missing right is named as Kafka names it, without naming who lacks it."""
    assert hint_for(error) == hint
