"""
What to do when the source or the target no longer matches a position.

A source topic was deleted and created again, retention or a deletion on purpose overtook the mirror, the source has
lost records that were copied, the target has lost them. `diagnose` determines which, from a snapshot of both clusters,
with the records concerned; `decide` returns the action under the flow's policies. Numbers of records are numbers of
offsets: where a topic is compacted or transactional they are upper bounds.
"""

from __future__ import annotations

import enum

import attrs

from mm2py.config.connector import BrokenHistorySettings
from mm2py.core.source.progress import PartitionState, Repair
from mm2py.model.epoch import RECREATED, Ended, LogOffsets, PartitionFailure, choose
from mm2py.model.positions import Position
from mm2py.model.state import PartitionStage
from mm2py.model.topic import is_other_topic


#: A search begins close to where the record should be, and then at the source's start.
_SEARCHES = 2
#: How often a source topic is compared with the target until that is concluded.
_COMPARISONS = 5
#: The source topic's own config, by which a deletion on purpose is told from retention.
_RETENTION = "retention.ms"


class HistoryBreak(enum.Enum):
    """Kinds of broken history."""

    RECREATED = "source topic re-created"
    EXPIRED = "source records expired"
    PURGED = "source records deleted on purpose"
    TRUNCATED = "source truncated"
    REWOUND = "remote topic truncated"
    REMADE = "remote topic re-created"


@attrs.frozen
class Observation:
    """A topic-partition on both clusters. `history_end` is where, according to the source's leader, the leader epoch
    of the last copied record ends, -1 if its log does not know that epoch, None if it could not be queried. Ends are
    offsets that the next record will get. `is_untouched` says that no partition of the remote topic holds, or has held,
    a record of another source topic than this one. `is_kept` says that the source topic has no retention: what is gone
    from its start was deleted on purpose, by DeleteRecords, as Kafka Streams does with what it has read of its
    repartition topics.
    """

    topic_id: str | None
    log_start: int
    log_end: int
    remote_topic_id: str | None
    remote_end: int
    history_end: int | None = None
    #: The epoch that `history_end` is the end of.
    history_epoch: int = -1
    is_untouched: bool = False
    is_kept: bool = False


@attrs.frozen
class Finding:
    """The broken history of a topic-partition. `records` is how many records are concerned: lost at the source before
    they were copied, lost at the target, or only at the target. `diverges_at` is the first upstream offset whose record
    is not the copied one, None if unknown.
    """

    kind: HistoryBreak
    records: int
    message: str
    diverges_at: int | None = None


@attrs.frozen
class Stop:
    """Copy nothing until an operator decides."""

    failure: PartitionFailure


@attrs.frozen
class GoOn:
    """Continue at upstream offset *position*; *downstream* is the target's end minus one. Without a *downstream* the
    target's last record is searched for in the source from *position* on. `lost` records will never be at the target,
    `repeated` ones may be there twice.
    """

    position: int
    downstream: int | None
    lost: int = 0
    repeated: int = 0
    repair: Repair | None = None


@attrs.frozen
class RecreateRemote:
    """Delete the remote topic, so that it is created again, then check again."""


Act = Stop | GoOn | RecreateRemote


def diagnose(state: PartitionState, look: Observation) -> Finding | None:
    """Return the most serious finding; None if both clusters match the position."""
    position, downstream, remote_topic_id = _stood(state)
    rebuilt = state.repair if state.is_compared else None
    if is_other_topic(state.topic_id if rebuilt is None else rebuilt.topic_id, look.topic_id):
        left = max(0, state.log.high_watermark - position) if rebuilt is None else rebuilt.left
        message = f"{state.source.topic} was deleted and created again at the source"
        if left:
            message += f", with {left} records or more of partition {state.source.partition} not copied"
        return Finding(HistoryBreak.RECREATED, left, message)
    if is_other_topic(remote_topic_id, look.remote_topic_id):
        had = 0 if downstream is None else downstream + 1
        message = f"{state.remote_topic} at the target is not the topic that held {had} records: it was created again, "
        message += "or the settings name another one now"
        return Finding(HistoryBreak.REMADE, had, message)
    kept = _kept(state, look)
    if downstream is not None and kept <= downstream:
        gone = downstream + 1 - kept
        message = f"{state.remote_topic} lost its last {gone} records at the target, from offset {kept} on"
        if look.remote_topic_id is None and kept == 0:
            message = f"{state.remote_topic} at the target is empty, and {gone} records were copied: "
            message += "it was created again, or the settings name another one now"
        return Finding(HistoryBreak.REWOUND, gone, message)
    if downstream is None and look.remote_end == 0 and position > look.log_start and _is_copied_as_it_is(state):
        left = position - look.log_start
        message = f"{state.remote_topic} is empty, but {left} records that {state.source} still has count as copied"
        return Finding(HistoryBreak.REWOUND, left, message)
    return _of_source(state, look, position)


