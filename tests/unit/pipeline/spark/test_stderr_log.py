"""What Spark and its Python workers print, put together to one line for each thing."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable

import pytest

from mm2py.pipeline.spark.stderr_log import LAST_WORDS, StderrLog, begin_to_listen, reason


_BEGIN = "Traceback (most recent call last):"
_STACK = (
    _BEGIN,
    '  File "/lib/pyspark.zip/pyspark/daemon.py", line 264, in manager',
    "    code = worker(sock, authenticated)",
    "           ^^^^^^^^^^^^^^^^^^^^^^^^^^^",
    '  File "/lib/pyspark.zip/pyspark/daemon.py", line 95, in worker',
    "    outfile.flush()",
)
_BROKEN = "OSError: [Errno 5] Input/output error"
_TOLD = f"{_BROKEN} (pyspark/daemon.py, line 95)"


def _told(lines: Iterable[str]) -> list[str]:
    sayings = StderrLog()
    return [told for line in lines if (told := sayings.take(line)) is not None]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["WARN Foo: a", "  b", "c"], ["WARN Foo: a", "  b", "c"]),
        ([*_STACK, _BROKEN, "WARN Foo: a", "  b"], [_TOLD, "WARN Foo: a", "  b"]),
        ([*_STACK, "KeyboardInterrupt"], ["KeyboardInterrupt (pyspark/daemon.py, line 95)"]),
        ([f"half a line{_BEGIN}", *_STACK[1:], _BROKEN], ["half a line", _TOLD]),
        ([_BEGIN, _BROKEN], [_BROKEN]),
        # Workers that fail together print into each other, and Spark's own log goes on meanwhile.
        ([_BEGIN, *_STACK, _BROKEN, *_STACK[1:], _BROKEN], [_TOLD, _TOLD]),
        ([*_STACK[:3], "ERROR Foo: a", *_STACK[3:], _BROKEN], ["ERROR Foo: a", _TOLD]),
    ],
    ids=["no stack", "a stack", "no message", "glued", "no frames", "several at once", "other words meanwhile"],
)
def test_a_stack_is_one_line(lines: list[str], told: list[str]) -> None:
    """It says what was raised and where; all else passes as it is."""
    assert _told(lines) == told


@pytest.mark.parametrize("error", ["BrokenPipeError: [Errno 32] Broken pipe", "ConnectionResetError"])
def test_that_spark_hung_up_on_a_worker_is_no_news(error: str) -> None:
    """It does so when a task has failed, and says of what; a pipe that breaks elsewhere is told."""
    elsewhere = [line.replace("pyspark", "mm2py") for line in _STACK]

    assert _told([*_STACK, error, "next"]) == ["next"]
    assert _told([*elsewhere, error]) == [f"{error} (mm2py/daemon.py, line 95)"]


def test_of_a_java_stack_only_its_messages_are_told() -> None:
    """A JVM without memory, or descriptors, prints dozens of frames."""
    messages = [
        'Exception in thread "main" java.lang.NoClassDefFoundError: Could not initialize class sun.util.ZoneInfoFile',
        "Caused by: java.io.FileNotFoundException: /lib/tzdb.dat (Too many open files)",
    ]
    frames = ["\tat java.base/sun.util.calendar.ZoneInfo.getTimeZone(ZoneInfo.java:589)", "\t... 34 more"]

    assert _told([messages[0], frames[0], frames[0], messages[1], *frames, "next"]) == [*messages, "next"]


def test_a_stack_that_was_cut_off_hides_nothing_for_ever() -> None:
    """Its process was killed before the end; indented lines that come later are told after a while."""
    told = _told([*_STACK, *("  indented" for _ in range(1_000))])

    assert 500 < len(told) < 1_000


def test_why_a_jvm_did_not_start_is_not_lost_behind_its_stack() -> None:
    """Java's launcher says that something happened, what, where in dozens of frames; then the shell does not go on."""
    last_words: deque[str] = deque(maxlen=LAST_WORDS)
    written_to, listener = begin_to_listen(last_words, lambda _message: None)
    cause = 'Exception in thread "main" java.lang.OutOfMemoryError: unable to create native thread'
    frames = ["\tat java.base/java.lang.Thread.start0(Native Method)"] * LAST_WORDS
    begin = "Error: A JNI error has occurred, please check your installation and try again"
    with os.fdopen(written_to, "w") as stderr:
        stderr.writelines(f"{line}\n" for line in (begin, cause, *frames, "spark-class: line 97: CMD: bad subscript"))
    listener.join()

    assert reason(last_words) == cause
