"""
The rate limits of a flow, dealt out to its copy tasks epoch by epoch.

What is decided is in `core.rates`; here it is remembered who has which part, and how full each bucket is.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping

import attrs

from mm2py.clock import Clock
from mm2py.core.rates import metered, refilled, share_now, wanted
from mm2py.model.epoch import EpochOutcome, EpochPlan
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import Overrides
from mm2py.model.rates import Metered, RateShare


@attrs.define
class _Bucket:
    """What one copy task has of one limit, since it last gave account of it."""

    level: float = 0.0
    at: float = -math.inf
    want: float = math.inf
    #: What it was given for the epoch that it is in; 0 between two.
    given: float = 0.0


class RateShares:
    """The limits of one flow and who has which part of them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._limits: dict[Metered, float] = {}
        #: This node's part of the flow's partitions, and of each topic's: other nodes have the rest of a limit.
        self._parts: Mapping[str, float] = {}
        self._buckets: dict[Metered, dict[int, _Bucket]] = {}

    def take_part(self, ours: Collection[TopicPartition], everything: Collection[TopicPartition]) -> None:
        """Use of each limit the part that *ours* are of *everything* that the limit is for."""
        here, all_of = Counter(it.topic for it in ours), Counter(it.topic for it in everything)
        parts = {topic: here[topic] / count for topic, count in all_of.items()}
        self._parts = {**parts, "": len(ours) / len(everything)} if everything else {}

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def apply_overrides(self, overrides: Overrides) -> bool:
        """Apply the limits of *overrides*; return whether any changed. Changed ones begin with empty buckets."""
        limits = metered(overrides.limit)
        for topic, limit in overrides.topic_limits.items():
            limits |= metered(limit, topic)
        if limits == self._limits:
            return False
        self._buckets = {
            of: self._buckets.get(of, {}) if self._limits.get(of) == per_s else {} for of, per_s in limits.items()
        }
        self._limits = limits
        return True

    def plan(
        self, task: int, partitions: Collection[TopicPartition], owners: Mapping[TopicPartition, int]
    ) -> tuple[RateShare, ...]:
        """
        Return *task* its part of each limit that its *partitions* fall under; *owners* are those of all partitions.
        """
        now, topics = self._clock.monotonic(), {partition.topic for partition in partitions}
        found = []
        for of, per_s in self._limits.items():
            if of.topic and of.topic not in topics:
                continue
            sharers = {owner for partition, owner in owners.items() if of.topic in ("", partition.topic)} | {task}
            buckets = self._buckets[of]
            wants = {sharer: buckets[sharer].want if sharer in buckets else math.inf for sharer in sharers}
            others = {other: bucket.given for other, bucket in buckets.items() if other != task}
            bucket = buckets.setdefault(task, _Bucket())
            bucket.given = share_now(per_s * self._parts.get(of.topic, 1.0), wants, task, others)
            level = 0.0 if math.isinf(bucket.at) else refilled(bucket.level, bucket.given, now - bucket.at)
            found.append(RateShare(of, bucket.given, level))
        return tuple(found)

    def account(self, plan: EpochPlan, outcome: EpochOutcome, took_s: float) -> None:
        """Take over what an epoch used; of the *took_s* that it took, its bucket knows only what it ran."""
        uses = {use.of: use for use in outcome.rates}
        for share in plan.rates:
            bucket, use = self._buckets.get(share.of, {}).get(plan.task), uses.get(share.of)
            if bucket is not None and use is not None:
                bucket.level = refilled(use.level, share.per_s, max(0.0, took_s - outcome.elapsed_s))
                bucket.at = self._clock.monotonic()
                bucket.want = wanted(use, outcome.elapsed_s)

    def put_back(self, plan: EpochPlan) -> None:
        """Note that an epoch takes nothing any more. What one that was lost took is not known: it starts again."""
        for share in plan.rates:
            bucket = self._buckets.get(share.of, {}).get(plan.task)
            if bucket is not None:
                bucket.given = 0.0
