"""An event loop whose time jumps to the next timer whenever nothing is ready."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar


_T = TypeVar("_T")


class _JumpingSelector(selectors.BaseSelector):
    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.now = 0.0

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._real.select(0)
        if ready or timeout == 0:
            return ready
        if timeout is None:  # no timer is armed: only I/O can wake us
            return self._real.select(None)
        self.now += timeout
        return ready


class AutojumpLoop(asyncio.SelectorEventLoop):
    """
    Waiting costs nothing: an hour of back-off takes a millisecond.

    A thread or real I/O in flight counts as "nothing ready", so time may jump past it; keep both out of unit tests.
    """

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:  # noqa: ASYNC109, ARG002
        """Wait for the threads in real time: Python 3.12 and newer give a limit, which would be over at once."""
        await super().shutdown_default_executor()


async def turns_beside(work: Coroutine[Any, Any, _T]) -> tuple[_T, int]:
    """Run *work*, which waits for nothing; return its result, and how many turns others had meanwhile."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as tasks:
        beside = tasks.create_task(others())
        result = await work
        beside.cancel()
    return result, turns
