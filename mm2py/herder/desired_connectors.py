"""
What a node's connectors are to run with: the settings of its files; over these what the owners of flows have otherwise;
over all of them what operators set.

Each of the three changes while flows run. A change is judged together with all the rest before it is used, because
replication loops must be refused here as in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import attrs

from mm2py.config.explain import is_taken_from_owner
from mm2py.config.keys.table import key_named
from mm2py.config.layers import spellings
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.herder.live_config import lines_of, refused
from mm2py.errors import Mm2Error, OverrideRejectedError, UnknownFlowError
from mm2py.herder.replication_loops import judged
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides
from mm2py.model.herder.stored_overrides import StoredOverrides
from mm2py.telemetry.events import LiveSettingsRejected
from mm2py.telemetry.journal import EventLog


Lines = Mapping[str, str]


@attrs.define(eq=False)
class OwnerSettingsRefusedError(Mm2Error):
    """The settings of a flow's owner cannot be used on this node."""

    hint: ClassVar[str] = "give all nodes of the flow the same file and the same version"

    flow: Flow
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"the settings of {self.flow}'s owner cannot be used here: {'; '.join(self.problems)}"


@attrs.frozen
class Candidate:
    """Settings with live lines over them, flow by flow: valid while neither of them changes."""

    agreed: MirrorSettings
    lines: Mapping[Flow, Lines]
    settings: MirrorSettings


