"""Events of a completed epoch and its partitions."""

from __future__ import annotations

from mm2py.connectors.measures import pause_left_s
from mm2py.core.source.progress import Occurrence, PartitionState
from mm2py.model.epoch import EpochOutcome, EpochPlan, PartitionFailure
from mm2py.model.flow import Flow
from mm2py.telemetry.events import (
    EpochEnded,
    Event,
    ForeignRecordsFound,
    PartitionInterrupted,
    PartitionRecovered,
    PartitionStopped,
    RecordsSkipped,
    ResumedExactly,
    ResumeUnproven,
    SourceTopicRebuilt,
)


def epoch_ended(plan: EpochPlan, outcome: EpochOutcome, took_s: float, lag: int) -> EpochEnded:
    """Return an epoch's event; *lag* is how far its partitions are behind now, *took_s* the time with its boundary."""
    return EpochEnded(
        flow=plan.flow,
        task=plan.task,
        epoch=plan.epoch,
        partitions=len(plan.partitions),
        records=outcome.records,
        bytes=outcome.bytes,
        records_per_s=outcome.records / took_s if took_s else 0.0,
        lag=lag,
        latency_p50_ms=outcome.latency.quantile_ms(0.5),
        latency_p99_ms=outcome.latency.quantile_ms(0.99),
        elapsed_s=outcome.elapsed_s,
        boundary_ms=max(0.0, took_s - outcome.elapsed_s) * 1000,
        drain_s=outcome.drain_s,
        rss_bytes=outcome.rss_bytes,
        worker=outcome.worker,
        **outcome.counts(),
    )


def partition_news(
    flow: Flow, occurrence: Occurrence, before: PartitionState, after: PartitionState, *, now: float
) -> Event | None:
    """Return the event for a partition's news in an epoch; None if there is none."""
    source, failure = after.source, after.failure or PartitionFailure("")
    event: Event | None = None
    match occurrence:
        case Occurrence.RESUMED_EXACTLY:
            found = after.resumed_records - before.resumed_records
            event = ResumedExactly(flow, source, found, before.position + found)
        case Occurrence.RESUME_UNPROVEN:
            first, last = before.downstream, after.downstream
            repeated = None if first is None or last is None else last - first
            event = ResumeUnproven(flow, source, before.position, failure.message, failure.hint, repeated)
        case Occurrence.RECORDS_SKIPPED:
            event = RecordsSkipped(flow, source, before.position, after.position, failure.message)
        case Occurrence.INTERRUPTED:
            event = PartitionInterrupted(flow, source, failure.message, max(0.0, after.retry_at - now))
        case Occurrence.STOPPED:
            ended, retry_in_s = after.ended.name.lower(), pause_left_s(after, now)
            event = PartitionStopped(flow, source, ended, failure.message, failure.hint, failure.offset, retry_in_s)
        case Occurrence.FOREIGN_RECORDS:
            event = ForeignRecordsFound(flow, source, after.remote_topic, after.foreign_records)
        case Occurrence.REBUILT:
            former = before.repair
            left = former.left if former is not None else 0
            event = SourceTopicRebuilt(flow, source, after.remote_topic, before.position, after.position, left)
        case Occurrence.RECOVERED:
            event = PartitionRecovered(flow, source, now - before.failed_at)
    return event
