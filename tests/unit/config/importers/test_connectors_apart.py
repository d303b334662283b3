"""Connectors of one flow are configured each by itself, as in Connect: what one says is not taken for another."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.explain import MASK, node_settings
from mm2py.config.settings import ConfigError, MirrorSettings
from mm2py.model.flow import Flow
from tests.support.config_files import only_flow


WORKER = "bootstrap.servers = target:9092\n"
ENDS = "source.cluster.alias = A\ntarget.cluster.alias = B\n"
SERVERS = "source.cluster.bootstrap.servers = source:9092\n"
SOURCE = f"name = s\nconnector.class = MirrorSourceConnector\n{ENDS}{SERVERS}"
CHECKPOINT = f"name = c\nconnector.class = MirrorCheckpointConnector\n{ENDS}{SERVERS}"
HEARTBEAT = f"name = h\nconnector.class = MirrorHeartbeatConnector\n{ENDS}"

Load = Callable[..., MirrorSettings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return the reader of a worker with a connector of each class, each with lines of its own."""

    def load(source: str = "", checkpoint: str = "", heartbeat: str = "") -> MirrorSettings:
        texts = {"w": WORKER, "s": SOURCE + source, "c": CHECKPOINT + checkpoint, "h": HEARTBEAT + heartbeat}
        for name, text in texts.items():
            (tmp_path / f"{name}.properties").write_text(text)
        worker, *connectors = (tmp_path / f"{name}.properties" for name in texts)
        return standalone_settings(worker, connectors)

    return load


def test_checkpoints_have_topics_of_their_own(load: Load) -> None:
    """What they do not say is Kafka's default."""
    flow = only_flow(settings := load("topics = orders,clicks\n", "topics = orders\nadmin.timeout.ms = 7\n"))
    other = only_flow(load("topics = orders\ntopics.exclude = o2\n", "topics.exclude = o1\n")).checkpoint_connector

    assert flow.source_connector.topics.names == ("orders", "clicks")
    assert (flow.checkpoint_connector.topics.names, flow.checkpoint_connector.admin_timeout_ms) == (("orders",), 7)
    assert (flow.source_connector.admin_timeout_ms, settings.notes) == (60_000, ())
    assert (other.topics.names, other.topics.exclude) == ((".*",), ("o1",))


def test_what_checkpoints_have_for_themselves_is_explained(load: Load) -> None:
    """With its line; nodes that share the flow compare it, too. A secret is masked."""
    settings = load("topics = orders\n", "topics = o.*\nsource.cluster.sasl.jaas.config = secret\n")
    rows = {row.key: (row.value, row.origin) for row in settings.effective if row.key.startswith("MirrorCheckpoint")}

    assert rows == {
        "MirrorCheckpointConnector.topics": ("o.*", "c.properties:6, topics"),
        "MirrorCheckpointConnector.source.sasl.jaas.config": (
            MASK,
            "c.properties:7, source.cluster.sasl.jaas.config",
        ),
    }
    assert node_settings(settings.effective, Flow("A", "B")).own.keys() == rows.keys()


def test_checkpoints_reach_the_source_in_a_way_of_their_own(load: Load) -> None:
    """Another principal, say, which need not read records; nothing of the source connector's clients counts."""
    own = "source.consumer.bootstrap.servers = source:9093\nconsumer.request.timeout.ms = 7\n"
    flow = only_flow(load("source.consumer.request.timeout.ms = 9\n", own))
    plain = only_flow(load("source.consumer.request.timeout.ms = 9\n", "consumer.client.id = c\n"))

    source, checkpoint = flow.source_connector.source, flow.checkpoint_connector.source
    assert (source.bootstrap_servers, source.request_timeout_ms) == (("source:9092",), 9)
    assert (checkpoint.bootstrap_servers, checkpoint.request_timeout_ms) == (("source:9093",), 7)
    assert flow.checkpoint_connector.target == flow.source_connector.target
    assert (plain.checkpoint_connector.source.client_id, plain.source_connector.source.client_id) == ("c", "A->B")
    assert plain.checkpoint_connector.source.request_timeout_ms == 30_000


@pytest.mark.parametrize("file", ["checkpoint", "heartbeat"])
@pytest.mark.parametrize("line", ["transforms = none", "copy.epoch.ms = 700"])
def test_what_another_connector_says_is_not_the_source_connector_s(load: Load, file: str, line: str) -> None:
    """Records would be changed; the line is named."""
    settings = load(**{file: f"{line}\n"})
    (note,) = settings.notes

    assert only_flow(settings) == only_flow(load())
    assert note.key == line.partition(" ")[0]
    assert f"{note.message} ({note.hint})" == (
        "without effect: only a MirrorSourceConnector reads it (write it in s.properties)"
    )


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("plugin.path = /x", "write it in the worker's file"),
        ("config.storage.topic = x", "write it in the worker's file"),
        ("ssl.key.password = x",
         "for the source, write source.cluster.ssl.key.password; for the target, write it in the worker's file"),
    ],
)  # fmt: skip
def test_what_no_connector_has_belongs_elsewhere(load: Load, line: str, hint: str) -> None:
    """The hint is about lines of these files, not of an mm2.properties."""
    (note,) = load(source=f"{line}\n").notes

    assert str(note) == f"s.properties:6: {line.partition(' ')[0]}: has no effect in a connector ({hint})"


