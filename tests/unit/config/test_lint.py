"""Notes: lines that do not keep a mirror from starting, but do not do what they seem to."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mm2py.config.problem import ConfigError
from tests.support.config_files import BASE, ConfigFile


Notes = Callable[..., list[str]]


@pytest.fixture
def notes(config: ConfigFile) -> Notes:
    """Write lines after a sound file, load it, and return its notes."""
    return lambda *lines, **arguments: [str(note) for note in config.load(*lines, **arguments).notes]


def _key(lines: str) -> str:
    """Return the key of the last line."""
    return lines.rpartition("\n")[2].partition(" = ")[0]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "topics.regex = x",
            "a key of another mirror, ignored (topics takes names and regular expressions, separated by commas)",
        ),
        ("topics.whitelist = x", "another name of topics (write topics)"),
        ("cluster.B.offset.storage.topic = x", "KIP-382's draft spelling (write B.offset.storage.topic)"),
        ("connector.A->B.emit.heartbeats = false", "KIP-382's draft spelling (write A->B.emit.heartbeats.enabled)"),
        ("cluster.A.brokers.list = x:1", "overruled by A.bootstrap.servers (mm2.properties:2) (remove the old line)"),
        ("zzz = 1", "unknown key, ignored"),
        ("A->C.topics = x", "clusters does not name C (known are A, B)"),
        ("C->D.topics = x", "clusters does not name C and D (known are A, B)"),
        ("C.bootstrap.servers = x:1", "clusters does not name C (known are A, B)"),
        ("A.tasks.max = 2", "has no effect for a cluster (write A->B.tasks.max or tasks.max)"),
        ("offset.flush.interval.ms = 1", "has no effect at the top level (write B.offset.flush.interval.ms)"),
        ("B->A.offset.flush.interval.ms = 1", "has no effect for a flow (write A.offset.flush.interval.ms)"),
        ("use.defaults.from = source", "has no effect at the top level (write A->B.use.defaults.from)"),
        (
            "consumer.fetch.min.bytes = 2",
            (
                "has no effect at the top level (write A->B.source.consumer.fetch.min.bytes or "
                "A.consumer.fetch.min.bytes)"
            ),
        ),
        ("A.log.format = json", "has no effect for a cluster (write log.format)"),
        ("errors.log.enable = true", "accepted, without effect in this version"),
        (
            "metric.names.formats = legacy, new",
            "metrics have their names of legacy; Prometheus can rename them: mm2py docs metrics#kafka-43s-names",
        ),
        ("A.ssl.provider = secret", "accepted, without effect in this version"),
        ("A.consumer.sasl.oauthbearer.jwks.endpoint.url = https://x/", "accepted, without effect in this version"),
        ("A.sasl.login.retry.backoff.ms = 5", "accepted, without effect in this version"),
        (
            "B.producer.linger.ms = 5",
            (
                "batches travel unopened and are sent at once; the source's fetch.min.bytes and fetch.max.wait.ms "
                "collect more"
            ),
        ),
        ("B.producer.acks = 1", "copying always waits for all in-sync replicas"),
        (
            "use.incremental.alter.configs = never",
            "removed in Kafka 4.0: configurations are always altered incrementally",
        ),
        ("topics.blacklist = x", "another name of topics.exclude (write topics.exclude)"),
        (
            "A->B.topics.exclude = mm2.*\\.internal",
            "a single backslash is dropped in a properties file (write \\\\ for \\ )",
        ),
        *(
            (
                f"A->B.{line}",
                (
                    f"{char} is part of the name or expression, as in Java "
                    "(write names and expressions without quotes, separated by commas)"
                ),
            )
            for line, char in (('topics = ".*"', '"'), ("groups = 'a', 'b'", "'"), ("topics = orders;clicks", ";"))
        ),
        ("A.consumer.metric.reporters = x # y", "'# y' after the value is part of it (comments need their own line)"),
        (
            "A.ssl.keystore.password = x # y",
            "what looks like a comment after the value is part of it (comments need their own line)",
        ),
        (
            "A->B.producer.max.request.size = 5",
            "used for copying; Java MirrorMaker would ignore it (write A->B.producer.override.max.request.size)",
        ),
    ],
)
def test_a_line_that_does_not_do_what_it_seems_to_is_named(notes: Notes, line: str, expected: str) -> None:
    """Each odd line gives one note with file, line and what to write instead."""
    assert f"mm2.properties:5: {_key(line)}: {expected}" in notes(line)


def test_groups_that_cannot_be_synchronised_are_noted(notes: Notes) -> None:
    """Their offsets at the target come from checkpoints."""
    sync = "A->B.sync.group.offsets.enabled = true\n"
    expected = "mm2.properties:5: A->B.sync.group.offsets.enabled: has no effect: A->B emits no checkpoints"

    assert any(note.startswith(expected) for note in notes(sync + "emit.checkpoints.enabled = false\n"))
    assert notes(sync) == notes("emit.checkpoints.enabled = false\n") == []
    both = "B->A.enabled = true\nB->A.emit.checkpoints.enabled = false\n"
    assert not any("emits no checkpoints" in note for note in notes(f"{both}sync.group.offsets.enabled = true\n"))
    assert any("B->A emits no checkpoints" in note for note in notes(both + sync.replace("A->B", "B->A")))


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("A->B.emit.heartbeats = false", "A->B.emit.heartbeats.enabled"),
        ("B.max.request.size = 1", "B.producer.max.request.size"),
        ("A->B.retry.backoff.ms = 1", "A->B.consumer.retry.backoff.ms or A->B.producer.retry.backoff.ms"),
        ("topic.filters = x", "topic.filter.class"),
    ],
)
def test_an_unknown_key_is_named_with_what_may_be_meant(notes: Notes, line: str, meant: str) -> None:
    """One that lacks a part, as MirrorMaker's own README has it, and one that stands in the wrong place."""
    assert f"mm2.properties:5: {_key(line)}: unknown key, ignored (did you mean {meant}?)" in notes(line)


