"""How the settings of a node's flows change while it runs: by its file, by operators, by the flows' owners."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import attrs

from mm2py.cli.saved_files import stamps
from mm2py.config.settings import FlowSettings, MirrorSettings, load_settings
from mm2py.core.herder.reload import FlowChanges
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.settings_changes import SettingsChanges
from mm2py.model.flow import Flow
from mm2py.telemetry.events import Event, RestartNeeded, SettingsRefused, SettingsReloaded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


AB, BA = Flow("A", "B"), Flow("B", "A")
_TEXT = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
A->B.topics = east
B->A.enabled = true
B->A.topics = west
tasks.max = 1
"""


@attrs.define
class Runner:
    """A flow that runs with its settings."""

    settings: FlowSettings
    sharing: None = None

    @property
    def flow(self) -> Flow:
        return self.settings.flow


@attrs.define
class Flows:
    """The flows that run, as `mm2py.herder.fleet.Fleet` has them, and how they were changed."""

    running: dict[Flow, Runner]
    changes: list[FlowChanges] = attrs.field(factory=list)
    has_begun: asyncio.Event = attrs.field(factory=asyncio.Event)

    @property
    def runners(self) -> tuple[Runner, ...]:
        return tuple(self.running.values())

    def runner(self, flow: Flow) -> Runner | None:
        return self.running.get(flow)

    def know(self, _elsewhere: object) -> None:
        return

    async def change(self, changes: FlowChanges, _tasks: asyncio.TaskGroup) -> bool:
        self.has_begun.set()
        await asyncio.sleep(1)
        self.changes.append(changes)
        for settings in (*changes.changed, *changes.added):
            self.running[settings.flow] = Runner(settings)
        for flow in changes.removed:
            del self.running[flow]
        return True


class Rig:
    """A node that uses a file, in virtual time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "mm2.properties"
        self.path.write_text(_TEXT)
        clock = LoopClock()
        self.events = EventLog(clock)
        self._has_told = asyncio.Event()
        self.events.attach(self._note)
        settings = self.read()
        self.desired = DesiredConnectors(settings, events=self.events)
        self.flows = Flows({one.flow: Runner(one) for one in settings.flows})
        self.began: list[MirrorSettings] = []
        self.its = SettingsChanges(
            self.desired,
            cast("Any", self.flows),
            read_again=self.read,
            on_reload=lambda settings, _tasks: self.began.append(settings),
            spark_slots=lambda: 2,
            clock=clock,
            events=self.events,
        )

    def read(self) -> MirrorSettings:
        return load_settings(self.path)

    def _note(self, event: Event) -> None:
        if isinstance(event, SettingsReloaded | SettingsRefused):
            self._has_told.set()

    def write(self, before: str, now: str) -> None:
        self.path.write_text(self.path.read_text().replace(before, now))

    async def reload(self) -> None:
        """Have the file read again, and wait until that has been applied or refused."""
        self.its.request_reload()
        self._has_told.clear()
        await self._has_told.wait()

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            changing = tasks.create_task(self.its.run(tasks))
            yield
            changing.cancel()


async def test_a_file_that_cannot_be_used_changes_nothing(tmp_path: Path) -> None:
    """Its problems are shown until a file can be used; of that one only the flow restarts that it changes."""
    rig = Rig(tmp_path)
    before = rig.desired.agreed
    async with rig.run():
        rig.write("tasks.max = 1", "tasks.max = many")
        await rig.reload()
        refused = rig.its.refused, rig.desired.agreed, list(rig.flows.changes)
        rig.write("tasks.max = many", "tasks.max = 1\nB->A.topics.exclude = north")
        await rig.reload()

    assert len(refused[0]) == 1
    assert refused[1:] == (before, [])
    assert rig.its.refused == ()
    assert rig.began == [rig.desired.agreed]
    (reloaded,) = rig.events.of(SettingsReloaded)
    assert (reloaded.changed, reloaded.unchanged) == (("B->A",), ("A->B",))
    assert rig.flows.running[BA].settings == rig.desired.agreed.flows[1]


async def test_what_a_refused_file_refers_to_is_awaited(tmp_path: Path) -> None:
    """A password is mounted a little after the file that names it was saved: `--watch` waits for it."""
    rig, secret = Rig(tmp_path), tmp_path / "password"
    async with rig.run():
        rig.write("tasks.max = 1", f"config.providers = dir\nA.ssl.key.password = ${{dir:{tmp_path}:password}}")
        await rig.reload()
        while_missing = rig.its.refused, rig.its.provided
        secret.write_text("s3cr3t")
        await rig.reload()

    assert len(while_missing[0]) == 1
    assert while_missing[1] == {secret: None}
    assert rig.its.refused == ()
    assert rig.its.provided == stamps([secret])


async def test_more_copy_tasks_than_slots_need_a_restart(tmp_path: Path) -> None:
    """They share what Spark was started with until the node is restarted."""
    rig = Rig(tmp_path)
    async with rig.run():
        rig.write("tasks.max = 1", "tasks.max = 3")
        await rig.reload()

    (needed,) = rig.events.of(RestartNeeded)
    assert needed.keys == ("tasks.max (6 copy tasks share 2 Spark slots until then)",)


async def test_what_is_back_to_what_runs_needs_no_restart(tmp_path: Path) -> None:
    """A key that only a restart applies is reported when it changes, not again with others, nor when it is undone."""
    rig = Rig(tmp_path)
    async with rig.run():
        for before, now in (
            ("tasks.max = 1", "tasks.max = 1\nlog.level = debug"),
            ("B->A.topics = west", "B->A.topics = north"),
            ("log.level = debug", "log.level = warning"),
            ("\nlog.level = warning", ""),
        ):
            rig.write(before, now)
            await rig.reload()

    assert [event.keys for event in rig.events.of(RestartNeeded)] == [("log.level",), ("log.level",)]
    assert len(rig.events.of(SettingsReloaded)) == 4


async def test_a_flow_restarts_once_the_change_before_is_done(tmp_path: Path) -> None:
    """
    While a changed file drains a flow, the owner of the other one has other settings.

    These are used once the first flow runs again, and the file that was read is not undone.
    """
    rig = Rig(tmp_path)
    async with rig.run():
        rig.write("B->A.topics = west", "B->A.topics = north")
        rig.its.request_reload()
        await rig.flows.has_begun.wait()
        is_in_use = await rig.its.follow_owner(AB, {"topics": "south"})
        await asyncio.sleep(5)
        again = await rig.its.follow_owner(AB, {"topics": "south"})

    assert (is_in_use, again) == (False, True)
    assert [[one.flow for one in changes.changed] for changes in rig.flows.changes] == [[BA], [AB]]
    assert {flow: runner.settings.source_connector.topics.names for flow, runner in rig.flows.running.items()} == {
        AB: ("south",),
        BA: ("north",),
    }
