"""What other connectors have left in a positions topic of partitions that one copies now."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from mm2py.connectors.offsets.translations import chunk_record
from mm2py.core.herder.left_positions import LeftPositions, taken_over
from mm2py.core.source.due import RemotePartition
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.model.positions_topic import PositionsTopic, owner_of
from mm2py.wire.topic_log import LogRecord


@attrs.frozen
class TakenOver:
    """Where others stood, and the records of where theirs went, on which that rests."""

    positions: tuple[Position, ...] = ()
    chunks: tuple[LogRecord, ...] = ()


def left_by(records: Iterable[LogRecord], alias: str, names: Collection[str] | None = None) -> dict[str, LeftPositions]:
    """Return what each connector has left of positions of source *alias*, by its name; only those of *names*, if they
    are given.
    """
    found: dict[str, LeftPositions] = {}
    for record in records:
        match owner_of(record.key):
            case (str(name), cluster) if cluster == alias and (names is None or name in names):
                found.setdefault(name, LeftPositions(PositionsTopic(alias, name))).take(record, record.timestamp_ms)
    return found


def taken_from_others(
    records: Iterable[LogRecord],
    flow: Flow,
    own: str,
    others: Collection[str],
    places: Mapping[TopicPartition, RemotePartition],
) -> TakenOver:
    """Return what connector *own* takes over of *others*: where one has gone on since, in the same remote topic."""
    found = left_by(records, flow.source, {own, *others})
    ours = found.pop(own, LeftPositions(PositionsTopic(flow.source, own)))
    taken = {
        source: (at, left)
        for source, left in taken_over(ours, found.values()).items()
        if (place := places.get(source)) is not None
        and (at := left.standing(source)) is not None
        and _leads_to(at, place)
    }
    chunks = (chunk_record(flow, it, own) for source, (_, left) in taken.items() for it in left.chunks_of(source))
    return TakenOver(tuple(at for at, _ in taken.values()), tuple(chunks))


def _leads_to(at: Position, place: RemotePartition) -> bool:
    """Whether a position is of the same topics; one of Java's does not tell."""
    if at.remote_topic_id is None and at.remote_topic != place.remote_topic:
        return False
    return not at.is_of_others(place.topic_id, place.remote_topic_id)