class DesiredConnectors:
    """
    The settings of one node, as they are to be.

    `base` is what its files say, and what it compares with other nodes. As in Java MirrorMaker, one node's file counts:
    a flow whose nodes copied different topics would copy each of these in part. So `agreed` has what the owners of
    flows have otherwise over it, and `live` what operators set over that.
    """

    def __init__(self, base: MirrorSettings, *, events: EventLog) -> None:
        self.base = self.agreed = self.live = base
        self._events = events
        self._owners: dict[Flow, Lines] = {}
        self._stored: dict[Flow, StoredOverrides] = {}
        #: The live lines in use.
        self._lines: dict[Flow, Lines] = {}
        #: Settings of flows that keep running with them, because their overrides no longer fit the file.
        self._pinned: dict[Flow, FlowSettings] = {}
        self._turn = asyncio.Lock()
        #: Set with the next change.
        self.changed = asyncio.Event()

    def settings_of(self, flow: Flow) -> FlowSettings:
        """Return the settings that *flow* is to run with. Raise UnknownFlowError if this node does not run it."""
        if (pinned := self._pinned.get(flow)) is not None:
            return pinned
        return _of_flow(self.live, flow)

    @property
    def flows(self) -> tuple[FlowSettings, ...]:
        """Return the settings that each flow is to run with."""
        return tuple(self.settings_of(settings.flow) for settings in self.agreed.flows)

    def agreed_of(self, flow: Flow) -> FlowSettings:
        """Return the settings of *flow* without what operators set. Raise UnknownFlowError."""
        return _of_flow(self.agreed, flow)

    def stored(self, flow: Flow) -> StoredOverrides | None:
        """Return what operators want of *flow*; None until that is known."""
        return self._stored.get(flow)

    def learn(self, flow: Flow, stored: StoredOverrides) -> None:
        """Know what is *stored* of *flow*; it is not used yet: see `adopt`."""
        self._stored[flow] = stored

    async def accept(self, flow: Flow, stored: StoredOverrides, candidate: Candidate | None = None) -> None:
        """Use what is *stored* of *flow* from now on. What contradicts settings of another flow, or of another node, is
        reported, and the flow keeps its settings.
        """
        self.learn(flow, stored)
        try:
            await self.adopt(flow, candidate)
        except OverrideRejectedError as error:
            self._events.emit(LiveSettingsRejected(flow, error.problems, is_running=True))
        self._note_change()

    def _note_change(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    # What operators set.

    async def judge(self, flow: Flow, overrides: Overrides) -> Candidate:
        """Return the settings with *overrides* of *flow*. Raise OverrideRejectedError if they are invalid."""
        async with self._turn:
            return await self._candidate(flow, {**self._lines, flow: lines_of(flow, overrides)}, self.agreed)

    def problems_with(self, flow: Flow, overrides: Overrides) -> tuple[str, ...]:
        """Return the problems of *overrides* of *flow*."""
        try:
            self._with_live(flow, {**self._lines, flow: lines_of(flow, overrides)}, self.agreed)
        except OverrideRejectedError as error:
            return error.problems
        return ()

    async def adopt(self, flow: Flow, candidate: Candidate | None = None) -> None:
        """
        Use what is stored of *flow*. Raise OverrideRejectedError if it is invalid.

        A *candidate* that was judged before is read again only if the file or another flow changed since.
        """
        async with self._turn:
            stored = self._stored.get(flow)
            wanted = {} if stored is None else lines_of(flow, stored.overrides)
            if wanted != self._lines.get(flow, {}) or flow in self._pinned:
                lines = {**self._lines, flow: wanted}
                if candidate is None or candidate.agreed is not self.agreed or candidate.lines != lines:
                    candidate = await self._candidate(flow, lines, self.agreed)
                self.live, self._lines = candidate.settings, lines
                self._pinned.pop(flow, None)

    async def _candidate(self, flow: Flow, lines: Mapping[Flow, Lines], agreed: MirrorSettings) -> Candidate:
        return Candidate(agreed, lines, await asyncio.to_thread(self._with_live, flow, lines, agreed))

    @staticmethod
    def _with_live(flow: Flow, lines: Mapping[Flow, Lines], agreed: MirrorSettings) -> MirrorSettings:
        """Return *agreed* with *lines* over it. Raise OverrideRejectedError with *flow*'s keys as they were sent."""
        if not (together := _together(lines)):
            return agreed
        if agreed.with_live is None:
            raise OverrideRejectedError(("these settings do not come from a file, and cannot be changed while in use",))
        try:
            return judged(agreed.with_live(together))
        except ConfigError as error:
            raise refused(flow, error) from error

    # What the owners of flows have.

    async def follow_owner(self, flow: Flow, values: Mapping[str, str | None]) -> None:
        """Use *values* of the owner of *flow*. Raise OwnerSettingsRefusedError if they are invalid here: the former
        ones stay.
        """
        lines = _lines_of(flow, values)
        async with self._turn:
            if lines == self._owners.get(flow, {}) or self.base.with_owners is None:
                return
            owners = {**self._owners, flow: lines}
            try:
                agreed = await asyncio.to_thread(_with_owners, self.base, owners)
            except ConfigError as error:
                raise OwnerSettingsRefusedError(flow, tuple(map(str, error.problems))) from error
            self._owners = owners
            await self._agree_on(agreed)

    # What the files say.

    async def rebase(self, base: MirrorSettings) -> None:
        """
        Use *base*, as the files were read again.

        What owners have otherwise stays over it as far as it fits, and what operators set. Where that no longer fits,
        it is reported, and the flow keeps its settings.
        """
        async with self._turn:
            there = {settings.flow for settings in base.flows}
            self._owners = {flow: lines for flow, lines in self._owners.items() if flow in there}
            try:
                agreed = await asyncio.to_thread(_with_owners, base, self._owners)
            except ConfigError:
                agreed, self._owners = base, {}  # the flow's nodes compare their settings again
            self.base = base
            await self._agree_on(agreed)

    async def _agree_on(self, agreed: MirrorSettings) -> None:
        """Use *agreed*, with what operators set over it, all at once: flows start, and change, while that is read."""
        before = {settings.flow: settings for settings in self.agreed.flows}
        # What another topic stores has to be read first, and what a flow that is gone had, if it comes back.
        same = {it.flow for it in agreed.flows if it.flow in before and _place_of(before[it.flow]) == _place_of(it)}
        live, together, pinned = agreed, dict[Flow, Lines](), dict[Flow, FlowSettings]()
        for flow, stored in tuple(self._stored.items()):
            if flow not in same or not stored.overrides.config:
                continue
            try:
                lines = {**together, flow: lines_of(flow, stored.overrides)}
                live = (await self._candidate(flow, lines, agreed)).settings
            except OverrideRejectedError as error:
                self._events.emit(LiveSettingsRejected(flow, error.problems, is_running=flow in self._lines))
                pinned[flow] = self.settings_of(flow)
            else:
                together = lines
        self.agreed, self.live, self._lines, self._pinned = agreed, live, together, pinned
        self._stored = {flow: stored for flow, stored in self._stored.items() if flow in same}
        self._note_change()


def _with_owners(base: MirrorSettings, owners: Mapping[Flow, Lines]) -> MirrorSettings:
    together = _together(owners)
    return base if not together or base.with_owners is None else judged(base.with_owners(together))


def _together(lines: Mapping[Flow, Lines]) -> Lines:
    return {key: value for some in lines.values() for key, value in some.items()}


def _lines_of(flow: Flow, values: Mapping[str, str | None]) -> Lines:
    """Return settings as lines of a properties file, in the form with the highest precedence."""
    lines = {}
    for name, text in values.items():
        if is_taken_from_owner(name, text or ""):
            key = key_named(name)
            lines[spellings(key, flow)[0]] = (key.default or "") if text is None else text
    return lines


def _of_flow(settings: MirrorSettings, flow: Flow) -> FlowSettings:
    for candidate in settings.flows:
        if candidate.flow == flow:
            return candidate
    raise UnknownFlowError(str(flow))


def _place_of(settings: FlowSettings) -> tuple[object, ...]:
    """Return the cluster and topic that store what operators want of a flow, however that cluster is reached."""
    return settings.target.bootstrap_servers, settings.worker.config_storage.topic
