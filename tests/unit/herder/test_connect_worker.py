"""A worker's settings are its file and the connectors that fit; the others are left out, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mm2py.config.importers.lines import read_worker
from mm2py.config.settings import ConfigError, FlowSettings
from mm2py.core.herder.reload import restarting_alone
from mm2py.core.herder.sharing import flow_tasks
from mm2py.herder import connect_worker
from mm2py.herder.composition import Composition, Idleness, compose, created_ms
from mm2py.herder.connect_worker import ConnectWorker, worker_group
from mm2py.model.herder.connector_configs import StoredConnector
from mm2py.telemetry.events import RestartNeeded
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import ManualClock


_PACKAGE = "org.apache.kafka.connect.mirror."
_WORKER = {
    "bootstrap.servers": "t:9092",
    "group.id": "connect",
    "config.storage.topic": "configs",
    "offset.storage.topic": "offsets",
    "status.storage.topic": "statuses",
}


def _connector(kind: str, alias: str = "west", **others: str) -> dict[str, str]:
    return {
        "connector.class": _PACKAGE + kind,
        "source.cluster.alias": alias,
        "target.cluster.alias": "east",
        "source.cluster.bootstrap.servers": f"{alias}:9092",
        **others,
    }


_SOURCE = _connector("MirrorSourceConnector")
_CHECKPOINT = _connector("MirrorCheckpointConnector")
_HEARTBEAT = _connector("MirrorHeartbeatConnector")
_FOREIGN = {"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector"}


def _composed(folder: Path, connectors: Mapping[str, Mapping[str, str]], worker: Mapping[str, str]) -> Composition:
    path = folder / "worker.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in worker.items()))
    return compose(path, read_worker(path), {name: StoredConnector(config) for name, config in connectors.items()})


def test_connectors_of_a_flow_are_one_flow(tmp_path: Path) -> None:
    """Each is a task group of it; other connectors have flows of their own."""
    other = _connector("MirrorSourceConnector", "north")
    found = _composed(tmp_path, {"c": _CHECKPOINT, "s": _SOURCE, "n": other, "h": _HEARTBEAT}, _WORKER)

    assert {str(flow.flow) for flow in found.settings.flows} == {"west->east", "north->east"}
    assert {name: f"{place.flow} {place.group}" for name, place in found.places.items()} == {
        "c": "west->east MirrorCheckpointConnector",
        "s": "west->east MirrorSourceConnector",
        "n": "north->east MirrorSourceConnector",
        "h": "west->east MirrorHeartbeatConnector",
    }
    assert not found.idle


def test_transactional_ids_are_those_of_java_s_tasks(tmp_path: Path) -> None:
    """By group and connector (KIP-618), so that one permission serves both, and Java's tasks are fenced."""
    settings = _composed(tmp_path, {"us-west": _SOURCE, "c": _CHECKPOINT, "h": _HEARTBEAT}, _WORKER).settings
    [alone] = _composed(tmp_path, {"us-west": _SOURCE}, _WORKER).settings.flows
    [flow] = settings.flows

    assert flow.group_id == "connect-west"
    assert [flow.worker.task_id(task) for task in range(2)] == ["connect-us-west-0", "connect-us-west-1"]
    assert flow.worker.owner_id == "connect-c-0"
    assert (alone.worker.task_id(0), alone.worker.owner_id) == ("connect-us-west-0", "connect-cluster-connect-west")


