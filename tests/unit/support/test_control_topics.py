"""What must never go back at the target: a checker that soaks rely on has to notice when it does."""

from __future__ import annotations

import struct

import pytest

from mm2py.model.checkpoint import Checkpoint, encode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position, encode_position
from tests.support import control_topics
from tests.support.control_topics import ControlTopics, History, steps_back
from tests.support.records import Contents, Record


SOURCE, REMOTE = TopicPartition("t", 0), TopicPartition("A.t", 0)


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def _contents(kind: str, values: list[int]) -> Contents:
    """Return a topic in which what is of that *kind* has had these values."""
    rows: list[tuple[bytes, bytes, list[tuple[str, bytes]]]] = []
    for value in values:
        if kind == "checkpoints":
            rows.append((*encode_checkpoint(Checkpoint("t-late", REMOTE, value, value)), []))
        elif kind == "positions":
            rows.append(encode_position("A", Position(SOURCE, value)))
        else:
            key = struct.pack(">h", 1) + _text("t-late") + _text("A.t") + struct.pack(">i", 0)
            rows.append((key, struct.pack(">hq", 3, value), []))
    return {0: [Record(at, key, value, tuple(headers), 0, 0) for at, (key, value, headers) in enumerate(rows)]}


@pytest.mark.parametrize(
    ("kind", "is_noticed"), [("", False), ("checkpoints", True), ("commits", True), ("positions", True)]
)
async def test_what_goes_back_is_noticed(monkeypatch: pytest.MonkeyPatch, kind: str, *, is_noticed: bool) -> None:
    """One checkpoint, group offset or position that is older than the one before it, of a topic read to its end."""

    async def read(_bootstrap: str, topic: str, **_: object) -> Contents:
        kinds = {"A.checkpoints.internal": "checkpoints", "mm2-offsets.A.internal": "positions"}
        of_topic = kinds.get(topic, "commits")
        return _contents(of_topic, [1, 2, 5, 4 if of_topic == kind else 5, 6])

    monkeypatch.setattr(control_topics, "read_topic", read)
    control = ControlTopics("", "", "t", "A", "A.t")
    noticed = False
    try:
        await control.assert_never_back()
    except AssertionError as error:
        noticed = f"1 of 5 {kind} went back" in str(error)

    assert noticed == is_noticed


def test_one_of_two_numbers_that_goes_back_is_enough() -> None:
    history: History = {("far",): [(1, 1), (2, 2), (3, 1)], ("near",): [(1, 1), (1, 1)]}

    assert list(steps_back(history)) == [(("far",), (2, 2), (3, 1))]
