"""
The settings that a node's flows use, and how others come into use while it runs.

They change when the file is read again, when operators store live settings, and when a flow's owner has others. Only
the flows whose settings changed restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from mm2py.clock import Clock
from mm2py.config.explain import node_settings
from mm2py.config.providers import Stamps
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.herder.reload import FlowChanges, compare_flows, needing_restart
from mm2py.core.transform.matching import record_slots
from mm2py.errors import Mm2Error
from mm2py.herder.fleet import Fleet
from mm2py.herder.overrides import OverrideControl
from mm2py.herder.owner_settings import OwnerSettings
from mm2py.model.flow import Flow
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.telemetry.events import RestartNeeded, SettingNoted, SettingsRefused, SettingsReloaded
from mm2py.telemetry.journal import EventLog


class SettingsChanges:
    """
    Keeps the settings of a node, and restarts flows for which they changed.

    What one change drains and starts is done before the next one begins.
    """

    def __init__(
        self,
        settings: MirrorSettings,
        overrides: OverrideControl,
        fleet: Fleet,
        *,
        read_again: Callable[[], MirrorSettings] | None,
        on_change: Callable[[MirrorSettings, asyncio.TaskGroup], None],
        spark_slots: Callable[[], int | None],
        clock: Clock,
        events: EventLog,
    ) -> None:
        """
        Create it for a node that uses *settings*; *read_again* reads its file, and raises ConfigError where that cannot
        be used.

        *on_change* is called with new settings before their flows start, and *spark_slots* returns what copy tasks
        share; None without Spark.
        """
        #: What is in use, but for live settings: see `OverrideControl.settings_of`.
        self.settings = self._started_with = settings
        #: The problems of the file as it was read last; none if it is in use.
        self.refused: tuple[str, ...] = ()
        #: The files that it refers to, if it was refused.
        self._awaited: Stamps = {}
        self._owners = OwnerSettings(settings)
        self._overrides = overrides
        self._fleet = fleet
        self._read_again = read_again
        self._on_change = on_change
        self._spark_slots = spark_slots
        self._clock = clock
        self._events = events
        self._asked_to_reload = asyncio.Event()
        #: Flows that are to restart with other settings than they have.
        self._to_restart: set[Flow] = set()
        self._must_restart = asyncio.Event()
        #: Held while flows are started or drained for new settings.
        self._changing = asyncio.Lock()

    def request_reload(self) -> None:
        """Ask for the file to be read again, and what changed to be applied."""
        self._asked_to_reload.set()

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        """Apply changes until cancelled; flows run in *tasks*."""
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self._reload_forever(tasks), name="reload")
            loops.create_task(self._restart_forever(tasks), name="live settings")

    @property
    def provided(self) -> Stamps:
        """The files that the settings in use refer to, and the file as it was read last; None for missing ones."""
        return {**self.settings.provided, **self._awaited}

    @property
    def noted(self) -> tuple[str, ...]:
        """The notes on the settings in use."""
        return tuple(str(note) for note in self.settings.notes)

    # The settings of a flow's owner.

    def own(self, flow: Flow) -> NodeSettings:
        """Return what this node's file says of *flow*, for its nodes to compare."""
        return node_settings(self._owners.file.effective, flow)

    async def follow_owner(self, flow: Flow, values: Mapping[str, str | None]) -> bool:
        """Take the settings of a flow's owner; whether they are in use now. If not, the flow restarts with them."""
        async with self._changing:
            settings = await self._owners.follow(flow, values)
            if settings is not None:
                await self._overrides.rebase(settings)
                self.settings = settings
        return not self.restart_if_changed(flow)

    # Restarting.

    def restart_if_changed(self, flow: Flow) -> bool:
        """Have a flow restart if its settings are no longer those that it runs with; return whether it does."""
        runner = self._fleet.runner(flow)
        if runner is None or runner.settings == self._overrides.settings_of(flow):
            return False
        self._to_restart.add(flow)
        self._must_restart.set()
        return True

    async def restart_all(self, tasks: asyncio.TaskGroup) -> None:
        """Drain all flows, and start them again in *tasks*."""
        async with self._changing:
            settings = tuple(self._overrides.settings_of(runner.flow) for runner in self._fleet.runners)
            await self._fleet.change(FlowChanges(changed=settings), tasks)

    async def _restart_forever(self, tasks: asyncio.TaskGroup) -> None:
        """Restart flows whose settings operators changed."""
        while True:
            await self._must_restart.wait()
            async with self._changing:
                self._must_restart.clear()
                flows, self._to_restart = self._to_restart, set()
                runners = [runner for flow in flows if (runner := self._fleet.runner(flow)) is not None]
                wanted = [self._overrides.settings_of(runner.flow) for runner in runners]
                changes = compare_flows([runner.settings for runner in runners], wanted)
                if changes.changed:
                    self._report_restart_needed(())
                    await self._fleet.change(changes, tasks)

    # Reloading.

    async def _reload_forever(self, tasks: asyncio.TaskGroup) -> None:
        while True:
            await self._asked_to_reload.wait()
            self._asked_to_reload.clear()
            if self._read_again is None:
                continue
            try:
                settings = await asyncio.to_thread(self._read_again)
            except ConfigError as error:
                self._awaited = error.provided
                self._refuse(tuple(str(problem) for problem in error.problems))
                continue
            except (Mm2Error, OSError, ValueError) as error:  # a file that cannot be read ends nothing that runs
                self._refuse((f"{type(error).__name__}: {error}",))
                continue
            self.refused, self._awaited = (), {}
            async with self._changing:
                await self._apply(await self._owners.reread(settings), tasks)
            for runner in self._fleet.runners:
                if runner.sharing is not None:
                    runner.sharing.membership.compare_settings()

    def _refuse(self, problems: tuple[str, ...]) -> None:
        self.refused = problems
        self._events.emit(SettingsRefused(str(self.settings.path), problems))

    async def _apply(self, settings: MirrorSettings, tasks: asyncio.TaskGroup) -> None:
        """Change the flows from their present settings to *settings*."""
        changed, before = needing_restart(self.settings, settings), self._overrides.flows
        left = [key for key in needing_restart(self._started_with, settings) if key in changed]
        await self._overrides.rebase(settings)
        changes = compare_flows(before, self._overrides.flows)
        self._report_restart_needed(left)
        begun, known = self._clock.monotonic(), {str(note) for note in self.settings.notes}
        self.settings = settings
        self._fleet.know(settings.elsewhere)
        self.report_notes(known)
        self._on_change(settings, tasks)
        is_drained = await self._fleet.change(changes, tasks)
        self._events.emit(
            SettingsReloaded(
                path=str(settings.path),
                added=tuple(str(flow.flow) for flow in changes.added),
                changed=tuple(str(flow.flow) for flow in changes.changed),
                removed=tuple(str(flow) for flow in changes.removed),
                unchanged=tuple(str(flow) for flow in changes.unchanged),
                took_s=self._clock.monotonic() - begun,
                is_drained=is_drained,
            )
        )

    def _report_restart_needed(self, keys: Sequence[str]) -> None:
        slots, copy_tasks = self._spark_slots(), copy_tasks_of(self._overrides.flows)
        left = list(keys)
        if slots is not None and copy_tasks > slots:
            left.append(f"tasks.max ({copy_tasks} copy tasks share {slots} Spark slots until then)")
        if left:
            self._events.emit(RestartNeeded(tuple(left)))

    def report_notes(self, known: Collection[str] = ()) -> None:
        """Report what is noted of the settings but is not *known*."""
        for note in self.settings.notes:
            if str(note) not in known:
                self._events.emit(SettingNoted(str(note)))


def copy_tasks_of(flows: Iterable[FlowSettings]) -> int:
    """Return how many copy tasks *flows* have here."""
    enabled = (flow.source_connector for flow in flows if flow.is_enabled)
    return sum(config.copying.tasks_max + record_slots(config.transforms) for config in enabled)
