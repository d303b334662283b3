"""What the command line asks for, and who takes which turn."""

from pathlib import Path

import pytest

from bench.__main__ import make_parser, read_order
from bench.candidates import BEFORE_AT, Candidate, FlowSettings, Goal
from bench.shapes import SHAPES, Codec
from bench.turns import Order


def order(*arguments: str) -> Order:
    parser = make_parser()
    return read_order(parser, parser.parse_args(arguments))


def test_without_arguments_all_kinds_of_copying_are_measured() -> None:
    """All shapes without transforms, all candidates, and latency."""
    usual = order()

    assert [shape.name for shape in usual.shapes] == ["json", "json-lz4", "json-zstd", "single", "wide", "large"]
    assert usual.candidates == (Candidate.MM2PY, Candidate.JAVA, Candidate.JAVA_TUNED)
    assert usual.latency_span.seconds > 0


def test_shapes_and_candidates_can_be_chosen() -> None:
    """Names are separated by commas and keep the given order; all shapes are those with transforms, too."""
    some = order("--shapes", "wide,json", "--only", "java-tuned,mm2py,mm2py-pure,go")

    assert [shape.name for shape in some.shapes] == ["wide", "json"]
    assert some.candidates == (Candidate.JAVA_TUNED, Candidate.MM2PY, Candidate.PURE, Candidate.GO)
    assert order("--shapes", "all").shapes == SHAPES


def test_another_checkout_takes_turns_if_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a candidate like any other, and its code comes from its own checkout."""
    monkeypatch.setenv(BEFORE_AT, "")  # so that it is as before afterwards
    both = order("--before", str(tmp_path), "--only", "mm2py,before")

    assert both.candidates == (Candidate.MM2PY, Candidate.BEFORE)
    assert Candidate.BEFORE.environment()["PYTHONPATH"].split(":")[0] == str(tmp_path)
    assert Candidate.MM2PY.environment()["PYTHONPATH"].split(":")[0] != str(tmp_path)


def test_mm2py_can_have_keys_of_its_own() -> None:
    """A value may have an equals sign; Java, which would not know them, does not get them."""
    keys = order("--set", "spark.master=spark://h:1", "--set", "spark.driver.extraJavaOptions=-Da=b").ours
    flow = FlowSettings("a", "b", "h:1", "h:2", "t", Codec.NONE, 1, Goal.LATENCY, ours=keys)
    added = Candidate.MM2PY.properties(flow).items() - Candidate.JAVA.properties(flow).items()

    assert added == {("spark.master", "spark://h:1"), ("spark.driver.extraJavaOptions", "-Da=b")}


def test_a_shape_can_have_a_number_of_its_own() -> None:
    """The others are in proportion as ever, and the room that is needed follows."""
    some, more = (
        order("--shapes", "json,single", "--records", "1000", *more)
        for more in ([], ["--records-of", "single=5000", "--records-of", "wide=1"])
    )

    assert [more.records_for(shape) for shape in more.shapes] == [1000, 5000]
    assert (some.disk_bytes, more.disk_bytes) == (3 * 1000 * 200, 3 * 5000 * 200)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--records-of", "square=7"],
        ["--records-of", "single=many"],
        ["--only", "mm2py,go", "--shapes", "json,header"],
        ["--shapes", "square"],
        ["--only", "before"],
        ["--only", "flink"],
        ["--runs", "0"],
        ["--shapes", "none", "--latency-seconds", "0"],
    ],
    ids=" ".join,
)
def test_what_makes_no_sense_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unknown names and empty orders end with a usage message."""
    with pytest.raises(SystemExit) as ended:
        order(*arguments)

    assert ended.value.code == 2
    assert "usage:" in capsys.readouterr().err


def test_each_candidate_begins_equally_often() -> None:
    """Over three turns each candidate is first, second and third once."""
    everything = order()
    turns = [everything.turn(number) for number in range(3)]

    assert all(set(place) == set(everything.candidates) for place in zip(*turns, strict=True))


def test_shapes_grow_in_proportion() -> None:
    """Twice the records of the first shape are twice those of every other."""
    assert [shape.records(4_000_000) for shape in SHAPES] == [2 * shape.records(2_000_000) for shape in SHAPES]
