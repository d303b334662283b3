"""What a flow needs of its clusters, and what is missing."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from mm2py.config.layers import Side
from mm2py.connectors.plugins import policy_of
from mm2py.core.findings import CheckedFlow, Finding, Level
from mm2py.core.needs import Need, Resource, lacking, needs, needs_of_syncs, own_topics
from mm2py.model.acl import Operation, operations_of
from mm2py.model.flow import Flow
from tests.support.config_files import ConfigFile
from tests.support.mm2_file import COPY_ONLY


@pytest.fixture
def file(tmp_path: Path) -> ConfigFile:
    return ConfigFile(tmp_path / "mm2.properties")


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (
            [],
            {
                "source mm2-offset-syncs.B.internal",
                "target A.checkpoints.internal",
                "target heartbeats",
                "target mm2-configs.A.internal",
                "target mm2-offsets.A.internal",
                "target mm2-status.A.internal",
                "target mm2-synced.A.internal",
            },
        ),
        (
            [f"{key} = {value}" for key, value in COPY_ONLY.items()],
            {"target mm2-configs.A.internal", "target mm2-offsets.A.internal", "target mm2-status.A.internal"},
        ),
    ],
    ids=["all", "records only"],
)
def test_topics_that_a_flow_keeps_for_itself(lines: list[str], named: set[str], file: ConfigFile) -> None:
    settings = file.flow(*lines)

    assert {
        f"{it.side.value} {it.topic.name}" for it in own_topics(settings, policy_of(settings.source_connector))
    } == named


def test_checkpoints_alone_need_offset_syncs_and_no_records(file: ConfigFile) -> None:
    """Of topics that are copied they need nothing, and none is created for them."""
    both = file.flow("offset-syncs.topic.location = target")
    settings = attrs.evolve(both, source_connector=attrs.evolve(both.source_connector, is_enabled=False))
    policy = policy_of(settings.checkpoint_connector)
    asked = [*needs(settings, (), [], [], ["readers"]), *needs_of_syncs(settings, policy)]

    assert {f"{it.side.value} {it.topic.name}" for it in own_topics(settings, policy)} == {
        "target A.checkpoints.internal",
        "target heartbeats",
        "target mm2-configs.A.internal",
        "target mm2-status.A.internal",
    }
    assert [(it.side.value, it.names) for it in asked] == [
        ("target", ("connect-cluster-A-mm2",)),
        ("target", ("A-mm2",)),
        ("source", ("readers",)),
        ("target", ("mm2-offset-syncs.A.internal",)),
    ]
    assert not list(needs_of_syncs(both, policy))


def test_what_is_needed_follows_the_settings(file: ConfigFile) -> None:
    """Rights to configs, ACLs and groups are needed only where they are synchronised."""

    def asked(*lines: str) -> set[str]:
        found = needs(file.flow(*lines), (), ["orders"], ["A.orders"], ["readers"])
        return {
            f"{need.side.value} {need.resource.value} {operation.name}"
            for need in found
            for operation in need.operations
        }

    everything, least = asked("sync.group.offsets.enabled = true"), asked(*(f"{k} = {v}" for k, v in COPY_ONLY.items()))

    assert {"source topic READ", "target topic WRITE", "target topic READ"} <= least
    assert everything - least == {
        "source topic DESCRIBE_CONFIGS",
        "source the cluster DESCRIBE",
        "source group DESCRIBE",
        "target topic ALTER_CONFIGS",
        "target the cluster DESCRIBE",
        "target the cluster ALTER",
        "target group DESCRIBE",
    }


def test_topics_that_lack_the_same_are_one_finding() -> None:
    need = Need(
        Side.TARGET, Resource.TOPIC, ("a", "b", "c", "d", "e", "f"), frozenset({Operation.READ, Operation.WRITE}),
        "records", is_vital=True,
    )  # fmt: skip
    reads, both = frozenset({Operation.READ}), frozenset({Operation.READ, Operation.WRITE})
    allowed = {(Resource.TOPIC, name): reads for name in "abcd"} | {(Resource.TOPIC, "e"): both}
    lack, unknown = lacking(need, allowed, "B", "User:mm2")

    assert lack.level is Level.ERROR
    assert lack.text == "User:mm2 lacks WRITE on topics a, b, c and 1 more of B, for records"
    assert unknown == Finding(Level.UNKNOWN, "B", "whether User:mm2 has READ, WRITE on topic f of B, for records")


def test_operations_of_a_broker_that_does_not_tell_are_unknown() -> None:
    assert operations_of(-(2**31)) is None
    assert operations_of(1 << Operation.READ | 1 << Operation.ALTER) == {Operation.READ, Operation.ALTER}
    assert operations_of(0) == frozenset()


def test_the_state_of_a_flow() -> None:
    flow, error = Flow("A", "B"), Finding(Level.ERROR, "A->B", "x")
    warning = Finding(Level.WARNING, "A->B", "x")

    assert CheckedFlow(flow, is_enabled=True, findings=(warning,)).state == "ready"
    assert CheckedFlow(flow, is_enabled=True, away=("A", "B")).state == "waits for A and B"
    assert CheckedFlow(flow, is_enabled=True, away=("A",), findings=(error,)).state == "error"
