"""Settings that operators change while a flow runs: Connect's shape, what differs from the file, what is refused."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.importers.mirror_maker_1 import LegacyOptions, import_legacy
from mm2py.config.keys.table import KEYS
from mm2py.config.settings import ConfigError, MirrorSettings, import_settings, load_settings
from mm2py.core.herder.live_config import (
    connector_config,
    flow_settings,
    lines_of,
    live_settings,
    patch_config,
    put_config,
    read_config,
    refused,
    revert_config,
    shown_config,
)
from mm2py.core.herder.overrides import CHECKPOINT, HEARTBEAT, SOURCE, want_connector
from mm2py.errors import OverrideRejectedError, UnknownConnectorError
from mm2py.herder.replication_loops import judged
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, Wanted


FLOW = Flow("A", "B")
CLASS = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
_TEXT = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
B.security.protocol = SASL_SSL
B.sasl.mechanism = PLAIN
B.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="s3cret";
A->B.enabled = true
A->B.topics = orders.*
A->B.emit.checkpoints.interval.seconds = 5
A.consumer.fetch.max.wait.ms = 250
"""


@pytest.fixture
def file(tmp_path: Path) -> MirrorSettings:
    path = tmp_path / "mm2.properties"
    path.write_text(_TEXT)
    return load_settings(path)


# Showing.


def test_a_connector_s_config_is_flat_and_says_all(file: MirrorSettings) -> None:
    """Connect's own keys, the clusters, and the connector's settings, the file's and the defaults alike."""
    shown = connector_config(file, FLOW, SOURCE)

    assert shown["connector.class"] == "org.apache.kafka.connect.mirror.MirrorSourceConnector"
    assert (shown["name"], shown["source.cluster.alias"], shown["target.cluster.alias"]) == (SOURCE, "A", "B")
    assert shown["source.cluster.bootstrap.servers"] == "a:9092"
    assert (shown["topics"], shown["tasks.max"], shown["consumer.fetch.max.wait.ms"]) == ("orders.*", "1", "250")
    assert "groups" not in shown
    assert "offset.flush.interval.ms" not in shown


def test_every_setting_has_its_origin(file: MirrorSettings) -> None:
    """An override comes before the file's line, that before the default; each is listed once, with its task group."""
    overrides = Overrides(config={SOURCE: {"tasks.max": "4"}})
    shown = {one.key: one for one in flow_settings(overrides, file, FLOW)}
    changeable = {key for key, one in shown.items() if not one.why_not}

    assert (shown["tasks.max"].value, shown["tasks.max"].in_file, shown["tasks.max"].origin) == ("4", "1", "override")
    assert shown["topics"].origin.endswith(", A->B.topics")
    assert shown["refresh.topics.interval.seconds"].origin == "default"
    assert shown["emit.checkpoints.interval.seconds"].connector == CHECKPOINT
    assert "copying would continue in other topics" in shown["replication.policy.class"].why_not
    assert {"topics", "tasks.max", "emit.checkpoints.interval.seconds"} <= changeable
    assert "s3cret" not in repr(shown)


def test_secrets_are_never_shown(file: MirrorSettings) -> None:
    """What a client logs in with is masked for every connector."""
    for connector in (SOURCE, CHECKPOINT, HEARTBEAT):
        shown = connector_config(file, FLOW, connector)

        assert shown["target.cluster.sasl.jaas.config"] == "***"
        assert "s3cret" not in str(shown)


def test_each_setting_has_one_connector(file: MirrorSettings) -> None:
    """The three share out what a flow has; groups are the checkpoint connector's, heartbeats the third's."""
    owned = [set(connector_config(file, FLOW, connector)) for connector in (SOURCE, CHECKPOINT, HEARTBEAT)]
    shared = set.intersection(*owned)

    assert "groups.exclude" in owned[1] - owned[0] - owned[2]
    assert "emit.heartbeats.interval.seconds" in owned[2] - owned[0] - owned[1]
    assert "heartbeats.replication.enabled" in owned[0] - owned[2]
    assert (owned[1] & owned[2]) - shared == set()


def test_a_connector_that_is_none(file: MirrorSettings) -> None:
    """Only MirrorMaker's three are connectors."""
    with pytest.raises(UnknownConnectorError):
        connector_config(file, FLOW, "FileStreamSource")


# Putting and patching.


def test_what_is_shown_can_be_put(file: MirrorSettings) -> None:
    """A body as GET gives it changes nothing, masks and identities included."""
    for connector in (SOURCE, CHECKPOINT, HEARTBEAT):
        assert put_config(NO_OVERRIDES, FLOW, connector, connector_config(file, FLOW, connector), file) == NO_OVERRIDES


