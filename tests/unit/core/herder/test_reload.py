"""What a changed properties file means for flows that run."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from mm2py.config.keys.row import LineLevel
from mm2py.config.keys.table import find_key
from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.core.herder.live_config import flow_settings
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.core.herder.reload import compare_flows, needing_restart, restarting_alone
from mm2py.model.herder.overrides import NO_OVERRIDES


_FILE = """
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
emit.heartbeats.enabled = false
A->B.enabled = true
A->C.enabled = true
"""


@pytest.fixture
def settings(tmp_path: Path) -> MirrorSettings:
    return _read(tmp_path, "")


def _read(work_dir: Path, more: str) -> MirrorSettings:
    file = work_dir / "mm2.properties"
    file.write_text(_FILE + more)
    return load_settings(file)


def test_what_stayed_is_left_alone(settings: MirrorSettings, tmp_path: Path) -> None:
    """A file that was saved without a change, or with one that no flow can see, touches no flow."""
    again = _read(tmp_path, "# a word for the next reader\n")

    changes = compare_flows(settings.flows, again.flows)

    assert {str(flow) for flow in changes.unchanged} == {"A->B", "A->C"}
    assert (changes.added, changes.changed, changes.removed) == ((), (), ())


def test_a_change_touches_the_flows_it_is_for(settings: MirrorSettings, tmp_path: Path) -> None:
    """One flow changes, one goes, one comes; those that stay have their new settings."""
    again = _read(tmp_path, "A->B.topics = orders\nA->C.enabled = false\nB->C.enabled = true\n")

    changes = compare_flows(settings.flows, again.flows)

    assert [(str(it.flow), it.source_connector.topics.names) for it in changes.changed] == [("A->B", ("orders",))]
    assert [str(flow) for flow in changes.removed] == ["A->C"]
    assert [str(it.flow) for it in changes.added] == ["B->C"]
    assert changes.unchanged == ()


def test_a_cluster_s_change_touches_every_flow_of_it(settings: MirrorSettings, tmp_path: Path) -> None:
    """Other brokers, or another password, are a change of each flow that connects to them."""
    again = _read(tmp_path, "C.bootstrap.servers = c2:9092\n")

    changes = compare_flows(settings.flows, again.flows)

    assert [str(it.flow) for it in changes.changed] == ["A->C"]
    assert [str(flow) for flow in changes.unchanged] == ["A->B"]


def test_what_only_a_start_can_change_is_named(settings: MirrorSettings, tmp_path: Path) -> None:
    """Spark is running and the log has its form: such keys are named, not applied."""
    again = _read(tmp_path, "spark.driver.memory = 700m\nlog.format = json\n")

    assert needing_restart(settings, again) == ("log.format", "spark.driver.memory")
    assert needing_restart(settings, attrs.evolve(settings)) == ()


#: Remote topics get other names, by which another node takes over, too.
_ROUTER = """
A->B.transforms = route
A->B.transforms.route.type = org.apache.kafka.connect.transforms.RegexRouter
A->B.transforms.route.regex = (.*)
A->B.transforms.route.replacement = $1"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", set()),
        ("sync.group.offsets.enabled = true", {CHECKPOINT}),
        ("groups = billing", {CHECKPOINT}),
        ("groups = billing\nheartbeats.topic.replication.factor = 1", {CHECKPOINT, HEARTBEAT}),
        ("sync.topic.configs.enabled = false", {SOURCE}),
        ("topics = orders", {SOURCE, CHECKPOINT}),
        ("tasks.max = 7", None),
        ("A.consumer.client.id = ours", None),
        ("B.exactly.once.source.support = enabled", None),
        (_ROUTER, None),
        ("emit.checkpoints.enabled = false", None),
        ("admin.timeout.ms = 1000", {SOURCE, CHECKPOINT, HEARTBEAT}),
    ],
)
def test_which_connectors_restart(tmp_path: Path, line: str, expected: set[str] | None) -> None:
    """Those that read what changed; the whole flow if its nodes share it by that, or several connectors need it."""
    before, after = _read(tmp_path, "").flows[0], _read(tmp_path, f"{line}\n").flows[0]

    assert restarting_alone(before, after) == expected


def test_what_restarts_is_said_before_and_is_true(tmp_path: Path) -> None:
    """A setting that can change while its flow runs names the connector that restarts, and no other one reads it."""
    settings = _read(tmp_path, "")
    flow = settings.flows[0]
    values = {"INT": "7", "LONG": "7", "SHORT": "1", "BOOLEAN": "true", "PATTERNS": "x"}
    said, true = {}, {}
    for one in flow_settings(NO_OVERRIDES, settings, flow.flow):
        key = find_key(LineLevel.FLOW, one.key)
        if one.why_not or one.restarts == "flow" or key is None or key.kind.name not in values:
            continue
        value = values[key.kind.name]
        if value == one.value:
            value = "false"
        if one.key.endswith(".bytes"):
            value = "100000"
        after = _read(tmp_path, f"{flow.flow}.{one.key} = {value}\n").flows[0]
        said[one.key], true[one.key] = {one.restarts}, restarting_alone(flow, after)

    assert said == true
    assert {"sync.group.offsets.enabled", "groups", "sync.topic.acls.enabled", "copy.buffer.bytes"} <= said.keys()
