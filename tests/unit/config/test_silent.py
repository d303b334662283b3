"""What Java would ignore, or take for something else, without a word: keys that are nearly others, arrows, values."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.connectors import standalone_settings
from mm2py.config.keys.row import LineLevel
from mm2py.config.keys.table import find_key, known_names, misspelt_name
from mm2py.config.problem import ConfigError, Problem
from mm2py.config.settings import MirrorSettings
from tests.support.config_files import BASE, ConfigFile


def _only(config: ConfigFile, *lines: str, base: str = BASE) -> tuple[str, str, str]:
    (problem,) = config.problems(*lines, base=base)
    return problem.where.removeprefix("mm2.properties:"), problem.key, problem.hint


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("A->B.topcis = orders", "A->B.topics"),
        ("A->B.topic = orders", "A->B.topics"),
        ("A->B.Topics = orders", "A->B.topics"),
        ("A->B.enable = true", "A->B.enabled"),
        ("A->B.topics.exlude = x", "A->B.topics.exclude"),
        ("A->B.offset.syncs.topic.location = target", "A->B.offset-syncs.topic.location"),
        ("A->B.sync_group_offsets_enabled = true", "A->B.sync.group.offsets.enabled"),
        ("A->B.replication.policy.seperator = -", "A->B.replication.policy.separator"),
        ("task.max = 4", "tasks.max"),
        ("refresh.topic.interval.seconds = 5", "refresh.topics.interval.seconds"),
        ("A.bootstrap.server = x:1", "A.bootstrap.servers"),
        ("A.consumer.fetch.min.byte = 5", "A.consumer.fetch.min.bytes"),
        ("A->B.producer.override.max.request.sizes = 5", "A->B.producer.override.max.request.size"),
        ("B.offset.flush.intervall.ms = 5", "B.offset.flush.interval.ms"),
    ],
)
def test_a_key_that_is_another_but_for_a_slip_is_a_problem(config: ConfigFile, line: str, meant: str) -> None:
    """Java ignores it, and mirrors other topics, or with other settings, than its author believes."""
    key = line.partition(" = ")[0]

    assert _only(config, line) == ("5", key, f"did you mean {meant}?")
    assert _only(config, "", base=BASE + line + "\n")[1] == key


@pytest.mark.parametrize(
    "line",
    [
        "A->B.topics.regex = x",
        "A->B.emit.heartbeats = false",
        "A->B.offset.storage.topic = x",
        "offsets.storage.topic = x",
        "A->B.vault.url = x",
        "A->C.topcis = x",
        "C.bootstrap.servers = x:1",
        "A->B.name = x",
        "A->B.tasks = 1",
        "A.consumer.auto.commit.enable = true",
        "A->B.group.filter.pattern = x",
    ],
)
def test_what_is_no_slip_is_a_note(config: ConfigFile, line: str) -> None:
    """Keys of other mirrors, at other levels, of clusters that are not named, and those that nothing is like."""
    assert [note.key for note in config.load(line).notes] == [line.partition(" = ")[0]]


@pytest.mark.parametrize(
    "plugin",
    [
        "A->B.topic.filter.class = com.shop.Filter",
        "replication.policy.class = shop.naming.Policy",
        "A.consumer.interceptor.classes = com.shop.Interceptor",
    ],
)
def test_a_key_may_be_one_of_a_plugin(config: ConfigFile, plugin: str) -> None:
    """A class of one's own gets the whole config in Java: what resembles a setting may be one of its own."""
    (note,) = [note for note in config.load(plugin, "A->B.topic = x").notes if note.key == "A->B.topic"]

    assert (note.message, note.hint) == ("unknown key, ignored", "did you mean A->B.topics?")