def test_a_put_leaves_what_differs_from_the_file(file: MirrorSettings) -> None:
    """The same value in other words is none; what a later put leaves out counts as the file says."""
    body: dict[str, object] = {"topics": "orders.*", "tasks.max": 4, "sync.topic.acls.enabled": False, "name": SOURCE}

    once = put_config(NO_OVERRIDES, FLOW, SOURCE, body, file)
    again = put_config(once, FLOW, SOURCE, {"tasks.max": "04"}, file)

    assert once.config == {SOURCE: {"tasks.max": "4", "sync.topic.acls.enabled": "false"}}
    assert again.config == {SOURCE: {"tasks.max": "04"}}
    assert put_config(again, FLOW, SOURCE, {}, file).config == {}


def test_a_patch_changes_what_it_names(file: MirrorSettings) -> None:
    """None goes back to the file, and so does the file's value; the other connectors keep theirs."""
    before = Overrides(config={SOURCE: {"tasks.max": "4", "topics": "x"}, CHECKPOINT: {"groups": "g"}})

    after = patch_config(before, FLOW, SOURCE, {"tasks.max": None, "topics": "orders.*", "offset.lag.max": "7"}, file)

    assert after.config == {SOURCE: {"offset.lag.max": "7"}, CHECKPOINT: {"groups": "g"}}


def test_a_deleted_connector_comes_back_with_its_config(file: MirrorSettings) -> None:
    """Putting a config is how Connect makes a connector."""
    deleted = want_connector(NO_OVERRIDES, CHECKPOINT, Wanted.DELETED)

    assert put_config(deleted, FLOW, CHECKPOINT, {"groups": "g"}, file).groups == {}


@pytest.mark.parametrize("wanted", [Wanted.PAUSED, Wanted.STOPPED])
def test_a_put_keeps_a_connector_paused_or_stopped(file: MirrorSettings, wanted: Wanted) -> None:
    """As in Connect, where a config that is put has no target state."""
    before = Overrides(groups={SOURCE: wanted})

    assert put_config(before, FLOW, SOURCE, {"tasks.max": "4"}, file).wanted(SOURCE) is wanted


def test_old_and_other_spellings_are_one_setting(file: MirrorSettings) -> None:
    """What the file may be written like may be put, and is kept by its one name."""
    body = {"topics.blacklist": "x", "source.consumer.fetch.max.wait.ms": "9"}

    overrides = put_config(NO_OVERRIDES, FLOW, SOURCE, body, file)

    assert overrides.config == {SOURCE: {"topics.exclude": "x", "consumer.fetch.max.wait.ms": "9"}}


def test_settings_are_listed_and_taken_back(file: MirrorSettings) -> None:
    """Each with the file's value beside it; some or all go back."""
    overrides = put_config(NO_OVERRIDES, FLOW, SOURCE, {"tasks.max": "3", "topics": "new"}, file)

    listed = [(one.key, one.value, one.in_file) for one in live_settings(overrides, file, FLOW, SOURCE)]

    assert listed == [("tasks.max", "3", "1"), ("topics", "new", "orders.*")]
    assert revert_config(overrides, FLOW, SOURCE, ["topics.whitelist"]).config == {SOURCE: {"tasks.max": "3"}}
    assert revert_config(overrides, FLOW, SOURCE) == NO_OVERRIDES


# Refusing.


