"""Refusals for single topics: reported once for each reason, with all its topics, and once when it works."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.flow import Flow
from mm2py.model.foreign import LONGEST_TOPIC
from mm2py.telemetry.events import TopicSyncFailed, TopicSyncRecovered
from mm2py.telemetry.journal import EventLog
from mm2py.wire.error_codes import ErrorCode


#: A thousand topics that lack one permission are one log line.
_NAMED = 10

_RIGHTS = {
    "DescribeConfigs": "DESCRIBE_CONFIGS on the topics",
    "IncrementalAlterConfigs": "ALTER_CONFIGS on the remote topics",
    "DescribeAcls": "DESCRIBE on the cluster",
    "CreateAcls": "ALTER on the cluster",
    "DeleteAcls": "ALTER on the cluster",
}
_HINTS = {
    "INVALID_CONFIG": "the target does not accept these values; exclude the keys with config.properties.exclude",
    "POLICY_VIOLATION": "a policy of the target forbids it; exclude the keys with config.properties.exclude",
    "UNSUPPORTED_VERSION": "the brokers are too old for it (Kafka 2.3); switch it off, or upgrade them",
}


class RefusalLog:
    """The refusals of one loop, by subject: a topic, or another resource."""

    def __init__(self, flow: Flow, step: str, events: EventLog) -> None:
        self._flow = flow
        self._step = step
        self._events = events
        self._open: dict[str, tuple[str, str]] = {}

    def note(self, asked: Collection[str], refused: Mapping[str, Mm2Error]) -> None:
        """Report new refusals in *refused*, and which of *asked* work again."""
        mended = sorted(subject for subject in asked if subject in self._open and subject not in refused)
        for subject in mended:
            del self._open[subject]
        if mended:
            self._events.emit(TopicSyncRecovered(self._flow, self._step, tuple(mended[:_NAMED]), len(mended)))
        news: dict[tuple[str, str], list[str]] = {}
        for subject, error in sorted(refused.items()):
            reason = _reason(error)
            if self._open.get(subject) != reason:
                self._open[subject] = reason
                news.setdefault(reason, []).append(subject)
        for subjects in news.values():
            error = refused[subjects[0]]
            named = tuple(subjects[:_NAMED])
            self._events.emit(
                TopicSyncFailed(self._flow, self._step, named, len(subjects), str(error), hint_for(error))
            )

    def forget(self, present: Collection[str]) -> None:
        """Drop subjects that are no longer *present*."""
        self._open = {subject: reason for subject, reason in self._open.items() if subject in present}


def hint_for(error: Mm2Error) -> str:
    """Return the hint; a missing permission has its Kafka name."""
    if not isinstance(error, BrokerAnsweredError):
        return error.hint
    if error.name.endswith("AUTHORIZATION_FAILED") and error.request in _RIGHTS:
        return f"grant the mirror's principal {_RIGHTS[error.request]} of {error.cluster}"
    return _HINTS.get(error.name, error.hint)


def _reason(error: Mm2Error) -> tuple[str, str]:
    """Return the common key of equal errors of different topics."""
    if isinstance(error, BrokerAnsweredError):
        return f"{error.cluster} {error.request}", error.name
    return type(error).__name__, str(error)


def kind_of(remote_topic: str, error: BrokerAnsweredError) -> str:
    """Return what refusals have in common that are reported together. Brokers have one error for a name that is too
    long, and for one that another topic's collides with.
    """
    if error.code != ErrorCode.INVALID_TOPIC_EXCEPTION or len(remote_topic) > LONGEST_TOPIC:
        return error.name
    return f"{error.name}: {error.detail}"
