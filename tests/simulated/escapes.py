"""
Whatever leaves the simulation fails the run: a socket, a thread, a process, a file that is written.

What the product reads at its start, its settings and modules, may be read.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any


_FORBIDDEN = (
    "socket.",
    "subprocess.",
    "_thread.start_new_thread",
    "os.fork",
    "os.posix_spawn",
    "os.kill",
    "time.sleep",
)
_FOR_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Escapes:
    """An audit hook, which no process can take out again: it is asked to hear while a run goes on."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self._hears = False
        sys.addaudithook(self._hear)

    @contextlib.contextmanager
    def heard(self) -> Iterator[None]:
        """Listen meanwhile."""
        self._hears = True
        try:
            yield
        finally:
            self._hears = False

    def _hear(self, name: str, facts: tuple[Any, ...]) -> None:
        if not self._hears:
            return
        is_written = name == "open" and isinstance(facts[2], int) and bool(facts[2] & _FOR_WRITING)
        if is_written or name.startswith(_FORBIDDEN):
            self.found.append(f"it left the simulation: {name} {facts!r:.200}")
