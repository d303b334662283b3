"""
What a Python worker is sent of a plan.

Of a copy task with thousands of topic-partitions, most are planned as they were before. A worker keeps the plan of a
copy task's last epoch. If the next one runs there, it needs only what is new or different; otherwise it asks for all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import EpochPlan, PartitionPlan
from mm2py.model.flow import Flow, TopicPartition


#: A copy task with more partitions than this saves what it can of each. With fewer there is nothing to save.
MANY: Final = 64
#: Of how many copy tasks a worker keeps something; where workers take turns, it meets others than its own.
KEPT_TASKS: Final = 4


@attrs.frozen
class SentPlan:
    """
    A plan on its way: `plan` has all partitions, or those that are new or different from the plan with the number
    `since`, without those that are `dropped`. No two plans of a daemon have the same `number`.
    """

    plan: EpochPlan
    number: int
    since: int | None = None
    dropped: tuple[TopicPartition, ...] = ()

    @property
    def source(self) -> ClusterEndpoint:
        return self.plan.source

    @property
    def target(self) -> ClusterEndpoint:
        return self.plan.target

    @property
    def is_whole(self) -> bool:
        return self.since is None


@attrs.frozen
class KeptPlan:
    """The partitions of a plan that was sent: by their names, and as the plan had them."""

    number: int
    by_source: Mapping[TopicPartition, PartitionPlan]
    partitions: tuple[PartitionPlan, ...]


def difference(plan: EpochPlan, number: int, before: KeptPlan | None) -> SentPlan:
    """Return what to send of *plan* to a worker that may have *before*."""
    if before is None or len(plan.partitions) <= MANY:
        return SentPlan(plan, number)
    changed: tuple[PartitionPlan, ...] = ()
    dropped: tuple[TopicPartition, ...] = ()
    if plan.partitions is not before.partitions:
        known = before.by_source
        changed = tuple(it for it in plan.partitions if (was := known.get(it.source)) is not it and was != it)
        if len(plan.partitions) - len(changed) < len(known):
            dropped = tuple(known.keys() - {it.source for it in plan.partitions})
    return SentPlan(attrs.evolve(plan, partitions=changed), number, before.number, dropped)


def keep_few(kept: dict[tuple[Flow, int], Any]) -> None:
    """Drop what a worker keeps of copy tasks that it has not met for longest, if there are more than `KEPT_TASKS`."""
    while len(kept) > KEPT_TASKS:
        del kept[next(iter(kept))]


class KeptPlans:
    """The last plans of copy tasks that ran in a Python worker."""

    def __init__(self) -> None:
        self._plans: dict[tuple[Flow, int], KeptPlan] = {}

    def whole(self, sent: SentPlan) -> EpochPlan | None:
        """Return the plan, and keep it; None if the one that it is the difference to is not here."""
        plan, key = sent.plan, (sent.plan.flow, sent.plan.task)
        kept = self._plans.pop(key, None)
        by_source = plan.by_source
        if not sent.is_whole:
            if kept is None or kept.number != sent.since:
                return None
            by_source, partitions = kept.by_source, kept.partitions
            if plan.partitions or sent.dropped:
                by_source = {**by_source, **plan.by_source}
                for source in sent.dropped:
                    del by_source[source]
                partitions = tuple(by_source.values())
            plan = attrs.evolve(plan, partitions=partitions)
        self._plans[key] = KeptPlan(sent.number, by_source, plan.partitions)
        keep_few(self._plans)
        return plan
