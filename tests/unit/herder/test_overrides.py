"""Overrides of all flows of a node together: settings over the file, and a changed file under them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import attrs
import pytest

from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.core.herder.live_config import connector_config, put_config
from mm2py.core.herder.overrides import SOURCE
from mm2py.errors import ClusterUnreachableError, OverrideRejectedError, OverridesNotStoredError, UnknownFlowError
from mm2py.herder import overrides as override_control
from mm2py.herder.desired_connectors import DesiredConnectors
from mm2py.herder.overrides import OverrideControl
from mm2py.herder.replication_loops import judged
from mm2py.herder.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides, Wanted
from mm2py.model.herder.stored_overrides import NOTHING_STORED, StoredOverrides
from mm2py.model.state import FlowState
from mm2py.pipeline.epoch_jobs import EpochRunner
from mm2py.storage.override_store import SeenTopic, conflict
from mm2py.telemetry.events import LiveSettingsChanged, LiveSettingsRejected, OverridesStored
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


AB, BA = Flow("A", "B"), Flow("B", "A")
_TEXT = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
replication.policy.class = identity
A->B.enabled = true
A->B.topics = east
B->A.enabled = true
B->A.topics = west
"""


@attrs.define
class Targets:
    """The topics with overrides of all flows, in memory."""

    kept: dict[Flow, StoredOverrides] = attrs.field(factory=dict)
    away: ClusterUnreachableError | None = None

    def open(self, settings: object, _clock: object) -> Store:
        return Store(self, settings.flow)  # type: ignore[attr-defined]


@attrs.define
class Store:
    """The overrides of one flow; see `mm2py.storage.override_store.OverrideStore`."""

    targets: Targets
    flow: Flow

    async def read(self, *, events: EventLog | None = None) -> StoredOverrides:  # noqa: ARG002
        return self.targets.kept.get(self.flow, NOTHING_STORED)

    async def refill(self, _kept: StoredOverrides, before: SeenTopic, _events: EventLog) -> SeenTopic:
        if self.targets.away is not None:
            raise self.targets.away
        return before

    async def write(self, overrides: Overrides, *, before: StoredOverrides, by: str) -> StoredOverrides:
        now = await self.read()
        if now.revision > before.revision:
            raise conflict(self.flow, now)
        kept = self.targets.kept[self.flow] = StoredOverrides(overrides, before.revision + 1, "mark", by, 1)
        return kept


@attrs.define
class WorkerStates:
    """The target states that a worker keeps; see `mm2py.herder.connect_worker.ConnectWorker`."""

    now: dict[str, Wanted]

    def states(self, _flow: Flow) -> dict[str, Wanted]:
        return self.now

    async def set_states(self, _flow: Flow, wanted: Mapping[str, Wanted], *, by: str) -> None:  # noqa: ARG002
        self.now = {**self.now, **wanted}


@attrs.define
class OverridesRig:
    """What is desired, the control, what targets store, how the file is read, which flows were to apply changes."""

    desired: DesiredConnectors
    control: OverrideControl
    targets: Targets
    events: EventLog
    read: Callable[[str], MirrorSettings]
    acted: list[Flow]

    async def put(self, flow: Flow, **settings: object) -> Overrides:
        body = {key.replace("_", "."): value for key, value in settings.items()}
        return await self.control.change(
            flow, lambda overrides: put_config(overrides, flow, SOURCE, body, self.desired.agreed), by="alice"
        )


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OverridesRig:
    path, targets, acted = tmp_path / "mm2.properties", Targets(), list[Flow]()

    def read(text: str) -> MirrorSettings:
        path.write_text(text)
        return judged(load_settings(path))

    monkeypatch.setattr(override_control, "OverrideStore", targets.open)
    clock = LoopClock()
    events = EventLog(clock)
    desired = DesiredConnectors(read(_TEXT), events=events)
    for flow in (AB, BA):
        desired.learn(flow, NOTHING_STORED)
    control = OverrideControl(desired, acted.append, clock=clock, events=events)
    return OverridesRig(desired, control, targets, events, read, acted)


