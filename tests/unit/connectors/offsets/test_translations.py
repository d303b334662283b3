"""A flow's translations: what of what was kept is used, what bounds them, and what is to be written."""

from __future__ import annotations

import attrs
import pytest

from mm2py.connectors.offsets.translations import CopiedTopics, Translations
from mm2py.core.offsets import translation as kept_runs
from mm2py.core.offsets.translation import Precision, Translated, Untranslated
from mm2py.model.epoch import Ended, PartitionOutcome, Run
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync
from mm2py.model.positions import Position
from mm2py.model.run_chunk import KeptChunk


SOURCE, REMOTE = TopicPartition("orders", 0), TopicPartition("A.orders", 0)
REMOTE_OF = {SOURCE: "A.orders"}


def made(*, flow_runs: int = 1000, partition_runs: int = 1000) -> Translations:
    return Translations(flow_runs=flow_runs, partition_runs=partition_runs)


def outcome(*runs: Run, position: int, downstream: int | None = None, is_unsure: bool = False) -> PartitionOutcome:
    if runs and downstream is None:
        downstream = runs[-1].downstream + runs[-1].length - 1
    return PartitionOutcome(SOURCE, position, downstream, is_unsure, runs=runs)


def begun(*, position: int = 0, downstream: int | None = -1, topic_id: str | None = "one") -> Translations:
    translations = made()
    translations.adopt({SOURCE: Position(SOURCE, position, downstream, topic_id)}, REMOTE_OF)
    return translations


def restarted(
    before: Translations, *, position: int, downstream: int | None, topic_id: str | None = "one"
) -> Translations:
    """Return the translations of the next life, which finds what *before* has to write."""
    after = made()
    after.load(before.take_changes())
    after.adopt({SOURCE: Position(SOURCE, position, downstream, topic_id)}, REMOTE_OF)
    return after


def test_no_translation_if_not_started() -> None:
    """Before positions are read there are no answers (OffsetSyncStoreTest.testNoTranslationIfStoreNotStarted)."""
    assert made().downstream(SOURCE, 5) is Untranslated.NOT_READY
    assert made().upstream(REMOTE, 5) is Untranslated.NOT_READY


def test_no_translation_if_not_mirrored() -> None:
    """A partition that is not mirrored has none (OffsetSyncStoreTest.testNoTranslationIfNoOffsetSync)."""
    translations = begun()

    assert translations.downstream(TopicPartition("other", 0), 5) is Untranslated.NOT_MIRRORED
    assert translations.upstream(SOURCE, 5) is Untranslated.NOT_MIRRORED
    assert translations.source_of(REMOTE) == SOURCE


def test_outcomes_fill_it() -> None:
    """What an epoch acknowledged is translated at once, both ways."""
    translations = begun()
    translations.account(outcome(Run(0, 0, 10), Run(12, 10, 5), position=18), 0)

    assert translations.downstream(SOURCE, 11) == Translated(10)
    assert translations.upstream(REMOTE, 10) == Translated(12)
    assert translations.downstream(SOURCE, 18) == Translated(15)


def test_what_was_kept_is_exact_in_the_next_life() -> None:
    """A restart changes no answer."""
    first = begun()
    first.account(outcome(Run(0, 0, 10), Run(12, 10, 5), position=18), 0)
    second = restarted(first, position=18, downstream=14)

    assert [second.downstream(SOURCE, at) for at in range(20)] == [first.downstream(SOURCE, at) for at in range(20)]
    assert second.take_changes() == []


def test_a_second_life_in_one_process_keeps_what_is_in_memory() -> None:
    """A group that failed reads what was stored again; what it had learnt since is not given up for it."""
    translations = begun()
    translations.account(outcome(Run(0, 0, 10), position=10), 0)
    kept = translations.take_changes()
    translations.account(outcome(Run(12, 10, 5), position=18), 10)
    translations.load(kept)
    translations.adopt({SOURCE: Position(SOURCE, 10, 9, "one")}, REMOTE_OF)

    assert translations.downstream(SOURCE, 14) == Translated(12)
    assert [change.number for change in translations.take_changes()] == [0]


