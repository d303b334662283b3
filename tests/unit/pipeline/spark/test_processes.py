"""Spark's processes on this machine."""

from __future__ import annotations

import os
import subprocess

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