@pytest.mark.parametrize(
    "line",
    [
        "A->B.consumer.override.bootstrap.servers = a:9092",
        "A->B.producer.override.max.partition.fetch.bytes = 5",
        "A->B.target.cluster.max.partition.fetch.bytes = 5",
    ],
)
def test_no_hint_leads_to_the_other_client_or_cluster(notes: Notes, line: str) -> None:
    """What is meant for the source's consumer would have the producer write to the source."""
    (note,) = notes(line)

    assert not {"producer", "source"} & set(note.partition("did you mean ")[2].replace("?", ".").split("."))


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("consumer.security.protocol = PLAINTEXT", "A.security.protocol"),
        ("producer.sasl.mechanism = PLAIN", "B.sasl.mechanism"),
    ],
)
def test_a_client_s_setting_at_the_top_level_belongs_to_its_cluster(notes: Notes, line: str, better: str) -> None:
    """In a Connect worker's file it is there; the consumer's is the source's, the producer's the target's."""
    assert notes(line) == [f"mm2.properties:5: {_key(line)}: has no effect at the top level (write {better})"]


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("rest.auth.user.file = users", "rest.auth.users.file"),
        ("listener = http://:8083", "listeners"),
        ("A.ssl.truststore.locaton = trust.pem", "A.ssl.truststore.location"),
        ("A.consumer.sasl.mechanim = PLAIN", "A.consumer.sasl.mechanism"),
        ("A.security.protocoll = SSL", "A.security.protocol"),
        ("A.producr.sasl.mechanism = PLAIN", "A.producer.sasl.mechanism"),
    ],
)
def test_a_misspelt_security_setting_is_a_problem(config: ConfigFile, line: str, meant: str) -> None:
    """Ignored, it would leave open what its author meant to protect. No note calls the same line accepted."""
    with pytest.raises(ConfigError) as caught:
        config.load(line)

    assert [(problem.key, problem.hint) for problem in caught.value.problems] == [
        (_key(line), f"did you mean {meant}?")
    ]
    assert caught.value.notes == ()


@pytest.mark.parametrize(
    "line",
    [
        "producer.ssl.truststore.location = trust.jks",
        "admin.sasl.mechanism = PLAIN",
        "source.cluster.ssl.endpoint.identification.algorithm = https",
        "A.producer.override.sasl.mechanism = AWS_MSK_IAM",
        "A.client.sasl.client.callback.handler.class = software.amazon.msk.auth.iam.IAMClientCallbackHandler",
        "A->B.security.protocol = SSL",
    ],
)
def test_a_security_setting_at_the_wrong_level_is_noted(config: ConfigFile, line: str) -> None:
    """Java runs files with such lines, from a Connect worker's file or from its documents; they are no misspellings."""
    assert [note.key for note in config.load(line).notes] == [_key(line)]


