"""A standalone worker's files become flows with the task groups that their connectors stand for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.settings import FlowSettings, MirrorSettings
from tests.support.config_files import only_flow, problems_of, refusals_of


Load = Callable[..., MirrorSettings]

_CLASS = "connector.class = org.apache.kafka.connect.mirror."
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"

#: As KIP-382 prints them.
KIP_WORKER = """\
# worker.properties
bootstrap.servers = host2:9092
"""
KIP_CONNECTOR = f"""\
# connector.properties
name = local-mirror-source
connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector
tasks.max = 1
topics=.*
source.cluster.alias = upstream
source.cluster.bootstrap.servers = host1:9092
target.cluster.bootstrap.servers = host2:9092
# use ByteArrayConverter to ensure that in and out records are exactly the same
key.converter = {_BYTES}
value.converter = {_BYTES}
"""
KIP_JSON = """\
{
"name": "us-west-source",
"connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
"source.cluster.alias": "us-west",
"target.cluster.alias": "us-east",
"source.cluster.brokers.list": "us-west-host1:9091",
"topics": ".*"
}
"""

WORKER = "bootstrap.servers = target:9092\n"
_ENDS = "source.cluster.alias = A\ntarget.cluster.alias = B\nsource.cluster.bootstrap.servers = source:9092\n"
SOURCE = f"name = source\n{_CLASS}MirrorSourceConnector\n{_ENDS}"
CHECKPOINT = f"name = checkpoint\n{_CLASS}MirrorCheckpointConnector\n{_ENDS}"
HEARTBEAT = f"name = heartbeat\n{_CLASS}MirrorHeartbeatConnector\n{_ENDS}"


def _groups(flow: FlowSettings) -> tuple[bool, bool, bool]:
    return flow.is_enabled, flow.checkpoint_connector.is_run, flow.heartbeat_connector.is_emitted


def test_the_files_that_kip_382_prints_run(read: Load) -> None:
    """KIP-382's worker and connector are a flow from upstream to target, without a problem and without a note."""
    flow = only_flow(settings := read(KIP_WORKER, {"connector.properties": KIP_CONNECTOR}))

    assert str(flow.flow) == "upstream->target"
    assert (flow.source.bootstrap_servers, flow.target.bootstrap_servers) == (("host1:9092",), ("host2:9092",))
    assert (flow.source_connector.topics.names, _groups(flow)) == ((".*",), (True, False, False))
    assert settings.notes == ()


def test_the_json_that_kip_382_posts_runs(read: Load) -> None:
    """A connector as it is posted to Connect will do; its old spelling is noted with the line."""
    settings = read(KIP_WORKER, {"source.json": KIP_JSON})

    assert str(only_flow(settings).flow) == "us-west->us-east"
    assert only_flow(settings).source.bootstrap_servers == ("us-west-host1:9091",)
    assert [str(note) for note in settings.notes] == [
        "source.json:6: source.cluster.brokers.list: KIP-382's draft spelling (write source.cluster.bootstrap.servers)"
    ]


def test_json_with_the_config_inside(read: Load) -> None:
    """The body of POST /connectors has the config in an object of its own; numbers count as texts."""
    own = '"connector.class": "MirrorSource", "tasks.max": 3, "source.cluster.bootstrap.servers": "a:1"'
    text = f'{{"name": "s", "config": {{{own}, "source.cluster.alias": "A"}}}}'
    config = only_flow(read(WORKER, {"s.json": text})).source_connector

    assert (str(config.flow), config.copying.tasks_max, config.source.bootstrap_servers) == ("A->target", 3, ("a:1",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "s.json: is not valid JSON"),
        ("[]", "s.json: is not a connector"),
        ('{"name": "s",\n"topics": ["a"], "connector.class": "MirrorSource"}', "s.json:2: topics: a connector's"),
    ],
)
def test_json_that_is_no_connector(read: Load, text: str, message: str) -> None:
    """What cannot be read as a connector is a problem with its place."""
    refusals = refusals_of(lambda: read(WORKER, {"s.json": text}))

    assert any(refusal.startswith(message) for refusal in refusals)


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        ((SOURCE,), (True, False, False)),
        ((SOURCE, CHECKPOINT), (True, True, False)),
        ((HEARTBEAT, CHECKPOINT, SOURCE), (True, True, True)),
        ((HEARTBEAT,), (False, False, True)),
        ((CHECKPOINT,), (False, True, False)),
        ((HEARTBEAT, CHECKPOINT), (False, True, True)),
        ((SOURCE + "enabled = false\n", CHECKPOINT), (False, True, False)),
        ((SOURCE, HEARTBEAT + "enabled = false\n"), (True, False, False)),
        ((SOURCE + "enabled = false\n", HEARTBEAT), (False, False, True)),
        ((SOURCE, CHECKPOINT + "enabled = false\n"), (True, False, False)),
    ],
)
def test_connectors_are_the_task_groups_of_their_flow(
    load: Load, files: tuple[str, ...], groups: tuple[bool, bool, bool]
) -> None:
    """A flow has the groups that it has files for, in whichever order they come; the way back has none."""
    assert _groups(only_flow(load(WORKER, *files))) == groups


