"""
The daemon with an eye on its event loop: ``python -m bench.scale.simulated.watched FILE.properties``.

Each turn of the loop that took long is written to the file that the environment names, with the CPU time of its
thread, because on a busy machine the time on the clock is not the daemon's doing.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from typing import Any, TextIO

from mm2py.cli import mirror_maker


#: The environment variable with the file.
FILE = "MM2PY_BENCH_TURNS"
LONG_S = 0.02


class Watcher:
    """Times turns of the event loop."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._collecting = 0.0
        self._collected_s = 0.0

    def install(self) -> None:
        """Watch every turn from now on."""
        plain = asyncio.Handle._run  # noqa: SLF001 - there is no public place to stand
        clock = time.thread_time

        def run(handle: asyncio.Handle) -> None:
            before = clock()
            plain(handle)
            took_s = clock() - before
            if took_s >= LONG_S:
                self._note(handle, took_s)
            self._collected_s = 0.0

        asyncio.Handle._run = run  # type: ignore[method-assign]  # noqa: SLF001
        gc.callbacks.append(self._collects)

    def _collects(self, phase: str, _info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
        else:
            self._collected_s += time.thread_time() - self._collecting

    def _note(self, handle: asyncio.Handle, took_s: float) -> None:
        turn = {
            "at": time.monotonic(),
            "cpu_ms": round(took_s * 1000, 1),
            "gc_ms": round(self._collected_s * 1000, 1),
            "what": _name(getattr(handle, "_callback", None)),
        }
        self._file.write(json.dumps(turn) + "\n")
        self._file.flush()


def _name(callback: Any) -> str:
    """Return which task took a step, and where it waits now; or which function was called."""
    owner = getattr(callback, "__self__", None)
    if not isinstance(owner, asyncio.Task):
        return getattr(callback, "__qualname__", repr(callback))
    names, awaited = [owner.get_name()], owner.get_coro()
    while awaited is not None:
        names.append(getattr(awaited, "__name__", type(awaited).__name__))
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
    return " > ".join(names)


def main() -> None:
    """Be the daemon."""
    with open(os.environ[FILE], "a") as file:  # noqa: PTH123
        Watcher(file).install()
        raise SystemExit(mirror_maker.main())


if __name__ == "__main__":
    main()
