"""A file that cannot be used: every problem at once, each with its line and what to try."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.config.settings import load_settings
from tests.support.config_files import BASE, ConfigFile, problems_of


def test_all_problems_are_reported_at_once_in_the_files_order(config: ConfigFile) -> None:
    """One error carries every problem, each with line, key, message and what to try."""
    problems = config.problems(
        """\
clusters = A, B
A.bootstrap.servers = localhost
A->B.enabled = yes
A->B.topics = [ab
tasks.max = 0
replication.factor = two
A.consumer.isolation.level = committed
B.producer.max.in.flight.requests.per.connection = 0
A->B.topics.exclude = a,,b
refresh.topics.interval.seconds = 60 # often
log.format = xml
copy.buffer.bytes = 99999999999999999999
broken = \\u00zz
emit.heartbeats.enabled = 1
replication.policy.separator = ->
""",
        base="",
        targets=["C"],
    )

    assert [(problem.where, problem.key) for problem in problems] == [
        ("--clusters", "C"),
        ("mm2.properties:3", "A->B.enabled"),
        ("mm2.properties:4", "A->B.topics"),
        ("mm2.properties:5", "tasks.max"),
        ("mm2.properties:6", "replication.factor"),
        ("mm2.properties:7", "A.consumer.isolation.level"),
        ("mm2.properties:8", "B.producer.max.in.flight.requests.per.connection"),
        ("mm2.properties:9", "A->B.topics.exclude"),
        ("mm2.properties:10", "refresh.topics.interval.seconds"),
        ("mm2.properties:11", "log.format"),
        ("mm2.properties:12", "copy.buffer.bytes"),
        ("mm2.properties:13", ""),
        ("mm2.properties:14", "emit.heartbeats.enabled"),
        ("mm2.properties:15", "replication.policy.separator"),
    ]
    assert all(problem.message for problem in problems)


_ALIASES = "bootstrap.servers = a:1\nemit.heartbeats.enabled = false\nclusters = "


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A.bootstrap.servers = a:1", ": clusters: missing: the aliases of all clusters (add clusters = A, B)"),
        ("clusters =", ":1: clusters: must not be empty"),
        (
            "bootstrap.servers = a:1\nA->B.enabled = true\nclusters = A,,B",
            ":3: clusters: the list has an empty member: check for an extra comma",
        ),
        (
            "clusters = A,A\nA.bootstrap.servers = a:1",
            ": No source->target replication flows. (clusters names only A; a flow needs two)",
        ),
        (
            "clusters = A, B\nA.bootstrap.servers = a:1\nA->B.enabled=true\nemit.heartbeats.enabled=false",
            ":1: B.bootstrap.servers: cluster B has no bootstrap.servers (add B.bootstrap.servers = host:port)",
        ),
        (
            BASE + "A.bootstrap.servers = a:0",
            (":5: A.bootstrap.servers: 'a:0': there is no port 0 (write A.bootstrap.servers = host1:9092, host2:9092)"),
        ),
        (BASE + "A.bootstrap.servers =", ":5: A.bootstrap.servers: must not be empty"),
        (
            BASE.replace("true", "false") + "emit.heartbeats.enabled = false",
            ": No source->target replication flows. (add A->B.enabled = true)",
        ),
        (
            "clusters = A\nA.bootstrap.servers = a:1",
            ": No source->target replication flows. (clusters names only A; a flow needs two)",
        ),
        (
            BASE.replace("A->B", "A->X") + "emit.heartbeats.enabled = false",
            (
                ": No source->target replication flows. "
                "(A->X.enabled (mm2.properties:4) names a cluster that clusters does not list)"
            ),
        ),
        (
            BASE.replace("A->B.enabled", "A->B.emit.checkpoints.enabled") + "emit.heartbeats.enabled = false",
            ": No source->target replication flows. (add A->B.enabled = true)",
        ),
        (
            BASE.replace("A->B.enabled", "enabled") + "emit.heartbeats.enabled = false",
            (
                ": No source->target replication flows. (a top-level enabled applies only to flows that "
                "emit heartbeats; add A->B.enabled = true)"
            ),
        ),
        (
            BASE + "A->B.topics.exclude = a # not a",
            ":5: A->B.topics.exclude: '# not a' after the value is part of it (put the comment on a line of its own)",
        ),
        (BASE + "A -> B.topics = x", ":5: A: a key ends at the first space (write A->B.topics = x)"),
        (
            _ALIASES + "A/1, B\nA/1->B.enabled = true",
            (
                ":3: clusters: alias 'A/1' is a source cluster, so it becomes part of topic names "
                "(use letters, digits, dots, underscores and dashes)"
            ),
        ),
        (
            _ALIASES + "A->, B\nB->A->.enabled = true",
            ":3: clusters: alias 'A->' may contain neither -> nor control characters",
        ),
        (
            _ALIASES + "A, B\\tC\nA->B\\tC.enabled = true",
            ":3: clusters: alias 'B\\tC' may contain neither -> nor control characters",
        ),
        (
            _ALIASES + "A, B C\nA->B\\ C.enabled = true",
            (
                ":3: clusters: alias 'B C' cannot be part of a topic's name, as in "
                "mm2-offset-syncs.<alias>.internal (add A->B\\ C.offset-syncs.topic.location = target)"
            ),
        ),
        (
            (
                "clusters = A, B C\nA.bootstrap.servers = a:1\nA->B\\ C.enabled = true\n"
                "emit.heartbeats.enabled = false\noffset-syncs.topic.location = target"
            ),
            ":1: B C.bootstrap.servers: cluster B C has no bootstrap.servers (add B\\ C.bootstrap.servers = host:port)",
        ),
    ],
)
def test_a_file_that_cannot_be_used_says_why(config: ConfigFile, text: str, expected: str) -> None:
    """Each mistake ends in one line: where, which key, what is wrong, what to try."""
    assert [f"mm2.properties{expected}"] == list(dict.fromkeys(config.refusals(text, base="")))


@pytest.mark.parametrize(
    ("targets", "hint"),
    [
        (["C"], "clusters names A, B"),
        (["b"], "clusters names A, B"),
        (["A"], "enabled are A->B; none of them has the target --clusters A"),
    ],
)
def test_wrong_targets_are_refused(config: ConfigFile, targets: list[str], hint: str) -> None:
    """An unknown alias in --clusters, or one that no enabled flow ends at, is a problem."""
    (problem,) = config.problems("emit.heartbeats.enabled = false", targets=targets)

    assert hint in problem.hint


def test_a_misspelt_target_is_told_the_nearest_alias(config: ConfigFile) -> None:
    """An unknown alias names the one it resembles."""
    text = BASE.replace("A", "west-1").replace("B", "east-1")
    (problem,) = config.problems(text, targets=["west_1"], base="")

    assert problem.hint.startswith("did you mean west-1?")


def test_a_missing_file_is_one_clear_problem(tmp_path: Path) -> None:
    """A file that is not there, or is a folder, is named with the reason."""
    for path, reason in ((tmp_path / "gone.properties", "No such file"), (tmp_path, "Is a directory")):
        (problem,) = problems_of(load_settings, path)

        assert problem.where == str(path)
        assert reason in problem.message
