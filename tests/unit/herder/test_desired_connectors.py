"""What a node takes from the owner of a flow, where its own files have something else."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import attrs
import pytest

from mm2py.config.explain import node_settings
from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.core.herder.overrides import SOURCE
from mm2py.herder.desired_connectors import DesiredConnectors, OwnerSettingsRefusedError
from mm2py.herder.replication_loops import judged
from mm2py.model.flow import Flow
from mm2py.model.herder.node_settings import NodeSettings
from mm2py.model.herder.overrides import Overrides
from mm2py.model.herder.stored_overrides import StoredOverrides
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


AB, CB = Flow("A", "B"), Flow("C", "B")
_TEXT = """
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->B.enabled = true
C->B.enabled = true
topics = orders
"""


def _read(tmp_path: Path, more: str = "") -> MirrorSettings:
    path = tmp_path / "mm2.properties"
    path.write_text(_TEXT + more)
    return judged(load_settings(path))


def _of(settings: MirrorSettings, flow: Flow = AB) -> tuple[str, ...]:
    return next(it.source_connector.topics.names for it in settings.flows if it.flow == flow)


def test_settings_are_compared_by_what_they_mean(tmp_path: Path) -> None:
    """However they are written; what clients use is a node's own, but for what decides which records are copied."""
    more = """
A->B.tasks.max = 4
A->B.refresh.topics.interval.seconds = 600
A->B.transforms = mark
A->B.transforms.mark.type = org.apache.kafka.connect.transforms.InsertHeader
A->B.transforms.mark.header = seen
A->B.transforms.mark.value.literal = yes
A.consumer.fetch.min.bytes = 7
A.consumer.auto.offset.reset = latest
B.offset.storage.topic = mine
B.offset.flush.interval.ms = 1000
A.sasl.jaas.config = PlainLoginModule required username="u" password="p";
"""
    found = node_settings(_read(tmp_path, more).effective, AB)

    assert found.values == {
        "enabled": "true",
        "topics": "orders",
        "tasks.max": "4",
        "consumer.auto.offset.reset": "latest",
    }
    assert found.fixed.keys() == {
        "offset.storage.topic",
        "transforms",
        "transforms.mark.type",
        "transforms.mark.header",
        "transforms.mark.value.literal",
    }
    assert found.own.keys() == {"offset.flush.interval.ms"}


def test_what_is_read_from_the_machine_is_no_value_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OURS", "ours")
    more = """
config.providers = env
config.providers.env.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider
A->B.groups = ${env:OURS}
"""
    found = node_settings(_read(tmp_path, more).effective, AB)

    assert "groups" in found.fixed
    assert "groups" not in found.values


def _desired(base: MirrorSettings) -> DesiredConnectors:
    return DesiredConnectors(base, events=EventLog(LoopClock()))


async def test_the_owner_s_values_apply_to_its_flow_until_they_are_the_same(tmp_path: Path) -> None:
    desired = _desired(_read(tmp_path, "A->B.tasks.max = 7\n"))
    await desired.follow_owner(AB, {"topics": "payments", "tasks.max": None})
    first = desired.agreed
    await desired.follow_owner(AB, {"topics": "payments", "tasks.max": None})
    again = desired.agreed
    await desired.follow_owner(CB, {"topics": "clicks"})
    other = desired.agreed
    await desired.follow_owner(AB, {})

    assert (_of(first), _of(first, CB)) == (("payments",), ("orders",))
    assert first.flows[0].source_connector.copying.tasks_max == 1
    assert again is first
    assert (_of(other), _of(other, CB)) == (("payments",), ("clicks",))
    assert (_of(desired.agreed), _of(desired.agreed, CB)) == (("orders",), ("clicks",))
    assert desired.base.flows[0].source_connector.copying.tasks_max == 7


async def test_live_settings_stay_over_the_owner_s(tmp_path: Path) -> None:
    desired = _desired(_read(tmp_path))
    await desired.accept(AB, StoredOverrides(Overrides(config={SOURCE: {"topics": "live"}}), 1))
    await desired.follow_owner(AB, {"topics": "payments", "tasks.max": "3"})

    source = desired.settings_of(AB).source_connector
    assert (source.topics.names, source.copying.tasks_max) == (("live",), 3)
    assert _of(desired.agreed) == ("payments",)


