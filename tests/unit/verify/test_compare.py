"""The comparison of two sides says what happened to each record, wherever that was."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mm2py.model.flow import TopicPartition
from mm2py.verify import compare as verify
from mm2py.verify.anchors import find_anchor, paired
from mm2py.verify.compare import Comparison
from mm2py.verify.findings import Findings
from mm2py.verify.terms import SOURCE, TARGET, Content, Mark, Passed, Want
from mm2py.verify.values import Counts, Difference, DifferenceKind, Slice


Records = list[tuple[int, Content]]

LENGTH = 300
PART = Slice(0, TopicPartition("t", 0), "A.t", 0, 1 << 60, 0, 1 << 60, proven=1 << 60)


def _mark_of(content: Content) -> Mark:
    timestamp, key, value, headers = content
    return timestamp, hash(key), hash(value), hash(headers)


def _records(count: int = LENGTH) -> Records:
    """Records that can be told apart, several with one timestamp, at offsets from 1000 on."""
    return [
        (1000 + n, (5_000 + n // 7, b"k%d" % (n % 11), b"value %d" % n, (("h", b"%d" % (n % 3)),)))
        for n in range(count)
    ]


def _renumbered(contents: Sequence[Content], start: int = 0) -> Records:
    return list(enumerate(contents, start))


def _copy(source: Records) -> list[Content]:
    return [content for _, content in source]


@attrs.frozen
class Found:
    counts: Counts
    differences: list[Difference]
    is_aligned: bool
    foreign_to: int


def _walk(
    comparison: Comparison, sides: tuple[Records, Records], chance: random.Random, search: Callable[[], list[int]]
) -> None:
    """Feed both sides in pieces; *search* returns where they go on."""
    at = [0, 0]
    while (want := comparison.advance()) is not Want.NOTHING:
        if want is Want.SEARCH:
            at = search()
            continue
        side = want.value
        piece = sides[side][at[side] : at[side] + chance.choice((1, 3, 50, 500))]
        at[side] += len(piece)
        if piece:
            comparison.feed(side, [offset for offset, _ in piece], [content for _, content in piece])
        else:
            comparison.end(side)


def _compare(
    source: Records, target: Records, *, part: Slice = PART, seed: int = 0, ignore_timestamps: bool = False
) -> Found:
    """Walk both sides, fed in pieces of any size, as batches come."""
    comparison = Comparison(part, _mark_of, ignore_timestamps=ignore_timestamps)
    _walk(comparison, (source, target), random.Random(seed), lambda: pytest.fail("a search was asked for"))
    if comparison.findings.has_extra:
        recognise = comparison.findings.recogniser(_mark_of)
        recognise(content for _, content in source)
    findings = comparison.findings
    return Found(findings.counts(), findings.differences, comparison.is_aligned, findings.foreign_to)


def _differing(counts: Counts) -> dict[str, int]:
    names = ("missing", "repeated", "foreign", "changed", "out_of_order", "pending", "only_source", "only_target")
    return {name: getattr(counts, name) for name in names if getattr(counts, name)}


@given(st.integers(0, 500), st.integers(0, 9))
def test_a_sound_copy_is_equal_however_it_is_batched(count: int, seed: int) -> None:
    """Nothing is found where nothing is wrong."""
    source = _records(count)
    found = _compare(source, _renumbered(_copy(source)), seed=seed)

    assert found.counts == Counts(source=count, target=count, equal=count)
    assert found.is_aligned


@given(at=st.integers(0, LENGTH - 1), seed=st.integers(0, 9))
def test_a_missing_record(at: int, seed: int) -> None:
    """One that is not at the target is missing, with the offset at which it should be."""
    source = _records()
    contents = _copy(source)
    del contents[at]
    found = _compare(source, _renumbered(contents), seed=seed)

    assert _differing(found.counts) == {"missing": 1}
    (difference,) = found.differences
    assert (difference.kind, difference.upstream) == (DifferenceKind.MISSING, 1000 + at)
    assert difference.downstream == (at if at < LENGTH - 1 else None)


@given(at=st.integers(0, LENGTH - 1), to=st.integers(0, LENGTH), seed=st.integers(0, 9))
def test_a_repeated_record(at: int, to: int, seed: int) -> None:
    """One that the target holds twice is repeated, wherever the second one is."""
    source = _records()
    contents = _copy(source)
    contents.insert(to, contents[at])
    found = _compare(source, _renumbered(contents), seed=seed)

    # Ahead of the record itself, either of the two may count as the repeated one.
    assert _differing(found.counts) in ({"repeated": 1}, {"repeated": 1, "out_of_order": 1})
    assert found.counts.equal >= LENGTH - 1


@given(at=st.integers(0, LENGTH), seed=st.integers(0, 9))
def test_a_foreign_record(at: int, seed: int) -> None:
    """A record that the source does not have was written by another producer."""
    source = _records()
    contents = _copy(source)
    contents.insert(at, (1, b"other", b"other", ()))
    found = _compare(source, _renumbered(contents), seed=seed)

    assert _differing(found.counts) == {"foreign": 1}
    assert [(it.kind, it.downstream) for it in found.differences] == [(DifferenceKind.FOREIGN, at)]
    assert found.foreign_to == at + 1


@example(one=LENGTH - 4, other=LENGTH - 1, seed=2)
@given(one=st.integers(0, LENGTH - 1), other=st.integers(0, LENGTH - 1), seed=st.integers(0, 9))
def test_two_swapped_records(one: int, other: int, seed: int) -> None:
    """Records that changed places are out of order, and nothing else, near each other or far apart."""
    source = _records()
    contents = _copy(source)
    contents[one], contents[other] = contents[other], contents[one]
    found = _compare(source, _renumbered(contents), seed=seed)

    wanted = {1, 2} if one != other else {0}
    assert _differing(found.counts).keys() <= {"out_of_order"}
    assert found.counts.out_of_order in wanted
    assert {it.kind for it in found.differences} <= {DifferenceKind.OUT_OF_ORDER}


CHANGES: dict[str, Callable[[Content], Content]] = {
    "timestamp": lambda it: (it[0] + 1_000_000, *it[1:]),
    "key": lambda it: (it[0], b"another", it[2], it[3]),
    "value": lambda it: (it[0], it[1], b"V" + (it[2] or b"")[1:], it[3]),
    "headers": lambda it: (*it[:3], (("h", b"changed"),)),
}


@pytest.mark.parametrize("part", CHANGES)
@given(at=st.integers(0, LENGTH - 1), seed=st.integers(0, 9))
def test_a_changed_record(part: str, at: int, seed: int) -> None:
    """One of which something is different is changed, and it is said what, with both offsets."""
    source = _records()
    contents = _copy(source)
    contents[at] = CHANGES[part](contents[at])
    found = _compare(source, _renumbered(contents, 70), seed=seed)

    assert _differing(found.counts) == {"changed": 1}
    assert found.differences == [Difference(DifferenceKind.CHANGED, 1000 + at, 70 + at, (part,))]
    plural = part if part == "headers" else f"{part}s"
    assert getattr(found.counts, f"changed_{plural}") == 1


@settings(max_examples=300)
@given(
    st.lists(st.tuples(st.sampled_from("mrfc"), st.integers(0, LENGTH - 1)), max_size=12, unique_by=lambda it: it[1])
)
def test_many_things_at_once_are_all_counted(plants: list[tuple[str, int]]) -> None:
    """What is at the source and at the target adds up, and nothing that was planted is overlooked."""
    source = _records()
    contents: list[Content | None] = list(_copy(source))
    inserted: dict[int, Content] = {}
    for what, at in plants:
        content = source[at][1]
        if what == "m":
            contents[at] = None
        elif what == "c":
            contents[at] = CHANGES["value"](content)
        else:
            inserted[at] = content if what == "r" else (2, b"x", b"foreign %d" % at, ())
    target = [it for at, content in enumerate(contents) for it in (content, inserted.get(at)) if it is not None]
    counts = _compare(source, _renumbered(target)).counts

    assert counts.source == counts.equal + counts.missing + counts.changed + counts.out_of_order
    assert counts.target == counts.equal + counts.repeated + counts.foreign + counts.changed + counts.out_of_order
    assert bool(plants) == bool(counts.differing)
    assert counts.repeated == sum(what == "r" for what, _ in plants)


@given(st.lists(st.sampled_from((b"a", b"b")), max_size=60), st.lists(st.sampled_from((b"a", b"b")), max_size=60))
def test_records_that_cannot_be_told_apart_add_up(ours: list[bytes], theirs: list[bytes]) -> None:
    """Whatever both sides hold, each record is counted once, and the same records mean equal."""
    source = _renumbered([(0, None, value, ()) for value in ours])
    target = _renumbered([(0, None, value, ()) for value in theirs])
    counts = _compare(source, target).counts

    assert counts.source == len(ours) == counts.equal + counts.missing + counts.changed + counts.out_of_order
    extra = counts.repeated + counts.foreign
    assert counts.target == len(theirs) == counts.equal + extra + counts.changed + counts.out_of_order
    assert (ours == theirs) == (counts.differing == 0)


@pytest.mark.parametrize(
    ("foreign", "proven", "expected"),
    [
        (0, 1200, {"pending": 100}),
        (0, None, {"pending": 100}),
        (0, 1250, {"missing": 50, "pending": 50}),
        (1, 1200, {"foreign": 1, "pending": 100}),
    ],
)
def test_what_is_not_mirrored_yet_is_not_missing(foreign: int, proven: int | None, expected: dict[str, int]) -> None:
    """Records behind the flow's position may still come, also if the target ends with another record; those before it
    were there once.
    """
    source = _records()
    target = _renumbered([*_copy(source)[:200], *[(1, b"x", b"foreign", ())] * foreign])

    assert _differing(_compare(source, target, part=attrs.evolve(PART, proven=proven)).counts) == expected


@pytest.mark.parametrize(("ours", "theirs", "name"), [(100, 0, "only_target"), (0, 100, "only_source")])
def test_what_retention_removed_on_one_side_is_neither_missing_nor_foreign(ours: int, theirs: int, name: str) -> None:
    """Where one side's log begins later, what the other one holds before that cannot be compared."""
    source = _records()
    part = attrs.evolve(PART, source_has_expired=bool(ours), target_has_expired=bool(theirs))
    counts = _compare(source[ours:], _renumbered(_copy(source)[theirs:]), part=part).counts

    assert _differing(counts) == {name: 100}
    assert counts.equal == LENGTH - 100