def test_a_class_of_characters_may_be_about_quotes(notes: Notes) -> None:
    """It is no list in quotes; groups may have any name."""
    assert notes("A->B.groups = [^'\"]+, [a-z;]*\nA->B.topics = it[^']*") == []
    assert len(notes("A->B.groups = '[^;]+'")) == 1


def test_disabled_flows_and_unused_clusters_are_no_noise(notes: Notes) -> None:
    """A flow that is disabled needs no note; of a cluster that no flow uses, one says so."""
    unused = (
        "clusters = A, B, C\nC.bootstrap.servers = c:1\nC.security.protocol = SSL\nemit.heartbeats.enabled = false\n"
        "B->A.enabled = false\nB->A.emit.heartbeats.enabled = false"
    )

    assert [note.partition(": ")[2] for note in notes(unused) if "clusters" not in note] == [
        "C.bootstrap.servers: no flow uses cluster C"
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("B.consumer.request.timeout.ms = 5", "no enabled flow reads B (write B.producer.request.timeout.ms)"),
        ("B.consumer.fetch.min.bytes = 5", "no enabled flow reads B"),
        ("A.producer.max.request.size = 5", "no enabled flow writes A"),
        (
            "A.admin.bootstrap.servers = x:1",
            (
                "has no effect: mm2py uses the same connection settings for everything on a cluster (write "
                "A.bootstrap.servers)"
            ),
        ),
        (
            "A->B.source.admin.bootstrap.servers = x:1",
            "has no effect: mm2py uses the same connection settings for everything on a cluster",
        ),
        ("emit.heartbeats.enabled = false\nB->A.topics = x", "flow B->A does not run"),
        ("emit.heartbeats.enabled = false\nA.offset.flush.interval.ms = 1", "no flow ends at A"),
        (
            "B.exactly.once.source.support = enabled",
            (
                "A->B reads records of aborted transactions, too, so they are mirrored (add "
                "A.consumer.isolation.level = read_committed)"
            ),
        ),
    ],
)
def test_what_goes_wrong_in_practice_is_named(notes: Notes, line: str, expected: str) -> None:
    """Lines that no flow reads, and settings that do not go together."""
    found = notes(line)

    assert [note for note in found if note.partition(": ")[2] == f"{_key(line)}: {expected}"], found


def test_a_transaction_is_never_shorter_than_a_round(notes: Notes) -> None:
    """A time-out that counts as a longer one is named, where there are transactions."""
    lines = "A.consumer.isolation.level = read_committed\nB.producer.transaction.timeout.ms = 500\n"
    enabled = f"{lines}B.exactly.once.source.support = enabled\n"

    assert notes(lines) == []
    assert [note.partition(": ")[2] for note in notes(enabled)] == [
        "B.producer.transaction.timeout.ms: counts as 10000: what a transform does between two commits takes seconds"
    ]


def test_what_a_client_has_again_is_no_noise(notes: Notes) -> None:
    """Who writes a cluster's settings for each of its clients says nothing that is not so; another value is named."""
    again = (
        "A.security.protocol = PLAINTEXT\nsecurity.protocol = SSL\nA.admin.security.protocol = PLAINTEXT\n"
        "B.consumer.security.protocol = SSL\nA->B.target.admin.security.protocol = SSL\n"
    )

    assert notes(again) == []
    assert [note.split(": ")[1] for note in notes(f"{again}B.admin.security.protocol = PLAINTEXT")] == [
        "B.admin.security.protocol"
    ]


def test_lines_of_other_nodes_are_fine(notes: Notes) -> None:
    """A node of one cluster does not complain about lines for flows that another node runs."""
    lines = "B->A.enabled = true", "B.consumer.fetch.min.bytes = 2", "A.producer.max.request.size = 9"

    assert notes(*lines, targets=["B"]) == []


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("B.producer.max.in.flight.requests.per.connection = 10", "5, the most"),
        ("B.producer.batch.size = 0", "1, the least"),
        ("A.consumer.metadata.max.age.ms = 0", "1, the least"),
        ("A.consumer.fetch.max.bytes = 0", "1, the least"),
        ("A.consumer.max.partition.fetch.bytes = 0", "1, the least"),
    ],
)
def test_a_number_that_java_takes_counts_as_the_nearest(notes: Notes, line: str, nearest: str) -> None:
    """A file that runs in Java starts here too."""
    assert notes(line) == [f"mm2.properties:5: {_key(line)}: counts as {nearest} that mm2py can work with"]


