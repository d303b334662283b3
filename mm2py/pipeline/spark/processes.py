"""
Spark's processes on this machine, and their end by force.

A process that is stopped (SIGSTOP) heeds nothing but SIGKILL: not its closed pipes, and not the SIGHUP by which
Python workers learn that Spark is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import psutil


#: pyspark tells the JVM that it starts by this where to leave its port.
_LAUNCHED: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"
_LOOK_EVERY_S: Final = 0.05
_COUNTERS: Final = "/proc/vmstat"
#: Spark's exit code after Java's OutOfMemoryError.
_OUT_OF_HEAP: Final = 52
#: Processes whose parent has ended become children of the one with this number.
_FIRST: Final = 1


def killed_for_memory() -> int:
    """Return how many processes the kernel has killed on this machine because memory was short; 0 if it is not told."""
    with suppress(OSError), open(_COUNTERS, encoding="ascii") as counters:  # noqa: PTH123 - read every few seconds
        return sum(int(line.split()[1]) for line in counters if line.startswith("oom_kill "))
    return 0


def ending(exit_code: int) -> str:
    """Return what became of a process, by its exit code as Python has it."""
    if exit_code == -signal.SIGKILL:
        return "was killed (SIGKILL)"
    if exit_code == _OUT_OF_HEAP:
        return "ran out of memory of its own (spark.driver.memory)"
    return f"ended with {exit_code}"


def below(pid: int) -> tuple[psutil.Process, ...]:
    """Return all processes below *pid*, none where it has ended."""
    try:
        return tuple(psutil.Process(pid).children(recursive=True))
    except (psutil.Error, OSError):  # as many files are open as may be
        return ()


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those of *processes* that are still there; another one that has a number by now is left alone."""
    for process in processes:
        with suppress(psutil.Error, OSError):
            process.kill()


def kill_tree(pid: int) -> None:
    """Kill a process and all below it."""
    children = below(pid)
    _kill_at_once(pid)
    kill(children)


def end_launched(*, grace_s: float = 0.0) -> None:
    """End the JVMs that this process is starting, or has started, with all below them. They have *grace_s* to clean up
    before they are killed.
    """
    launched = [child for child in _children() if _is_launched(child)]
    children = [child for jvm in launched for child in below(jvm.pid)]
    for jvm in launched if grace_s else ():
        with suppress(psutil.Error):
            jvm.send_signal(signal.SIGHUP)  # it ignores SIGTERM
    # Not psutil's own wait: it would take the exit status from the process that started them.
    for _ in range(int(grace_s / _LOOK_EVERY_S)):
        if not any(map(_is_alive, launched)):
            break
        time.sleep(_LOOK_EVERY_S)
    for jvm in filter(_is_alive, launched):
        kill_tree(jvm.pid)
    kill(children)


def reap_orphans() -> None:
    """
    Let go of what has ended among the processes that Spark left to a container's first process, which is this one.

    To be called when the JVM has been waited for. Spark's processes have groups of their own; what
    is in ours belongs to the one that started it, and asks how it ended.
    """
    if os.getpid() != _FIRST:
        return
    for child in _children():
        with suppress(psutil.Error, OSError):
            if child.status() == psutil.STATUS_ZOMBIE and os.getpgid(child.pid) != os.getpgrp():
                os.waitpid(child.pid, os.WNOHANG)


def _is_launched(child: psutil.Process) -> bool:
    with suppress(psutil.Error, OSError):
        return _LAUNCHED in child.environ()
    return False


def _is_alive(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    return False


def kill_worker(name: str) -> bool:
    """Kill the worker called ``host:pid``, if it is on this machine; whether it is."""
    host, _, pid = name.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    _kill_at_once(int(pid))
    return True


def _kill_at_once(pid: int) -> None:
    """Kill a process without a file of it being opened, as psutil does, in case as many are open as may be."""
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def _children() -> list[psutil.Process]:
    with suppress(OSError):  # as above
        return list(psutil.Process().children())
    return []
