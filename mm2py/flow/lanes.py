"""
The remote topics of a flow's spread topics, as far as records have needed them since the start.

What is due is decided in `core.lanes`; `flow.topics` looks and acts. Those that are gone at the target are forgotten,
so that they are made anew for whoever needs them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import attrs

from mm2py.config.settings import FlowSettings
from mm2py.core.lanes import Known, LanePlan, Wish, made_by, plan_lanes, shape_of
from mm2py.core.transforms import TIMESTAMP_ROUTER
from mm2py.flow.plugins import policy_of, remote_names_of, transforms_of
from mm2py.model.epoch import Lane, PartitionFailure, WantedLane
from mm2py.model.flow import TopicPartition


class Lanes:
    """The lanes of one flow; what `of` gave never changes."""

    def __init__(self, settings: FlowSettings) -> None:
        self._settings = settings
        self._policy = policy_of(settings)
        self._label_of = remote_names_of(settings)
        self._is_spread = transforms_of(settings).is_spread
        routers = [step for step in settings.transforms.steps if step.kind == TIMESTAMP_ROUTER]
        self._shape = shape_of(step.settings["timestamp.format"].strip() for step in routers)
        self._lanes: dict[str, Mapping[str, Lane]] = {}

    def is_spread(self, topic: str) -> bool:
        """Say whether records of *topic* go to several remote topics."""
        return self._is_spread(topic)

    def of(self, topic: str) -> Mapping[str, Lane]:
        """Give the lanes of a spread topic, by name."""
        return self._lanes.get(topic, {})

    @property
    def owners(self) -> dict[str, str]:
        """The source topic of each remote topic."""
        return {lane.remote_topic: topic for topic, lanes in self._lanes.items() for lane in lanes.values()}

    def wishes(self, wanted: Mapping[TopicPartition, Iterable[WantedLane]]) -> list[Wish]:
        """Name the remote topics that are *wanted*, in the order in which records need them."""
        alias = self._settings.flow.source
        return [
            Wish(source, one, self._policy.format_remote_topic(alias, one.name))
            for source, ones in wanted.items()
            for one in ones
        ]

    def plan(
        self, wishes: Iterable[Wish], source: Mapping[str, int], target: Mapping[str, int], fixed: Mapping[str, str]
    ) -> LanePlan:
        """Say what is due for *wishes*; *fixed* are the remote topics of topics that are not spread."""
        asked = list(wishes)
        owners = self.owners | {remote: topic for topic, remote in fixed.items()}
        counts = Counter({topic: self._count(topic, target, owners) for topic in {wish.source.topic for wish in asked}})
        names = {lane.remote_topic: lane.name for lanes in self._lanes.values() for lane in lanes.values()}
        known = Known(source, target, owners, counts, self._settings.timestamp_topics_max, names)
        return plan_lanes(self._settings.flow, asked, known)

    def _count(self, topic: str, target: Mapping[str, int], owners: Mapping[str, str]) -> int:
        """Count the remote topics of *topic* that are there, those that nobody has written to since the start too."""
        fits = made_by(self._label_of(topic), self._shape).fullmatch
        own = {remote for remote, owner in owners.items() if owner == topic and remote in target}
        return len(own | {name for name in target if name not in owners and fits(name)})

    def look(self, target: Mapping[str, int], limits: Mapping[str, int]) -> None:
        """Take over what the target has by now; *limits* say how large batches topics take, as far as that is known."""
        self._lanes = {
            topic: {
                name: attrs.evolve(
                    lane,
                    partitions=target[lane.remote_topic],
                    max_message_bytes=limits.get(lane.remote_topic, lane.max_message_bytes),
                )
                for name, lane in lanes.items()
                if lane.remote_topic in target
            }
            for topic, lanes in self._lanes.items()
        }

    def add(self, wishes: Iterable[Wish], target: Mapping[str, int], limits: Mapping[str, int]) -> None:
        """Have lanes for those of *wishes* that the target has a topic for."""
        for wish in wishes:
            remote = wish.remote_topic
            if remote in target:
                lane = Lane(wish.wanted.name, remote, target[remote], limits[remote])
                self._lanes[wish.source.topic] = {**self.of(wish.source.topic), lane.name: lane}


@attrs.frozen
class Opened:
    """What became of wishes: why some were not granted, by source topic and name."""

    refused: Mapping[tuple[str, str], PartitionFailure]
