"""Comparing a flow in this process, without Spark: slices one after the other, everything else is the product's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from mm2py.clock import SystemClock
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.copy.worker_state import WorkerState
from mm2py.verify.run import Verification, VerifyRequest
from mm2py.verify.slice import compare_slice
from mm2py.verify.values import PartitionReport, SliceOutcome, VerifyPlan, VerifyReport
from tests.support.flows import flow_settings


class InProcessSlices:
    """Compares slices where they are asked for, once what is to happen *before* has; `plans` remembers them."""

    def __init__(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self.plans: list[VerifyPlan] = []
        self._before = before

    async def ready(self) -> None:
        return

    async def run(
        self, _title: str, plans: Sequence[VerifyPlan], progress: Callable[[int], None]
    ) -> list[SliceOutcome]:
        self.plans += plans
        if self._before is not None:
            await self._before()
        outcomes = []
        clock = SystemClock()
        async with WorkerState() as state:
            for done, plan in enumerate(plans, 1):
                clusters = state.cluster(plan.source, clock), state.cluster(plan.target, clock)
                outcomes += [await compare_slice(plan, part, clusters) for part in plan.slices]
                progress(done)
        return outcomes


async def verify(
    source: str,
    target: str,
    topic: str,
    *,
    alias: str = "A",
    before: Callable[[], Awaitable[None]] | None = None,
    **asked: object,
) -> VerifyReport:
    """
    Compare one topic of a flow *alias*->B; *asked* are fields of the request, and keys of the file, with dots.

    What is to happen *before* the slices are compared comes after it was looked what there is.
    """
    fields = {key: value for key, value in asked.items() if "." not in key}
    keys = {key: value for key, value in asked.items() if "." in key}
    settings = flow_settings(source, target, alias=alias, topics=topic, **keys)
    request = VerifyRequest(**fields)  # type: ignore[arg-type]
    return await Verification(settings, request, InProcessSlices(before), clock=SystemClock()).run()  # type: ignore[arg-type]


def of_partition(report: VerifyReport, number: int) -> PartitionReport:
    """Return what is said of one partition of the only topic."""
    (found,) = [one for one in report.partitions if one.source.partition == number]
    return found


def by_partition(report: VerifyReport) -> dict[TopicPartition, PartitionReport]:
    """Return what is said of each partition."""
    return {one.source: one for one in report.partitions}
