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


#: The setting that says how many there may be for one source topic.
MOST_KEY = "timestamp.router.topics.max"
_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_HINT_MOST = (
    f"raise {MOST_KEY} or delete old remote topics; if the timestamp is wrong, step over the record with mm2py "
    "offsets, or filter such records out"
)
_HINT_NAME = "change topic.format or timestamp.format, or put a RegexRouter behind it"
_SOME_DAY_MS = 1_795_349_109_042


@attrs.frozen
class Wish:
    """A remote topic that records of a source partition need; `remote_topic` is what the policy makes of the name."""

    source: TopicPartition
    wanted: WantedLane
    remote_topic: str


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
    """What is due; `refused` says of which wishes why they are not granted, by source topic and name."""

    actions: tuple[Action, ...]
    refused: Mapping[tuple[str, str], PartitionFailure]


def plan_lanes(flow: Flow, wishes: Iterable[Wish], known: Known) -> LanePlan:
    """Say what the target lacks of what is wished for, in that order."""
    actions: dict[str, Action] = {}
    refused: dict[tuple[str, str], PartitionFailure] = {}
    owners, counts, names = dict(known.owners), dict(known.counts), dict(known.names)
    for wish in wishes:
        topic, remote = wish.source.topic, wish.remote_topic
        place = topic, wish.wanted.name
        needed = max(known.source.get(topic, 0), wish.source.partition + 1)
        found = known.target.get(remote)
        if place in refused:
            continue
        if (owner := owners.setdefault(remote, topic)) != topic:
            refused[place] = _refusal(flow, wish, f"remote topic {remote} is that of {owner}", _HINT_NAME, "NameClash")
        elif (name := names.setdefault(remote, wish.wanted.name)) != wish.wanted.name:
            what = f"{remote} is what the replication policy makes of {name}, too"
            refused[place] = _refusal(flow, wish, what, _HINT_NAME, "NameClash")
        elif remote in actions:
            continue
        elif found is not None and found < needed:
            actions[remote] = GrowPartitions(remote, found, needed)
        elif found is None and _NAME.fullmatch(remote) is None:
            refused[place] = _refusal(flow, wish, f"no topic can be called {remote}", _HINT_NAME, "InvalidTopic")
        elif found is None and counts.get(topic, 0) >= known.most:
            what = f"{topic} has {counts.get(topic, 0)} remote topics already, and {MOST_KEY} is {known.most}"
            refused[place] = _refusal(flow, wish, what, _HINT_MOST, "TooManyTopics")
        elif found is None:
            actions[remote] = CreateTopic(topic, remote, needed, Reason.NEW_TIMESTAMP)
            counts[topic] = counts.get(topic, 0) + 1
    return LanePlan(tuple(actions.values()), refused)


def _refusal(flow: Flow, wish: Wish, what: str, hint: str, error: str) -> PartitionFailure:
    return PartitionFailure(f"{where_wished(flow, wish)}: {what}", hint, error, wish.wanted.offset)


def where_wished(flow: Flow, wish: Wish) -> str:
    """Say which record needs which remote topic."""
    wanted = wish.wanted
    record = f"offset {wanted.offset}, timestamp {wanted.timestamp_ms}"
    return f"{flow}, {wish.source}, {record}, needs remote topic {wish.remote_topic}"


def shape_of(patterns: Iterable[str]) -> str:
    """Give an expression for what timestamps look like in one of the date *patterns*."""
    return "|".join(_shape(DatePattern(pattern).format(_SOME_DAY_MS)) for pattern in patterns) or "(?!)"


def _shape(text: str) -> str:
    runs = re.findall(r"[0-9]+|[A-Za-z]+|[^0-9A-Za-z]+", text)
    return "".join(
        "[0-9]+" if run[0].isdigit() else "[A-Za-z]+" if run[0].isalpha() else re.escape(run) for run in runs
    )


def made_by(label: str, shape: str) -> re.Pattern[str]:
    """Give an expression for the remote topics that are called *label* together."""
    return re.compile(f"(?:{shape})".join(map(re.escape, label.split(TIMESTAMP))))
