"""Group offsets at the target: committed for groups without members there, so that consumers only have to be started.
All groups are described in one request, and again, group by group, right before each write. After that, Kafka's own
check applies: a coordinator accepts an admin's commit only while the group is empty. What may be written is decided in
`core.checkpoint.checkpoints`.

Unlike checkpoints, these writes cannot be fenced: what a coordinator commits in a transaction it commits for a group
with members, too. So the offsets are read once more right before a commit, and each attempt to send it needs a recent
answer of the flow's group. A node that is frozen after that, in the moment before it sends, may still write late.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TypeVar

import attrs

from mm2py.connectors.context import CheckpointContext
from mm2py.core.checkpoint.checkpoints import AtTarget, Offsets, due_offsets, judge_group_at_target
from mm2py.errors import BrokerAnsweredError
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription
from mm2py.model.topic import is_other_topic
from mm2py.telemetry.events import GroupOffsetsSynced, GroupSyncResumed, GroupSyncSkipped
from mm2py.wire.error_codes import ErrorCode, is_retriable
from mm2py.wire.groups.consumer_groups import Groups


T = TypeVar("T")

#: Groups written in parallel.
_WRITERS = 8
#: How long what was read of a group counts: a node that is frozen meanwhile must not set it back.
_FRESH_S = 2.0

#: A consumer joined between our description and our write.
_JOINED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
)

#: The topic is not there any more.
_GONE = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Described = GroupDescription | BrokerAnsweredError
Committed = Offsets | BrokerAnsweredError


@attrs.frozen
class Synced:
    """A group's state at the target, since when, and when it was last written."""

    state: AtTarget
    since: float
    detail: str = ""
    written_ms: int | None = None


@attrs.frozen
class Standing:
    """A group at the target as it was last read there; `error` is why something could not be read."""

    state: AtTarget
    offsets: Mapping[TopicPartition, int]
    error: str = ""


