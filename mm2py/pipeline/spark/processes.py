"""
Spark's processes on this machine, and their end by force.

A process that is stopped (SIGSTOP) heeds nothing but SIGKILL: not its closed pipes, and not the SIGHUP by which
Python workers learn that Spark is gone.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import psutil


#: pyspark tells the JVM that it starts by this where to leave its port.
_LAUNCHED: Final = "_PYSPARK_DRIVER_CONN_INFO_PATH"


def below(pid: int) -> tuple[psutil.Process, ...]:
    """Return all processes below *pid*, none where it has ended."""
    try:
        return tuple(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return ()


def kill(processes: Iterable[psutil.Process]) -> None:
    """Kill those of *processes* that are still there; another one that has a number by now is left alone."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()


def kill_tree(pid: int) -> None:
    """Kill a process and all below it."""
    children = below(pid)
    with suppress(psutil.Error):
        psutil.Process(pid).kill()
    kill(children)


def kill_launched() -> None:
    """Kill the JVMs that this process is starting, or has started, with all below them."""
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            if _LAUNCHED in child.environ():
                kill_tree(child.pid)


def kill_worker(name: str) -> bool:
    """Kill the worker called ``host:pid``, if it is on this machine; whether it is."""
    host, _, pid = name.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return False
    with suppress(psutil.Error):
        psutil.Process(int(pid)).kill()
    return True
