"""What a changed properties file means for flows that run."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.core.control.reload import compare_flows, needing_restart


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

    assert [(str(it.flow), it.topics.names) for it in changes.changed] == [("A->B", ("orders",))]
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
