"""
The overrides of a node's flows: read from the target clusters, changed, stored and applied.

Changes of one flow are made one after the other. Each is judged, then written to the target, and only then applied, so
that the next daemon would do the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from mm2py.clock import Clock
from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.connectors.supervise import until_set
from mm2py.core.herder.live_config import read_config
from mm2py.errors import (
    Mm2Error,
    OverrideConflictError,
    OverrideRejectedError,
    OverridesNotStoredError,
    UnknownFlowError,
)
from mm2py.herder.connect_worker import ConnectWorker
from mm2py.herder.desired_connectors import Candidate, DesiredConnectors
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

#: `put_config` or `patch_config`: overrides, flow, connector, body and the file.
ConfigVerb = Callable[[Overrides, Flow, str, Mapping[str, object], MirrorSettings], Overrides]


class OverrideControl:
    """
    The overrides of the flows of one node, which become part of what is *desired* there.

    *apply* is called for a flow whose overrides changed. A Connect worker keeps the target *states* of task groups
    elsewhere than in overrides.
    """

    def __init__(
        self,
        desired: DesiredConnectors,
        apply: Callable[[Flow], None],
        *,
        clock: Clock,
        events: EventLog,
        states: ConnectWorker | None = None,
    ) -> None:
        self._desired = desired
        self._states = states
        self._on_change = apply
        self._clock = clock
        self._events = events
        #: The topics that store them, as last seen, by flow, brokers and name.
        self._seen: dict[tuple[Flow, tuple[str, ...], str], SeenTopic] = {}
        self._locks: dict[Flow, asyncio.Lock] = {}

    # Reading.

    def stored(self, flow: Flow) -> StoredOverrides:
        """Return the overrides of *flow* as last seen on the target; `NOTHING_STORED` until they were read."""
        return self._with_states(flow, self._desired.stored(flow) or NOTHING_STORED)

    def _with_states(self, flow: Flow, stored: StoredOverrides) -> StoredOverrides:
        """Return *stored* with the target states that are kept elsewhere."""
        if self._states is None:
            return stored
        return attrs.evolve(stored, overrides=attrs.evolve(stored.overrides, groups=self._states.states(flow)))

    # Starting a flow.

    async def prepare(self, runner: FlowRunner) -> FlowSettings:
        """Read the overrides of a flow before it starts, and return the settings to start with. Retry until it
        succeeds: a paused flow must not run because its target was unreachable for a moment.
        """
        flow = runner.flow
        if self._desired.stored(flow) is None:
            stored = await runner.reach.insist("read overrides", [flow.target], lambda: self._read(runner))
            self._desired.learn(flow, stored)
            if stored.revision:
                self._events.emit(OverridesLoaded(flow, stored.revision, stored.by, stored.at_ms))
        while True:
            changed = self._desired.changed
            try:
                await self._desired.adopt(flow)
            except OverrideRejectedError as error:
                self._events.emit(LiveSettingsRejected(flow, error.problems, is_running=False))
                runner.hold(error)
                await self._until(changed, runner)
            else:
                runner.hold(None)
                stored = self.stored(flow)
                runner.requests.apply(stored.overrides, by=stored.by, at_ms=stored.at_ms)
                return self._desired.settings_of(flow)

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
            try:
                stored = await self._store(flow).read()
            except UnknownFlowError:
                return  # an operator has just removed it here, and it is about to end
            except OverridesUnavailableError:
                return  # as at a flow's start
            known = self._desired.stored(flow)
            if known is not None and not stored.is_same_as(known):
                await self._accept(flow, stored)

    # Changing.

    async def change(self, flow: Flow, change: Callable[[Overrides], Overrides], *, by: str = "") -> Overrides:
        """
        Change the overrides of *flow*, store and apply them; return them as changed.

        Raise UnknownFlowError, OverrideRejectedError, OverrideConflictError if another node changed them meanwhile,
        OverridesNotStoredError if the target does not store them, and any error of *change*.
        """
        self._desired.agreed_of(flow)
        async with self.lock(flow):
            known = await self.current(flow)
            before = self._with_states(flow, known).overrides
            overrides = change(before)
            candidate = None
            if overrides.config != known.overrides.config:
                candidate = await self._desired.judge(flow, overrides)
            if self._states is not None:
                await self._set_states(self._states, flow, before, overrides, by=by)
                overrides = attrs.evolve(overrides, groups=known.overrides.groups)
            if overrides == known.overrides:
                return self.stored(flow).overrides
            stored = await self._await_store(flow, self._store(flow).write(overrides, before=known, by=by))
            self._events.emit(OverridesStored(flow, stored.revision, stored.by))
            self._report_settings(flow, known.overrides, stored)
            await self._accept(flow, stored, candidate)
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
                return verb(overrides, flow, connector, body, self._desired.agreed)
            except OverrideRejectedError as error:
                others = self._further_problems(flow, connector, body, verb, overrides)
                raise OverrideRejectedError((*error.problems, *others)) from error

        return change

    def _further_problems(
        self, flow: Flow, connector: str, body: Mapping[str, object], verb: ConfigVerb, overrides: Overrides
    ) -> tuple[str, ...]:
        """Return the problems that *body* would have once those of its single settings are corrected."""
        agreed = self._desired.agreed
        requested = read_config(flow, connector, body, agreed)
        rest = {key: value for key, value in requested.values.items() if value is not None}
        try:
            return self._desired.problems_with(flow, verb(overrides, flow, connector, rest, agreed))
        except OverrideRejectedError as error:
            return error.problems

    def lock(self, flow: Flow) -> asyncio.Lock:
        """Return the lock of changes to *flow*."""
        return self._locks.setdefault(flow, asyncio.Lock())

    async def current(self, flow: Flow) -> StoredOverrides:
        """Return the overrides of *flow* unless another node changed them; its lock must be held."""
        known = self._desired.stored(flow)
        if known is None:
            raise OverridesNotStoredError(str(flow), flow.target, "what is stored there has not been read yet")
        await self._await_store(flow, self._refill(flow))
        stored = await self._await_store(flow, self._store(flow).read())
        if not stored.is_same_as(known):
            await self._accept(flow, stored)
            raise conflict(flow, stored)
        return stored

    async def refill(self, flow: Flow) -> None:
        """Write the overrides of *flow* again if their topic was deleted."""
        async with self.lock(flow):
            await self._refill(flow)

    async def _refill(self, flow: Flow) -> None:
        stored = self._desired.stored(flow)
        if stored is None or not stored.revision:
            return
        settings = self._desired.agreed_of(flow)
        place = (flow, settings.target.bootstrap_servers, settings.worker.config_storage.topic)
        store = self._store(flow)
        self._seen[place] = await store.refill(stored, self._seen.get(place, NOT_SEEN), self._events)

    def _store(self, flow: Flow) -> OverrideStore:
        """Return the store of a flow's overrides. Raise UnknownFlowError."""
        return OverrideStore(self._desired.agreed_of(flow), self._clock)

    async def _await_store(self, flow: Flow, answer: Awaitable[T]) -> T:
        """Await what a store does. After a conflict apply what is stored; raise OverridesNotStoredError on failure."""
        try:
            return await answer
        except OverrideConflictError:
            stored = await self._await_store(flow, self._store(flow).read())
            await self._accept(flow, stored)
            raise
        except Mm2Error as error:
            cause = f"{error} ({error.hint})" if error.hint else str(error)
            raise OverridesNotStoredError(str(flow), flow.target, cause) from error

    async def _accept(self, flow: Flow, stored: StoredOverrides, candidate: Candidate | None = None) -> None:
        """Apply *stored* from now on; *candidate* has the settings with them, if they were judged already."""
        await self._desired.accept(flow, stored, candidate)
        self._on_change(flow)

    def _report_settings(self, flow: Flow, before: Overrides, stored: StoredOverrides) -> None:
        for connector in sorted({*before.config, *stored.overrides.config}):
            old, new = before.config.get(connector, {}), stored.overrides.config.get(connector, {})
            changed = tuple(f"{key} = {value}" for key, value in new.items() if old.get(key) != value)
            gone = tuple(key for key in old if key not in new)
            if changed or gone:
                self._events.emit(LiveSettingsChanged(flow, connector, changed, gone, stored.by))