class GroupOffsets:
    """
    The group offsets that one flow writes at its target.

    a. Nothing is written for a group that a successful description does not show to be empty or absent.
    b. Nothing is set back, unless the settings say so.
    c. Nothing is sent while another node may own the flow, nor over offsets that moved since they were judged.
    d. An offset is for the topic that it was translated for, and for no other of that name.
    """

    def __init__(
        self,
        context: CheckpointContext,
        groups: Groups,
        *,
        last_of: Callable[[str], Mapping[TopicPartition, int]],
        ends_of: Callable[[Collection[TopicPartition]], Awaitable[Mapping[TopicPartition, int]]],
        may_write: Callable[[], bool],
    ) -> None:
        """Create them for the *groups* of the target. *last_of* returns the last checkpoints of a group, for its first
        round, and *ends_of* the target's end offsets. *may_write* is asked right before each write is sent.
        """
        self.states: dict[str, Synced] = {}
        #: Of groups that are synced, and of those that were only looked at.
        self.standing: dict[str, Standing] = {}
        self._flow = context.flow
        self._groups = groups
        self._may_rewind = context.config.sync_rewinds
        self._last_of = last_of
        self._ends_of = ends_of
        self._may_write = may_write
        self._clock = context.clock
        self._events = context.events
        self._reach = context.reach
        self._seen: dict[str, dict[TopicPartition, int]] = {}
        #: What was written last. Brokers before 4.1 may have taken it for the next topic of the name.
        self._written: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        #: Groups whose last write failed as it does while a coordinator moves.
        self._delayed: set[str] = set()

    def follow(self, groups: Collection[str]) -> None:
        """Forget where all groups but these stand."""
        for gone in self.standing.keys() - groups:
            del self.standing[gone]

    async def look(self, groups: Collection[str]) -> None:
        """Read where *groups* stand at the target; nothing is written or reported."""
        described = await self._groups.describe(groups)
        committed = await self._groups.committed(groups)
        for group in groups:
            before, offsets = self.standing.get(group), committed[group]
            state = judge_group_at_target(
                _known(described[group]),
                _known(offsets),
                ours=self._last_of(group),
                seen=before.offsets if before is not None else None,
            )
            self._stand(group, state, offsets, _errors(described[group], offsets))

    def _stand(
        self, group: str, state: AtTarget, committed: Committed, errors: Sequence[BrokerAnsweredError] = ()
    ) -> None:
        offsets = {tp: offset.offset for tp, offset in (_known(committed) or {}).items()}
        self.standing[group] = Standing(state, offsets, _text(errors))

    async def sync_once(self, wanted: Mapping[str, Offsets]) -> frozenset[str]:
        """Bring the target up to *wanted*, group by group, as far as allowed; return the groups that are up to date."""
        for gone in self.states.keys() - wanted.keys():
            del self.states[gone]
            self._seen.pop(gone, None)
            self._written.pop(gone, None)
        self._delayed &= wanted.keys()
        self._groups.keep(wanted)
        described = await self._groups.describe(wanted)
        committed = await self._groups.committed(wanted)
        ends = await self._ends_behind(wanted, committed)
        queue = []
        for group, offsets in wanted.items():
            state, current = self._judge(group, offsets, described[group], committed[group])
            due = self._due(group, offsets, current, ends) if state.is_writable else {}
            if due:
                queue.append(group)
            else:
                self._note(group, state, current, _errors(described[group], committed[group]))
        left = await self._write_all(queue, wanted)
        return frozenset(group for group, synced in self.states.items() if synced.state.is_writable) - left

    async def _write_all(self, queue: list[str], wanted: Mapping[str, Offsets]) -> set[str]:
        """Write the groups of *queue*; return those that are left to the next round."""
        left: set[str] = set()

        async def write() -> None:
            while queue:
                group = queue.pop()
                if not await self._write(group, wanted[group]):
                    left.add(group)

        async with asyncio.TaskGroup() as tasks:
            for number in range(min(_WRITERS, len(queue))):
                tasks.create_task(write(), name=f"{self._flow}/checkpoints/sync/{number}")
        return left

    async def _write(self, group: str, offsets: Offsets) -> bool:
        """Describe the group again, and write what is still due; False if it is left to the next round."""
        committed = (await self._groups.committed([group]))[group]
        described = (await self._groups.describe([group]))[group]
        ends = await self._ends_behind({group: offsets}, {group: committed})
        state, current = self._judge(group, offsets, described, committed)
        due = self._due(group, offsets, current, ends) if state.is_writable else {}
        if not due:
            self._note(group, state, current, _errors(described, committed))
            return True
        # A consumer, or another node that owns the flow by now, may have committed since.
        sent_by = self._clock.monotonic() + _FRESH_S
        again = (await self._groups.committed([group]))[group]
        if isinstance(again, BrokerAnsweredError) or _only(again, due) != _only(current, due):
            return False
        answers = await self._groups.commit(
            group, due, lambda: self._may_write() and self._clock.monotonic() <= sent_by
        )
        # What is of a topic that is gone by now is nothing to write any more: the next round knows of its successor.
        errors = [error for error in answers.values() if error is not None and error.code not in _GONE]
        if any(error.code == ErrorCode.OPERATION_NOT_ATTEMPTED for error in errors):
            return False
        if group not in self._delayed and any(is_retriable(error.code) for error in errors):
            self._delayed.add(group)
            return False
        self._delayed.discard(group)
        written = {tp: due[tp] for tp, error in answers.items() if error is None}
        self._written[group] = {**self._written.get(group, {}), **written}
        if any(error.code in _JOINED for error in errors):
            self._note(group, AtTarget.ACTIVE, current)
        elif errors:
            self._note(group, AtTarget.REFUSED, {**current, **written}, errors[:1])
        else:
            self._note(group, AtTarget.IDLE, {**current, **written}, has_written=bool(written))
            if written:
                self._events.emit(GroupOffsetsSynced(self._flow, group, len(written)))
        return written.keys() == due.keys()

    def _due(
        self, group: str, offsets: Offsets, current: Offsets, ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, CommittedOffset]:
        written = self._written.get(group, {})
        astray = {
            tp
            for tp, it in written.items()
            if tp in offsets and is_other_topic(it.topic_id, offsets[tp].topic_id) and current.get(tp) == it
        }
        own = {tp: it for tp, it in current.items() if tp not in astray}
        return due_offsets(offsets, own, may_rewind=self._may_rewind, ends=ends)

    async def _ends_behind(
        self, wanted: Mapping[str, Offsets], committed: Mapping[str, Committed]
    ) -> Mapping[TopicPartition, int]:
        """Return the end offsets of partitions where groups are ahead of *wanted*, read after their offsets."""
        ahead = set()
        for group, offsets in wanted.items():
            current = committed[group]
            if not isinstance(current, BrokerAnsweredError):
                ahead |= {tp for tp, offset in offsets.items() if tp in current and current[tp].offset > offset.offset}
        return await self._ends_of(ahead) if ahead else {}

    def _judge(
        self, group: str, offsets: Offsets, described: Described, committed: Committed
    ) -> tuple[AtTarget, Offsets]:
        """Return the group's state at the target, and its committed offsets there for the partitions of *offsets*."""
        known = _known(committed)
        current = None if known is None else _only(known, offsets)
        ours = self._last_of(group)
        state = judge_group_at_target(_known(described), current, ours=ours, seen=self._seen.get(group))
        self._stand(group, state, committed, _errors(described, committed))
        return state, current or {}

    def _note(
        self,
        group: str,
        state: AtTarget,
        current: Offsets,
        errors: Sequence[BrokerAnsweredError] = (),
        *,
        has_written: bool = False,
    ) -> None:
        """Record what was found and written, and report changes."""
        detail = _text(errors)
        now_at = {tp: offset.offset for tp, offset in current.items()}
        if state is not AtTarget.UNKNOWN:
            self._seen[group] = now_at
        if (standing := self.standing.get(group)) is not None:
            self.standing[group] = attrs.evolve(standing, state=state, offsets={**standing.offsets, **now_at})
        before, now = self.states.get(group), self._clock.monotonic()
        written_ms = before.written_ms if before is not None else None
        if has_written:
            written_ms = self._clock.wall_ms()
        if before is not None and before.state is state:
            self.states[group] = attrs.evolve(before, detail=detail, written_ms=written_ms)
            return
        self.states[group] = Synced(state, now, detail, written_ms)
        if state is AtTarget.WATCHED:
            return
        if not state.is_writable:
            reason = f"{state.value}: {detail}" if detail else state.value
            hint = "; ".join(dict.fromkeys(filter(None, map(self._reach.hint_for, errors))))
            self._events.emit(GroupSyncSkipped(self._flow, group, state.name.lower(), reason, hint))
        elif before is not None and before.state is not AtTarget.WATCHED:
            held_s = now - before.since
            self._events.emit(GroupSyncResumed(self._flow, group, before.state.name.lower(), held_s))


def _only(committed: Offsets, wanted: Offsets) -> dict[TopicPartition, CommittedOffset]:
    return {tp: offset for tp, offset in committed.items() if tp in wanted}


def _known(answer: T | BrokerAnsweredError) -> T | None:
    return None if isinstance(answer, BrokerAnsweredError) else answer


def _text(errors: Sequence[BrokerAnsweredError]) -> str:
    return "; ".join(dict.fromkeys(map(str, errors)))


def _errors(described: Described, committed: Committed) -> list[BrokerAnsweredError]:
    return [answer for answer in (described, committed) if isinstance(answer, BrokerAnsweredError)]
