"""
The overrides of a node's flows: read from the target clusters, changed, validated, stored and applied.

Changes of one flow are made one after the other. Each is validated, then written to the target, and only then applied,
so that the next daemon would do the same. Live settings take precedence over the file's and are validated for all flows
together, because replication loops must be refused here as in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.connectors.supervise import until_set
from mm2py.core.herder.live_config import lines_of, read_config, refused
from mm2py.errors import (
    Mm2Error,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownFlowError,
)
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.replication_loops import judged
from mm2py.herder.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides
from mm2py.model.herder.stored_overrides import NOTHING_STORED, StoredOverrides
from mm2py.storage.override_store import (
    NOT_SEEN,
    OverrideStore,
    OverridesUnavailableError,
    SeenTopic,
    conflict,
)
from mm2py.telemetry.events import (
    LiveSettingsChanged,
    LiveSettingsRejected,
    OverridesLoaded,
    OverridesStored,
    OverridesUnavailable,
)
from mm2py.telemetry.journal import EventLog


T = TypeVar("T")

#: How often a flow that cannot start with its overrides looks whether others are stored.
_LOOK_EVERY_S = 10.0

Lines = Mapping[str, str]
#: `put_config` or `patch_config`: overrides, flow, connector, body and the file.
ConfigVerb = Callable[[Overrides, Flow, str, Mapping[str, object], MirrorSettings], Overrides]


@attrs.frozen
class _Validated:
    """The combined settings of a file and live lines, flow by flow: valid while neither of them changes."""

    file: MirrorSettings
    lines: Mapping[Flow, Lines]
    settings: MirrorSettings


class OverrideControl:
    """
    The overrides of the flows of one node.

    `file` has the settings of the files, `live` the same with live settings over them. *apply* is called for a flow
    whose overrides changed. A Connect worker keeps the target *states* of task groups elsewhere than in overrides.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        apply: Callable[[Flow], None],
        *,
        clock: Clock,
        events: EventLog,
        states: ConnectWorker | None = None,
    ) -> None:
        self._states = states
        self.file = settings
        self.live = settings
        self._on_change = apply
        self._clock = clock
        self._events = events
        self._stored: dict[Flow, StoredOverrides] = {}
        #: The topics that store them, as last seen.
        self._seen: dict[Flow, SeenTopic] = {}
        self._lines: dict[Flow, Lines] = {}
        #: Settings of flows that keep running with them, because their overrides no longer fit the file.
        self._pinned: dict[Flow, FlowSettings] = {}
        self._locks: dict[Flow, asyncio.Lock] = {}
        self._validating = asyncio.Lock()
        #: Set with the next change of a file or of overrides.
        self._changed = asyncio.Event()

    # Reading.

    def stored(self, flow: Flow) -> StoredOverrides:
        """Return the overrides of *flow* as last seen on the target; `NOTHING_STORED` until they were read."""
        return self._with_states(flow, self._stored.get(flow, NOTHING_STORED))

    def _with_states(self, flow: Flow, stored: StoredOverrides) -> StoredOverrides:
        """Return *stored* with the target states that are kept elsewhere."""
        if self._states is None:
            return stored
        return attrs.evolve(stored, overrides=attrs.evolve(stored.overrides, groups=self._states.states(flow)))

    def settings_of(self, flow: Flow) -> FlowSettings:
        """Return the settings of *flow*, live ones included. Raise UnknownFlowError if this node does not run it."""
        if (pinned := self._pinned.get(flow)) is not None:
            return pinned
        return _of_flow(self.live, flow)

    @property
    def flows(self) -> tuple[FlowSettings, ...]:
        """Return the settings of all flows, live ones included."""
        return tuple(self.settings_of(settings.flow) for settings in self.file.flows)

    # Starting a flow.

    async def prepare(self, runner: FlowRunner) -> FlowSettings:
        """Read the overrides of a flow before it starts, and return the settings to start with. Retry until it
        succeeds: a paused flow must not run because its target was unreachable for a moment.
        """
        flow = runner.flow
        if flow not in self._stored:
            stored = await runner.reach.insist("read overrides", [flow.target], lambda: self._read(runner))
            self._stored[flow] = stored
            if stored.revision:
                self._events.emit(OverridesLoaded(flow, stored.revision, stored.by, stored.at_ms))
        while True:
            changed = self._changed
            try:
                await self._adopt(flow)
            except OverrideRejectedError as error:
                self._events.emit(LiveSettingsRejected(flow, error.problems, is_running=False))
                runner.hold(error)
                await self._until(changed, runner)
            else:
                runner.hold(None)
                stored = self.stored(flow)
                runner.requests.apply(stored.overrides, by=stored.by, at_ms=stored.at_ms)
                return self.settings_of(flow)

    async def _until(self, changed: asyncio.Event, runner: FlowRunner) -> None:
        """Wait until something *changed*: the file, or overrides, of which another node may have reverted some."""
        flow = runner.flow
        while True:
            await until_set(changed, _LOOK_EVERY_S)
            if changed.is_set():
                return
            await runner.reach.done("read overrides", [flow.target], partial(self.catch_up, flow))

    async def _read(self, runner: FlowRunner) -> StoredOverrides:
        """Read stored overrides; an error is shown in the flow's view."""
        try:
            stored = await OverrideStore(runner.settings, self._clock).read(events=self._events)
        except OverridesUnavailableError as error:
            # Without these permissions no override can have been stored.
            self._events.emit(OverridesUnavailable(runner.flow, str(error), error.hint))
            return NOTHING_STORED
        except Mm2Error as error:
            runner.hold(error)
            raise
        runner.hold(None)
        return stored

    async def catch_up(self, flow: Flow) -> None:
        """Apply overrides of *flow* made at another node, which ran it until now. Raise the error if they cannot be
        read.
        """
        async with self.lock(flow):
            if all(it.flow != flow for it in self.file.flows):
                return  # an operator has just removed it here, and it is about to end
            known = self._stored.get(flow)
            try:
                stored = await OverrideStore(_of_flow(self.file, flow), self._clock).read()
            except OverridesUnavailableError:
                return  # as at a flow's start
            if known is not None and not stored.is_same_as(known):
                await self._accept(flow, stored)

    # Changing.

    async def change(self, flow: Flow, change: Callable[[Overrides], Overrides], *, by: str = "") -> Overrides:
        """
        Change the overrides of *flow*, store and apply them; return them as changed.

        Raise UnknownFlowError, OverrideRejectedError, OverrideConflictError if another node changed them meanwhile,
        OverridesNotStoredError if the target does not store them, and any error of *change*.
        """
        settings = _of_flow(self.file, flow)
        async with self.lock(flow):
            known = await self.current(flow)
            before = self._with_states(flow, known).overrides
            overrides = change(before)
            validated = None
            if overrides.config != known.overrides.config:
                validated = await self._validate(flow, overrides)
            if self._states is not None:
                await self._set_states(self._states, flow, before, overrides, by=by)
                overrides = attrs.evolve(overrides, groups=known.overrides.groups)
            if overrides == known.overrides:
                return self.stored(flow).overrides
            store = OverrideStore(settings, self._clock)
            stored = await self._await_store(flow, store.write(overrides, before=known, by=by))
            self._events.emit(OverridesStored(flow, stored.revision, stored.by))
            self._report_settings(flow, known.overrides, stored)
            await self._accept(flow, stored, validated)
            return self.stored(flow).overrides

    @staticmethod
    async def _set_states(states: ConnectWorker, flow: Flow, before: Overrides, after: Overrides, *, by: str) -> None:
        groups = {*before.groups, *after.groups}
        changed = {group: now for group in groups if (now := after.wanted(group)) is not before.wanted(group)}
        if changed:
            await states.set_states(flow, changed, by=by)

    def config_change(
        self, flow: Flow, connector: str, body: Mapping[str, object], verb: ConfigVerb
    ) -> Callable[[Overrides], Overrides]:
        """
        Return a function that makes the change; it raises OverrideRejectedError with all problems of *body*.
        """

        def change(overrides: Overrides) -> Overrides:
            try:
                return verb(overrides, flow, connector, body, self.file)
            except OverrideRejectedError as error:
                others = self._further_problems(flow, connector, body, verb, overrides)
                raise OverrideRejectedError((*error.problems, *others)) from error

        return change

    def _further_problems(
        self, flow: Flow, connector: str, body: Mapping[str, object], verb: ConfigVerb, overrides: Overrides
    ) -> tuple[str, ...]:
        """Return the problems that *body* would have once those of its single settings are corrected."""
        requested = read_config(flow, connector, body, self.file)
        rest = {key: value for key, value in requested.values.items() if value is not None}
        try:
            lines = {**self._lines, flow: lines_of(flow, verb(overrides, flow, connector, rest, self.file))}
            self._with_live(flow, lines, self.file)
        except OverrideRejectedError as error:
            return error.problems
        return ()

    def lock(self, flow: Flow) -> asyncio.Lock:
        """Return the lock of changes to *flow*."""
        return self._locks.setdefault(flow, asyncio.Lock())

    async def current(self, flow: Flow) -> StoredOverrides:
        """Return the overrides of *flow* unless another node changed them; its lock must be held."""
        known = self._stored.get(flow)
        if known is None:
            raise OverridesNotStoredError(str(flow), flow.target, "what is stored there has not been read yet")
        await self._await_store(flow, self._refill(flow))
        stored = await self._await_store(flow, OverrideStore(_of_flow(self.file, flow), self._clock).read())
        if not stored.is_same_as(known):
            await self._accept(flow, stored)
            raise conflict(flow, stored)
        return stored

    async def refill(self, flow: Flow) -> None:
        """Write the overrides of *flow* again if their topic was deleted."""
        async with self.lock(flow):
            await self._refill(flow)

    async def _refill(self, flow: Flow) -> None:
        stored = self._stored.get(flow, NOTHING_STORED)
        if not stored.revision:
            return
        store = OverrideStore(_of_flow(self.file, flow), self._clock)
        self._seen[flow] = await store.refill(stored, self._seen.get(flow, NOT_SEEN), self._events)

    async def _await_store(self, flow: Flow, answer: Awaitable[T]) -> T:
        """Await what a store does. After a conflict apply what is stored; raise OverridesNotStoredError on failure."""
        try:
            return await answer
        except OverrideConflictError:
            stored = await self._await_store(flow, OverrideStore(_of_flow(self.file, flow), self._clock).read())
            await self._accept(flow, stored)
            raise
        except Mm2Error as error:
            cause = f"{error} ({error.hint})" if error.hint else str(error)
            raise OverridesNotStoredError(str(flow), flow.target, cause) from error

    async def _accept(self, flow: Flow, stored: StoredOverrides, validated: _Validated | None = None) -> None:
        """Apply *stored* from now on; *validated* are the settings with them, if already known."""
        self._stored[flow] = stored
        try:
            await self._adopt(flow, validated)
        except OverrideRejectedError as error:
            # They contradict settings of another flow, or of another daemon.
            self._events.emit(LiveSettingsRejected(flow, error.problems, is_running=True))
        self._note_change()
        self._on_change(flow)

    def _report_settings(self, flow: Flow, before: Overrides, stored: StoredOverrides) -> None:
        for connector in sorted({*before.config, *stored.overrides.config}):
            old, new = before.config.get(connector, {}), stored.overrides.config.get(connector, {})
            changed = tuple(f"{key} = {value}" for key, value in new.items() if old.get(key) != value)
            gone = tuple(key for key in old if key not in new)
            if changed or gone:
                self._events.emit(LiveSettingsChanged(flow, connector, changed, gone, stored.by))

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    # Settings.

    async def _validate(self, flow: Flow, overrides: Overrides) -> _Validated:
        async with self._validating:
            return await self._candidate(flow, {**self._lines, flow: lines_of(flow, overrides)})

    async def _adopt(self, flow: Flow, validated: _Validated | None = None) -> None:
        """Apply the stored settings of *flow*. Raise OverrideRejectedError if they are invalid. Settings *validated*
        before are parsed again only if the file or another flow changed since.
        """
        async with self._validating:
            wanted = lines_of(flow, self.stored(flow).overrides)
            if wanted != self._lines.get(flow, {}) or flow in self._pinned:
                lines = {**self._lines, flow: wanted}
                if validated is None or validated.file is not self.file or validated.lines != lines:
                    validated = await self._candidate(flow, lines)
                self.live, self._lines = validated.settings, lines
                self._pinned.pop(flow, None)

    async def _candidate(self, flow: Flow, lines: Mapping[Flow, Lines]) -> _Validated:
        """Read the file with *lines* over it. Raise OverrideRejectedError with the keys as *flow*'s operator wrote."""
        file = self.file
        return _Validated(file, lines, await asyncio.to_thread(self._with_live, flow, lines, file))

    @staticmethod
    def _with_live(flow: Flow, lines: Mapping[Flow, Lines], file: MirrorSettings) -> MirrorSettings:
        """Return *file* with *lines* over it. Raise OverrideRejectedError with the keys as *flow*'s operator wrote."""
        together = {key: value for some in lines.values() for key, value in some.items()}
        if not together:
            return file
        if file.with_live is None:
            raise OverrideRejectedError(("these settings do not come from a file, and cannot be changed while in use",))
        try:
            return judged(file.with_live(together))
        except ConfigError as error:
            raise refused(flow, error) from error

    async def rebase(self, file: MirrorSettings) -> None:
        """
        Replace the file's settings by a newly read *file*.

        Live settings stay over them. If they no longer fit, that is reported, and the flow keeps its settings.
        """
        async with self._validating:
            running = {settings.flow: settings for settings in self.flows}
            before, self.file = {settings.flow: settings for settings in self.file.flows}, file
            for settings in file.flows:
                old = before.get(settings.flow)
                if old is not None and _topic_of(old) != _topic_of(settings):
                    self._stored.pop(settings.flow, None)  # they are stored elsewhere now
                    self._seen.pop(settings.flow, None)
            there = {settings.flow for settings in file.flows}
            self._stored = {flow: stored for flow, stored in self._stored.items() if flow in there}
            await self._rebase(running, self._stored)
        self._note_change()

    async def _rebase(self, running: Mapping[Flow, FlowSettings], known: Mapping[Flow, StoredOverrides]) -> None:
        before = self._lines
        self.live, self._lines, self._pinned = self.file, {}, {}
        for flow, stored in known.items():
            if not stored.overrides.config:
                continue
            try:
                lines = {**self._lines, flow: lines_of(flow, stored.overrides)}
                self.live = (await self._candidate(flow, lines)).settings
            except OverrideRejectedError as error:
                is_running = flow in before
                self._events.emit(LiveSettingsRejected(flow, error.problems, is_running))
                self._pinned[flow] = running[flow]
            else:
                self._lines = lines


def _of_flow(settings: MirrorSettings, flow: Flow) -> FlowSettings:
    for candidate in settings.flows:
        if candidate.flow == flow:
            return candidate
    raise UnknownFlowError(str(flow))


def _topic_of(settings: FlowSettings) -> tuple[object, ...]:
    """Return the cluster and topic that store a flow's overrides."""
    return settings.target, settings.worker.config_storage.topic