def test_no_known_key_is_taken_for_another() -> None:
    """Those of Java's clients, Connect and MirrorMaker are themselves, at any level."""
    names = {name for level in LineLevel for name in known_names(level)}
    taken = {(name, misspelt_name(level, name)) for level in LineLevel for name in names if not find_key(level, name)}

    assert {found for _, found in taken} == {None}, taken


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("A-->B.enabled = true", "A->B.enabled"),
        ("A=>B.enabled = true", "A->B.enabled = true"),
        ("A => B.enabled = true", "A->B.enabled = true"),
        ("A→B.enabled = true", "A->B.enabled"),
        ("A → B.enabled = true", "A->B.enabled = true"),
        ("A>B.enabled = true", "A->B.enabled"),
        ("A\u2013>B.enabled = true", "A->B.enabled"),
        ("A-&gt;B.enabled = true", "A->B.enabled"),
        ("A -> B.enabled = true", "A->B.enabled = true"),
        ("A ->B.enabled = true", "A->B.enabled = true"),
        ("A\\ ->\\ B.enabled = true", "A->B.enabled"),
    ],
)
@pytest.mark.parametrize("base", [BASE, BASE.replace("A->B.enabled = true", "emit.heartbeats.enabled = false")])
def test_an_arrow_that_is_none_is_a_problem(config: ConfigFile, line: str, meant: str, base: str) -> None:
    """With a flow that runs, and without one."""
    where, _, hint = _only(config, line, base=base)

    assert (where, hint) == ("5", f"write {meant}")


@pytest.mark.parametrize("written", ["A B", "A; B"])
def test_clusters_without_commas_are_a_problem(config: ConfigFile, written: str) -> None:
    """That is one cluster with a blank in its alias, which would be told to have no brokers."""
    problem, *_ = config.problems(base=BASE.replace("A, B", written))

    assert str(problem) == (
        f"mm2.properties:1: clusters: {written!r} is one alias: they are separated by commas (write clusters = A, B)"
    )


def test_an_alias_may_have_what_an_arrow_has(config: ConfigFile) -> None:
    """What names a flow is one."""
    base = "clusters = A-, B>\nA-.bootstrap.servers = a:1\nB>.bootstrap.servers = b:1\nA-->B>.enabled = true\n"

    assert config.load("A-->B>.offset-syncs.topic.location = target", base=base).flows[0].is_enabled


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        (
            "A->B.topics = orders payments",
            "'orders payments' matches nothing, because no name has a blank: separate names by commas",
            "",
        ),
        (
            "topics.exclude = a, b c",
            "'b c' matches nothing, because no name has a blank: separate names by commas",
            "",
        ),
        ("A->B.replication.factor = 40000", "must be at most 32767", ""),
        ("A->B.offset-syncs.topic.replication.factor = 40000", "40000 is outside of -32768 to 32767", ""),
    ],
)
def test_a_value_that_cannot_do_what_it_says_is_a_problem(
    config: ConfigFile, line: str, message: str, hint: str
) -> None:
    """Java mirrors nothing, or fails at each topic that it creates."""
    assert config.problems(line) == (Problem("mm2.properties:5", line.partition(" = ")[0], message, hint),)


@pytest.mark.parametrize(
    ("lines", "where", "key", "line_before"),
    [
        ("A->B.topics = orders,\\\nA->B.groups = g", 6, "A->B.groups", 5),
        ("A->B.topics = orders,\\\n  payments, \\\n  A->B.tasks.max = 4\n", 7, "A->B.tasks.max", 6),
        ("topics = orders\\\nenabled = true", 6, "enabled", 5),
        ("A->B.transform.sql = SELECT * FROM records \\\nB.producer.batch.size = 1", 6, "B.producer.batch.size", 5),
        ("A.consumer.client.id = x\\\nA.bootstrap.servers = other:1", 6, "A.bootstrap.servers", 5),
    ],
)
def test_a_line_that_a_backslash_swallows_is_a_problem(
    config: ConfigFile, lines: str, where: int, key: str, line_before: int
) -> None:
    """It looks like a line of its own, and is part of the value before."""
    found = [problem for problem in config.problems(lines) if problem.where == f"mm2.properties:{where}"]

    assert [(problem.key, problem.hint) for problem in found] == [
        (key, f"remove the \\ at the end of line {line_before}")
    ]


