"""
What a node knows of its clusters: what any of its flows has learnt last, so that no two of them show the same cluster
differently until each has asked it.

A cluster that does not answer is silent for all flows that look for it at the same addresses. A refused login or an
untrusted certificate is about those that come with the same settings: others, with overrides of their own, get in.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import attrs

from mm2py.clock import Clock
from mm2py.errors import BrokerConnectionError, ClusterSilentError, ClusterUnreachableError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.security.access import BrokerAccessError, ClusterAccessError


#: Another flow asks within the interval of a pulse, and so much. What was silent longer ago says nothing of now.
_LATE_S = 1.0


@attrs.frozen
class Learnt:
    """Since when a cluster has answered, or has been away with an error and a hint; *by* learnt it last."""

    since: float
    by: object
    error: str = ""
    hint: str = ""
    #: Whether it was away because nothing answered at all, at some time since.
    is_silent: bool = False

    @property
    def is_away(self) -> bool:
        return bool(self.error)


@attrs.frozen
class Silence:
    """Since when a cluster has not answered, and for how long it may be asked in vain until it is away."""

    since: float
    left_s: float


@attrs.define(eq=False)
class Pulse:
    """The question whether a cluster is there, which one flow at a time asks for all; a silence outlasts it."""

    silence: Silence | None = None
    is_taken: bool = False
    asked_at: float = -math.inf
    let_go_at: float = -math.inf


@attrs.define(eq=False)
class _Known:
    """What is known of one place, or of those that come to it in one way; None of one that was never asked."""

    learnt: Learnt | None = None
    #: When it last answered a question of any flow.
    heard_at: float = -math.inf
    pulse: Pulse = attrs.field(factory=Pulse)

    def learn(self, new: Learnt) -> None:
        """Take what is *new*, since when it has been so."""
        before = self.learnt
        if before is not None and before.is_away == new.is_away:
            new = attrs.evolve(new, since=before.since, is_silent=new.is_silent or before.is_silent)
        elif before is None and not new.is_away:
            new = attrs.evolve(new, since=-math.inf)
        self.learnt = new


class KnownClusters:
    """The clusters of a node, as long as a flow uses them."""

    def __init__(self) -> None:
        self._known: WeakValueDictionary[Hashable, _Known] = WeakValueDictionary()

    def known_to(self, ends: Iterable[ClusterEndpoint]) -> ClustersOfFlow:
        """Return the clusters as one flow knows them, which reaches them by *ends*."""
        known = {}
        for end in ends:
            place = (end.alias, end.bootstrap_servers, end.security.protocol)
            known[end.alias] = (self._at(place), self._at((*place, end.security)))
        return ClustersOfFlow(known)

    def _at(self, key: Hashable) -> _Known:
        return self._known.setdefault(key, _Known())


class ClustersOfFlow:
    """The clusters of a flow, by alias, as any flow of the node has found them last."""

    def __init__(self, known: dict[str, tuple[_Known, _Known]]) -> None:
        """Create it; *known* are a cluster's place and the flow's way in."""
        self._known = known

    def look(self, alias: str) -> Learnt | None:
        """Return what is known of a cluster, its last absence if there is one; None if it was never asked."""
        found = [known.learnt for known in self._of(alias) if known.learnt is not None]
        return max(found, key=lambda it: (it.is_away, it.since), default=None)

    def is_away(self, alias: str) -> bool:
        """Whether a cluster does not answer, or does not let the flow in."""
        return any(known.learnt is not None and known.learnt.is_away for known in self._of(alias))

    def away_since(self, alias: str) -> float:
        """Return since when a cluster has been away, minus infinity if it is not."""
        learnt = self.look(alias)
        return learnt.since if learnt is not None and learnt.is_away else -math.inf

    def is_silent(self, alias: str) -> bool:
        """Whether a cluster is away that nothing came from for seconds."""
        learnt = self.look(alias)
        return learnt is not None and learnt.is_away and learnt.is_silent

    def back_at(self, error: BrokerConnectionError | ClusterUnreachableError) -> float:
        """Return since when a cluster has answered that failed with *error*; minus infinity if it does not, or if it
        has never been away.
        """
        learnt = self._failing(error).learnt
        return -math.inf if learnt is None or learnt.is_away else learnt.since

    def answered(self, alias: str, now: float) -> None:
        """Record that a cluster answers, to a flow that it lets in."""
        for known in self._of(alias):
            known.learn(Learnt(now, self))
            known.heard_at = now

    def failed(self, error: BrokerConnectionError | ClusterUnreachableError, hint: str, now: float) -> None:
        """Record that a cluster does not answer; or that it does, and does not let the flow in."""
        place, failing = self._of(error.cluster)[0], self._failing(error)
        if failing is not place:
            place.learn(Learnt(now, self))
        failing.learn(Learnt(now, self, str(error), hint, isinstance(error, ClusterSilentError)))

    def heard_at(self, alias: str) -> float:
        """Return when a cluster last answered a flow of the node that comes to it in the same way."""
        return self._of(alias)[1].heard_at

    @contextmanager
    def pulse(self, alias: str, clock: Clock, every_s: float) -> Iterator[Pulse | None]:
        """Return a cluster's pulse if it is this flow's turn to ask for it, until the end of the block."""
        pulse, now = self._of(alias)[1].pulse, clock.monotonic()
        if pulse.is_taken or now < pulse.asked_at + every_s:
            yield None
            return
        if now > pulse.let_go_at + every_s + _LATE_S:
            pulse.silence = None
        pulse.is_taken, pulse.asked_at = True, now
        try:
            yield pulse
        finally:
            pulse.is_taken, pulse.let_go_at = False, clock.monotonic()

    def forget(self) -> None:
        """Forget what this flow was the last to learn: it does not find out any more when that changes."""
        for known in itertools.chain.from_iterable(self._known.values()):
            if known.learnt is not None and known.learnt.by is self:
                known.learnt = None

    def _of(self, alias: str) -> tuple[_Known, _Known]:
        return self._known.setdefault(alias, (_Known(), _Known()))

    def _failing(self, error: BrokerConnectionError | ClusterUnreachableError) -> _Known:
        place, way_in = self._of(error.cluster)
        return way_in if isinstance(error, BrokerAccessError | ClusterAccessError) else place
