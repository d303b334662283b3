"""The watch that tells a machine that stood still from code that failed."""

from __future__ import annotations

import threading

from tests.support.stalls import STALL_S, StallWatch


class TestStallWatch:
    def test_only_a_long_delay_is_a_stall(self):
        watch = StallWatch()

        watch.note(STALL_S - 0.1)
        assert not watch.has_stalled
        watch.note(STALL_S)
        watch.note(0.0)

        assert watch.has_stalled
        assert watch.longest_s == STALL_S

    def test_each_test_is_watched_afresh(self):
        watch = StallWatch()
        watch.note(STALL_S)

        watch.begin()

        assert not watch.has_stalled

    def test_thread_measures_delays(self, monkeypatch):
        """Whatever a delay is on this machine, the thread notes it, and ends when it is stopped."""
        noted = threading.Event()
        watch = StallWatch()
        monkeypatch.setattr(watch, "note", lambda _delay_s: noted.set())

        watch.start()
        try:
            assert noted.wait(60)
        finally:
            watch.stop()