@pytest.mark.parametrize(
    "line",
    [
        "A.consumer.connections.max.idle.ms = -1",
        "B.producer.compression.zstd.level = -5",
        "A->B.transaction.boundary = POLL",
        "A->B.errors.retry.timeout = -2",
        "A->B.consumer.poll.timeout.ms = -1",
    ],
)
def test_a_line_without_effect_never_stops_a_start(notes: Notes, line: str) -> None:
    """Java takes these values; the only problem is that they do nothing here."""
    (note,) = notes(line)

    assert note.startswith(f"mm2.properties:5: {_key(line)}: ")


def test_lines_without_effect_are_named_in_one_note(notes: Notes) -> None:
    """Settings that Java has and this version does not need make one line at the start, with theirs."""
    lines = (
        "forwarding.admin.class = x", "A.consumer.metrics.num.samples = 3", "tasks.max = 2",
        "B.producer.client.dns.lookup = y",
    )  # fmt: skip

    assert notes(*lines, overrides={"B.plugin.path": "/p"}) == [
        (
            "mm2.properties: accepted, without effect in this version: forwarding.admin.class (5), "
            "A.consumer.metrics.num.samples (6), B.producer.client.dns.lookup (8), B.plugin.path (--override)"
        )
    ]


def test_many_lines_that_do_nothing_make_one_note_with_their_hints(notes: Notes) -> None:
    """A file with a dozen settings of another kind of client is readable; up to three hints have a note each."""
    few = ("A.max.poll.records = 1", "A.foo = 2", "A.compression.type = gzip", "A.bar = 3", "B.batch.size = 4")
    unknown = "unknown key, ignored"

    assert notes(*few) == [
        f"mm2.properties:5: A.max.poll.records: {unknown} (did you mean A.consumer.max.poll.records?)",
        f"mm2.properties:7: A.compression.type: {unknown} (did you mean A.producer.compression.type?)",
        f"mm2.properties:9: B.batch.size: {unknown} (did you mean B.producer.batch.size?)",
        f"mm2.properties: {unknown}: A.foo (6), A.bar (8)",
    ]
    assert notes(*few, "B.buffer.memory = 5") == [
        (
            f"mm2.properties: {unknown}: A.max.poll.records (5; did you mean A.consumer.max.poll.records?), A.foo (6), "
            "A.compression.type (7; did you mean A.producer.compression.type?), A.bar (8), "
            "B.batch.size (9; did you mean B.producer.batch.size?), "
            "B.buffer.memory (10; did you mean B.producer.buffer.memory?)"
        )
    ]


def test_a_repeated_key_is_named_with_the_line_that_counts(notes: Notes) -> None:
    """The overruled line is named, and the one that counts."""
    assert notes("tasks.max = 1\ntasks.max = 2") == [
        "mm2.properties:5: tasks.max: overruled by line 6: the last of several lines counts"
    ]


@pytest.mark.parametrize(
    ("winner", "loser", "better"),
    [
        ("A.consumer.fetch.min.bytes", "A->B.consumer.fetch.min.bytes", "A->B.source.consumer.fetch.min.bytes"),
        ("B.producer.max.request.size", "A->B.producer.max.request.size", "A->B.producer.override.max.request.size"),
    ],
)
def test_a_flows_line_that_a_clusters_line_beats_is_named(notes: Notes, winner: str, loser: str, better: str) -> None:
    """Where MirrorMaker's order surprises, the note names the winner and the way to win."""
    assert notes(f"{winner} = 3", f"{loser} = 2") == [
        f"mm2.properties:6: {loser}: overruled by {winner} (mm2.properties:5), as in Java (write {better})"
    ]


def test_an_old_name_counts_only_where_the_new_one_is_absent(config: ConfigFile) -> None:
    """topics.blacklist works, and topics.exclude beats it at any level."""
    assert config.flow("A->B.topics.blacklist = old").source_connector.topics.exclude == ("old",)
    assert config.flow("A->B.topics.blacklist = old", "topics.exclude = new").source_connector.topics.exclude == (
        "new",
    )


