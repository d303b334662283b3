"""This process as others see it, and whether another one on this machine still runs."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path

from mm2py.model.herder.node import Node


_PROC = Path("/proc")
#: Start time and state of a process, in the fields of /proc/PID/stat after its name.
_STATE, _BEGUN = 0, 19
_ENDED = ("Z", "X")


def this_node(*, rest: str = "", started_ms: int = 0) -> Node:
    """Return this process as a node; *rest* is the address of its REST interface."""
    pid = os.getpid()
    _, begun = _stat(pid) or ("", "")
    return Node(socket.gethostname(), pid, _machine() if begun else "", begun, rest, started_ms)


def is_alive(node: Node) -> bool:
    """Whether the process of *node*, on this machine, runs; True if that cannot be determined."""
    try:
        os.kill(node.pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # it exists, but belongs to another user
    found = _stat(node.pid)
    if found is None:
        return True
    state, begun = found
    return begun == node.begun and state not in _ENDED


def _machine() -> str:
    """Return the running kernel and our process namespace; empty if unavailable."""
    with suppress(OSError):
        boot = (_PROC / "sys/kernel/random/boot_id").read_text("ascii").strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').readlink()}"
    return ""


def _stat(pid: int) -> tuple[str, str] | None:
    """Return a process's state and its start in ticks since boot; None if unavailable."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", errors="replace")
    except OSError:
        return None
    # The name, in brackets, may contain anything.
    fields = text.rpartition(")")[2].split()
    return (fields[_STATE], fields[_BEGUN]) if len(fields) > _BEGUN else None
