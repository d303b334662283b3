"""
The remote topics of spread topics: which of those that records need may be had, and what is to be done for them.

Their names come with records, so what is known of other topics before anything is copied is asked of each name here:
that no other topic has it, and that there are not too many. A wrong clock makes a name for each wrong date.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from mm2py.core.topology import Action, CreateTopic, GrowPartitions, Reason
from mm2py.core.transforms import TIMESTAMP
from mm2py.model.date_pattern import DatePattern
from mm2py.model.epoch import PartitionFailure, WantedLane
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.topic import is_topic_name


#: The setting that says how many there may be for one source topic.
MOST_KEY = "timestamp.router.topics.max"
_HINT_MOST = (
    f"raise {MOST_KEY} or delete old remote topics; if the timestamp is wrong, step over the record with mm2py "
    "offsets, or filter such records out"
)
_HINT_NAME = "change what names it: topic.format, timestamp.format, the transform, or a RegexRouter behind them"
_HINT_PARTITION = "have the transform choose among the source topic's partitions, or create the remote topic with more"


@attrs.frozen
class Wish:
    """A remote topic that records of a source partition need; `remote_topic` is what the policy makes of the name."""

    source: TopicPartition
    wanted: WantedLane
    remote_topic: str

    @property
    def partition(self) -> int:
        """That of the remote topic which is needed."""
        return self.source.partition if self.wanted.partition is None else self.wanted.partition


@attrs.frozen
class Known:
    """
    What is known of both clusters.

    `source` and `target` give the number of partitions by topic, `owners` the source topic of each remote topic that
    has one, `names` that of its lane, `counts` how many remote topics each spread topic has by now.
    """

    source: Mapping[str, int]
    target: Mapping[str, int]
    owners: Mapping[str, str]
    counts: Mapping[str, int]
    most: int
    names: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen
class LanePlan:
    """What is due; `refused` says of which wishes why they are not granted, by source topic and the lane's key."""

    actions: tuple[Action, ...]
    refused: Mapping[tuple[str, str], PartitionFailure]


def plan_lanes(flow: Flow, wishes: Iterable[Wish], known: Known) -> LanePlan:
    """Say what the target lacks of what is wished for, in that order."""
    actions: dict[str, Action] = {}
    refused: dict[tuple[str, str], PartitionFailure] = {}
    owners, counts, names = dict(known.owners), dict(known.counts), dict(known.names)
    for wish in wishes:
        topic, remote = wish.source.topic, wish.remote_topic
        place = topic, wish.wanted.key
        needed = max(known.source.get(topic, 0), wish.source.partition + 1)
        found = known.target.get(remote)
        if place in refused:
            continue
        owner, name = owners.setdefault(remote, topic), names.setdefault(remote, wish.wanted.name)
        why = _why_not_called(wish, owner, name) or _why_not_there(wish, max(needed, found or 0))
        if why is not None:
            refused[place] = _refusal(flow, wish, *why)
        elif remote in actions:
            continue
        elif found is not None and found < needed:
            actions[remote] = GrowPartitions(remote, found, needed)
        elif found is None and counts.get(topic, 0) >= known.most:
            what = f"{topic} has {counts.get(topic, 0)} remote topics already, and {MOST_KEY} is {known.most}"
            refused[place] = _refusal(flow, wish, what, _HINT_MOST, "TooManyTopics")
        elif found is None:
            actions[remote] = CreateTopic(topic, remote, needed, Reason.NEEDED_BY_RECORD)
            counts[topic] = counts.get(topic, 0) + 1
    return LanePlan(tuple(actions.values()), refused)


_Why = tuple[str, str, str]


def _why_not_called(wish: Wish, owner: str, name: str) -> _Why | None:
    """Say why the remote topic cannot have its name: what, a hint, and the kind of error."""
    remote = wish.remote_topic
    if owner != wish.source.topic:
        return f"remote topic {remote} is that of {owner}", _HINT_NAME, "NameClash"
    if name != wish.wanted.name:
        return f"{remote} is what the replication policy makes of {name}, too", _HINT_NAME, "NameClash"
    if not is_topic_name(remote):
        return f"no topic can be called {remote}", _HINT_NAME, "InvalidTopic"
    return None


def _why_not_there(wish: Wish, partitions: int) -> _Why | None:
    """Say why it cannot have the partition, out of so many that it has or gets."""
    number = wish.wanted.partition
    if number is None or number < partitions:
        return None
    what = f"the transform sends it to partition {number} of a topic that has {partitions}"
    return what, _HINT_PARTITION, "NoSuchPartition"


def _refusal(flow: Flow, wish: Wish, what: str, hint: str, error: str) -> PartitionFailure:
    return PartitionFailure(f"{where_wished(flow, wish)}: {what}", hint, error, wish.wanted.offset)


def where_wished(flow: Flow, wish: Wish) -> str:
    """Say which record needs which remote topic."""
    wanted = wish.wanted
    record = f"offset {wanted.offset}, timestamp {wanted.timestamp_ms}"
    return f"{flow}, {wish.source}, {record}, needs remote topic {wish.remote_topic}"


def shape_of(patterns: Iterable[str]) -> str:
    """Give an expression for what timestamps look like in one of the date *patterns*."""
    return "|".join(_shape(DatePattern(pattern).example) for pattern in patterns) or "(?!)"


def _shape(text: str) -> str:
    runs = re.findall(r"[0-9]+|[A-Za-z]+|[^0-9A-Za-z]+", text)
    return "".join(
        "[0-9]+" if run[0].isdigit() else "[A-Za-z]+" if run[0].isalpha() else re.escape(run) for run in runs
    )


def made_by(label: str, shape: str) -> re.Pattern[str]:
    """Give an expression for the remote topics that are called *label* together."""
    return re.compile(f"(?:{shape})".join(map(re.escape, label.split(TIMESTAMP))))
