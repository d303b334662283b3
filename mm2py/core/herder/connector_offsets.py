"""Altering a connector's offsets (KIP-875): validation, and the resulting positions. Requests are validated as in
MirrorMaker's connectors (alterOffsets), with all problems reported. Offsets of the source connector are also checked
against both clusters: Java would find out when it starts, and then copy everything again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import attrs

from mm2py.errors import OverrideRejectedError
from mm2py.model.connector_offset import MEMBERS, SOURCE, ConnectorOffset, is_of
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.timestamp import timestamp_ms


_MOST: Final = {"partition": 2**31 - 1, "offset": 2**63 - 1}


@attrs.frozen
class PartitionOffsets:
    """The offsets of a topic-partition on both clusters. `remote_end` is 0 if there is no remote topic yet; `since` is
    the first offset from the requested timestamp on.
    """

    start: int
    end: int
    topic_id: str | None
    remote_end: int
    remote_topic_id: str | None
    remote_topic: str
    since: int | None = None


def read_offsets(flow: Flow, connector: str, offsets: object) -> tuple[ConnectorOffset, ...]:
    """
    Parse the ``offsets`` of a body: a list of objects with a ``partition`` and an ``offset``, which null removes.

    Beyond Connect, the source connector also takes ``{"timestamp": …}``, from which on to copy.

    Raise OverrideRejectedError with all problems.
    """
    if not isinstance(offsets, list) or not offsets:
        raise OverrideRejectedError(("offsets must be a list of partitions and offsets, at least one",))
    problems: list[str] = []
    found: list[ConnectorOffset] = []
    for number, entry in enumerate(offsets):
        if not isinstance(entry, dict) or entry.keys() - {"partition", "offset"} or "offset" not in entry:
            problems.append(f"offsets[{number}] must be an object with partition and offset, found {entry!r}")
            continue
        wrong = list(_judge(flow, connector, entry.get("partition"), entry["offset"]))
        problems += [f"offsets[{number}]: {problem}" for problem in wrong]
        if not wrong:
            one = ConnectorOffset(entry["partition"], entry["offset"])
            if any(other.partition == one.partition for other in found):
                problems.append(f"offsets[{number}]: {one.partition} is there twice")
            found.append(one)
    if problems:
        raise OverrideRejectedError(tuple(problems))
    return tuple(found)


def _judge(flow: Flow, connector: str, partition: object, offset: object) -> Iterator[str]:
    if not isinstance(partition, dict):
        yield f"partition must be an object, found {partition!r}"
        return
    if offset is None:
        return  # invalid partitions may be removed too, as in Java
    yield from _judge_members(partition, MEMBERS[connector], "partition")
    if not is_of(flow, connector, partition) and connector == SOURCE and isinstance(partition.get("cluster"), str):
        yield f"partition: cluster is {partition['cluster']!r}, the source of flow {flow} is {flow.source!r}"
    if not isinstance(offset, dict):
        yield f"offset must be an object or null, found {offset!r}"
        return
    if connector == SOURCE and offset.keys() == {"timestamp"}:
        yield from _judge_timestamp(offset["timestamp"])
        return
    yield from _judge_members(offset, {"offset": int}, "offset")
    if connector != SOURCE and isinstance(offset.get("offset"), int) and offset["offset"] != 0:
        yield f"offset: {connector} keeps no offsets, so only 0 and null can be written, found {offset['offset']}"


def _judge_timestamp(value: object) -> Iterator[str]:
    try:
        timestamp_ms(str(value))
    except ValueError as error:
        yield f"offset: timestamp: {error}"


def _judge_members(found: Mapping[str, Any], wanted: Mapping[str, type], what: str) -> Iterator[str]:
    for name, kind in wanted.items():
        value = found.get(name)
        if name not in found:
            yield f"{what}: {name} is missing"
        elif kind is str and not isinstance(value, str):
            yield f"{what}: {name} must be a string, found {value!r}"
        elif kind is int and (isinstance(value, bool) or not isinstance(value, int)):
            yield f"{what}: {name} must be a whole number, found {value!r}"
        elif isinstance(value, int) and not 0 <= value <= _MOST[name]:
            yield f"{what}: {name} must be from 0 to {_MOST[name]}, found {value}"
    for name in found.keys() - wanted.keys():
        yield f"{what}: {name!r} is not known"


@attrs.frozen
class Altered:
    """A position to be written. Offsets `repeated` are copied again, `skipped` ones never, which the source may have
    removed.
    """

    position: Position
    repeated: int = 0
    skipped: int = 0


def altered_positions(
    asked: Sequence[ConnectorOffset],
    known: Mapping[TopicPartition, Position],
    places: Mapping[TopicPartition, PartitionOffsets | str],
    *,
    is_taken_over: bool = False,
) -> tuple[Altered, ...]:
    """Return the positions for *asked*; a *place* that is a text is the reason why there is none. Each has the end of
    the remote topic as its downstream offset: records copied from there on are appended. Records that the source has
    removed cannot be copied again, so a position before its start becomes its start. Raise OverrideRejectedError with
    all problems.

    Positions *is_taken_over* are those of another mirror, which may have copied more after it wrote them: without a
    downstream offset, the first resume finds the target's last record in the source. In an empty remote partition there
    is nothing to find: the other mirror may have put all records into other ones.
    """
    problems: list[str] = []
    altered: list[Altered] = []
    for one in asked:
        source, place = one.source, places[one.source]
        before = known.get(source)
        if isinstance(place, str):
            problems.append(f"{source}: {place}")
            continue
        last = int((one.offset or {}).get("offset", -1)) if place.since is None else place.since - 1
        if last + 1 > place.end:
            problems.append(f"{source}: offset {last} does not exist yet, the source ends at {place.end}")
            continue
        at_target = None if is_taken_over and place.remote_end else place.remote_end - 1
        # That of another mirror is not what was asked for even if it is there: an empty partition would be filled.
        is_theirs = is_taken_over or (before is not None and before.downstream is None and not place.remote_end)
        # One in another remote topic is where that one ends.
        is_elsewhere = before is not None and _is_elsewhere(before, place)
        is_there = before is not None and before.next_upstream == last + 1 and not is_elsewhere
        if before is None or not is_there or (is_theirs and before.downstream != at_target):
            change = _altered(source, max(last + 1, place.start), before, place, at_target)
            altered.append(Altered(change.position) if is_taken_over else change)
    if problems:
        raise OverrideRejectedError(tuple(problems))
    return tuple(altered)


def _is_elsewhere(before: Position, place: PartitionOffsets) -> bool:
    is_named = before.remote_topic_id is not None or before.remote_topic is not None
    if not is_named and before.downstream is not None:
        return before.downstream >= place.remote_end
    is_other = before.remote_topic not in (None, place.remote_topic)
    return is_other or before.remote_topic_id not in (None, place.remote_topic_id)


def _altered(
    source: TopicPartition, goes_on_at: int, before: Position | None, place: PartitionOffsets, at_target: int | None
) -> Altered:
    mark = before.producer if before is not None else None
    position = Position(
        source,
        goes_on_at,
        downstream=at_target,
        topic_id=place.topic_id,
        # With the old sequences, a broker could take the next batch for one that it has.
        producer=mark.renewed() if mark is not None else None,
        remote_topic_id=place.remote_topic_id,
    ).at(place.remote_topic)
    stood = before.next_upstream if before is not None else place.start
    return Altered(position, max(0, stood - goes_on_at), max(0, goes_on_at - stood))