def test_a_second_life_takes_over_what_another_node_has_stored_since() -> None:
    """
    A node that was frozen finds what others copied meanwhile: kept is what its memory ends before, not a gap.

    It goes on at 30, where the other node had come to.
    """
    frozen = begun()
    frozen.account(outcome(Run(0, 0, 10), position=10), 0)
    first = [KeptChunk(it.source, it.number, it.topic_id, it.chunk) for it in frozen.take_changes()]
    other = made()
    other.load(first)
    other.adopt({SOURCE: Position(SOURCE, 10, 9, "one")}, REMOTE_OF)
    other.account(outcome(Run(12, 10, 18), position=30), 10)
    frozen.load(KeptChunk(it.source, it.number, it.topic_id, it.chunk) for it in other.take_changes())
    frozen.adopt({SOURCE: Position(SOURCE, 30, 27, "one")}, REMOTE_OF)
    frozen.account(outcome(Run(30, 28, 5), position=35), 30)

    assert [frozen.downstream(SOURCE, at) for at in (5, 14, 32)] == [Translated(5), Translated(12), Translated(30)]
    assert frozen._runs == 2


def test_a_second_life_gives_up_what_another_node_has_copied_again() -> None:
    """
    The remote topic is created again while this node is frozen: another node copies what the source still has, from
    300 on, and ends.

    What was in memory since would send groups past hundreds of records, of an idle partition for good.
    """
    frozen = begun()
    frozen.account(outcome(Run(0, 0, 1000), position=1000), 0)
    frozen.take_changes()
    other = begun(position=300, downstream=-1)
    other.account(outcome(Run(300, 0, 700), position=1000), 300)
    frozen.load(other.take_changes())
    frozen.adopt({SOURCE: Position(SOURCE, 1000, 699, "one")}, REMOTE_OF)

    assert [frozen.downstream(SOURCE, at) for at in (500, 1000)] == [Translated(200), Translated(700)]
    assert frozen._runs == 1


def test_a_second_life_gives_up_what_an_operator_has_set_back() -> None:
    """It was stopped, and its offsets were altered: what is in memory counts as little as what is stored."""
    translations = begun()
    translations.account(outcome(Run(0, 0, 100), position=100), 0)
    stored = restarted(translations, position=50, downstream=99)
    translations.adopt({SOURCE: Position(SOURCE, 50, 99, "one")}, REMOTE_OF)

    for one in (translations, stored):
        assert one.downstream(SOURCE, 49) == Translated(49)
        assert one.downstream(SOURCE, 80) == Translated(100, Precision.END)


def test_a_second_life_gives_up_what_is_void_by_the_position_alone() -> None:
    """The other node removed what was known, and was killed before it had written where the new copy's records go."""
    frozen = begun()
    frozen.account(outcome(Run(0, 0, 1000), position=1000), 0)
    changes = frozen.take_changes()
    frozen.load(attrs.evolve(change, chunk=None) for change in changes)
    frozen.adopt({SOURCE: Position(SOURCE, 300, -1, "one")}, REMOTE_OF)

    assert frozen.downstream(SOURCE, 500) == Translated(0, Precision.END)


def test_what_was_kept_is_void_as_soon_as_it_is_copied_again() -> None:
    """The position of the new copy is stored, and the daemon killed before it has written where the records go."""
    first = begun()
    first.account(outcome(Run(0, 0, 1000), position=1000), 0)
    second = restarted(first, position=300, downstream=-1)

    assert second.downstream(SOURCE, 500) == Translated(0, Precision.END)


@pytest.mark.parametrize(
    ("position", "downstream", "topic_id"),
    [
        pytest.param(18, 14, "two", id="another topic of the same name"),
        pytest.param(18, 3, "one", id="a target that has lost records since"),
    ],
)
def test_what_was_kept_of_something_else_is_not_used(position: int, downstream: int, topic_id: str) -> None:
    """What is known of a topic, or of a log, that is not there any more is dropped, and removed from the target."""
    first = begun()
    first.account(outcome(Run(0, 0, 10), Run(12, 10, 5), position=18), 0)
    second = restarted(first, position=position, downstream=downstream, topic_id=topic_id)

    assert second.downstream(SOURCE, 5) is Untranslated.TOO_OLD
    assert [change.chunk.starts.tolist() for change in second.take_changes() if change.chunk] == [[]]


def test_a_topic_recreated_while_running_is_forgotten() -> None:
    """A position of another topic id makes everything void."""
    translations = begun()
    translations.account(outcome(Run(0, 0, 10), position=10), 0)
    translations.learn(OffsetSync(SOURCE, 9, 9))
    translations.adopt({SOURCE: Position(SOURCE, 0, 9, "two")}, REMOTE_OF)

    assert translations._runs == 0
    assert translations.downstream(SOURCE, 0) == Translated(10)
    assert translations.downstream(SOURCE, 5) == Translated(10, Precision.END)


