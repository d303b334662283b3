"""Which configurations of a topic its remote topic shall have."""

from __future__ import annotations

import pytest

from mm2py.config.keys.table import key_named
from mm2py.model.patterns import split_patterns
from mm2py.policy.filters import DefaultConfigPropertyFilter


JAVA_LIST = split_patterns(key_named("config.properties.exclude").default or "")


@pytest.mark.parametrize(
    ("key", "is_taken"),
    [
        ("retention.ms", True),
        ("min.insync.replicas", False),
        ("message.timestamp.type", False),
        ("message.timestamp.before.max.ms", False),
        ("message.timestamp.after.max.ms", False),
        ("max.message.bytes", True),
    ],
)
def test_the_default_list(key: str, is_taken: bool) -> None:
    """MirrorMaker 2's list leaves out the limits on timestamps too, which it calls by the brokers' names."""
    assert DefaultConfigPropertyFilter.of(JAVA_LIST, "target").takes_config(key) is is_taken


def test_a_list_of_one_s_own_decides_about_timestamps() -> None:
    """A list without them lets the limits on timestamps through."""
    assert DefaultConfigPropertyFilter.of(["retention.ms"], "target").takes_config("message.timestamp.after.max.ms")


@pytest.mark.parametrize(("place", "is_taken"), [("source", True), ("target", False)])
def test_whose_defaults_hold(place: str, is_taken: bool) -> None:
    """The source's defaults are copied only when told so."""
    assert DefaultConfigPropertyFilter.of((), place).takes_source_default("retention.ms") is is_taken
