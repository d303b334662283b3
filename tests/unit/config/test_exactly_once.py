"""Settings of exactly-once: when it is on, and which flows are refused because it would not hold."""

from __future__ import annotations

import pytest

from tests.support.config_files import ConfigFile


COMMITTED = "A.consumer.isolation.level = read_committed\n"
ENABLED = "B.exactly.once.source.support = enabled\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", False),
        ("B.exactly.once.source.support = disabled", False),
        ("B.exactly.once.source.support = preparing", False),
        ("B.exactly.once.source.support = enabled", True),
        ("B.exactly.once.source.support = ENABLED", True),
        ("A.exactly.once.source.support = enabled", False),
    ],
)
def test_transactions_are_switched_on_for_the_target(config: ConfigFile, line: str, expected: bool) -> None:
    """As in Java the worker's key counts, written for the target, in any case of letters; preparing changes nothing."""
    assert config.flow(line + "\n").source_connector.copying.is_exactly_once is expected


def test_a_transactions_length_is_the_producers(config: ConfigFile) -> None:
    """The producer's own key says when brokers give a transaction up; no round would be done in a second."""
    assert config.flow("").source_connector.copying.transaction_timeout_ms == 60_000
    assert (
        config.flow("B.producer.transaction.timeout.ms = 120000\n").source_connector.copying.transaction_timeout_ms
        == 120_000
    )
    assert (
        config.flow("B.producer.transaction.timeout.ms = 1\n").source_connector.copying.transaction_timeout_ms == 10_000
    )


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (ENABLED, "aborted transactions, too", "add A.consumer.isolation.level = read_committed"),
        (COMMITTED, "without transactions", "add B.exactly.once.source.support = enabled"),
        (
            COMMITTED + "B.exactly.once.source.support = preparing\n",
            "without transactions",
            "add B.exactly.once.source.support = enabled",
        ),
    ],
    ids=["uncommitted-reads", "disabled", "preparing"],
)
def test_required_needs_exactly_once(config: ConfigFile, lines: str, message: str, hint: str) -> None:
    """A flow that is to be exact or not at all is refused, with the line, where it would not be."""
    (problem,) = config.problems("A->B.exactly.once.support = Required\n" + lines)

    assert (problem.where, problem.key) == ("mm2.properties:5", "A->B.exactly.once.support")
    assert message in problem.message
    assert problem.hint == hint


def test_required_runs_where_all_is_set(config: ConfigFile) -> None:
    """With both lines there is nothing to refuse; merely requested is never refused."""
    assert config.flow(
        "A->B.exactly.once.support = required\n" + ENABLED + COMMITTED
    ).source_connector.copying.is_exactly_once
    assert not config.flow("A->B.exactly.once.support = requested\n").source_connector.copying.is_exactly_once
