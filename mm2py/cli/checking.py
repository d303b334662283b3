"""The part of ``--validate`` that needs Spark: whether transforms can run."""

from __future__ import annotations

from mm2py.clock import SystemClock
from mm2py.config.problem import Problem
from mm2py.config.settings import MirrorSettings
from mm2py.core.transform.matching import TopicTransforms
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.dry_run import refusals
from mm2py.telemetry.journal import EventLog


_STOP_WITHIN_S = 5.0
_HINT = "see docs/transforms.md"


async def refused_transforms(settings: MirrorSettings) -> list[Problem]:
    """
    Have Spark analyse each statement and function; return the problems found.

    Spark is started on this machine if there is anything to check; no Kafka cluster is needed.
    """
    flows = [flow for flow in settings.flows if flow.is_enabled]
    wanted = {flow.flow: TopicTransforms(flow.transforms).tasks for flow in flows}
    if not any(transform.uses_spark for transforms in wanted.values() for transform in transforms):
        return []
    clock = SystemClock()
    local = {**settings.spark, "spark.master": "local[1]"}
    host = SparkHost(local, copy_tasks=1, clock=clock, events=EventLog(clock))
    written = {(row.owner, row.key): row.origin.partition(",")[0] for row in settings.effective}
    problems: list[Problem] = []
    try:
        for flow, transforms in wanted.items():
            for name, problem in (await refusals(host, transforms)).items():
                problems.append(Problem(written.get((str(flow), name), ""), f"{flow}.{name}", problem, _HINT))
    finally:
        await host.stop(within_s=_STOP_WITHIN_S)
    return problems