@pytest.mark.parametrize("changes_first", [False, True])
def test_a_slice_finds_its_beginning_and_its_end(changes_first: bool) -> None:
    """What the target holds before and behind the slice's records is of other slices."""
    contents = _copy(_records())
    source = _records()[50:250]
    if changes_first:
        contents[50] = CHANGES["value"](contents[50])
    part = attrs.evolve(PART, downstream_from=None, proven=1250, ends_with_source=True)
    found = _compare(source, _renumbered(contents), part=part)

    assert _differing(found.counts) == ({"changed": 1} if changes_first else {})
    assert found.counts.target == 200


def test_a_changed_last_record_of_a_slice() -> None:
    """Although what follows at the target belongs to the next slice, the last record is compared with its own."""
    contents = _copy(_records(3_000))
    contents[99] = CHANGES["value"](contents[99])
    source = _records()[:100]
    part = attrs.evolve(PART, proven=1100, ends_with_source=True)
    found = _compare(source, _renumbered(contents), part=part)

    assert _differing(found.counts) == {"changed": 1}


def test_timestamps_of_a_target_that_stamps_records() -> None:
    """Where the target's brokers stamp records, all else is compared."""
    source = _records()
    contents = [(9_999, *rest) for _, *rest in _copy(source)]
    contents[30] = CHANGES["headers"](contents[30])
    found = _compare(source, _renumbered(contents), ignore_timestamps=True)

    assert _differing(found.counts) == {"changed": 1}
    assert found.differences[0].parts == ("headers",)