def test_what_went_to_a_remote_topic_that_was_created_again_is_forgotten() -> None:
    """A position that names another remote topic is of another copy."""
    translations = made()
    translations.adopt({SOURCE: Position(SOURCE, 0, -1, "one", remote_topic_id="there")}, REMOTE_OF)
    translations.account(outcome(Run(0, 0, 10), position=10), 0)
    translations.adopt({SOURCE: Position(SOURCE, 10, 9, "one")}, REMOTE_OF)
    before = translations.downstream(SOURCE, 4), translations.topics_of(SOURCE)
    translations.adopt({SOURCE: Position(SOURCE, 4, -1, "one", remote_topic_id="again")}, REMOTE_OF)

    assert before == (Translated(4), CopiedTopics("one", "there"))
    assert translations.downstream(SOURCE, 4) == Translated(0)
    assert translations.topics_of(SOURCE) == CopiedTopics("one", "again")
    assert translations.topics_of(TopicPartition("other", 0)) == CopiedTopics()


def test_a_second_life_takes_over_what_another_node_has_stored_of_the_new_topic() -> None:
    """A node sleeps while its topic is created again, and another one copies it: what that has stored stays exact."""
    slept = begun()
    slept.account(outcome(Run(0, 0, 1000), position=1000), 0)
    other = begun(topic_id="two")
    other.account(outcome(Run(0, 0, 59), position=59), 0)
    slept.load(other.take_changes())
    slept.adopt({SOURCE: Position(SOURCE, 59, 58, "two")}, REMOTE_OF)

    assert [slept.downstream(SOURCE, at) for at in (20, 59)] == [Translated(20), Translated(59)]


def test_java_s_position_is_known_by_offset_syncs_only() -> None:
    """Without a downstream offset and without runs, MirrorMaker's rule answers; then runs do from there on."""
    translations = begun(position=100, downstream=None)

    assert translations.downstream(SOURCE, 50) is Untranslated.NOT_MIRRORED
    translations.learn(OffsetSync(SOURCE, 40, 30))
    assert translations.downstream(SOURCE, 50) == Translated(31, Precision.OFFSET_SYNCS)
    assert translations.upstream(REMOTE, 50) == Translated(41, Precision.OFFSET_SYNCS)
    translations.account(outcome(Run(100, 90, 10), position=110), 100)
    assert translations.downstream(SOURCE, 50) == Translated(31, Precision.OFFSET_SYNCS)
    assert translations.downstream(SOURCE, 105) == Translated(95)


def test_a_matched_position_tells_where_it_is() -> None:
    """Once a resume has found an idle partition's place, a group at its end is translated."""
    translations = begun(position=100, downstream=None)
    translations.account(outcome(position=100, downstream=89), 100)

    assert translations.downstream(SOURCE, 100) == Translated(90)
    assert translations.downstream(SOURCE, 99) is Untranslated.TOO_OLD


def test_an_unsure_end_is_not_believed() -> None:
    """While more may have arrived than is known, the end is not taken for where the next record goes."""
    translations = begun(position=100, downstream=None)
    translations.account(outcome(position=100, downstream=89, is_unsure=True), 100)

    assert translations.downstream(SOURCE, 100) is Untranslated.NOT_MIRRORED


@pytest.mark.parametrize(("log_start", "position"), [(60, 40), (60, 60), (None, 40)])
def test_a_group_skips_nothing_of_what_was_copied_unheard_of(log_start: int | None, position: int) -> None:
    """
    A worker copied 20 to 49, and was lost before that was known. The source removed what is before 60, so that the
    resume proves nothing: a group at 30 is not sent to the target's end, which is behind what it has not read.
    """
    translations = begun()
    translations.account(outcome(Run(0, 0, 20), position=20), 0)
    unproven = outcome(position=position, downstream=49, is_unsure=True)
    translations.account(attrs.evolve(unproven, ended=Ended.UNPROVEN, known_from=log_start), position)
    translations.account(outcome(position=position, downstream=49), position)
    for known in (translations, restarted(translations, position=position, downstream=49)):
        known.account(outcome(position=position, downstream=49), position)

        at_rest = known.downstream(SOURCE, 60)
        assert known.downstream(SOURCE, 30) in (Translated(20, Precision.COARSE), Translated(20, Precision.END))
        assert at_rest == (Translated(50) if log_start else Translated(20, Precision.END))
        known.account(outcome(Run(60, 50, 5), position=65), 60)
        assert known.downstream(SOURCE, 30) == Translated(20, Precision.COARSE)
        assert [known.downstream(SOURCE, at) for at in (60, 65)] == [Translated(50), Translated(55)]


