"""What others say becomes part of an error in bounded length."""

from __future__ import annotations

import pytest

from mm2py.errors import BrokerConnectionError, CorruptBatchError, shortened
from mm2py.model.epoch import PartitionFailure
from mm2py.pipeline.copy_job import EpochLostError
from mm2py.pipeline.transform.results import BadRecord
from mm2py.pipeline.transform.sql.dataframe import TransformRefusedError
from mm2py.wire.error_codes import error_of
from mm2py.wire.security.access import Refused


ENDLESS = "first words " + "and so on " * 100_000 + "last words"


@pytest.mark.parametrize("length", [0, 1, 999, 1_000])
def test_what_is_short_stays_as_it_is(length: int) -> None:
    """Nothing is cut from what fits."""
    assert shortened("x" * length) == "x" * length


def test_both_ends_of_a_long_text_are_kept() -> None:
    """What is wrong stands at the beginning of a JVM's words, and at the end of a stack."""
    assert shortened("a" * 800 + "b" * 700 + "c" * 500) == ("a" * 750 + " … (1000 characters omitted) … " + "c" * 250)


@pytest.mark.parametrize(
    "told",
    [
        error_of(87, "B", "Produce", ENDLESS),
        error_of(29, "B", "Produce", ENDLESS),
        BrokerConnectionError("A", "0", ENDLESS),
        CorruptBatchError("orders", 0, 5, ENDLESS),
        PartitionFailure(ENDLESS).message,
        EpochLostError("A->B/0/7", ENDLESS),
        TransformRefusedError("mask", ENDLESS),
        BadRecord(5, "mask", "ValueError", ENDLESS).message,
        Refused(ENDLESS, "").cause,
    ],
    ids=lambda told: type(told).__name__,
)
def test_others_words_are_bounded(told: object) -> None:
    """However long the message of a broker, Spark or a user's function is, an error has its beginning and its end."""
    assert len(str(told)) < 1_500
    assert "first words" in str(told)
    assert "last words" in str(told)
