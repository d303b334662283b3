"""
Whether it is certain that this node still has its share of a flow: while the flow's group answers.

A group that is silent for most of a session may already have given the share to others. A `JoinGroup` that is held back
says nothing: the coordinator holds it while it waits for other members, for a session at most, but a request that was
lost on its way looks the same. So meanwhile the group is asked on another connection. As long as it knows the member,
and its generation, no member has been assigned anything new; once the rebalance has completed, its leader leaves to
each member what it held when it joined. A member is asked about, too, while it takes an assignment, which reads from
the target: without a heartbeat meanwhile it would be thrown out. If the group rebalances then, it is not waited for
longer than a session, so that answer makes nothing certain.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from mm2py.connectors.context import HerderContext
from mm2py.connectors.task_group import AnyGroup
from mm2py.errors import Mm2Error
from mm2py.wire.groups.membership import Membership


#: Without an answer for this part of a session, nothing new is begun: another node may have our share soon.
_CERTAIN_SHARE: Final = 2 / 3
#: Differences of times are rounded: what is left of a wait may be too short for a clock to move.
_SHORTEST_S: Final = 0.001


class Certainty:
    """Knows when the group last answered, and has the flow's groups begin nothing new once that is too long ago."""

    def __init__(self, context: HerderContext, interval_s: float) -> None:
        """Create it; the group is asked every *interval_s* while a join is held back."""
        self._clock = context.clock
        self._group = f"group {context.config.group_id} at {context.flow.target}"
        self._interval_s = interval_s
        self._certain_s = context.config.worker.session_ms / 1000 * _CERTAIN_SHARE
        #: When the group was asked what it has answered; None while this node has no share that others could get, or
        #: knows of no other member.
        self._answered_at: float | None = None
        #: Which member the group is asked about; empty while `run` does that, or as what we are has to be found out.
        self._known_as = ""
        self._has_joined = False
        self._is_busy = asyncio.Event()

    @property
    def is_certain(self) -> bool:
        return self._silent_s < self._certain_s

    @property
    def _silent_s(self) -> float:
        return 0.0 if self._answered_at is None else self._clock.monotonic() - self._answered_at

    def note(self, asked_at: float) -> None:
        """Record that the group has answered that we are its member to what it was asked at that time."""
        self._answered_at = max(asked_at, self._answered_at or asked_at)

    def forget(self) -> None:
        """Record that there is nothing that others could get."""
        self._answered_at = None

    @contextmanager
    def asked_beside(self, member_id: str, *, has_joined: bool) -> Iterator[None]:
        """
        Have the group asked about us beside what is done within: a join, which may be held back, or what may take long.

        Only as *member_id*, which the group knew: one that joins as a new one holds nothing of what it had.
        """
        self._known_as, self._has_joined = member_id, has_joined
        if member_id:
            self._is_busy.set()
        try:
            yield
        finally:
            self._known_as = ""
            self._is_busy.clear()

    async def watch(self, groups: Sequence[AnyGroup]) -> None:
        """Have *groups* begin nothing new while the group is silent: before the session is over, others may have it."""
        while True:
            silent_s, certain_s = self._silent_s, self._certain_s
            # What was said first stays: no number of seconds would be true for long.
            why = f"{self._group} does not answer" if silent_s >= certain_s else ""
            for group in groups:
                group.suspend(why)
            left_s = certain_s - silent_s
            await self._clock.sleep(max(left_s, _SHORTEST_S) if left_s > 0 else min(1.0, certain_s / 4))

    async def ask_beside(self, place: Membership) -> None:
        """Ask the group about us, until cancelled, as `asked_beside` wants it."""
        while True:
            await self._is_busy.wait()
            await self._clock.sleep(self._interval_s)
            asked_at = self._clock.monotonic()
            if self._known_as and place.member_id == self._known_as and await self._is_known(place):
                self.note(asked_at)

    async def _is_known(self, place: Membership) -> bool:
        try:
            async with asyncio.timeout(self._certain_s):
                return await place.is_known(has_joined=self._has_joined)
        except (Mm2Error, TimeoutError):
            return False
