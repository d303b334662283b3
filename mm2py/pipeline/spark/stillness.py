"""Which of Spark's Python processes on this machine hang. A running one is scheduled repeatedly, if only to check the
clock. One that was stopped, or waits for a disk that never responds, is not; but neither is an idle worker, which waits
for a task. So a process hangs only if more Spark tasks are running than workers are active.
"""

from __future__ import annotations

from typing import Final

import attrs
import psutil

from mm2py.clock import Clock
from mm2py.pipeline.spark import processes
from mm2py.pipeline.spark.patience import Patience


#: How long a process that has work may do nothing at all. Where memory is short it waits for its pages for seconds.
STILL_FOR_S: Final = 20.0
#: What a worker may take to begin with a task, and Spark to see that one is over.
_BEGINS_WITHIN_S: Final = 5.0


@attrs.frozen
class _Found:
    """A process as it is now; `steps` grows whenever it runs."""

    process: psutil.Process
    parent: int
    is_java: bool
    steps: int


@attrs.frozen
class _Seen:
    """How far a process had come when it last moved, and how long it may stay there."""

    steps: int
    patience: Patience


class Stillness:
    """Looks at the processes below a JVM; `look` is to be asked every second or more often."""

    def __init__(self, jvm: int, clock: Clock) -> None:
        self._jvm = jvm
        self._clock = clock
        self._seen: dict[psutil.Process, _Seen] = {}
        self._lacking: Patience | None = None

    def look(self, running: int) -> tuple[psutil.Process, ...]:
        """
        Return the processes that hang, given how many Spark tasks are *running*; none if all of these are at work.

        If none was plainly stopped, idle ones are among them: it does no harm to end these, too.
        """
        found = _below(self._jvm)
        self._seen = {process: seen for process, seen in self._seen.items() if process in found}
        javas = {self._jvm, *(it.process.pid for it in found.values() if it.is_java)}
        still = [it.process for it in found.values() if not it.is_java and self._is_still(it)]
        # What Spark forks its workers from is no worker, though it moves.
        workers = [it.process for it in found.values() if not it.is_java and it.parent not in javas]
        moving = len(set(workers).difference(still))
        if running <= moving or not still:
            self._lacking = None
            return ()
        if self._lacking is None:
            self._lacking = Patience(_BEGINS_WITHIN_S, self._clock)
        if not self._lacking.is_over():
            return ()
        hung = tuple(filter(is_stopped, still)) or tuple(still)
        # The processes named now are killed, which takes a moment on a busy machine.
        self._lacking = None
        self._seen = {process: seen for process, seen in self._seen.items() if process not in hung}
        return hung

    def _is_still(self, one: _Found) -> bool:
        seen = self._seen.get(one.process)
        if seen is None or seen.steps != one.steps:
            self._seen[one.process] = _Seen(one.steps, Patience(STILL_FOR_S, self._clock))
            return False
        return seen.patience.is_over()


def is_stopped(process: psutil.Process) -> bool:
    """Whether a process was stopped by a signal or a debugger."""
    try:
        return process.status() in {psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP}
    except psutil.Error:
        return False


def _below(jvm: int) -> dict[psutil.Process, _Found]:
    found = {}
    for process in processes.below(jvm):
        try:
            with process.oneshot():
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                switches, times = process.num_ctx_switches(), process.cpu_times()
                # A process that never waits is recognised by its CPU time alone, in hundredths of a second.
                steps = switches.voluntary + switches.involuntary + round(100 * (times.user + times.system))
                found[process] = _Found(process, process.ppid(), process.name() == "java", steps)
        except psutil.Error:
            continue
    return found