def test_heartbeats_alone_need_no_source(load: Load) -> None:
    """As in Java, a MirrorHeartbeatConnector runs without the source's brokers."""
    flow = only_flow(load(WORKER, HEARTBEAT.replace("source.cluster.bootstrap.servers = source:9092\n", "")))

    assert (str(flow.flow), _groups(flow)) == ("A->B", (False, False, True))
    assert flow.target.bootstrap_servers == ("target:9092",)


def test_checkpoints_alone_have_a_group_of_their_own(load: Load) -> None:
    """The source connector runs in another process, whose group and transactional ids this one must not take."""
    switched_off = SOURCE + "enabled = false\n"
    files = (SOURCE,), (CHECKPOINT,), (switched_off, CHECKPOINT)
    source, *alone = (only_flow(load(WORKER, *some)).worker for some in files)

    assert [it.group_id for it in (source, *alone)] == ["A-mm2", "A-mm2-checkpoint", "A-mm2-checkpoint"]
    assert not {source.owner_id, source.task_id(0)} & {alone[0].owner_id, alone[0].task_id(0)}


def test_a_group_by_name_is_that_of_the_only_flow(load: Load) -> None:
    """However many connectors it has; several flows have a group each, and so has a checkpoint connector by itself."""
    worker = WORKER + "group.id = g\n"
    other = SOURCE.replace("alias = A", "alias = C").replace("name = source", "name = other")
    several = [load(worker, *some).flows for some in ((SOURCE,), (SOURCE, CHECKPOINT), (other, CHECKPOINT))]

    assert [[flow.group_id for flow in flows] for flows in several] == [["g"], ["g"], ["g-C", "g-A-checkpoint"]]


@pytest.mark.parametrize("line", ["", "group.id = g\n"], ids=["no group", "group"])
def test_a_second_flow_or_a_group_moves_no_positions(load: Load, line: str) -> None:
    """A standalone worker keeps them under the name of the class: another place would be a start from nothing."""
    other = SOURCE.replace("alias = A", "alias = C").replace("name = source", "name = other")
    flows = [flow for some in ((SOURCE,), (SOURCE, other)) for flow in load(WORKER + line, *some).flows]

    assert [flow.source_connector.name for flow in flows] == ["MirrorSourceConnector"] * 3


def test_each_connector_s_own_settings_count(load: Load) -> None:
    """A setting is taken from the connector that looks at it; topics, which two look at, from each."""
    settings = load(
        WORKER,
        SOURCE + "topics = orders\ntasks.max = 4\nemit.checkpoints.interval.seconds = 7\n",
        CHECKPOINT + "topics = other\ntasks.max = 2\nemit.checkpoints.interval.seconds = 8\ngroups = g1\n",
        HEARTBEAT + "tasks.max = 1\nemit.heartbeats.interval.seconds = 9\n",
    )
    flow = only_flow(settings)
    notes = [str(note) for note in settings.notes]

    assert (flow.source_connector.topics.names, flow.source_connector.copying.tasks_max) == (("orders",), 4)
    assert (flow.checkpoint_connector.emit_interval_s, flow.checkpoint_connector.groups) == (8.0, ("g1",))
    assert flow.heartbeat_connector.interval_s == 9.0
    assert flow.checkpoint_connector.topics.names == ("other",)
    assert any(note.startswith("2.properties:7: tasks.max: without effect: tasks.max") for note in notes)


def test_settings_of_a_connector_that_is_not_there_have_no_effect(load: Load) -> None:
    """The source connector reads nothing about checkpoints; without their connector that is said."""
    settings = load(WORKER, SOURCE + "emit.heartbeats.enabled = true\nsync.group.offsets.enabled = true\n")

    assert _groups(only_flow(settings)) == (True, False, False)
    assert [str(note) for note in settings.notes] == [
        "1.properties:6: emit.heartbeats.enabled: without effect: the flow has no MirrorHeartbeatConnector",
        "1.properties:7: sync.group.offsets.enabled: without effect: the flow has no MirrorCheckpointConnector",
    ]


