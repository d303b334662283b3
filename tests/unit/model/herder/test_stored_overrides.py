"""The bytes of orders: what is written is read, and what cannot be read to the last member is refused."""

from __future__ import annotations

import json
from typing import Any

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import Overrides, Pause, RateLimit, Wanted
from mm2py.model.herder.stored_overrides import (
    StoredOverrides,
    decode_overrides,
    encode_overrides,
    overrides_key,
    overrides_topic,
)


FLOW = Flow("A", "B")
_CONNECTORS = st.sampled_from(["MirrorSourceConnector", "MirrorCheckpointConnector", "MirrorHeartbeatConnector"])
_RATES = st.none() | st.floats(min_value=0.01, max_value=1e12)
_LIMITS = st.builds(RateLimit, _RATES, _RATES)
_ORDERS = st.builds(
    Overrides,
    groups=st.dictionaries(_CONNECTORS, st.sampled_from(Wanted)),
    topics=st.frozensets(st.text()),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(), st.integers(0, 2**31 - 1))),
    limit=_LIMITS,
    topic_limits=st.dictionaries(st.text(), _LIMITS),
    config=st.dictionaries(_CONNECTORS, st.dictionaries(st.text(), st.text())),
    put=st.dictionaries(_CONNECTORS, st.dictionaries(st.text(), st.text())),
)


@given(_ORDERS, st.integers(0, 2**63 - 1), st.text(), st.integers(0, 2**63 - 1))
def test_what_is_written_is_read(overrides: Overrides, revision: int, by: str, at_ms: int) -> None:
    """All orders survive, whatever the names are, with who gave them and when."""
    kept = StoredOverrides(overrides, revision, "a1b2", by, at_ms)

    assert decode_overrides(FLOW, encode_overrides(FLOW, kept)) == kept


def test_each_pause_keeps_its_author_and_time() -> None:
    """
    Ann pauses a connector and a topic, Bob another topic, and Cid stops the connector and resumes Ann's topic.

    What an earlier version wrote, without them, was paused by then; it reads what this one writes.
    """
    first = Overrides(groups={"S": Wanted.PAUSED}, topics=frozenset("a")).dated(Overrides(), Pause("ann", 1))
    second = attrs.evolve(first, topics=frozenset("ab")).dated(first, Pause("bob", 2))
    third = attrs.evolve(second, groups={"S": Wanted.STOPPED}, topics=frozenset("b")).dated(second, Pause("cid", 3))
    value = encode_overrides(FLOW, StoredOverrides(second, 2, "m", "bob", 2))
    earlier = {name: member for name, member in json.loads(value).items() if name != "pauses"}
    read, from_earlier = (decode_overrides(FLOW, it).overrides.pauses for it in (value, json.dumps(earlier).encode()))

    assert read == second.pauses == {"S": Pause("ann", 1), "topic a": Pause("ann", 1), "topic b": Pause("bob", 2)}
    assert third.pauses == {"S": Pause("cid", 3), "topic b": Pause("bob", 2)}
    assert set(from_earlier.values()) == {Pause("bob", 2)}


def test_java_takes_the_key_for_nothing_of_its_own() -> None:
    """No word that KafkaConfigBackingStore looks for begins the key, and each flow has its own."""
    key = overrides_key(FLOW).decode()
    words = ("connector-", "task-", "commit-", "target-state-", "restart-connector-", "session-key", "tasks-fencing-")

    assert not key.startswith((*words, "logger-cluster-"))
    assert key != overrides_key(Flow("A", "C")).decode()
    assert overrides_topic("A") == "mm2-configs.A.internal"


def _changed(**members: Any) -> bytes:
    content = json.loads(encode_overrides(FLOW, StoredOverrides(Overrides(), 1, "m", "me", 7)))
    return json.dumps({name: value for name, value in {**content, **members}.items() if value is not ...}).encode()


def _ordering(**members: Any) -> bytes:
    overrides = json.loads(_changed())["overrides"]
    return _changed(overrides={name: value for name, value in {**overrides, **members}.items() if value is not ...})


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "an object is expected"),
        (b"[" * 100_000, "nested too deep"),
        (_changed(revision=2**63), "does not fit into 64 bits"),
        (_ordering(limit={"bytesPerS": float("nan")}), "NaN is no number"),
        (_changed(version=2), "version is 2, this program knows 1"),
        (_changed(flow="A->C"), "about flow 'A->C'"),
        (_changed(revision=...), "has no 'revision'"),
        (_changed(revision="1"), "revision: an integer is expected"),
        (_ordering(sampling={"orders": 0.5}), "overrides 'sampling', which this version does not know"),
        (_ordering(topics=...), "has no 'topics'"),
        (_ordering(topics="orders"), "topics: a list is expected"),
        (_ordering(groups={"MirrorSourceConnector": "asleep"}), "is wanted 'asleep'"),
        (_ordering(limit={"bytesPerS": "fast"}), "a number is expected, found text"),
        (_ordering(limit={"bytesPerHour": 1}), "'bytesPerHour', which this version does not know"),
        (_ordering(config={"MirrorSourceConnector": {"tasks.max": 2}}), "tasks.max: a string is expected"),
    ],
)
def test_half_of_an_order_is_none(value: bytes, why: str) -> None:
    """What this program does not know may be a pause: it is refused with what is the matter."""
    with pytest.raises(ValueError, match=why):
        decode_overrides(FLOW, value)
