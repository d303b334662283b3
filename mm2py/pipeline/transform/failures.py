"""
What went wrong in a Spark task, passed on through Spark's own messages.

A task that fails leaves nothing but a text, wrapped in several others. So what is to be known of it travels in
that text, between marks.
"""

from __future__ import annotations

import json
import re
from typing import Final

import attrs

from mm2py.errors import Mm2Error
from mm2py.model.epoch import Ended, PartitionFailure
from mm2py.model.flow import TopicPartition


_BEGIN: Final = "<mm2py-failure>"
_END: Final = "</mm2py-failure>"
_MARKED: Final = re.compile(re.escape(_BEGIN) + "(.*?)" + re.escape(_END), re.DOTALL)
#: What was raised, with a message or without one.
_RAISED: Final = re.compile(r"(?P<kind>[A-Za-z_][\w.]*)(?:: (?P<words>.*))?")
_FRAME: Final = re.compile(r'File ".*", line \d+, in .*')
_CONDITION: Final = re.compile(r"\[(?P<kind>[A-Z][A-Z_.]+)\]\s*(?P<words>.*?)(?:\s+SQLSTATE: \w+)?\s*$")
#: Said of a job that the JVM had no memory for. Another one may have held it: it is no record's fault.
_OUT_OF_MEMORY: Final = "java.lang.OutOfMemoryError"
_OUT_OF_THREADS: Final = "unable to create native thread"
_HINT_MEMORY: Final = (
    "less is taken at once from now on; if that does not help, raise spark.driver.memory (on a cluster, "
    "spark.executor.memory)"
)
_HINT_THREADS: Final = "raise the limit of processes and threads (ulimit -u; TasksMax of systemd, pids of a container)"
_LOST: Final = (
    _OUT_OF_MEMORY,
    "Python worker exited",
    "Python worker crashed",
    "ExecutorLostFailure",
    "EpochRepeatedError",
    "SPARK_JOB_CANCELLED",
    "SparkContext was shut down",
    "Spark is gone",
)
TRACEBACK: Final = "Traceback (most recent call last):"


@attrs.define(eq=False)
class TransformFailedError(Mm2Error):
    """A topic-partition's records could not be read; `facts` is what `UnreadableRange` says, as JSON."""

    facts: str

    def __str__(self) -> str:
        return _BEGIN + self.facts + _END


@attrs.frozen
class UnreadableRange:
    """What is wrong with the records of a topic-partition: `ended` says how it fares."""

    source: TopicPartition
    ended: Ended
    failure: PartitionFailure

    def error(self) -> TransformFailedError:
        """Return it as what a Spark task can raise."""
        failure = (*attrs.astuple(self.failure),)
        return TransformFailedError(json.dumps([self.source.topic, self.source.partition, self.ended.name, *failure]))


def unreadable_in(text: str) -> UnreadableRange | None:
    """Return what is unreadable, by Spark's message about a failed job; None if a task failed for another reason."""
    found = _MARKED.search(text)
    if found is None:
        return None
    try:
        topic, partition, ended, *failure = json.loads(found[1])
        return UnreadableRange(TopicPartition(topic, partition), Ended[ended], PartitionFailure(*failure))
    except (ValueError, KeyError, TypeError):
        return None


def is_lost(words: str) -> bool:
    """Whether by Spark's words a job failed because what it ran on was lost, or because it was cancelled."""
    return any(sign in words for sign in _LOST)


def shortage_in(words: str) -> tuple[str, str] | None:
    """Return what the JVM was short of, by Spark's words about a failed job, and what to do; None if of nothing."""
    if _OUT_OF_MEMORY not in words:
        return None
    if _OUT_OF_THREADS in words:  # Java calls this the same, and more memory for it leaves less for them
        return "Spark's JVM could start no more threads", _HINT_THREADS
    return "Spark's JVM had not enough memory for it", _HINT_MEMORY


def is_raised(words: str) -> bool:
    """
    Whether Spark's words about a failed job are those of a transform, or of a task of ours that refused its work.

    Spark may also have lost what the job ran on, which may still be writing.
    """
    kind, _ = raised_in(words)
    return kind != "Exception" and not is_lost(words)


def raised_in(words: str) -> tuple[str, str]:
    """Return the name and the message of what was raised, from Spark's words about a failed job."""
    if TRACEBACK in words:
        where = ""
        for line in words[words.rindex(TRACEBACK) :].splitlines()[1:]:
            where = line.strip() if _FRAME.fullmatch(line.strip()) else where
            found = None if not line or line[0].isspace() else _RAISED.fullmatch(line.strip())
            if found is not None:
                return found["kind"], (found["words"] or "").strip() or where
    for line in words.splitlines():
        found = _CONDITION.search(line)
        if found is not None:
            return found["kind"], found["words"].strip()
    return "Exception", " ".join(words.split())[:300]
