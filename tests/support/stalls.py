"""
Whether the machine itself stood still while a test ran.

Tests keep time with processes of their own: brokers that must send heartbeats, requests that must be answered. Where a
shared machine stops for seconds, all of them miss their time at once, and what fails then is not the code. A failure
while the machine ran is never excused.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time


_EVERY_S = 0.25
#: As long as a machine may be busy with others before it counts as having stood still.
STALL_S = 2.0


class StallWatch:
    """A thread that wants to write one byte to disk four times a second, and notes when it could not."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stall-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def begin(self) -> None:
        """Forget what was seen so far: a test begins."""
        with self._lock:
            self._longest_s = 0.0

    def note(self, delay_s: float) -> None:
        """Take in by how much a quarter of a second was late."""
        with self._lock:
            self._longest_s = max(self._longest_s, delay_s)

    @property
    def longest_s(self) -> float:
        """The longest delay since the test began, in seconds."""
        with self._lock:
            return self._longest_s

    @property
    def has_stalled(self) -> bool:
        return self.longest_s >= STALL_S

    def _watch(self) -> None:
        with tempfile.TemporaryFile() as file:
            before = time.monotonic()
            while not self._ended.wait(_EVERY_S):
                os.pwrite(file.fileno(), b"0", 0)
                os.fdatasync(file.fileno())
                now = time.monotonic()
                self.note(now - before - _EVERY_S)
                before = now