async def test_a_file_that_is_read_again_keeps_the_owner_s_values(tmp_path: Path) -> None:
    desired = _desired(_read(tmp_path))
    await desired.follow_owner(AB, {"topics": "payments"})
    await desired.rebase(_read(tmp_path, "A->B.topics = new\n"))

    assert _of(desired.agreed) == ("payments",)
    assert _of(desired.base) == ("new",)


async def test_other_flows_keep_what_operators_set_while_the_owner_s_settings_are_read(tmp_path: Path) -> None:
    """What else restarts in that moment would take the settings of a file, and keep them."""
    desired = _desired(_read(tmp_path))
    await desired.accept(CB, StoredOverrides(Overrides(config={SOURCE: {"topics": "live"}}), 1))
    following, seen = asyncio.create_task(desired.follow_owner(AB, {"topics": "payments"})), set()
    while not following.done():
        await asyncio.sleep(0)
        seen.add(desired.settings_of(CB).source_connector.topics.names)

    assert seen == {("live",)}


async def test_a_flow_starts_while_the_files_are_read_again(tmp_path: Path) -> None:
    """It has just read what operators set: that is used over the new file, too."""
    desired, file, loop = _desired(_read(tmp_path)), _read(tmp_path, "A->B.topics = new\n"), asyncio.get_running_loop()
    stored = StoredOverrides(Overrides(config={SOURCE: {"topics": "payments"}}), 1)

    def with_live(lines: Mapping[str, str]) -> MirrorSettings:
        loop.call_soon_threadsafe(desired.learn, AB, stored)
        assert file.with_live is not None
        return file.with_live(lines)

    await desired.accept(CB, StoredOverrides(Overrides(config={SOURCE: {"topics": "live"}}), 1))
    await desired.rebase(attrs.evolve(file, with_live=with_live))
    await desired.adopt(AB)

    assert (_of(desired.agreed), _of(desired.live), _of(desired.live, CB)) == (("new",), ("payments",), ("live",))


async def test_what_a_flow_that_has_just_gone_had_is_read_again(tmp_path: Path) -> None:
    """An operator's change is stored while the file without the flow comes into use; others may follow elsewhere."""
    desired, file = _desired(_read(tmp_path)), _read(tmp_path)
    await desired.rebase(_read(tmp_path, "C->B.enabled = false\nemit.heartbeats.enabled = false\n"))
    await desired.accept(CB, StoredOverrides(Overrides(config={SOURCE: {"topics": "live"}}), 1))
    await desired.rebase(file)

    assert desired.stored(CB) is None
    assert _of(desired.live, CB) == ("orders",)


async def test_a_live_setting_of_connections_is_written_into_the_file(tmp_path: Path) -> None:
    """Nothing restarts, which would read again what operators set: that stays known."""
    desired, line = _desired(_read(tmp_path)), "producer.request.timeout.ms"
    stored = StoredOverrides(Overrides(config={SOURCE: {line: "20000"}}, topics=frozenset({"orders"})), 1)
    await desired.accept(AB, stored)
    running = desired.settings_of(AB)
    await desired.rebase(_read(tmp_path, f"A->B.{line} = 20000\n"))

    assert running.target.request_timeout_ms == 20000
    assert desired.settings_of(AB) == running
    assert desired.stored(AB) is stored


async def test_values_that_cannot_be_used_are_refused_by_name(tmp_path: Path) -> None:
    """The former ones stay; nor is code run, or a file read, because another node says so."""
    desired = _desired(_read(tmp_path))
    with pytest.raises(OwnerSettingsRefusedError, match=r"owner cannot be used here: .*tasks\.max"):
        await desired.follow_owner(AB, {"tasks.max": "many"})
    await desired.follow_owner(
        AB, {"topic.filter.class": "evil.Filter", "topics": "${file:/etc/passwd:root}", "transforms": "x"}
    )

    assert desired.agreed is desired.base


def test_a_default_is_taken_as_well() -> None:
    owner, ours = NodeSettings({"topics": "a"}), NodeSettings({"groups": "g"})

    assert ours.to_take(owner) == {"topics": "a", "groups": None}
    assert owner.to_take(owner) == {}