def test_a_setting_that_only_another_connector_reads_has_no_effect(load: Load) -> None:
    """As in Connect: a source connector's word neither stops checkpoints nor has groups' offsets written."""
    stray = "sync.group.offsets.enabled = true\nemit.checkpoints.enabled = false\n"
    settings = load(WORKER, f"{SOURCE}{stray}refresh.groups.interval.seconds = 600\n", CHECKPOINT)
    flow = only_flow(settings)

    assert (flow.checkpoint_connector.is_emitted, flow.checkpoint_connector.is_synced) == (True, False)
    assert [str(note) for note in settings.notes] == [
        (
            f"1.properties:{line}: {key}: without effect: only a MirrorCheckpointConnector reads it (write it in "
            "2.properties)"
        )
        for line, key in ((6, "sync.group.offsets.enabled"), (7, "emit.checkpoints.enabled"))
    ]


def test_what_connectors_have_by_habit_is_no_noise(load: Load) -> None:
    """Samples name the clusters again, give each connector one task, and a worker's clients its own settings again."""
    clients = "".join(f"{client}security.protocol = SSL\n" for client in ("", "producer.", "consumer.", "admin."))
    named = "clusters = A,B\n"
    worker, source = WORKER + clients, f"{SOURCE}{named}tasks.max = 4\nemit.heartbeats.enabled = false\n"

    assert load(worker, source, f"{CHECKPOINT}{named}tasks.max = 1\n").notes == ()
    assert load(worker, f"{source}groups = .*\n").notes == ()
    assert [str(note) for note in load(worker, f"{SOURCE}clusters = A, C\n").notes] == [
        (
            "1.properties:6: clusters: without effect: source.cluster.alias and target.cluster.alias name "
            "a connector's clusters"
        )
    ]


def test_a_worker_s_setting_in_a_connector_belongs_to_the_worker_s_file(load: Load) -> None:
    """No key that a connector could have instead is named."""
    (note,) = load(WORKER, SOURCE + "offset.flush.interval.ms = 5\n").notes

    assert str(note) == (
        "1.properties:6: offset.flush.interval.ms: has no effect in a connector (write it in the worker's file)"
    )


def test_lines_that_do_nothing_are_named_as_the_user_wrote_them(load: Load) -> None:
    """In one note over all files, hints included."""
    sizes = "".join(f"source.cluster.{name} = 5\n" for name in ("receive.buffer.bytes", "send.buffer.bytes", "foo"))
    (note,) = load(WORKER, f"{SOURCE}{sizes}target.cluster.batch.size = 5\ntarget.cluster.buffer.memory = 5\n").notes

    assert str(note) == (
        "1.properties: accepted, without effect in this version: "
        "source.cluster.receive.buffer.bytes (6; did you mean source.consumer.receive.buffer.bytes?), "
        "source.cluster.send.buffer.bytes (7; did you mean source.consumer.send.buffer.bytes?), "
        "source.cluster.foo (8), target.cluster.batch.size (9; did you mean target.producer.batch.size?), "
        "target.cluster.buffer.memory (10; did you mean target.producer.buffer.memory?)"
    )


def test_several_flows_run_in_one_worker(load: Load) -> None:
    """Connectors of different sources are flows of their own, and get what the worker says."""
    second = SOURCE.replace("= A", "= C").replace("source:9092", "third:9092").replace("name = source", "name = c")
    settings = load(WORKER + "offset.flush.interval.ms = 7000\n", SOURCE, second)

    assert [str(flow.flow) for flow in settings.flows] == ["A->B", "C->B"]
    assert [flow.source.bootstrap_servers for flow in settings.flows] == [("source:9092",), ("third:9092",)]
    assert {flow.source_connector.copying.offset_flush_interval_ms for flow in settings.flows} == {7000}