@pytest.mark.parametrize(
    ("connector", "key", "value", "why"),
    [
        (SOURCE, "topicz", "x", "did you mean topics?"),
        (SOURCE, "tasks.max", "many", "expected a whole number"),
        (SOURCE, "tasks.max", "0", "must be at least 1"),
        (SOURCE, "topics", "[", "regular expression"),
        (SOURCE, "topics", {"a": 1}, "must be a string"),
        (SOURCE, "topics", "${file:/etc/passwd:root}", "value providers"),
        (SOURCE, "topics", "orders\ud800", "half of a surrogate pair"),
        (SOURCE, "groups", "g", "is a setting of MirrorCheckpointConnector"),
        (CHECKPOINT, "tasks.max", "2", "is a setting of MirrorSourceConnector"),
        (HEARTBEAT, "topics", "x", "is a setting of MirrorSourceConnector"),
        (SOURCE, "offset.flush.interval.ms", "5", "as B.offset.flush.interval.ms"),
        (SOURCE, "config.storage.topic", "x", "all flows into cluster B"),
        (SOURCE, "clusters", "A", "the whole process"),
        (SOURCE, "spark.master", "local[9]", "the whole process"),
        (SOURCE, "listeners", "http://0.0.0.0:1", "the whole process"),
        (SOURCE, "source.cluster.bootstrap.servers", "evil:1", "connection setting"),
        (SOURCE, "consumer.bootstrap.servers", "evil:1", "connection setting"),
        (SOURCE, "target.cluster.sasl.jaas.config", "x", "connection setting"),
        (SOURCE, "consumer.ssl.truststore.location", "/x", "connection setting"),
        (SOURCE, "replication.policy.separator", "_", "continue in other topics"),
        (SOURCE, "topic.filter.class", "os.path", "code to be run"),
        (CHECKPOINT, "group.filter.class", "os.path", "code to be run"),
        (SOURCE, "enabled", "false", "stop or delete the connector"),
        (HEARTBEAT, "emit.heartbeats.enabled", "false", "stop or delete the connector"),
        (SOURCE, "offset-syncs.topic.location", "target", "stay on the other cluster"),
        (SOURCE, "offsets.storage.topic", "other", "existing positions would stay"),
        (SOURCE, "consumer.isolation.level", "read_committed", "a resume depends"),
        (SOURCE, "metric.reporters", "mine", "has no effect in this version"),
        (SOURCE, "name", "other", "cannot be changed"),
        (SOURCE, "topics.regex", "x", "a key of another mirror"),
        (SOURCE, "topics", None, "omit it"),
    ],
)
def test_what_cannot_change_is_refused_with_its_reason(
    file: MirrorSettings, connector: str, key: str, value: object, why: str
) -> None:
    """One problem for each, that names the key."""
    with pytest.raises(OverrideRejectedError) as caught:
        put_config(NO_OVERRIDES, FLOW, connector, {key: value}, file)

    (problem,) = caught.value.problems
    assert problem.startswith(key)
    assert why in problem


def test_every_problem_is_named(file: MirrorSettings) -> None:
    """One error carries all of them, in the order of the body."""
    body: Mapping[str, object] = {"topicz": "x", "tasks.max": "-1", "groups": "g", "topics": "fine"}

    assert [problem.split()[0].rstrip(":") for problem in read_config(FLOW, SOURCE, body, file).problems] == [
        "topicz",
        "tasks.max",
        "groups",
    ]


# What it amounts to.


def test_settings_beat_all_ways_to_write_them(file: MirrorSettings) -> None:
    """A cluster's line for a client beats a flow's plain one; what is put beats both."""
    overrides = put_config(NO_OVERRIDES, FLOW, SOURCE, {"consumer.fetch.max.wait.ms": "9", "topics": "new"}, file)
    assert file.with_live is not None

    live = file.with_live(lines_of(FLOW, overrides))

    assert (live.flows[0].source_connector.limits.fetch_max_wait_ms, live.flows[0].source_connector.topics.names) == (
        9,
        ("new",),
    )
    assert connector_config(live, FLOW, SOURCE)["topics"] == "new"
    assert file.flows[0].source_connector.topics.names == ("orders.*",)


def test_every_setting_that_may_change_can_be_written(file: MirrorSettings) -> None:
    """Whatever a put takes is a line of the file's grammar that the file may have as well."""
    assert file.with_live is not None
    lines: dict[str, str] = {}
    for row in KEYS:
        for connector in (SOURCE, CHECKPOINT, HEARTBEAT):
            value = "7" if row.default in {None, "", "3"} else "3"
            asked = read_config(FLOW, connector, {row.full_name: value}, file)
            if not asked.problems and asked.values.get(row.full_name) is not None:
                lines |= lines_of(FLOW, Overrides(config={connector: {row.full_name: value}}))

    live = file.with_live(lines)

    assert len(lines) > 40
    assert {note.key for note in live.notes} <= {note.key for note in file.notes}
    assert live.flows[0].source_connector.copying.tasks_max == 3


def test_what_an_older_or_newer_version_put_is_not_passed_over() -> None:
    """A kept setting that means nothing here may have kept topics out: it is a problem, not a line less."""
    overrides = Overrides(config={SOURCE: {"topics": "x", "topics.sampled": "0.1"}})

    with pytest.raises(OverrideRejectedError, match=r"topics\.sampled is unknown"):
        lines_of(FLOW, overrides)


