"""Both sides of a copy put beside each other, whatever compaction, retention and other writers did to them."""

from __future__ import annotations

import attrs
from hypothesis import given
from hypothesis import strategies as st

from mm2py.core.source.alignment import Alignment
from mm2py.model.epoch import Run


@attrs.frozen
class Log:
    """What was written, offset by offset: a key and a number that no other record has."""

    keys: tuple[int, ...]

    def left(self, cleaned_to: int) -> list[int]:
        """Return the offsets that compaction leaves which has seen the records before *cleaned_to*."""
        last = {key: offset for offset, key in enumerate(self.keys[:cleaned_to])}
        return [offset for offset, key in enumerate(self.keys) if offset >= cleaned_to or last[key] == offset]


def aligned(source: list[int], target: dict[int, int], *, position: int, target_end: int) -> Alignment:
    """Hold the target's records by offset, meet the source's, which are known by their offsets."""
    alignment = Alignment(position, position - 1, target_end)
    for offset, number in sorted(target.items()):
        alignment.hold(offset, number)
    for offset in source:
        if offset >= position and not alignment.meet(offset, offset):
            break
    return alignment


logs = st.lists(st.integers(0, 5), min_size=1, max_size=40).map(lambda keys: Log(tuple(keys)))


@given(logs, st.data())
def test_compaction_on_either_side_hides_nothing(log: Log, data: st.DataObject) -> None:
    """Wherever the copy stopped and whatever was removed since, it goes on with the first one not copied."""
    written = len(log.keys)
    copied = data.draw(st.integers(1, written), label="copied")
    position = data.draw(st.integers(0, copied - 1), label="position")
    source = log.left(data.draw(st.integers(0, written), label="source cleaned to"))
    # The newest segment is never compacted.
    kept = Log(log.keys[:copied]).left(data.draw(st.integers(0, copied - 1), label="target cleaned to"))
    target = {offset: offset for offset in kept if offset >= position}
    alignment = aligned(source, target, position=position, target_end=copied)
    found = alignment.concluded(written)

    assert found is not None
    assert found <= copied
    assert [it for it in source if it >= found] == [it for it in source if it >= copied]
    assert all(run.upstream == run.downstream for run in alignment.runs)


@given(logs, st.data())
def test_what_another_producer_wrote_is_not_explained_away(log: Log, data: st.DataObject) -> None:
    """If the source has lost nothing, a record that it does not have proves that another producer writes."""
    written = len(log.keys)
    at = data.draw(st.integers(0, written), label="another producer's")
    numbers = [*range(at), -1, *range(at, written)]
    numbers = numbers[: data.draw(st.integers(at + 1, written + 1), label="end")]
    target = dict(enumerate(numbers))
    alignment = aligned(list(range(written)), target, position=0, target_end=len(numbers))

    assert alignment.concluded(written) is None


def test_retention_at_the_target_leaves_its_last_records_to_compare() -> None:
    """The target's first records were deleted: those of the source that they came from are counted, not compared."""
    target = {offset: offset for offset in range(6, 10)}
    alignment = aligned(list(range(20)), target, position=0, target_end=10)

    assert alignment.concluded(20) == 10
    assert list(alignment.runs) == [Run(6, 6, 4)]


def test_all_that_was_copied_is_gone_at_the_source() -> None:
    """Compaction kept only what came later; nothing is alike, and nothing that is left was copied."""
    target = {offset: offset for offset in range(10)}
    alignment = aligned([12, 15, 19], target, position=0, target_end=10)

    assert alignment.concluded(20) == 0
    assert not alignment.runs


def test_an_equal_record_further_on_is_not_taken_for_the_one_that_was_copied() -> None:
    """A record that looks like one of the target's is not its original where a record between them was not copied."""
    alignment = Alignment(position=0, downstream=-1, target_end=3)
    for offset, digest in enumerate((7, 8, 9)):
        alignment.hold(offset, digest)
    source = {0: 7, 2: 1, 3: 9, 4: 5}
    goes_on = [alignment.meet(offset, digest) for offset, digest in source.items() if offset < 3]

    assert goes_on == [True, False]
    assert alignment.concluded(5) is None
