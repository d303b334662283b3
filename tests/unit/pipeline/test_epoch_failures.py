"""What is taken out of Spark's message about a failed job."""

from __future__ import annotations

import traceback

import pytest

from mm2py.errors import Mm2Error
from mm2py.pipeline.copy_job import EpochLostError, judge_failure
from mm2py.pipeline.spark.java import JavaMissingError
from mm2py.pipeline.spark.session import SparkStartError
from mm2py.pipeline.spark.worker import EpochRepeatedError


_ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 7.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 7.0 (TID 7) (vm executor driver): "
)
_RAISED = f"""{_ABORTED}org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/opt/mm2py/pipeline/worker.py", line 41, in run_epochs
    return [worker.runner.run(copy_epoch(plan, SystemClock(), worker.state))]
  File "/opt/mm2py/pipeline/copier.py", line 10, in copy_epoch
    raise ValueError("no such thing")
ValueError: no such thing

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat org.apache.spark.api.python.PythonRunner$$anon$3.read(PythonRunner.scala:940)

Driver stacktrace:"""
_CHAINED = _RAISED.replace(
    "ValueError: no such thing\n\n",
    "ValueError: no such thing\n\nDuring handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n  File x, line 1, in y\nKeyError: 'z'\n\n",
)


def _in_a_group() -> str:
    """Return how Python prints what is raised within a `TaskGroup`."""
    try:
        try:
            int("one")
        except ValueError as error:
            message = "unhandled errors in a TaskGroup"
            raise ExceptionGroup(message, [error]) from None
    except ExceptionGroup as group:
        return "".join(traceback.format_exception(group))


_NO_NUMBER = "ValueError: invalid literal for int() with base 10: 'one'"
_GROUPED = f"{_ABORTED}org.apache.spark.api.python.PythonException: {_in_a_group()}\n\tat org.apache.spark.api"
_REPEATED_ERROR = "mm2py.pipeline.spark.worker.EpochRepeatedError"
_REPEATED = _RAISED.replace("ValueError: no such thing", f"{_REPEATED_ERROR}: again")
_KILLED = f"""{_ABORTED}org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider setting …
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator$$anonfun$1.applyOrElse(PythonRunner.scala:598)
Caused by: java.io.EOFException"""
_EXECUTOR = f"{_ABORTED}ExecutorLostFailure (executor 1 exited caused by one of the running tasks) Reason: Worker lost"
_NO_FOLDER = f"{_ABORTED}java.nio.file.NoSuchFileException: ./mm2py-package.zip\n\tat java.base/sun.nio.fs"
_CANCELLED = "Job 12 cancelled part of cancelled job group A->B/source/0/12"
_STOPPED = "Job 3 cancelled because SparkContext was shut down"


@pytest.mark.parametrize(
    ("message", "cause", "may_still_write"),
    [
        pytest.param(_RAISED, "ValueError: no such thing", False, id="the task raised"),
        pytest.param(_CHAINED, "KeyError: 'z'", False, id="the task raised while raising"),
        pytest.param(_GROUPED, _NO_NUMBER, False, id="the task raised in a group"),
        pytest.param(_REPEATED, f"{_REPEATED_ERROR}: again", True, id="Spark ran the plan again"),
        pytest.param(_KILLED, "its Python worker was killed", False, id="worker killed"),
        pytest.param(
            _EXECUTOR,
            "Lost task 0.0 in stage 7.0 (TID 7) (vm executor driver): ExecutorLostFailure (executor 1 exited caused "
            "by one of the running tasks) Reason: Worker lost",
            True,
            id="executor lost",
        ),
        pytest.param(_NO_FOLDER, "NoSuchFileException: ./mm2py-package.zip", True, id="the executor failed"),
        pytest.param(_CANCELLED, _CANCELLED, True, id="cancelled"),
        pytest.param(_STOPPED, _STOPPED, True, id="context stopped"),
        pytest.param("", "", True, id="nothing said"),
    ],
)
def test_the_useful_line(message: str, cause: str, may_still_write: bool) -> None:
    """Of pages of trace one line is kept, and whether the task may still be writing."""
    assert judge_failure(message) == (cause, may_still_write)


@pytest.mark.parametrize("kind", [EpochLostError, EpochRepeatedError, JavaMissingError, SparkStartError])
def test_what_to_try_is_said(kind: type[Mm2Error]) -> None:
    """Each error of the pipeline has a hint for the operator."""
    assert kind.hint
