"""All candidates are given the same flow."""

from pathlib import Path

import pytest

from bench import go
from bench.candidates import Candidate, FlowSettings, Goal, as_properties
from bench.shapes import Codec


tuned = pytest.mark.parametrize("candidate", [Candidate.JAVA_TUNED, Candidate.GO], ids=lambda it: it.value)


def flow(codec: Codec = Codec.NONE, goal: Goal = Goal.THROUGHPUT) -> FlowSettings:
    return FlowSettings("a7", "b7", "localhost:1", "localhost:2", "orders", codec, 2, goal)


def test_mm2py_and_java_get_the_same_file() -> None:
    """Nothing is set for one that is not set for the other."""
    assert Candidate.MM2PY.properties(flow()) == Candidate.JAVA.properties(flow())


@tuned
def test_who_is_tuned_gets_more_client_settings_only(candidate: Candidate) -> None:
    """What it has more than the others are its source consumer's and its target producer's settings."""
    plain, more = (each.properties(flow()) for each in (Candidate.JAVA, candidate))
    added = more.keys() - plain.keys()

    assert plain.items() <= more.items()
    assert added
    assert all(key.startswith(("a7.consumer.", "b7.producer.")) for key in added)


@pytest.mark.parametrize(("source", "target"), [(Codec.NONE, "none"), (Codec.LZ4, "lz4"), (Codec.ZSTD, "lz4")], ids=str)
@tuned
def test_who_is_tuned_compresses_what_was_compressed(candidate: Candidate, source: Codec, target: str) -> None:
    """A compressed source stays compressed, in the codec that is fastest."""
    assert candidate.properties(flow(source))["b7.producer.compression.type"] == target


@tuned
def test_who_is_tuned_does_not_linger_when_latency_is_measured(candidate: Candidate) -> None:
    """Each goal has the tuning that an operator with that goal would choose."""
    lingers = [
        candidate.properties(flow(goal=goal))["b7.producer.linger.ms"] for goal in (Goal.THROUGHPUT, Goal.LATENCY)
    ]

    assert lingers == ["5", "0"]


def test_go_reads_no_setting_that_it_is_not_given() -> None:
    """Each client setting that the source in Go names is in its file, and the other way round."""
    given = {key.partition(".")[2] for key in Candidate.GO.properties(flow()) if key.startswith(("a7.c", "b7.p"))}
    source = (go.SOURCES / "main.go").read_text()

    assert {
        f"{client}.{name}" for client in ("consumer", "producer") for name in _quoted_after(source, f"{client}+")
    } == given


def _quoted_after(text: str, word: str) -> list[str]:
    return [part.split('"')[1] for part in text.split(word)[1:]]


def test_go_is_a_program_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the configuration file as the others do."""
    monkeypatch.setattr(go, "binary", lambda: Path("/cache/go-mirror"))

    assert Candidate.GO.command(Path("/run/mm2.properties")) == ["/cache/go-mirror", "/run/mm2.properties"]


def test_mm2py_without_compiled_code_differs_in_nothing_else() -> None:
    """The same command and the same file; the compiled code is switched off in the environment."""
    plain, pure = Candidate.MM2PY, Candidate.PURE
    file = Path("mm2.properties")

    assert (pure.command(file), pure.properties(flow())) == (plain.command(file), plain.properties(flow()))
    assert pure.environment() == plain.environment() | {"MM2PY_NATIVE": "0"}


def test_file_has_one_line_per_key() -> None:
    """The properties file is plain ``key = value`` lines."""
    assert as_properties({"clusters": "a, b", "a->b.enabled": "true"}) == "clusters = a, b\na->b.enabled = true\n"
