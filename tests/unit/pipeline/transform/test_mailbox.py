"""What daemon and query leave each other."""

from __future__ import annotations

from pathlib import Path

from mm2py.model.epoch import PartitionOutcome
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.mailbox import Mailbox
from mm2py.pipeline.transform.results import RangeOutcome
from mm2py.pipeline.transform.sql.sources import pack_payloads, unpack_payloads


_SOURCE = TopicPartition("t", 3)
_OUTCOME = RangeOutcome(PartitionOutcome(_SOURCE, 9, 8, is_unsure=False))


def test_plans_are_numbered_and_the_last_one_counts(tmp_path: Path) -> None:
    """A mailbox holds one plan; empty, its number is 0."""
    mailbox = Mailbox(str(tmp_path))
    before = mailbox.number()
    mailbox.post(1, b"one")
    mailbox.post(2, b"two")

    assert (before, mailbox.number(), mailbox.plan()) == (0, 2, (2, b"two"))


def test_an_answer_is_that_to_its_plan(tmp_path: Path) -> None:
    """The answer to another plan is none."""
    mailbox = Mailbox(str(tmp_path))
    mailbox.answer(1, [_OUTCOME], is_whole=True)
    answer = mailbox.take_answer(1)

    assert mailbox.take_answer(2) is None
    assert answer is not None
    assert (answer.outcomes, answer.is_whole) == ((_OUTCOME,), True)


def test_notes_are_forgotten(tmp_path: Path) -> None:
    """A stretch's note is there until it is forgotten; forgetting what is not there does no harm."""
    mailbox = Mailbox(str(tmp_path))
    mailbox.note(4, _SOURCE, _OUTCOME)
    noted = mailbox.noted(4, _SOURCE)
    mailbox.forget(4, [_SOURCE, TopicPartition("t", 4)])

    assert (noted, mailbox.noted(4, _SOURCE)) == (_OUTCOME, None)


def test_a_note_does_no_harm_where_the_folder_cannot_be_seen(tmp_path: Path) -> None:
    """Executors on other machines have no such folder; what they note is lost, and nothing is made or raised."""
    elsewhere = Mailbox(str(tmp_path / "of-the-daemon"))
    elsewhere.note(4, _SOURCE, _OUTCOME)

    assert elsewhere.noted(4, _SOURCE) is None
    assert not list(tmp_path.iterdir())


def test_payloads_come_apart_as_they_were() -> None:
    """Plans of single partitions, one behind the other."""
    payloads = [b"", b"a", b"\x00" * 300]

    assert unpack_payloads(pack_payloads(payloads)) == (3, payloads)
