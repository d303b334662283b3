"""All candidates are given the same flow."""

import pytest

from bench.candidates import Candidate, FlowSettings, Goal, as_properties
from bench.shapes import Codec


def flow(codec: Codec = Codec.NONE, goal: Goal = Goal.THROUGHPUT) -> FlowSettings:
    return FlowSettings("a7", "b7", "localhost:1", "localhost:2", "orders", codec, 2, goal)


def test_mm2py_and_java_get_the_same_file() -> None:
    """Nothing is set for one that is not set for the other."""
    assert Candidate.MM2PY.properties(flow()) == Candidate.JAVA.properties(flow())


def test_tuned_java_adds_client_settings_only() -> None:
    """What the tuned one has more than the others are its source consumer's and its target producer's settings."""
    plain, tuned = (each.properties(flow()) for each in (Candidate.JAVA, Candidate.JAVA_TUNED))
    added = tuned.keys() - plain.keys()

    assert plain.items() <= tuned.items()
    assert added
    assert all(key.startswith(("a7.consumer.", "b7.producer.")) for key in added)


@pytest.mark.parametrize(("source", "target"), [(Codec.NONE, "none"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "lz4")], ids=str)
def test_tuned_java_compresses_what_was_compressed(source: Codec, target: str) -> None:
    """A compressed source stays compressed, in the codec that is fastest."""
    assert Candidate.JAVA_TUNED.properties(flow(source))["b7.producer.compression.type"] == target


def test_tuned_java_does_not_linger_when_latency_is_measured() -> None:
    """Each goal has the tuning that an operator with that goal would choose."""
    lingers = [
        Candidate.JAVA_TUNED.properties(flow(goal=goal))["b7.producer.linger.ms"]
        for goal in (Goal.THROUGHPUT, Goal.LATENCY)
    ]

    assert lingers == ["5", "0"]


def test_file_has_one_line_per_key() -> None:
    """The properties file is plain ``key = value`` lines."""
    assert as_properties({"clusters": "a, b", "a->b.enabled": "true"}) == "clusters = a, b\na->b.enabled = true\n"