async def test_an_override_is_stored_then_applied(rig: OverridesRig) -> None:
    """The flow is to run with other settings, the other flow with the file's; each step is reported."""
    overrides = await rig.put(AB, topics="other", tasks_max=2)

    assert rig.targets.kept[AB].overrides == overrides
    assert (
        rig.desired.settings_of(AB).source_connector.topics.names,
        rig.desired.settings_of(AB).source_connector.copying.tasks_max,
    ) == (("other",), 2)
    assert rig.desired.settings_of(BA) == rig.desired.agreed.flows[1]
    assert rig.acted == [AB]
    assert [event.by for event in rig.events.of(OverridesStored)] == ["alice"]
    (changed,) = rig.events.of(LiveSettingsChanged)
    assert changed.set == ("topics = other", "tasks.max = 2")


async def test_settings_are_parsed_once(rig: OverridesRig) -> None:
    """What was validated before it was stored is what applies."""
    file, parsed = rig.desired.agreed, list[Mapping[str, str]]()
    assert file.with_live is not None

    def with_live(lines: Mapping[str, str]) -> MirrorSettings:
        parsed.append(lines)
        return read(lines)

    read, rig.desired.agreed = file.with_live, attrs.evolve(file, with_live=with_live)
    await rig.put(AB, topics="other")

    assert parsed == [{"A->B.topics": "other"}]
    assert rig.desired.settings_of(AB).source_connector.topics.names == ("other",)


async def test_what_changes_nothing_is_not_written(rig: OverridesRig) -> None:
    """An order that was given already, or a body as GET gives it, leaves no record; one that only says what the file
    says is kept as it was put, and restarts nothing.
    """
    await rig.put(AB, **connector_config(rig.desired.agreed, AB, SOURCE))
    as_shown = dict(rig.targets.kept)
    for _ in range(2):
        await rig.put(AB, topics="east")

    assert as_shown == {}
    assert (rig.targets.kept[AB].revision, rig.targets.kept[AB].overrides.config) == (1, {})
    assert rig.desired.live.flows == rig.desired.agreed.flows


async def test_flows_that_would_feed_each_other_are_refused(rig: OverridesRig) -> None:
    """Settings are judged with what was put for the other flows, too; nothing of a refused order is kept."""
    await rig.put(AB, topics="shared")

    with pytest.raises(OverrideRejectedError, match="shared"):
        await rig.put(BA, topics="shared")
    assert rig.desired.settings_of(BA).source_connector.topics.names == ("west",)
    assert BA not in rig.targets.kept


async def test_a_refused_change_leaves_the_states_of_a_worker(rig: OverridesRig) -> None:
    """A change that resumes a stopped connector with settings that do not fit resumes nothing."""
    states = WorkerStates({SOURCE: Wanted.STOPPED})
    rig.control._states = states  # type: ignore[assignment]

    with pytest.raises(OverrideRejectedError, match="west"):
        await rig.control.change(AB, lambda _: Overrides(config={SOURCE: {"topics": "west"}}))
    assert states.now == {SOURCE: Wanted.STOPPED}
    await rig.control.change(AB, lambda _: Overrides(config={SOURCE: {"topics": "north"}}))
    assert states.now == {SOURCE: Wanted.RUNNING}


async def test_nothing_is_changed_before_it_was_read(rig: OverridesRig) -> None:
    """Overrides of a flow that is not run here, or whose overrides were not read yet, cannot be changed."""
    del rig.desired._stored[BA]

    with pytest.raises(OverridesNotStoredError):
        await rig.put(BA, topics="x")
    with pytest.raises(UnknownFlowError):
        await rig.put(Flow("A", "C"), topics="x")


async def test_a_target_that_is_away_refuses_changes_only(rig: OverridesRig) -> None:
    """A change is refused as not stored; the periodic check stores nothing, and says only that the target is away."""
    await rig.put(AB, topics="other")
    rig.targets.away = ClusterUnreachableError("B", "b:9092", "not connected")

    with pytest.raises(OverridesNotStoredError):
        await rig.put(AB, topics="another")
    with pytest.raises(ClusterUnreachableError):
        await rig.control.refill(AB)