@pytest.mark.parametrize(
    ("config", "why", "key"),
    [
        (_FOREIGN, Idleness.FOREIGN, "connector.class"),
        ({}, Idleness.INVALID, "connector.class"),
        (_connector("MirrorSourceConnector", "north", **{"tasks.max": "many"}), Idleness.INVALID, "tasks.max"),
        (_connector("MirrorSourceConnector", "north", topcis="x"), Idleness.INVALID, "topcis"),
        (_HEARTBEAT, Idleness.INVALID, "connector.class"),
    ],
    ids=["foreign", "no class", "value", "slip", "twice"],
)
def test_what_does_not_fit_stops_no_other(tmp_path: Path, config: Mapping[str, str], why: Idleness, key: str) -> None:
    """The flows are those without it."""
    connectors = {"s": _SOURCE, "h": _HEARTBEAT}
    found = _composed(tmp_path, {**connectors, "odd": config}, _WORKER)

    assert set(found.idle) == {"odd"}
    assert (found.idle["odd"].why, [problem.key for problem in found.idle["odd"].problems]) == (why, [key])
    assert found.settings.flows == _composed(tmp_path, connectors, _WORKER).settings.flows
    assert set(found.places) == {"s", "h"}


def test_the_source_connector_that_came_first_is_the_pair_s(tmp_path: Path) -> None:
    """Those beside it are flows of their own. The order is the same at each node, whatever the topic's order is."""
    path = tmp_path / "worker.properties"
    path.write_text("".join(f"{key} = {value}\n" for key, value in _WORKER.items()))
    stored = {"c": StoredConnector(_CHECKPOINT)}
    for name in ("z", "b", "a"):  # a and b in one millisecond
        at = created_ms(name, _SOURCE, stored, now_ms=7)
        stored = {name: StoredConnector(_SOURCE, created_ms=at), **stored}
    found = compose(path, read_worker(path), stored)
    flows = {str(flow.flow): flow for flow in found.settings.flows}
    left = compose(path, read_worker(path), {name: one for name, one in stored.items() if name != "z"})

    assert not found.idle
    assert {name: str(place.flow) for name, place in found.places.items()} == {
        "z": "west->east", "c": "west->east", "a": "west->east (a)", "b": "west->east (b)"
    }  # fmt: skip
    assert {name: flow.source_connector.name for name, flow in flows.items()} == {
        "west->east": "z", "west->east (a)": "a", "west->east (b)": "b"
    }  # fmt: skip
    assert [flow.checkpoint_connector.is_run for flow in flows.values()] == [True, False, False]
    assert {flow.group_id for flow in flows.values()} == {"connect-west", "connect-west:a", "connect-west:b"}
    assert flows["west->east (a)"].worker.task_id(1) == "connect-a-1"
    assert {name: str(place.flow) for name, place in left.places.items()}["a"] == "west->east"


def test_a_connector_that_changes_its_pair_comes_last_there() -> None:
    """One that stays where it is keeps its place, also where it was the only one."""
    other = _connector("MirrorSourceConnector", "north")
    stored = {"a": StoredConnector(_SOURCE), "n": StoredConnector(other), "b": StoredConnector(_SOURCE, created_ms=3)}
    again = [created_ms(name, one.config, stored, now_ms=9) for name, one in stored.items()]

    assert again == [0, 0, 3]
    assert created_ms("n", _SOURCE, stored, now_ms=9) == 9
    assert created_ms("b", other, stored, now_ms=9) == 9
    assert created_ms("h", _HEARTBEAT, stored, now_ms=9) == 0


@pytest.mark.parametrize("source", [None, {"tasks.max": "many"}, {"enabled": "false"}], ids=["none", "odd", "off"])
def test_a_checkpoint_connector_needs_no_source_connector(tmp_path: Path, source: Mapping[str, str] | None) -> None:
    """It runs, also beside one that does not, and looks for offset syncs where its own config says that they are."""
    checkpoint = {**_CHECKPOINT, "offset-syncs.topic.location": "target"}
    connectors = {} if source is None else {"s": {**_SOURCE, **source}}
    found = _composed(tmp_path, {**connectors, "c": checkpoint}, _WORKER)
    [flow] = found.settings.flows

    assert "c" not in found.idle
    assert (flow.is_enabled, flow.reads_source, flow.checkpoint_connector.is_run) == (False, True, True)
    assert flow.checkpoint_connector.syncs_at == ("target", "west")
    assert not [note for note in found.settings.notes if note.key == "offset-syncs.topic.location"]
    assert (flow.group_id, flow.worker.owner_id) == ("connect-west", "connect-c-0")