def test_clients_are_reached_as_their_prefixes_say(load: Load) -> None:
    """The source as the connector says; the target as the worker's producer, which the connector may override."""
    worker = WORKER + "security.protocol = SSL\nproducer.max.request.size = 70000\nproducer.client.id = writer\n"
    connector = SOURCE + (
        "source.cluster.security.protocol = SASL_SSL\nsource.cluster.sasl.mechanism = PLAIN\n"
        "source.cluster.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required "
        'username="u" password="p";\n'
        "source.consumer.fetch.min.bytes = 7\nconsumer.fetch.min.bytes = 8\nconsumer.fetch.max.wait.ms = 9\n"
        "producer.override.client.id = mine\n"
    )
    flow = only_flow(load(worker, connector))

    assert (flow.source.security.protocol, flow.target.security.protocol) == ("SASL_SSL", "SSL")
    assert (flow.source_connector.limits.fetch_min_bytes, flow.source_connector.limits.fetch_max_wait_ms) == (7, 9)
    assert (flow.source_connector.limits.produce_request_max_bytes, flow.target.client_id) == (70000, "mine")


def test_records_go_where_the_worker_writes(load: Load) -> None:
    """As in Java the worker's producer writes; how target.cluster is reached does not mix with that."""
    connector = SOURCE + "target.cluster.bootstrap.servers = target:9093\ntarget.cluster.security.protocol = SSL\n"
    beside = load(WORKER, connector)
    alone = load("offset.storage.file.filename = /tmp/x\n", connector)
    overridden = load("bootstrap.servers = source:9092\n", SOURCE + "producer.override.bootstrap.servers = far:9092\n")

    ends = [(one.target.bootstrap_servers, one.target.security.protocol) for one in map(only_flow, (beside, alone))]
    assert ends == [(("target:9092",), "PLAINTEXT"), (("target:9093",), "SSL")]
    assert only_flow(overridden).target.bootstrap_servers == ("far:9092",)


def test_whether_two_addresses_are_one_cluster_is_left_to_its_brokers(load: Load) -> None:
    """Other hosts may be one cluster, and ports of a host several; how the connector names its target is kept."""
    connector = SOURCE + "target.cluster.bootstrap.servers = {}\ntarget.cluster.security.protocol = SSL\n"
    elsewhere, other_port, same = (
        load(WORKER, connector.format(servers)) for servers in ("elsewhere:9092", "target:9093", "TARGET:9092")
    )

    for settings, servers in ((elsewhere, "elsewhere:9092"), (other_port, "target:9093")):
        (named,) = only_flow(settings).named_again
        assert (named.key, named.where) == ("target.cluster.bootstrap.servers", "1.properties")
        assert (named.endpoint.alias, named.endpoint.bootstrap_servers) == ("B", (servers,))
        assert named.endpoint.security.protocol == "SSL"
        assert only_flow(settings).target.bootstrap_servers == ("target:9092",)
        assert settings.notes == ()
    assert only_flow(same).named_again == ()
    assert "'x' is not of the form host:port" in refusals_of(load, WORKER, connector.format("x"))[0]


def test_two_connectors_of_a_flow_may_name_its_source_in_two_ways(load: Load) -> None:
    """The first one's addresses are used; whether the other's are of the same cluster is asked when it is reached."""
    settings = load(WORKER, SOURCE, CHECKPOINT.replace("source:9092", "127.0.0.1:9092"))

    (named,) = only_flow(settings).named_again
    assert (named.key, named.where) == ("source.cluster.bootstrap.servers", "2.properties")
    assert (named.endpoint.alias, named.endpoint.bootstrap_servers) == ("A", ("127.0.0.1:9092",))


def test_what_a_worker_keeps_in_files_is_kept_on_the_target(load: Load) -> None:
    """Positions are on the target cluster, as safe as the mirror's other topics; the worker's file is noted."""
    worker = WORKER + "offset.storage.file.filename = /tmp/connect.offsets\n"
    settings = load(worker, SOURCE + "offset-syncs.topic.replication.factor = 1\nreplication.factor = 2\n")

    assert only_flow(settings).source_connector.offset_storage.topic == "mm2-offsets.A.internal"
    assert only_flow(settings).source_connector.offset_storage.replication_factor == 1
    (note,) = settings.notes
    assert str(note).startswith("worker.properties:2: offset.storage.file.filename: without effect")


def test_what_is_about_the_process_is_in_the_worker_s_file(load: Load) -> None:
    """Spark, the log and value providers are set there; copy settings too, for all flows."""
    settings = load(WORKER + "spark.ui.port = 4050\nlog.level = debug\ncopy.epoch.ms = 700\n", SOURCE)

    assert (settings.spark["spark.ui.port"], settings.log_level) == ("4050", "debug")
    assert only_flow(settings).source_connector.copying.epoch_ms == 700