@pytest.mark.parametrize(
    "lines",
    [
        "topics = orders,\\\n  payments",
        "A->B.transform.sql = SELECT key, value FROM records \\\n WHERE enabled = true \\\n AND topics = 'x'",
        'A.sasl.jaas.config = M required \\\n username="u" \\\n password="p";',
        "A->B.transform.sql = SELECT value AS name \\\n FROM records",
    ],
)
def test_a_value_may_go_on_in_the_next_line(config: ConfigFile, lines: str) -> None:
    """Lists, statements and logins are written so."""
    assert [note for note in config.load(lines).notes if "part of" in note.message] == []


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            "A->B.topics = orders-*",
            (
                "A->B.topics: orders-* is an expression, in which * repeats the - before it, as in Java (for any text "
                "write .*: orders-.*)"
            ),
        ),
        (
            "topics.exclude = tmp*, orders.*",
            (
                "topics.exclude: tmp* is an expression, in which * repeats the p before it, as in Java (for any text "
                "write .*: tmp.*)"
            ),
        ),
        ("A->B.topics =", "A->B.topics: is empty: A->B mirrors no topic (for all topics, write .*)"),
        ("A->B.groups =", "A->B.groups: is empty: A->B translates no group (for all groups, write .*)"),
        (
            "groups = one two",
            "groups: 'one two' is one group, whose name has a blank (groups are separated by commas)",
        ),
        (
            "replication.policy.separator =",
            (
                "replication.policy.separator: is empty: the remote topic of orders is Aorders, and no name tells "
                "where it came from (leave it out, or to keep topics' names, write replication.policy.class = identity)"
            ),
        ),
        (
            "A.bootstrap.servers = SASL_SSL://h:9093, SASL_SSL://i:9093",
            (
                "A.bootstrap.servers: SASL_SSL:// is ignored, as in Java: security.protocol is PLAINTEXT (write "
                "A.security.protocol = SASL_SSL)"
            ),
        ),
        (
            "A.bootstrap.servers = http://h:9093",
            (
                "A.bootstrap.servers: http:// is ignored, as in Java: security.protocol is PLAINTEXT (write "
                "host:port alone)"
            ),
        ),
        (
            "B.bootstrap.servers = PLAINTEXT://h:9093",
            (
                "B.bootstrap.servers: PLAINTEXT:// is ignored, as in Java: security.protocol is PLAINTEXT (write "
                "host:port alone)"
            ),
        ),
        (
            "A.consumer.bootstrap.servers = other:9092",
            (
                "A.consumer.bootstrap.servers: overrules A.bootstrap.servers (mm2.properties:2): A->B reads from "
                "other:9092 (if that is another cluster, give it an alias; else remove this line)"
            ),
        ),
        (
            "A->B.producer.override.bootstrap.servers = other:9092",
            (
                "A->B.producer.override.bootstrap.servers: overrules B.bootstrap.servers (mm2.properties:3): A->B "
                "writes to other:9092 (if that is another cluster, give it an alias; else remove this line)"
            ),
        ),
        (
            "A->B.consumer.bootstrap.servers = other:9092",
            (
                "A->B.consumer.bootstrap.servers: overruled by A.bootstrap.servers (mm2.properties:2) (write "
                "A->B.source.consumer.bootstrap.servers, or remove it)"
            ),
        ),
        (
            "A->B.target.cluster.bootstrap.servers = other:9092",
            (
                "A->B.target.cluster.bootstrap.servers: overruled by B.bootstrap.servers (mm2.properties:3) (write "
                "A->B.producer.override.bootstrap.servers, or remove it)"
            ),
        ),
        (
            "refresh.topics.interval.seconds = 0",
            (
                "refresh.topics.interval.seconds: 0 is never; Java's connector would fail (to switch it off, write "
                "refresh.topics.enabled = false)"
            ),
        ),
        (
            "A->B.emit.heartbeats.interval.seconds = 0",
            (
                "A->B.emit.heartbeats.interval.seconds: 0 counts as 1; Java would write without a pause (to switch it "
                "off, write A->B.emit.heartbeats.enabled = false)"
            ),
        ),
    ],
)
def test_a_value_that_java_takes_otherwise_than_meant_is_noted(config: ConfigFile, lines: str, expected: str) -> None:
    """It runs as it does in Java, but not without a word."""
    notes = [str(note) for note in config.load(lines).notes if "the last of several" not in note.message]

    assert notes == [f"mm2.properties:5: {expected}"]


@pytest.mark.parametrize(
    "lines",
    [
        "topics = orders.*, a[b-c]*, x.y-.*, (a|b)*",
        "topics.exclude =",
        "replication.policy.separator =\nreplication.policy.class = identity",
        "A.consumer.bootstrap.servers = A:9092",
        "A->B.consumer.bootstrap.servers = a:9092\nA->B.target.cluster.security.protocol = SSL",
        "groups =\nemit.checkpoints.enabled = false",
        "A->B.topics =\nA->B.topic.filter.class = shop.Filter",
        "refresh.topics.enabled = false\nrefresh.topics.interval.seconds = 0",
        "refresh.topics.interval.seconds = -1\nsync.topic.acls.interval.seconds = -5",
        "emit.heartbeats.enabled = false\nemit.heartbeats.interval.seconds = 0",
    ],
)
def test_values_that_say_what_they_mean_are_no_noise(config: ConfigFile, lines: str) -> None:
    """Lists of expressions, and what is switched off."""
    assert config.load(lines).notes == ()


