"""
How changes come into use while a node runs, wherever they come from: files that are read again, a Connect worker's
connectors, overrides by operators, the owner of a flow.

All become part of what is desired (`DesiredConnectors`). Then one change after the other is carried out: flows come and
go, and of a flow whose settings are others those connectors restart that read what changed (`FlowRunner.adopt`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import attrs

from mm2py.clock import Clock
from mm2py.config.explain import node_settings
from mm2py.config.providers import Stamps
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.herder.reload import FlowChanges, compare_flows, needing_restart
from mm2py.core.transform.matching import record_slots
from mm2py.errors import Mm2Error
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.fleet import Fleet
from mm2py.model.flow import Flow
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.telemetry.events import RestartNeeded, SettingNoted, SettingsRefused, SettingsReloaded
from mm2py.telemetry.journal import EventLog


class SettingsChanges:
    """Has the flows of a node run with the settings that are desired."""

    def __init__(
        self,
        desired: DesiredConnectors,
        fleet: Fleet,
        *,
        read_again: Callable[[], MirrorSettings] | None,
        on_reload: Callable[[MirrorSettings, asyncio.TaskGroup], None],
        spark_slots: Callable[[], int | None],
        clock: Clock,
        events: EventLog,
    ) -> None:
        """
        Create it. *read_again* reads the node's files, and raises ConfigError where they cannot be used.

        *on_reload* is called with new settings before their flows start, and *spark_slots* returns what copy tasks
        share; None without Spark.
        """
        #: The problems of the files as they were read last; none if they are in use.
        self.refused: tuple[str, ...] = ()
        #: The files that they refer to, if they were refused.
        self._awaited: Stamps = {}
        self._desired = desired
        self._started_with = desired.base
        self._fleet = fleet
        self._read_again = read_again
        self._on_reload = on_reload
        self._spark_slots = spark_slots
        self._clock = clock
        self._events = events
        self._news = asyncio.Event()
        self._must_reload = False
        #: Flows whose desired settings may be others than those that they run with.
        self._changed: set[Flow] = set()
        #: Flows that restart whatever settings they have.
        self._to_restart: set[Flow] = set()

    def request_reload(self) -> None:
        """Ask for the files to be read again, and what changed to be applied."""
        self._must_reload = True
        self._news.set()

    def changed(self, flow: Flow) -> bool:
        """Have *flow* run with its desired settings; return whether these are others than it has."""
        runner = self._fleet.runner(flow)
        if runner is None or runner.settings in self._desired.flows:
            return False
        self._changed.add(flow)
        self._news.set()
        return True

    def restart_all(self) -> None:
        """Have all flows drain and start again."""
        self._to_restart |= {runner.flow for runner in self._fleet.runners}
        self._news.set()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Carry out changes until cancelled; flows run in *tasks*."""
        while True:
            await self._news.wait()
            self._news.clear()
            if self._must_reload and (settings := await self._read()) is not None:
                await self._reload(settings, tasks)
            elif self._changed or self._to_restart:
                changes = self._take_changes()
                if changes.changed:
                    self._report_restart_needed(())
                    await self._fleet.change(changes, tasks)

    def _take_changes(self) -> FlowChanges:
        """Return what of the flows is to change."""
        known, whole = self._changed | self._to_restart, frozenset(self._to_restart)
        self._changed, self._to_restart = set(), set()
        running = [runner.settings for runner in self._fleet.runners if runner.flow in known]
        changes = compare_flows(running, [one for one in self._desired.flows if one.flow in known])
        again = tuple(self._desired.settings_of(flow) for flow in changes.unchanged if flow in whole)
        return attrs.evolve(changes, changed=(*changes.changed, *again), whole=whole)

    # The settings of a flow's owner.

    def own(self, flow: Flow) -> NodeSettings:
        """Return what this node's file says of *flow*, for its nodes to compare."""
        return node_settings(self._desired.base.effective, flow)

    async def follow_owner(self, flow: Flow, values: Mapping[str, str | None]) -> bool:
        """Take the settings of a flow's owner; whether they are in use now. If not, the flow restarts with them."""
        await self._desired.follow_owner(flow, values)
        return not self.changed(flow)

    # Files that are read again.

    @property
    def provided(self) -> Stamps:
        """The files that the settings in use refer to, and the file as it was read last; None for missing ones."""
        return {**self._desired.agreed.provided, **self._awaited}

    @property
    def noted(self) -> tuple[str, ...]:
        """The notes on the settings in use."""
        return tuple(str(note) for note in self._desired.agreed.notes)

    async def _read(self) -> MirrorSettings | None:
        """Read the files again; None if they cannot be used, which ends nothing that runs."""
        self._must_reload = False
        if self._read_again is None:
            return None
        try:
            settings = await asyncio.to_thread(self._read_again)
        except ConfigError as error:
            self._awaited = error.provided
            self._refuse(tuple(str(problem) for problem in error.problems))
        except (Mm2Error, OSError, ValueError) as error:
            self._refuse((f"{type(error).__name__}: {error}",))
        else:
            self.refused, self._awaited = (), {}
            return settings
        return None

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.refused = problems
        self._events.emit(SettingsRefused(str(self._desired.agreed.path), problems))

    async def _reload(self, base: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Change the flows to what the files say now."""
        begun, was, before = self._clock.monotonic(), self._desired.agreed, self._desired.flows
        await self._desired.rebase(base)
        settings, after = self._desired.agreed, self._desired.flows
        changed = needing_restart(was, settings)
        self._report_restart_needed([key for key in needing_restart(self._started_with, settings) if key in changed])
        self._fleet.know(settings.elsewhere)
        self.report_notes({str(note) for note in was.notes})
        self._on_reload(settings, tasks)
        by_files = compare_flows(before, after)
        self._changed |= {*by_files.removed, *(one.flow for one in (*by_files.added, *by_files.changed))}
        changes = self._take_changes()
        is_drained = await self._fleet.change(changes, tasks)
        touched = {one.flow for one in (*changes.added, *changes.changed)}
        self._events.emit(
            SettingsReloaded(
                path=str(settings.path),
                added=tuple(str(flow.flow) for flow in changes.added),
                changed=tuple(str(flow.flow) for flow in changes.changed),
                removed=tuple(str(flow) for flow in changes.removed),
                unchanged=tuple(str(one.flow) for one in after if one.flow not in touched),
                took_s=self._clock.monotonic() - begun,
                is_drained=is_drained,
            )
        )
        for runner in self._fleet.runners:
            if runner.sharing is not None:
                runner.sharing.membership.compare_settings()

    def _report_restart_needed(self, keys: Sequence[str]) -> None:
        slots, copy_tasks = self._spark_slots(), copy_tasks_of(self._desired.flows)
        left = list(keys)
        if slots is not None and copy_tasks > slots:
            left.append(f"tasks.max ({copy_tasks} copy tasks share {slots} Spark slots until then)")
        if left:
            self._events.emit(RestartNeeded(tuple(left)))

    def report_notes(self, known: Collection[str] = ()) -> None:
        """Report what is noted of the settings but is not *known*."""
        for note in self._desired.agreed.notes:
            if str(note) not in known:
                self._events.emit(SettingNoted(str(note)))


def copy_tasks_of(flows: Iterable[FlowSettings]) -> int:
    """Return how many copy tasks *flows* have here."""
    enabled = (flow.source_connector for flow in flows if flow.is_enabled)
    return sum(config.copying.tasks_max + record_slots(config.transforms) for config in enabled)
