"""How Spark's start fails."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Never

import pytest
from pyspark.errors import PySparkRuntimeError

from mm2py.pipeline.spark import processes, session
from mm2py.pipeline.spark.java import JavaMissingError
from mm2py.pipeline.spark.session import SparkHost, SparkStartError
from mm2py.pipeline.spark.settings import spark_settings
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


def _open(scratch: Path, tell: Callable[[str], object] = lambda _line: None) -> None:
    settings = spark_settings({}, copy_tasks=1, python="", package_parent="", log_file="/x", scratch=str(scratch))
    session._open(settings, scratch, tell, threading.Event())


def test_a_warning_is_no_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Why Spark did not start is what it was refused for, not what its JVM happened to warn of before."""
    warned = threading.Event()

    def launch(_conf: object, popen_kwargs: Any) -> Any:
        os.write(popen_kwargs["stderr"], b"WARN Elsewhere: the moon is full\n")
        jvm = SimpleNamespace(stdin=None, wait=lambda *_within_s: 1, kill=lambda: None)
        return SimpleNamespace(proc=jvm, shutdown=lambda: None)

    def refuse(**_arguments: object) -> Never:
        assert warned.wait(10)
        raise OSError("no more threads")

    monkeypatch.setattr(session, "launch_gateway", launch)
    monkeypatch.setattr(session, "SparkContext", refuse)

    with pytest.raises(SparkStartError, match="no more threads"):
        _open(tmp_path, lambda _line: warned.set())


def test_a_jvm_that_ends_at_once_is_heard_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its reason is taken once it has been read, however quickly it is seen to have ended."""

    def launch(_conf: object, popen_kwargs: Any) -> Never:
        os.write(popen_kwargs["stderr"], b"java.lang.UnsupportedClassVersionError: org/apache/spark/launcher/Main\n")
        raise PySparkRuntimeError(errorClass="JAVA_GATEWAY_EXITED", messageParameters={})

    monkeypatch.setattr(session, "launch_gateway", launch)

    with pytest.raises(JavaMissingError, match="is too old"):
        _open(tmp_path)


def test_a_spark_without_a_thread_to_hear_it_did_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user, or a container, may have as many processes and threads as it may; the daemon ends with one line."""

    def refuse(_thread: threading.Thread) -> Never:
        raise RuntimeError("can't start new thread")

    opened: list[int] = []
    pipe = os.pipe

    def opening() -> tuple[int, int]:
        opened[:] = pipe()
        return opened[0], opened[1]

    monkeypatch.setattr(os, "pipe", opening)
    monkeypatch.setattr(threading.Thread, "start", refuse)

    with pytest.raises(SparkStartError, match="can't start new thread"):
        _open(tmp_path)
    for each in opened:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(each)


def test_a_spark_without_a_file_to_hear_it_did_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The daemon may have as many files open as it may: its copy tasks pause, and no group of loops restarts."""

    def refuse() -> Never:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(os, "pipe", refuse)

    with pytest.raises(SparkStartError, match="Too many open files"):
        _open(tmp_path)


async def test_memory_was_short_for_some_seconds_after_the_kernel_killed_a_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is lost then was lost for that, most likely; a process that was killed an hour ago explains nothing."""
    killed = 5
    monkeypatch.setattr(processes, "killed_for_memory", lambda: killed)
    clock = LoopClock()
    host = SparkHost({}, copy_tasks=1, clock=clock, events=EventLog(clock))
    watching = asyncio.create_task(host.watch())
    seen = []
    for _ in range(4):
        await asyncio.sleep(6)
        seen.append(host.was_memory_short)
        killed = 6
    watching.cancel()
    await host.stop(within_s=1)

    assert seen == [False, True, False, False]