@pytest.mark.parametrize("seconds", [0, -1, -600])
def test_an_interval_of_nothing_is_never(config: ConfigFile, seconds: int) -> None:
    """As Java's Scheduler has it for less than 0; at 0 its connector fails."""
    jobs = ("refresh.topics", "refresh.groups", "sync.topic.configs", "sync.topic.acls", "sync.group.offsets")
    lines = (f"{job}.interval.seconds = {seconds}" for job in jobs)
    flow = config.flow("sync.group.offsets.enabled = true", *lines)

    chosen, synced = flow.checkpoint_connector, flow.source_connector.topic_sync
    assert (flow.source_connector.topics.refresh_enabled, chosen.refresh_enabled, chosen.is_synced) == (
        False,
        False,
        False,
    )
    assert (synced.configs_enabled, synced.acls_enabled) == (False, False)
    assert (flow.source_connector.topics.refresh_interval_s, chosen.refresh_interval_s) == (600.0, 30.0)


@pytest.mark.parametrize(
    ("seconds", "checkpoints", "heartbeats", "interval_s"),
    [(5, True, True, 5.0), (0, True, True, 1.0), (-1, False, False, 1.0)],
)
def test_less_than_nothing_emits_nothing(
    config: ConfigFile, seconds: int, checkpoints: bool, heartbeats: bool, interval_s: float
) -> None:
    """Java's connectors have no task then."""
    names = ("emit.checkpoints", "emit.heartbeats")
    flow = config.flow("".join(f"{name}.interval.seconds = {seconds}\n" for name in names))

    assert (flow.checkpoint_connector.is_emitted, flow.heartbeat_connector.is_emitted) == (checkpoints, heartbeats)
    assert flow.heartbeat_connector.interval_s == interval_s


def test_a_direction_that_never_emits_is_none(config: ConfigFile) -> None:
    """No flow is there for the heartbeats of the other direction alone."""
    flows = config.load("emit.heartbeats.interval.seconds = -1").flows

    assert [str(settings.flow) for settings in flows] == ["A->B"]


def test_a_slip_is_refused_together_with_all_else(config: ConfigFile) -> None:
    """All problems come at once, in the file's order."""
    with pytest.raises(ConfigError) as caught:
        config.load("A->B.topcis = x", "tasks.max = many", "A-->B.groups = g")

    assert [problem.where for problem in caught.value.problems] == [f"mm2.properties:{line}" for line in (5, 6, 7)]


_CONNECTOR = (
    "name = a\nconnector.class = MirrorSourceConnector\nsource.cluster.alias = A\n"
    "source.cluster.bootstrap.servers = a:9092\n"
)


def _standalone(folder: Path, line: str) -> MirrorSettings:
    """Return the settings of a standalone worker with a connector that has *line* as its fifth."""
    worker, connector = folder / "worker.properties", folder / "a.properties"
    worker.write_text("bootstrap.servers = b:9092\nvalue.converter = ByteArrayConverter\n")
    worker.write_text(worker.read_text() + "key.converter = ByteArrayConverter\n")
    connector.write_text(f"{_CONNECTOR}{line}\n")
    return standalone_settings(worker, [connector])


def test_a_slip_in_another_format_is_named_as_it_is_written(tmp_path: Path) -> None:
    """A problem names the file, the line and the key as the user wrote it, and so does its hint."""
    with pytest.raises(ConfigError) as caught:
        _standalone(tmp_path, "topcs = orders")

    (problem,) = caught.value.problems
    assert (problem.where, problem.key, problem.hint) == ("a.properties:5", "topcs", "did you mean topics?")


@pytest.mark.parametrize("key", ["config.providers", "ssl.client.auth", "log.level", "listeners", "spark.master"])
def test_a_connector_cannot_change_the_process(tmp_path: Path, key: str) -> None:
    """As in Connect, its file has no say in what the whole process does; the line is noted."""
    settings = _standalone(tmp_path, f"{key} = error")

    assert (settings.log_level, settings.spark["spark.master"]) == ("info", "local[*]")
    assert [str(note) for note in settings.notes] == [
        (
            f"a.properties:5: {key}: a setting of the whole process, ignored in a connector as in Connect "
            "(write it in the worker's file)"
        )
    ]