def test_problems_of_the_whole_are_told_by_the_names_that_were_put(tmp_path: Path) -> None:
    """Flows that would feed each other because of what was put are refused as in a file, without the file's places."""
    path = tmp_path / "mm2.properties"
    both = "replication.policy.class = identity\nB->A.enabled = true\nB->A.topics = new\n"
    path.write_text(_TEXT.replace("SASL_SSL", "PLAINTEXT") + both)
    file = judged(load_settings(path))
    assert file.with_live is not None

    with pytest.raises(ConfigError) as caught:
        judged(file.with_live({"A->B.topics": "new"}))

    assert "new" in refused(FLOW, caught.value).problems[0]


# Other ways to run a node.


def test_a_standalone_worker_s_connector_takes_settings(tmp_path: Path) -> None:
    """What connect-standalone was started with is what a put counts over."""
    worker, connector = tmp_path / "worker.properties", tmp_path / "source.properties"
    worker.write_text("bootstrap.servers = b:9092\n")
    connector.write_text(
        "name = s\nconnector.class = MirrorSourceConnector\nsource.cluster.alias = east\ntarget.cluster.alias = west\n"
        "source.cluster.bootstrap.servers = a:9092\ntarget.cluster.bootstrap.servers = b:9092\ntopics = orders\n"
        "key.converter = org.apache.kafka.connect.converters.ByteArrayConverter\n"
        "value.converter = org.apache.kafka.connect.converters.ByteArrayConverter\n"
    )
    flow, file = Flow("east", "west"), standalone_settings(worker, [connector])
    overrides = put_config(NO_OVERRIDES, flow, SOURCE, {"topics": "new", "tasks.max": "2"}, file)
    assert file.with_live is not None

    live = file.with_live(lines_of(flow, overrides))
    pairs = (line.partition(" = ") for line in connector.read_text().splitlines())
    own = {key: value for key, _, value in pairs if key != "name"}
    own |= {"clusters": "east, west", "connector.class": connector_config(file, flow, SOURCE)["connector.class"]}

    assert not put_config(NO_OVERRIDES, flow, SOURCE, own, file).config
    assert read_config(flow, SOURCE, {"key.converter": "JsonConverter"}, file).problems
    assert connector_config(file, flow, SOURCE)["topics"] == "orders"
    assert (live.flows[0].source_connector.topics.names, live.flows[0].source_connector.copying.tasks_max) == (
        ("new",),
        2,
    )


def test_a_legacy_mirror_takes_settings(tmp_path: Path) -> None:
    """So does the first MirrorMaker's command line."""
    consumer, producer = tmp_path / "consumer.properties", tmp_path / "producer.properties"
    consumer.write_text("bootstrap.servers = a:9092\ngroup.id = mirror\n")
    producer.write_text("bootstrap.servers = b:9092\n")
    options = LegacyOptions(consumer_config=consumer, producer_config=producer, include="orders")
    file = import_settings(import_legacy(options))
    flow = file.flows[0].flow
    overrides = put_config(NO_OVERRIDES, flow, SOURCE, {"topics": "new"}, file)
    assert file.with_live is not None

    assert file.with_live(lines_of(flow, overrides)).flows[0].source_connector.topics.names == ("new",)


def test_what_was_put_is_what_is_shown(file: MirrorSettings) -> None:
    """As in Connect: another spelling of a value, and settings without effect, stay as they were sent."""
    sent = {"connector.class": "MirrorSourceConnector", "tasks.max": "07", "value.converter": BYTES, "topics": "orders"}
    overrides = put_config(NO_OVERRIDES, FLOW, SOURCE, {**sent, "connector.class": CLASS}, file, sent=sent)
    live = file.with_live(lines_of(FLOW, overrides)) if file.with_live is not None else file
    other = file.with_live({**lines_of(FLOW, overrides), f"{FLOW}.topics": "clicks"}) if file.with_live else file
    patched = patch_config(overrides, FLOW, SOURCE, {"tasks.max": "3", "topics": None}, file)

    assert shown_config(overrides, live, FLOW, SOURCE) == {"name": SOURCE, **sent}
    assert shown_config(overrides, other, FLOW, SOURCE)["topics"] == "clicks"
    assert dict(patched.put[SOURCE]) == {
        "name": SOURCE, "connector.class": "MirrorSourceConnector", "tasks.max": "3", "value.converter": BYTES,
    }  # fmt: skip
    assert not revert_config(patched, FLOW, SOURCE).put
    assert shown_config(NO_OVERRIDES, file, FLOW, SOURCE) == connector_config(file, FLOW, SOURCE)
