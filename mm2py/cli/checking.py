"""What ``--validate`` finds by trying: classes, key stores, and whether Spark can run the transforms."""

from __future__ import annotations

from mm2py.clock import SystemClock
from mm2py.config.problem import Problem
from mm2py.config.settings import MirrorSettings
from mm2py.core.transform.matching import TopicTransforms
from mm2py.flow.plugins import config_filter_of, group_filter_of, policy_of, topic_filter_of
from mm2py.pipeline.spark.session import SparkHost
from mm2py.pipeline.transform.dry_run import refusals
from mm2py.policy.plugins import PluginError
from mm2py.telemetry.journal import EventLog
from mm2py.wire.security.contexts import SecuritySettingsError, tls_context


_STOP_WITHIN_S = 5.0
_HINT = "see docs/transforms.md"


def refused_here(settings: MirrorSettings) -> list[Problem]:
    """Return what cannot be used on this machine: classes that cannot be loaded, key stores that cannot be read."""
    problems: dict[Problem, None] = {}
    written = _lines(settings)
    for flow in settings.flows:
        for load in (policy_of, topic_filter_of, group_filter_of, config_filter_of):
            try:
                load(flow)
            except PluginError as error:
                line = written.get((str(flow.flow), error.key), "")
                problems[Problem(line, error.key, f"{error.class_name}: {error.reason}", error.hint)] = None
        for endpoint in (flow.source, flow.target):
            try:
                tls_context(endpoint)
            except SecuritySettingsError as error:
                name = f"{error.cluster}.{error.key}"
                line = written.get((error.cluster, error.key), "") or written.get((str(flow.flow), error.key), "")
                problems[Problem(line, name, error.problem, error.hint)] = None
    return list(problems)


def _lines(settings: MirrorSettings) -> dict[tuple[str, str], str]:
    """Return where each effective key of a flow or cluster is written."""
    return {(row.owner, row.key): row.origin.partition(",")[0] for row in settings.effective}


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
    written = _lines(settings)
    problems: list[Problem] = []
    try:
        for flow, transforms in wanted.items():
            for name, problem in (await refusals(host, transforms)).items():
                problems.append(Problem(written.get((str(flow), name), ""), f"{flow}.{name}", problem, _HINT))
    finally:
        await host.stop(within_s=_STOP_WITHIN_S)
    return problems
