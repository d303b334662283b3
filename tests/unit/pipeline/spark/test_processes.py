"""Spark's processes on this machine."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import NoReturn

import psutil
import pytest

from mm2py.pipeline.spark import processes


@pytest.mark.parametrize("is_first", [True, False])
def test_the_first_process_of_a_container_reaps_what_spark_left(
    monkeypatch: pytest.MonkeyPatch, *, is_first: bool
) -> None:
    """A fork server and a shell come to it when their JVM is killed. What it started itself is left alone."""
    monkeypatch.setattr(processes, "_FIRST", os.getpid() if is_first else -1)
    left = subprocess.Popen(["sh", "-c", "exit 3"], process_group=0)
    others = subprocess.Popen(["sh", "-c", "exit 3"])
    for each in (left, others):
        os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOWAIT)
    processes.reap_orphans()

    # Popen says 0 of a process that another has waited for.
    assert (left.wait(), others.wait()) == (0 if is_first else 3, 3)


@pytest.mark.parametrize(
    ("exit_code", "words"),
    [
        (-signal.SIGKILL, "was killed (SIGKILL)"),
        (52, "ran out of memory of its own (spark.driver.memory)"),
        (1, "ended with 1"),
    ],
)
def test_an_end_for_want_of_memory_is_named(exit_code: int, words: str) -> None:
    """An operator need not know what a signal, or an exit code of Spark's, usually means."""
    assert processes.ending(exit_code) == words


def test_what_the_kernel_killed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a lack of memory, in whatever container; a kernel, or a sandbox, that does not count says so by nothing."""
    counters = tmp_path / "vmstat"
    monkeypatch.setattr(processes, "_COUNTERS", str(counters))
    untold = processes.killed_for_memory()
    counters.write_text("nr_free_pages 5\noom_kill 3\noom_kill_other 9\n")

    assert (untold, processes.killed_for_memory()) == (0, 3)


def test_what_cannot_be_listed_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With as many files open as may be, nothing below Spark's JVM is found; the JVM itself is ended all the same."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    hung, other = (subprocess.Popen(["/bin/sleep", "60"]) for _ in range(2))
    seen = psutil.Process(other.pid)
    monkeypatch.setattr(psutil.Process, "children", refuse)
    monkeypatch.setattr(psutil.Process, "kill", refuse)

    assert processes.below(os.getpid()) == ()
    processes.kill([seen])
    processes.kill_tree(hung.pid)
    processes.kill_worker(f"{socket.gethostname()}:{other.pid}")
    processes.end_launched()
    assert (hung.wait(), other.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