def test_a_source_connector_may_come_later_and_go_again(tmp_path: Path) -> None:
    """Its flow restarts as a whole with it and without it, as other translations count then; others do not."""
    alone, both = (
        _composed(tmp_path, connectors, _WORKER).settings.flows[0]
        for connectors in ({"c": _CHECKPOINT}, {"c": _CHECKPOINT, "s": _SOURCE})
    )
    heartbeat = _composed(tmp_path, {"h": _HEARTBEAT}, _WORKER).settings.flows[0]
    beside = _composed(tmp_path, {"h": _HEARTBEAT, "c": _CHECKPOINT}, _WORKER).settings.flows[0]
    slower = _composed(tmp_path, {"c": {**_CHECKPOINT, "emit.checkpoints.interval.seconds": "7"}}, _WORKER)

    assert [restarting_alone(*pair) for pair in ((alone, both), (both, alone), (heartbeat, beside))] == [None] * 3
    assert restarting_alone(alone, slower.settings.flows[0]) == {"MirrorCheckpointConnector"}
    assert [flow_tasks(flow.source_connector) for flow in (alone, both)] == [(1, 0), (1, 0)]


def test_what_would_leave_nothing_to_do_is_refused(tmp_path: Path) -> None:
    """A live setting by which a flow would end: its connector can be stopped instead."""
    settings = _composed(tmp_path, {"c": _CHECKPOINT}, _WORKER).settings
    assert settings.with_live is not None
    with pytest.raises(ConfigError, match="west->east would have nothing to do"):
        settings.with_live({"west->east.emit.checkpoints.interval.seconds": "-1"})


def test_a_worker_s_own_problems_are_raised(tmp_path: Path) -> None:
    """No connector is to blame for them."""
    with pytest.raises(ConfigError) as caught:
        _composed(tmp_path, {"s": _SOURCE}, {**_WORKER, "offset.flush.interval.ms": "soon"})

    assert [problem.key for problem in caught.value.problems] == ["offset.flush.interval.ms"]


def test_a_changed_password_is_used_for_the_worker_s_own_topic_and_group(tmp_path: Path) -> None:
    """As for its flows. Another target is left to a restart: its connectors are stored at this one."""
    path, clock = tmp_path / "worker.properties", ManualClock()

    def write(servers: str, password: str) -> None:
        login = {"security.protocol": "SSL", "ssl.key.password": password}
        lines = {**_WORKER, "bootstrap.servers": servers, **login}
        path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))

    write("t:9092", "old")
    worker = ConnectWorker(path, {}, clock=clock, events=EventLog(clock))
    found = []
    for servers, password in (("t:9092", "new"), ("other:9092", "newer")):
        write(servers, password)
        worker.read()
        ends = worker.store.endpoint, worker.membership.endpoint
        found.append([dict(end.security.client_keys)["ssl.key.password"] for end in ends])

    assert found == [["new", "new"], ["new", "new"]]


def test_the_file_of_another_worker_waits_for_a_restart(tmp_path: Path) -> None:
    """Flows would move to a target, or a group, where their connectors are not; that they wait is told once."""
    path, clock = tmp_path / "worker.properties", ManualClock()

    def write(**changed: str) -> None:
        lines = {**_WORKER, **{key.replace("_", "."): text for key, text in changed.items()}}
        path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))

    write()
    events = EventLog(clock)
    worker = ConnectWorker(path, {}, clock=clock, events=events)
    started_with = worker.read()
    write(bootstrap_servers="other:9092", group_id="others", tasks_max="7")
    waiting = [worker.read(), worker.read()]
    told = events.of(RestartNeeded)
    write(tasks_max="7")
    back = worker.read()

    assert waiting == [started_with, started_with]
    assert told == (RestartNeeded(("bootstrap.servers", "group.id")),)
    assert (back.clusters, back == started_with) == (started_with.clusters, False)
    assert events.of(RestartNeeded) == told