def _is_copied_as_it_is(state: PartitionState) -> bool:
    """Whether what counts as copied must be at the target: no transform may have left it out, and it was copied."""
    return not state.is_transformed and (state.repair is None or not state.repair.is_start)


def _of_source(state: PartitionState, look: Observation, position: int) -> Finding | None:
    if look.history_end is not None and 0 <= look.history_end < position:
        at = look.history_end
        if state.leader is not None and look.history_epoch < state.leader.epoch:
            # The whole epoch is missing, so everything read of it differs, even if an older one reaches further.
            at = min(at, state.leader.since)
        message = f"{state.source} at the source is not what was copied from upstream offset {at} to {position}"
        return Finding(HistoryBreak.TRUNCATED, position - at, message, at)
    if position > look.log_end or look.history_end == -1:
        message = f"{state.source} was copied up to upstream offset {position}, the source ends at {look.log_end}"
        return Finding(HistoryBreak.TRUNCATED, max(0, position - look.log_end), message)
    if position < look.log_start:
        gone = look.log_start - position
        copied = "known to be copied" if state.is_unsure else "copied"
        kind = HistoryBreak.PURGED if look.is_kept else HistoryBreak.EXPIRED
        removed = "deleted on purpose" if look.is_kept else "removed"
        message = f"{gone} records of {state.source} were {removed} at the source before they were {copied}"
        return Finding(kind, gone, message)
    return None


def decide(finding: Finding, state: PartitionState, look: Observation, settings: BrokenHistorySettings) -> Act:
    """Return the action for *finding*."""
    match finding.kind:
        case HistoryBreak.RECREATED:
            if _may_be_rebuilt(state, look):
                return _compared(finding, state, look)
            return _with_why(_after_recreation(finding, state, look, settings.on_source_recreated), state)
        case HistoryBreak.EXPIRED:
            return _after_expiry(finding, state, look, settings.on_source_expired)
        case HistoryBreak.PURGED:
            act = _after_expiry(finding, state, look, "earliest")
            return attrs.evolve(act, lost=0) if isinstance(act, GoOn) else act
        case HistoryBreak.TRUNCATED:
            return _after_truncation(finding, look, settings.on_source_truncated)
        case HistoryBreak.REWOUND | HistoryBreak.REMADE:
            return _after_rewind(finding, state, look, settings.on_target_rewound)


def policy_of(kind: HistoryBreak, settings: BrokenHistorySettings) -> tuple[str, str]:
    """Return the key that decides about *kind*, and its value: the flow's, or the source topic's."""
    match kind:
        case HistoryBreak.RECREATED:
            return "copy.on.source.recreated", settings.on_source_recreated
        case HistoryBreak.EXPIRED:
            return "copy.on.source.expired", settings.on_source_expired
        case HistoryBreak.PURGED:
            return _RETENTION, "-1"
        case HistoryBreak.TRUNCATED:
            return "copy.on.source.truncated", settings.on_source_truncated
        case HistoryBreak.REWOUND | HistoryBreak.REMADE:
            return "copy.on.target.rewound", settings.on_target_rewound


def position_after(act: GoOn, state: PartitionState, look: Observation) -> Position:
    """Return the position to store. Its producer gets its next epoch, and no other takes its place: a batch that was
    sent before may arrive late, behind what is copied from there on.
    """
    producer = state.producer or (None if state.written is None else state.written.producer)
    return Position(state.source, act.position, act.downstream, look.topic_id, producer, look.remote_topic_id).at(
        state.remote_topic
    )


