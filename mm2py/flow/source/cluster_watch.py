"""Finds out, after a partition was interrupted, whether a cluster is away, and when it is back."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from mm2py.flow.source.outcomes import Outcomes
from mm2py.flow.task_group import FlowContext
from mm2py.wire.cluster import Cluster


#: How often a cluster that is away is asked whether it is back.
_TICK_S = 1.0


async def watch_clusters(context: FlowContext, outcomes: Outcomes, clusters: Iterable[Cluster]) -> None:
    """Ask *clusters* when *outcomes* interrupt a partition, until all of them answer."""
    reach = context.reach
    while True:
        await outcomes.is_interrupted.wait()
        outcomes.is_interrupted.clear()
        refusals, outcomes.refusals = outcomes.refusals, {}
        for refusal in refusals.values():
            reach.refused(refusal)
        await _ask(context, clusters)
        while not reach.is_complete:
            await context.clock.sleep(_TICK_S)
            await _ask(context, clusters)


async def _ask(context: FlowContext, clusters: Iterable[Cluster]) -> None:
    for cluster in clusters:
        await context.reach.done("look at the brokers", [cluster.alias], partial(cluster.refresh_metadata, ()))