@pytest.mark.parametrize(("are_left", "looks"), [(True, 3), (False, 1)], ids=["left", "none"])
async def test_what_is_left_under_another_name_is_looked_for_at_each_handover(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, are_left: bool, looks: int
) -> None:
    """A node of a former version, or one that has just learnt of a new name, writes there until it ends."""
    path, clock, taken = tmp_path / "worker.properties", ManualClock(), []
    path.write_text("".join(f"{key} = {value}\n" for key, value in _WORKER.items()))
    worker = ConnectWorker(path, {}, clock=clock, events=EventLog(clock))
    worker.store.connectors = {"s": StoredConnector(_SOURCE)}
    [settings] = worker.read().flows

    async def take_over_positions(settings: FlowSettings, **_others: object) -> bool:
        taken.append(settings)
        return are_left

    monkeypatch.setattr(connect_worker, "take_over_positions", take_over_positions)
    for from_nodes in (False, False, True, True):
        await worker.take_over(settings, from_nodes=from_nodes)

    assert taken == [settings] * looks


@pytest.mark.parametrize("second", [_SOURCE, _CHECKPOINT], ids=["source", "checkpoint"])
def test_one_cluster_is_no_two_targets_of_a_source(tmp_path: Path, second: Mapping[str, str]) -> None:
    """The nodes of both would be one group there, and take tasks that they do not have. Heartbeats share nothing."""
    renamed = {**second, "target.cluster.alias": "east2"}
    beats = {**_HEARTBEAT, "target.cluster.alias": "east3"}
    elsewhere = {**renamed, "producer.override.bootstrap.servers": "u:9092"}
    found = _composed(tmp_path, {"s": _SOURCE, "second": renamed, "beats": beats}, _WORKER)
    apart = _composed(tmp_path, {"s": _SOURCE, "second": elsewhere}, _WORKER)
    [problem] = found.idle["second"].problems

    assert (set(found.idle), found.idle["second"].why) == ({"second"}, Idleness.INVALID)
    assert str(problem) == (
        "second: target.cluster.alias: s has source west and the same target, as east "
        "(write the same target.cluster.alias in both)"
    )
    assert not apart.idle


def test_references_say_which_worker_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Connect: the names of its group and topic, and its brokers, may come from providers."""
    path, clock = tmp_path / "worker.properties", ManualClock()
    brokers = tmp_path / "brokers.properties"
    brokers.write_text("t = t:9092\n")
    monkeypatch.setenv("STAGE", "test")
    lines = {
        **_WORKER,
        "bootstrap.servers": f"${{file:{brokers}:t}}",
        "group.id": "connect-${env:STAGE}",
        "config.storage.topic": "configs-${env:STAGE}",
        "config.providers": "env, file",
    }
    path.write_text("".join(f"{key} = {value}\n" for key, value in lines.items()))
    events = EventLog(clock)
    worker = ConnectWorker(path, {}, clock=clock, events=events)
    started_with = worker.read()
    brokers.write_text("t = other:9092\n")

    assert worker.store._storage.topic == "configs-test"
    assert worker.store._transactional_id == "connect-cluster-connect-test"
    assert worker_group(path) == "connect-test"
    assert worker.read() == started_with
    assert events.of(RestartNeeded) == (RestartNeeded(("bootstrap.servers",)),)


def test_what_an_invalid_connector_refers_to_is_awaited(tmp_path: Path) -> None:
    """A connector whose secret is missing is not run; the secret's file is among those to be watched."""
    missing = tmp_path / "secret"
    secretive = {**_SOURCE, "source.cluster.ssl.key.password": f"${{dir:{tmp_path}:secret}}"}
    found = _composed(tmp_path, {"s": secretive}, {**_WORKER, "config.providers": "dir"})

    assert found.idle["s"].why is Idleness.INVALID
    assert found.settings.provided == {missing: None}