def reset(state: PartitionState, act: GoOn, look: Observation, *, now: float) -> PartitionState:
    """Continue as *act* says; `core.source.progress.write` records what was stored."""
    return attrs.evolve(
        state,
        position=act.position,
        downstream=act.downstream,
        is_unsure=act.downstream is None,
        topic_id=look.topic_id,
        remote_topic_id=look.remote_topic_id,
        producer=None,
        leader=None,
        repair=act.repair,
        stray_from=state.stray_from if act.repair is not None else None,
        is_questioned=False,
        look_at=0.0,
        retry_at=now,
        stage=PartitionStage.STOPPED if state.stage is PartitionStage.STOPPED else PartitionStage.BACKING_OFF,
        log=LogOffsets(look.log_start, look.log_end),
    )


def _after_recreation(finding: Finding, state: PartitionState, look: Observation, policy: str) -> Act:
    behind = look.remote_end - 1
    match policy:
        case "earliest":
            return GoOn(look.log_start, behind, lost=finding.records)
        case "latest":
            return GoOn(look.log_end, behind, lost=finding.records + look.log_end - look.log_start)
        case "re-create":
            if not is_other_topic(state.remote_topic_id, look.remote_topic_id):
                return RecreateRemote()
            return GoOn(look.log_start, behind, lost=finding.records)
        case _ if look.is_untouched and not finding.records and _is_mixed_with_nothing(state, look):
            return GoOn(look.log_start, behind)  # nor is anything lost
        case _:
            return _stop(finding, RECREATED.hint, RECREATED.error)


def _may_be_rebuilt(state: PartitionState, look: Observation) -> bool:
    """Whether the new source topic may have been filled from the remote one, which was not compared yet."""
    _, _, remote_topic_id = _stood(state)
    is_same_remote = not is_other_topic(remote_topic_id, look.remote_topic_id)
    is_compared = state.repair is not None and not _is_cut_short(state, state.repair)
    cannot_be = state.is_transformed or state.stray_from is not None
    return is_same_remote and not (is_compared or cannot_be) and look.remote_end > 0 and look.log_end > look.log_start


def _is_cut_short(state: PartitionState, repair: Repair) -> bool:
    """Whether a comparison was not concluded: the source removed what was being read, or was created once more."""
    return repair.is_rebuilt and state.ended is not Ended.UNPROVEN and repair.attempt < _COMPARISONS


def _compared(finding: Finding, state: PartitionState, look: Observation) -> GoOn:
    attempt, topic_id = 1, state.topic_id
    if state.repair is not None:
        attempt, topic_id = state.repair.attempt + 1, state.repair.topic_id
    former = Repair(attempt, *_stood(state), None, is_rebuilt=True, topic_id=topic_id, left=finding.records)
    return GoOn(look.log_start, None, repair=former)


def _with_why(act: Act, state: PartitionState) -> Act:
    """Have an operator who decides know why the new topic does not count as filled from the remote one."""
    is_compared = state.is_compared and state.ended is Ended.UNPROVEN
    why = state.failure.message if is_compared and state.failure is not None else ""
    if state.is_transformed:
        why = "what a transform may have changed cannot be compared"
    if not isinstance(act, Stop) or not why:
        return act
    message = f"{act.failure.message}; it is not proven to be rebuilt from {state.remote_topic}: {why}"
    return Stop(attrs.evolve(act.failure, message=message))


def _is_mixed_with_nothing(state: PartitionState, look: Observation) -> bool:
    """Whether an untouched remote topic lacks the former source topic's records because there were none, or because it
    was deleted, too.
    """
    return state.downstream == -1 or is_other_topic(state.remote_topic_id, look.remote_topic_id)


def _after_expiry(finding: Finding, state: PartitionState, look: Observation, policy: str) -> Act:
    match policy:
        case "earliest" if state.is_unsure:
            # The target may have more than is known: its last record may still be in the source.
            unknown = 0 if state.downstream is None else max(0, look.remote_end - 1 - state.downstream)
            return GoOn(look.log_start, None, lost=max(0, finding.records - unknown))
        case "earliest":
            return GoOn(look.log_start, state.downstream, lost=finding.records)
        case "latest":
            return GoOn(look.log_end, look.remote_end - 1, lost=look.log_end - state.position)
        case _:
            return _stop(finding, choose("copy.on.source.expired", "earliest", "latest"), "RecordsExpired")


