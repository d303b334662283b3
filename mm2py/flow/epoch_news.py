"""What is told of an epoch once it is over."""

from __future__ import annotations

from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.telemetry.events import EpochEnded


def epoch_ended(plan: EpochPlan, outcome: EpochOutcome, took_s: float, lag: int) -> EpochEnded:
    """Put an epoch's numbers together; *lag* is how far its partitions are behind now, *took_s* all that it took."""
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
        cpu_s=outcome.cpu_s,
        rss_bytes=outcome.rss_bytes,
        fetches=outcome.fetches,
        produces=outcome.produces,
        retries=outcome.retries,
        throttled_ms=outcome.throttled_ms,
        worker=outcome.worker,
    )