def test_an_unknown_override_is_named(notes: Notes) -> None:
    """Overrides are checked as lines are."""
    assert notes("", overrides={"A->B.emit.heartbeats": "x"}) == [
        "--override: A->B.emit.heartbeats: unknown key, ignored (did you mean A->B.emit.heartbeats.enabled?)"
    ]


def test_aliases_that_make_trouble_are_named(notes: Notes) -> None:
    """An alias that reads like a setting, or holds the separator, works badly."""
    base = "clusters = topics, us.west\nbootstrap.servers = a:1\nus.west.bootstrap.servers = b:1\n"

    assert notes("us.west->topics.enabled = true\ntopics.exclude = x", base=base) == [
        (
            "mm2.properties:5: topics.exclude: applies to all flows; it is no setting of cluster topics, whose alias "
            "it begins with"
        ),
        (
            "mm2.properties:1: clusters: alias us.west contains the separator '.': cycles cannot be told from topic "
            "names "
            "(choose another alias or replication.policy.separator)"
        ),
    ]


_NO_PREFIX = "replication.policy.separator =\nsource.cluster.alias =\n"


def test_an_alias_of_its_own_for_topic_names_is_refused(config: ConfigFile) -> None:
    """Java names remote topics after it. An empty one is the way to keep names from before the identity policy."""
    refusals = config.refusals(_NO_PREFIX), config.refusals("A->B.source.cluster.alias = us")

    assert refusals == (
        [
            (
                "mm2.properties:6: source.cluster.alias: Java would name remote topics NAME, and mm2py ANAME (to keep "
                "topics' names, write replication.policy.class = identity instead)"
            )
        ],
        [
            (
                "mm2.properties:5: A->B.source.cluster.alias: Java would name remote topics us.NAME, and mm2py A.NAME "
                "(leave it out, or call the cluster us)"
            )
        ],
    )


@pytest.mark.parametrize("line", [f"{_NO_PREFIX}replication.policy.class = identity", "source.cluster.alias = A"])
def test_an_alias_that_changes_no_name_is_noted(notes: Notes, line: str) -> None:
    """It may be another one where names are kept, and the cluster's own with any policy."""
    assert len([note for note in notes(line) if "clusters' alias is used" in note]) == 1


def test_what_a_list_names_twice_counts_once(config: ConfigFile, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java drops it with a warning since 4.2, and never minded before. A provided value is not shown."""
    monkeypatch.setenv("GROUPS_TWICE", "g, g")
    settings = config.load("config.providers = env", "topics = a, b, a", "A->B.groups = ${env:GROUPS_TWICE}")

    assert (settings.flows[0].source_connector.topics.names, settings.flows[0].checkpoint_connector.groups) == (
        ("a", "b"),
        ("g",),
    )
    assert [str(note) for note in settings.notes if "once" in str(note)] == [
        "mm2.properties:6: topics: the list names a more than once"
    ]


def test_a_key_of_the_top_level_may_begin_with_an_alias(notes: Notes) -> None:
    """With a cluster called offset, offset.lag.max stays the setting that it is."""
    base = BASE.replace("A", "offset")

    assert [note for note in notes("offset.lag.max = 5", base=base) if "unknown" in note] == []


@pytest.mark.parametrize(("encoding", "expected"), [("utf-8", 1), ("iso-8859-1", 0)])
def test_utf8_is_noted_because_java_reads_it_otherwise(notes: Notes, encoding: str, expected: int) -> None:
    """A file that Java would read in another way says so, once."""
    found = [note for note in notes("# é\nA->B.topics = é", encoding=encoding) if "UTF-8" in note]

    assert len(found) == expected


def test_no_note_and_no_problem_shows_a_secret(notes: Notes, config: ConfigFile) -> None:
    """Passwords are in neither, whatever else is wrong with their lines."""
    lines = (
        "A.ssl.keystore.password = hush # hush\nA.sasl.jaas.config = hush\nA.sasl.jaas.config = hush\n"
        "A->B.source.consumer.ssl.key.password = hush \\q\n"
    )
    refusals = config.refusals("sasl.password = hush")

    assert "hush" not in "\n".join((*notes(lines), *refusals))
