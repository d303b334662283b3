"""Internal topics that are deleted while a flow runs: they are recreated and refilled, with an event. Those whose
records would expire are reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from mm2py.errors import Mm2Error
from mm2py.model.flow import Flow
from mm2py.storage.compacted_topic import CompactedTopic, Contents, Refilled, wrong_policy
from mm2py.telemetry.events import InternalTopicExpires, InternalTopicRecreated
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.fenced_writer import LogWriter
from mm2py.wire.topic_log import LogRecord


#: Brokers compact no segment that they still write, of a gigabyte or a week by default, and all of it is read at each
#: start. A topic has as much in such segments, but one is not smaller than Kafka allows.
_SEGMENTS_BYTES = 16 * 1024 * 1024
_LEAST_SEGMENT_BYTES = 1024 * 1024
#: Of a topic that is read as a whole again and again.
SMALLEST_SEGMENTS: Final[Mapping[str, str]] = {"segment.bytes": str(_LEAST_SEGMENT_BYTES)}


def small_segments(partitions: int) -> dict[str, str]:
    """Return the configs of an internal topic that is written all the time and read as a whole."""
    return {"segment.bytes": str(max(_LEAST_SEGMENT_BYTES, _SEGMENTS_BYTES // partitions))}


async def nothing() -> Sequence[LogRecord]:
    """Refill a topic with nothing: its records are obsolete."""
    return ()


def kept_log(
    flow: Flow,
    cluster: Cluster,
    topic: str,
    events: EventLog,
    contents: Contents = nothing,
    *,
    correct: Contents | None = None,
    writer: LogWriter | None = None,
) -> CompactedTopic:
    """Return the log of an internal *topic* of *flow*; see `CompactedTopic` for *contents*, *correct* and *writer*."""

    def tell(refilled: Refilled) -> None:
        events.emit(recreated(flow, refilled))

    def tell_policy(policy: str) -> None:
        events.emit(InternalTopicExpires(cluster.alias, topic, policy))

    return CompactedTopic(cluster, topic, contents, tell, correct=correct, writer=writer, expires=tell_policy)


async def report_expiry(cluster: Cluster, topic: str, events: EventLog) -> None:
    """Report that what *topic* holds is deleted some day, if we may see that."""
    policy = None
    with suppress(Mm2Error):
        policy = await wrong_policy(cluster, topic)
    if policy is not None:
        events.emit(InternalTopicExpires(cluster.alias, topic, policy))


def recreated(flow: Flow, refilled: Refilled) -> InternalTopicRecreated:
    """Report that an internal topic was recreated."""
    cause = "it was deleted" if refilled.was_made else "another one has taken its place, or it lost all its records"
    hint = ""
    if refilled.wrong_policy is not None:
        hint = f"its cleanup.policy is {refilled.wrong_policy}: set it to compact, or what it holds expires"
    return InternalTopicRecreated(flow, refilled.cluster, refilled.topic, cause, refilled.records, hint)
