"""What ``--validate`` finds by having Spark analyse transforms."""

from __future__ import annotations

from mm2py.cli.checking import lines_of, transforms_tried
from mm2py.clock import SystemClock
from mm2py.config.problem import Problem
from mm2py.config.settings import MirrorSettings
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.dry_run import refusals
from mm2py.telemetry.journal import EventLog


_STOP_WITHIN_S = 5.0
_HINT = "see mm2py docs transforms"


async def refused_transforms(settings: MirrorSettings) -> list[Problem]:
    """
    Have Spark analyse each statement and function; return the problems found.

    Spark is started on this machine; no Kafka cluster is needed.
    """
    clock = SystemClock()
    local = {**settings.spark, "spark.master": "local[1]"}
    host = SparkHost(local, copy_tasks=1, clock=clock, events=EventLog(clock))
    written = lines_of(settings)
    problems: list[Problem] = []
    try:
        for flow, transforms in transforms_tried(settings).items():
            for name, problem in (await refusals(host, transforms)).items():
                problems.append(Problem(written.get((str(flow), name), ""), f"{flow}.{name}", problem, _HINT))
    finally:
        await host.stop(within_s=_STOP_WITHIN_S)
    return problems