def test_a_first_record_that_differs_says_that_the_slices_may_not_meet() -> None:
    """Where the index of runs is wrong, the first records of a slice are not each other's."""
    source = _records()

    assert not _compare(source, _renumbered(_copy(source)[1:])).is_aligned
    assert _compare(source, _renumbered([*_copy(source)[:5], *_copy(source)[6:]])).is_aligned


def test_a_search_is_asked_for_where_nothing_is_within_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """For more records on one side than can be remembered the comparison asks for a search, then goes on."""
    monkeypatch.setattr(verify, "REACH", 256)
    many = _records(2_000)
    few = [*_copy(many)[:100], *_copy(many)[1_500:]]

    def compare(sides: tuple[Records, Records], longer: int) -> Findings:
        comparison = Comparison(PART, _mark_of)

        def search() -> list[int]:
            near = comparison.window(longer)
            further = 1_400 - len(near)
            if longer == SOURCE:
                comparison.jump(Passed((near, []), (further, 0)), 100)
                return [1_500, 100]
            comparison.jump(Passed(([], near), (0, further)), 1_500)
            return [100, 1_500]

        _walk(comparison, sides, random.Random(0), search)
        return comparison.findings

    lacking = compare((many, _renumbered(few)), SOURCE)
    foreign = compare((_renumbered(few), _renumbered(_copy(many))), TARGET)

    assert lacking.counts() == Counts(source=2_000, target=600, equal=600, missing=1_400)
    assert foreign.counts() == Counts(source=600, target=2_000, equal=600, foreign=1_400)
    assert (lacking.foreign_to, foreign.foreign_to) == (0, 1_500)


@given(st.permutations(range(12)))
def test_as_few_as_possible_have_moved(order: list[int]) -> None:
    """What is in order stays; every record is paired once."""
    marks = [_mark_of((n, None, b"%d" % n, ())) for n in range(12)]
    pairs, moved = paired(marks, [marks[n] for n in order])

    assert sorted(i for i, _ in (*pairs, *moved)) == list(range(12))
    assert [j for _, j in pairs] == sorted(j for _, j in pairs)
    assert (order == list(range(12))) == (not moved)


def test_an_anchor_is_the_nearest_place() -> None:
    """A single record that happens to be on both sides is none."""
    marks = [_mark_of((n, None, b"%d" % n, ())) for n in range(20)]

    assert find_anchor(marks, marks[3:], (False, False)) == (3, 0)
    assert find_anchor([marks[0], *marks[5:]], [marks[9], marks[0], *marks[12:]], (False, False)) == (8, 2)
    assert find_anchor(marks[:2], marks[1:3], (False, False)) is None
    assert TARGET == 1