def _after_truncation(finding: Finding, look: Observation, policy: str) -> Act:
    behind, at = look.remote_end - 1, finding.diverges_at
    match policy:
        case "continue" if at is not None:
            return GoOn(at, behind)
        case "earliest":
            known_to = look.log_end if at is None else min(at, look.log_end)
            return GoOn(look.log_start, behind, repeated=max(0, known_to - look.log_start))
        case "latest":
            return GoOn(look.log_end, behind, lost=0 if at is None else max(0, look.log_end - at))
        case "continue":
            hint = f"where its history changed is unknown; {choose('copy.on.source.truncated', 'earliest', 'latest')}"
            return _stop(finding, hint, "SourceTruncated")
        case _:
            hint = choose("copy.on.source.truncated", "continue", "earliest", "latest")
            return _stop(finding, hint, "SourceTruncated")


def _after_rewind(finding: Finding, state: PartitionState, look: Observation, policy: str) -> Act:
    position, downstream, _ = _stood(state)
    if downstream == -1:
        return GoOn(position, look.remote_end - 1)  # nothing had been copied yet
    match policy:
        case "copy-again":
            return _copy_again(finding, state, look)
        case "continue":
            return GoOn(position, look.remote_end - 1, lost=finding.records)
        case _:
            hint = f"restore the remote topic, or {choose('copy.on.target.rewound', 'copy-again', 'continue')}"
            return _stop(finding, hint, "TargetRewound")


def _copy_again(finding: Finding, state: PartitionState, look: Observation) -> Act:
    """Copy what the target lacks: from the source's start, or after the target's last record, once found."""
    position, downstream, remote_topic_id = _stood(state)
    end, kept = look.remote_end, _kept(state, look)
    strays = end - kept  # accepted before what belongs in front of them, and copied with it again
    missing = None if downstream is None else downstream + 1 - kept
    if kept == 0:
        return _from_start(finding, position, look, behind=end - 1)
    attempt = state.repair.attempt + 1 if state.repair is not None else 1
    limit = position - missing if missing is not None and missing > 0 else None
    if limit is not None and limit <= look.log_start and finding.kind is HistoryBreak.REWOUND:
        # The target's last record is older than everything in the source: there is nothing to search for.
        return GoOn(look.log_start, end - 1, lost=look.log_start - limit, repeated=strays)
    if attempt <= _SEARCHES and (limit is None or limit > look.log_start):
        start = look.log_start if attempt == _SEARCHES else max(look.log_start, position if limit is None else limit)
        found_at = kept - 1 if kept < end else None
        repair = Repair(attempt, position, downstream, remote_topic_id, limit, found_at)
        return GoOn(start, None, repeated=strays, repair=repair)
    if finding.kind is HistoryBreak.REMADE and limit is not None:
        # Records in the new topic were sent before it was detected: append everything after them.
        return _from_start(finding, position, look, behind=end - 1)
    hint = f"its last record is not in the source; {choose('copy.on.target.rewound', 'continue')}"
    return _stop(finding, hint, "TargetRewound")


def _kept(state: PartitionState, look: Observation) -> int:
    """Return where the target's copy ends: before its end, if a late batch got in."""
    return look.remote_end if state.stray_from is None else min(look.remote_end, state.stray_from)


def _from_start(finding: Finding, position: int, look: Observation, *, behind: int) -> GoOn:
    left = max(0, position - look.log_start)
    return GoOn(look.log_start, behind, lost=max(0, finding.records - left), repeated=min(left, finding.records))


def _stop(finding: Finding, hint: str, error: str) -> Stop:
    return Stop(PartitionFailure(finding.message, hint, error, finding.diverges_at))


def _stood(state: PartitionState) -> tuple[int, int | None, str | None]:
    """Return position, downstream and the remote topic's id as they were before a search."""
    stood = state.repair or state
    return stood.position, stood.downstream, stood.remote_topic_id