async def test_settings_stay_on_top_of_another_file(rig: OverridesRig) -> None:
    """What was put counts over what the file says now, for the flows that it still has."""
    await rig.put(AB, topics="other")

    await rig.desired.rebase(rig.read(_TEXT + "A->B.tasks.max = 3\nB->A.enabled = false\n"))

    assert (
        rig.desired.settings_of(AB).source_connector.topics.names,
        rig.desired.settings_of(AB).source_connector.copying.tasks_max,
    ) == (("other",), 3)
    assert not rig.events.of(LiveSettingsRejected)


async def test_a_file_that_settings_do_not_fit_leaves_their_flow_as_it_was(rig: OverridesRig) -> None:
    """Settings that do not fit are reported; others take the file, and once they are removed this one does, too."""
    await rig.put(AB, topics="other")
    before = rig.desired.settings_of(AB)

    await rig.desired.rebase(rig.read(_TEXT.replace("topics = west", "topics = other") + "A->B.tasks.max = 3\n"))
    during = rig.desired.settings_of(AB)
    await rig.control.change(AB, lambda _: Overrides())

    (refused,) = rig.events.of(LiveSettingsRejected)
    assert refused.is_running
    assert during == before
    assert rig.desired.settings_of(BA).source_connector.topics.names == ("other",)
    assert (
        rig.desired.settings_of(AB).source_connector.topics.names,
        rig.desired.settings_of(AB).source_connector.copying.tasks_max,
    ) == (("east",), 3)


async def test_a_flow_that_its_overrides_keep_from_starting_follows_them(
    rig: OverridesRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator reverts them at another node of the flow, which runs with an older file."""

    async def here(function: Callable[..., object], *args: object) -> object:
        return function(*args)

    monkeypatch.setattr(asyncio, "to_thread", here)  # a thread takes no time of the loop's clock
    await rig.put(AB, topics="other")
    kept, clock = rig.targets.kept[AB], LoopClock()
    desired = DesiredConnectors(rig.read(_TEXT.replace("topics = west", "topics = other")), events=rig.events)
    control = OverrideControl(desired, lambda _: None, clock=clock, events=rig.events)
    runner = FlowRunner(
        desired.settings_of(AB), cast("EpochRunner", None), clock=clock, events=rig.events, jitter=lambda: 0.5
    )
    async with asyncio.TaskGroup() as tasks:
        starting = tasks.create_task(control.prepare(runner))
        await asyncio.sleep(60)
        shown = runner.view().state
        rig.targets.kept[AB] = attrs.evolve(kept, overrides=Overrides(), revision=kept.revision + 1, mark="later")
        started = await asyncio.wait_for(starting, 15)

    assert shown is FlowState.FAILED
    assert started.source_connector.topics.names == ("east",)
    assert runner.view().state is FlowState.STARTING
    assert len(rig.events.of(LiveSettingsRejected)) == 1


async def test_overrides_on_another_cluster_are_read_again(rig: OverridesRig) -> None:
    """A file that names another target says where to look: what was known is not."""
    await rig.put(AB, topics="other")

    await rig.desired.rebase(rig.read(_TEXT.replace("b:9092", "c:9092")))

    assert rig.control.stored(AB) == NOTHING_STORED
    assert rig.desired.settings_of(AB).source_connector.topics.names == ("east",)
    with pytest.raises(OverridesNotStoredError, match="not been read"):
        await rig.put(AB, topics="x")


async def test_overrides_of_a_flow_that_is_about_to_end_are_not_read(rig: OverridesRig) -> None:
    """An operator removed it here, it drains, and another node that still runs it has other overrides."""
    rig.targets.kept[AB] = attrs.evolve(NOTHING_STORED, overrides=Overrides(topics=frozenset({"east"})), revision=3)
    removed = _TEXT.replace("A->B.enabled = true", "A->B.enabled = false") + "emit.heartbeats.enabled = false\n"
    await rig.desired.rebase(rig.read(removed))
    rig.acted.clear()

    await rig.control.catch_up(AB)

    assert rig.acted == []