def test_a_connector_s_settings_in_the_worker_s_file(load: Load) -> None:
    """A worker hands none of its settings to connectors; who expects that is told where to write them."""
    settings = load(WORKER + "replication.factor = 1\n", SOURCE)

    assert only_flow(settings).source_connector.topics.replication_factor == 2
    assert [str(note) for note in settings.notes] == [
        "worker.properties:2: replication.factor: has no effect in a worker's file (write it in the connector's file)"
    ]


@pytest.mark.parametrize("key", ["key.converter", "value.converter", "header.converter"])
def test_converters_that_change_records_are_refused(load: Load, key: str) -> None:
    """The worker's converter counts where the connector has none; records are never converted."""
    worker = WORKER + f"{key} = org.apache.kafka.connect.json.JsonConverter\n{key}.schemas.enable = false\n"
    (problem,) = refusals_of(load, worker, SOURCE)
    fine = load(worker, SOURCE + f"{key} = {_BYTES}\n")

    assert problem.startswith(f"worker.properties:2: {key}: org.apache.kafka.connect.json.JsonConverter would change ")
    assert problem.endswith(f"(write {key} = {_BYTES} in 1.properties)")
    assert fine.notes == ()


def test_transforms_carry_over(load: Load) -> None:
    """A connector's transforms are its flow's; one that is not supported is named at its line."""
    package = "org.apache.kafka.connect.transforms"
    fine = load(
        WORKER, SOURCE + f"transforms = one\ntransforms.one.type = {package}.DropHeaders\ntransforms.one.headers = a\n"
    )
    (problem,) = refusals_of(load, WORKER, SOURCE + f"transforms = two\ntransforms.two.type = {package}.Cast$Value\n")

    (step,) = fine.flows[0].source_connector.transforms.steps
    assert (step.kind, step.settings["headers"]) == ("DropHeaders", "a")
    assert problem.startswith(f"1.properties:7: transforms.two.type: {package}.Cast$Value is not supported")


def test_a_connector_cannot_route_record_by_record(load: Load) -> None:
    """It is refused at its line by the key that stands there, with what to use instead; a RegexRouter is taken."""
    package = "org.apache.kafka.connect.transforms"
    routers = "transforms = days\ntransforms.days.type = {}\n"
    (problem,) = problems_of(load, WORKER, SOURCE + routers.format(f"{package}.TimestampRouter"))
    names = "transforms.days.regex = a\ntransforms.days.replacement = b\n"
    fine = load(WORKER, SOURCE + routers.format(f"{package}.RegexRouter") + names)

    assert (problem.where, problem.key) == ("1.properties:7", "transforms.days.type")
    assert problem.message.startswith(f"{package}.TimestampRouter is not supported: all records of a source partition")
    assert problem.hint.startswith("rename whole topics with a RegexRouter, or mirror to one remote topic and split it")
    assert [step.kind for step in only_flow(fine).source_connector.transforms.steps] == ["RegexRouter"]


def test_every_key_in_a_message_is_one_of_its_file(load: Load) -> None:
    """Neither a flow nor a cluster's alias is in front of it, and a hint can be written as it stands."""
    (source,) = refusals_of(load, WORKER, SOURCE.replace("source:9092", "source"))
    (target,) = refusals_of(load, WORKER + "producer.bootstrap.servers = x\n", SOURCE)
    chain = "source.consumer.ssl.keystore.certificate.chain"
    (store,) = refusals_of(load, WORKER, f"{SOURCE}source.cluster.security.protocol = SSL\n{chain} = pem\n")

    assert source.endswith("(write source.cluster.bootstrap.servers = host1:9092, host2:9092)")
    assert target.endswith("(write producer.bootstrap.servers = host1:9092, host2:9092)")
    assert f"7: {chain}: source.consumer.ssl.keystore.key is missing" in store


def test_values_from_providers_are_not_shown(load: Load, tmp_path: Path) -> None:
    """The worker's config providers serve its connectors, and neither problems nor settings show their values."""
    (tmp_path / "secrets").write_text("servers = hush:x\n")
    worker = WORKER + (
        "config.providers = file\n"
        "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
    )
    connector = SOURCE.replace("source:9092", f"${{file:{tmp_path}/secrets:servers}}")
    (problem,) = refusals_of(load, worker, connector)
    (tmp_path / "secrets").write_text("servers = hush:9092\n")
    settings = load(worker, connector)

    assert "hush" not in problem
    assert only_flow(settings).source.bootstrap_servers == ("hush:9092",)
    assert not any("hush" in row.value for row in settings.effective)


