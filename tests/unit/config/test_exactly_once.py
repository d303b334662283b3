"""Settings of exactly-once: when it is on, and which flows are refused because it would not hold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mm2py.config.settings import ConfigError, FlowSettings, load_settings


BASE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
COMMITTED = "A.consumer.isolation.level = read_committed\n"
ENABLED = "B.exactly.once.source.support = enabled\n"
Load = Callable[[str], FlowSettings]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Write lines behind a sound file, load it, and give the flow."""

    def write_and_load(lines: str) -> FlowSettings:
        path = tmp_path / "mm2.properties"
        path.write_text(BASE + lines)
        return next(flow for flow in load_settings(path).flows if str(flow.flow) == "A->B")

    return write_and_load


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
def test_transactions_are_switched_on_for_the_target(load: Load, line: str, expected: bool) -> None:
    """As in Java the worker's key counts, written for the target, in any case of letters; preparing changes nothing."""
    assert load(line + "\n").copying.is_exactly_once is expected


def test_a_transactions_length_is_the_producers(load: Load) -> None:
    """The producer's own key says when brokers give a transaction up; no round would be done in a second."""
    assert load("").copying.transaction_timeout_ms == 60_000
    assert load("B.producer.transaction.timeout.ms = 120000\n").copying.transaction_timeout_ms == 120_000
    assert load("B.producer.transaction.timeout.ms = 1\n").copying.transaction_timeout_ms == 10_000


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
def test_required_needs_exactly_once(load: Load, lines: str, message: str, hint: str) -> None:
    """A flow that is to be exact or not at all is refused, with the line, where it would not be."""
    with pytest.raises(ConfigError) as caught:
        load("A->B.exactly.once.support = Required\n" + lines)

    (problem,) = caught.value.problems
    assert (problem.where, problem.key) == ("mm2.properties:5", "A->B.exactly.once.support")
    assert message in problem.message
    assert problem.hint == hint


def test_required_runs_where_all_is_set(load: Load) -> None:
    """With both lines there is nothing to refuse; merely requested is never refused."""
    assert load("A->B.exactly.once.support = required\n" + ENABLED + COMMITTED).copying.is_exactly_once
    assert not load("A->B.exactly.once.support = requested\n").copying.is_exactly_once