def test_syncs_never_lead_past_what_is_known() -> None:
    """An offset sync of another life of the target is cut to the end."""
    translations = begun()
    translations.account(outcome(Run(0, 0, 10), position=10), 0)
    translations.account(outcome(Run(50, 40, 5), position=55), 50)
    translations.learn(OffsetSync(SOURCE, 20, 900))

    assert translations.downstream(SOURCE, 30) == Translated(45, Precision.OFFSET_SYNCS)


def test_the_flow_s_bound_falls_on_the_longest() -> None:
    """Beyond the flow's bound the partition with most runs becomes coarser, the others stay exact."""
    other = TopicPartition("few", 0)
    translations = made(flow_runs=100)
    translations.adopt({tp: Position(tp, 0, -1) for tp in (SOURCE, other)}, {**REMOTE_OF, other: "A.few"})
    few = tuple(Run(n * 2, n, 1) for n in range(10))
    translations.account(attrs.evolve(outcome(*few, position=20), source=other), 0)
    translations.account(outcome(*(Run(n * 2, n, 1) for n in range(200)), position=400), 0)

    assert translations._runs <= 100
    assert [translations.downstream(other, n * 2) for n in range(10)] == [Translated(n) for n in range(10)]
    assert translations.downstream(SOURCE, 398) == Translated(199)


def test_very_many_partitions_pass_the_bound_rather_than_hang() -> None:
    """A run for each of more partitions than the bound is as little as can be."""
    sources = [TopicPartition("orders", n) for n in range(20)]
    translations = made(flow_runs=10)
    translations.adopt({tp: Position(tp, 0, -1) for tp in sources}, dict.fromkeys(sources, "A.orders"))
    for tp in sources:
        translations.account(attrs.evolve(outcome(Run(0, 0, 5), position=5), source=tp), 0)

    assert translations._runs == 20


def test_only_changes_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks that are full are written once; what became fewer is removed first; what failed is given again."""
    monkeypatch.setattr(kept_runs, "CHUNK_RUNS", 4)
    translations = made(partition_runs=12)
    translations.adopt({SOURCE: Position(SOURCE, 0, -1)}, REMOTE_OF)
    written = []
    for n in range(13):
        translations.account(outcome(Run(n * 2, n, 1), position=n * 2 + 1), n * 2 - 1 if n else 0)
        changes = translations.take_changes()
        if n == 5:
            translations.put_back(changes)
            changes = translations.take_changes()
        written.append([(change.number, change.chunk is not None) for change in changes])

    assert written[:4] == [[(0, True)]] * 4
    assert written[4] == [(0, True), (1, True)]  # the first says now that it covers up to the second
    assert written[5] == [(0, True), (1, True)]
    assert written[6] == [(1, True)]
    assert written[12] == [(0, True), (1, True), (2, True)]
    assert translations.take_changes() == []


def test_what_is_not_mirrored_at_present_is_kept() -> None:
    """A topic that was taken out of the filter may come back: what is kept of it stays."""
    first = begun()
    first.account(outcome(Run(0, 0, 10), position=10), 0)
    second = made()
    second.load(KeptChunk(it.source, it.number, it.topic_id, it.chunk) for it in first.take_changes())
    second.adopt({}, {})
    nothing = second.take_changes()
    second.adopt({SOURCE: Position(SOURCE, 10, 9, "one")}, REMOTE_OF)

    assert nothing == []
    assert second.downstream(SOURCE, 5) == Translated(5)


def test_what_is_forgotten_is_removed() -> None:
    """A position that an operator removed takes what is kept with it."""
    first = begun()
    first.account(outcome(Run(0, 0, 10), position=10), 0)
    second = made()
    second.load(KeptChunk(it.source, it.number, it.topic_id, it.chunk) for it in first.take_changes())
    second.forget(SOURCE)

    assert second.take_changes() == [KeptChunk(SOURCE, 0)]
