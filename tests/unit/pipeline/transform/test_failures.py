"""What is made of Spark's message about a failed query."""

from __future__ import annotations

import pytest

from mm2py.model.epoch import Ended, PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.pipeline.transform.failures import TRACEBACK, UnreadableRange, is_raised, raised_in, unreadable_in


def test_trouble_travels_in_text() -> None:
    """Whatever Spark puts around it, the unreadable that a task raised comes out as it was."""
    unreadable = UnreadableRange(
        TopicPartition("t", 3), Ended.OUT_OF_RANGE, PartitionFailure('gone "x"\n', "hint", "Kind", 7, "A")
    )

    assert unreadable_in(f"[PYTHON_EXCEPTION] … {unreadable.error()}\n SQLSTATE: 38000") == unreadable


@pytest.mark.parametrize("text", ["", "Job aborted", "<mm2py-failure>[1]</mm2py-failure>", "<mm2py-failure>{"])
def test_other_words_are_no_trouble(text: str) -> None:
    """What a task did not mark, or what is cut off, says nothing of a partition."""
    assert unreadable_in(text) is None


@pytest.mark.parametrize(
    ("words", "raised"),
    [
        (
            '[PYTHON_EXCEPTION] …: Traceback (most recent call last):\n  File "x"\n    y\nValueError: no number\n',
            ("ValueError", "no number"),
        ),
        (
            f'…: {TRACEBACK}\n  File "/a/shop.py", line 7, in mask\n    assert iban\nAssertionError\n SQLSTATE: 38000',
            ("AssertionError", 'File "/a/shop.py", line 7, in mask'),
        ),
        (
            "[USER_RAISED_EXCEPTION] no good SQLSTATE: P0001\n== SQL ==",
            ("USER_RAISED_EXCEPTION", "no good"),
        ),
        ("Something\nelse", ("Exception", "Something else")),
    ],
)
def test_what_was_raised_is_found(words: str, raised: tuple[str, str]) -> None:
    """The error's name and message, of Python's tracebacks and of Spark's conditions."""
    assert raised_in(words) == raised


@pytest.mark.parametrize(
    ("words", "is_it"),
    [
        ("[PYTHON_EXCEPTION] …: Traceback (most recent call last):\nValueError: no number\n SQLSTATE: 38000", True),
        ("[CAST_INVALID_INPUT] The value 'cancelled' cannot be cast SQLSTATE: 22018", True),
        ("Job aborted …: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed).", False),
        ("Job aborted …: ExecutorLostFailure (executor 1 exited unrelated to the running tasks)", False),
        ("[SPARK_JOB_CANCELLED] Job 8 cancelled part of cancelled job group g SQLSTATE: XXKDA", False),
        ("[PYTHON_EXCEPTION] …: Traceback (most recent call last):\nx.EpochRepeatedError: lost the executor", False),
        ("Job 7 cancelled because SparkContext was shut down", False),
        ("Spark is gone (Py4JNetworkError)", False),
        ("Job aborted …: java.lang.OutOfMemoryError: Java heap space", False),
    ],
)
def test_what_a_transform_raised_is_told_from_what_spark_lost(words: str, is_it: bool) -> None:
    """Only in the first case it is certain that nothing writes any more."""
    assert is_raised(words) is is_it