def test_unknown_keys_are_noted_as_they_are_written(load: Load) -> None:
    """A note names the file, the line and the key as the user wrote it, and so does its hint."""
    settings = load(WORKER, SOURCE + "refresh.topics.interval = 9\n")

    assert [str(note) for note in settings.notes] == [
        "1.properties:6: refresh.topics.interval: unknown key, ignored (did you mean refresh.topics.interval.seconds?)"
    ]


def test_overrides_are_written_as_in_mirror_makers_file(load: Load) -> None:
    """--override names flows and clusters, and beats what the files say."""
    overrides = {"A->B.topics": "b", "B.offset.flush.interval.ms": "7"}
    config = only_flow(load(WORKER, SOURCE + "topics = a\n", **overrides)).source_connector

    assert (config.topics.names, config.copying.offset_flush_interval_ms) == (("b",), 7)


def test_all_problems_come_at_once_file_by_file(load: Load) -> None:
    """Whatever is wrong in any of the files is said in one go, in the order of the files."""
    problems = refusals_of(
        load,
        "clusters = A, B\nproducer.max.request.size = x\n",
        SOURCE.replace("source.cluster.bootstrap.servers = source:9092\n", "tasks.max = many\n"),
        f"name = sink\n{_CLASS}MirrorSinkConnector\n",
        "name = nothing\n",
        SOURCE,
    )

    assert [problem.partition(" (")[0] for problem in problems] == [
        "worker.properties: bootstrap.servers: missing: the brokers of the target",
        "worker.properties:1: clusters: this is MirrorMaker 2's own file, not a worker's",
        "worker.properties:2: producer.max.request.size: expected a whole number, found 'x'",
        "1.properties: source.cluster.bootstrap.servers: missing: the brokers of A",
        "1.properties:5: tasks.max: expected a whole number, found 'many'",
        "2.properties:2: connector.class: mm2py has no connector org.apache.kafka.connect.mirror.MirrorSinkConnector",
        "3.properties: connector.class: missing: what the connector does",
        "4.properties:1: name: 1.properties already has a connector with that name",
    ]


def test_a_missing_file_is_the_only_problem(tmp_path: Path) -> None:
    """Nothing is said that only follows from a file that could not be read."""
    (tmp_path / "worker.properties").write_text(WORKER)
    files = tmp_path / "worker.properties", [tmp_path / "none.properties"]
    problems = problems_of(lambda: standalone_settings(*files))

    assert [problem.message for problem in problems] == ["cannot be read: No such file or directory"]


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """Where two files are called alike, their whole paths are named."""
    files = [tmp_path / folder / "connector.properties" for folder in ("a", "b")]
    (tmp_path / "worker.properties").write_text(WORKER)
    for file, text in zip(files, (SOURCE, "name = other\n"), strict=True):
        file.parent.mkdir()
        file.write_text(text)
    problems = problems_of(lambda: standalone_settings(tmp_path / "worker.properties", files))

    assert [problem.where for problem in problems] == [str(files[1])]


@pytest.mark.parametrize("name", ["", "source.cluster.allias = A\n"])
@pytest.mark.parametrize("connector", [SOURCE, HEARTBEAT])
def test_a_source_without_an_alias_is_refused(load: Load, connector: str, name: str) -> None:
    """As in Java: under an alias that was not meant, remote topics would get the wrong names."""
    problems = refusals_of(load, WORKER, connector.replace("source.cluster.alias = A\n", name))

    assert "1.properties: source.cluster.alias: missing" in "\n".join(problems)


def test_an_empty_alias_is_no_missing_one(load: Load) -> None:
    """With an empty separator, too, it is the old way to keep topics' names."""
    no_prefix = SOURCE.replace("source.cluster.alias = A", "source.cluster.alias =")
    joined = "replication.policy.separator =\n"

    assert refusals_of(load, WORKER, no_prefix + joined) == [
        (
            "1.properties:3: source.cluster.alias: Java would name remote topics NAME, and mm2py sourceNAME (to keep "
            "topics' names, write replication.policy.class = identity instead)"
        )
    ]
    kept = f"{no_prefix}{joined}replication.policy.class = identity\n"
    assert str(only_flow(load(WORKER, kept)).flow) == "source->B"


def test_one_alias_for_both_ends_is_refused(load: Load) -> None:
    """A flow needs two clusters."""
    (problem,) = refusals_of(load, WORKER, SOURCE.replace("target.cluster.alias = B", "target.cluster.alias = A"))

    assert problem.startswith("1.properties:4: target.cluster.alias: source and target are both called A")