@pytest.mark.parametrize("line", ["replication.policy.separator = _", "remote.topic.prefix = x-"])
def test_checkpoints_of_topics_that_are_not_made_are_noted(load: Load, line: str) -> None:
    """Each connector names remote topics by its own settings, as in Connect."""
    settings = load(checkpoint=f"{line}\n")

    assert only_flow(settings).source_connector == only_flow(load()).source_connector
    assert [str(note) for note in settings.notes] == [
        (
            "c.properties: replication.policy.class: it names remote topics otherwise than s.properties: there are no "
            "checkpoints of those that s.properties makes (write the same replication.policy.* and remote.topic.* in "
            "both)"
        )
    ]
    assert load(f"{line}\n", f"{line}\n").notes == ()


@pytest.mark.parametrize(("file", "what"), [("checkpoint", "checkpoints"), ("heartbeat", "heartbeats")])
def test_a_connector_that_is_switched_off_is_off_whatever_else_it_says(load: Load, file: str, what: str) -> None:
    """As in Java, also if what it does is switched on before; what is neither on nor off is refused."""
    lines = f"emit.{what}.enabled = true\nenabled = {{}}\n"
    on, off = (only_flow(load(**{file: lines.format(word)})) for word in ("true", "false"))
    with pytest.raises(ConfigError, match=f"{file[0]}.properties:[0-9]*: enabled: expected true or false, found 'no'"):
        load(**{file: lines.format("no")})

    assert getattr(on, f"{file}_connector").is_emitted
    assert not getattr(off, f"{file}_connector").is_emitted


def test_a_draft_s_spelling_does_not_overrule_the_current_one(load: Load) -> None:
    """Wherever it stands, as in an mm2.properties: Java would not read it."""
    settings = load(source="sync.topic.configs = false\nsync.topic.configs.enabled = true\n")

    assert only_flow(settings).source_connector.topic_sync.configs_enabled
    assert [str(note).partition(" (")[0] for note in settings.notes] == [
        "s.properties:6: sync.topic.configs: overruled by sync.topic.configs.enabled"
    ]


def test_topics_of_heartbeats_select_nothing(load: Load) -> None:
    """A MirrorHeartbeatConnector has none, in Java either."""
    flow = only_flow(load(heartbeat="topics = none\n"))

    assert (flow.source_connector.topics.names, flow.checkpoint_connector.topics.names) == ((".*",), (".*",))


def test_what_checkpoints_cannot_have_is_refused_where_it_is_written(load: Load) -> None:
    """The flow's own lines are fine."""
    with pytest.raises(ConfigError) as refused:
        load(checkpoint="topics = (\n")

    assert [str(problem).partition(": ")[0] for problem in refused.value.problems] == ["c.properties:6"]
    assert refused.value.problems[0].key == "topics"


def test_each_further_source_connector_of_a_pair_is_a_flow_of_its_own(tmp_path: Path) -> None:
    """Whoever is named first is the pair's flow, with its checkpoints; others have groups and ids by their names."""
    further, names = SOURCE.replace("name = s", "name = again"), ("w", "s", "again", "c")
    texts = (WORKER, f"{SOURCE}topics = a\n", f"{further}topics = b\ntasks.max = 3\n", CHECKPOINT)
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text)
    worker, *files = (tmp_path / name for name in names)
    overrides = {"A->B.copy.epoch.ms": "700"}
    settings = standalone_settings(worker, files, overrides=overrides)
    alone = only_flow(standalone_settings(worker, [files[0], files[2]], overrides=overrides))
    first, second = settings.flows
    assert settings.with_live is not None
    live = settings.with_live({"A->B (again).tasks.max": "2", "A->B.topics": "c"}).flows

    assert first == alone
    assert (str(second.flow), second.source_connector.flow) == ("A->B (again)", second.flow)
    assert (second.source_connector.topics.names, second.checkpoint_connector.is_run) == (("b",), False)
    assert (first.source_connector.copying.epoch_ms, second.source_connector.copying.epoch_ms) == (700, 700)
    assert (second.group_id, second.worker.task_id(0)) == ("A-mm2-again", "A-mm2-again-MirrorSourceConnector-0")
    assert [flow.source_connector.copying.tasks_max for flow in live] == [1, 2]
    assert [flow.source_connector.topics.names for flow in live] == [("c",), ("b",)]
    assert {row.owner for row in settings.effective if "->" in row.owner} == {"A->B", "A->B (again)"}


def test_source_connectors_of_a_standalone_worker_know_who_shares_their_positions(tmp_path: Path) -> None:
    """They are stored under one name; with live settings, too."""
    texts = {"w": WORKER, "s": f"{SOURCE}topics = a\n", "again": SOURCE.replace("name = s", "name = again")}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    worker, *files = (tmp_path / name for name in texts)
    settings = standalone_settings(worker, files)
    assert settings.with_live is not None
    live = settings.with_live({"A->B.topics": "c"}).flows

    assert [[one.flow.connector for one in flow.beside] for flow in settings.flows] == [["again"], [""]]
    assert live[1].beside[0].topics.names == ("c",)
