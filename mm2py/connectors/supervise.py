"""
Run, pause, run again; and wait.

The one place that catches everything: a bug in one flow must not stop another. Cancellation passes through, and so
does an error that says the flow must stop.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

from mm2py.clock import Clock
from mm2py.core.backoff import Backoff
from mm2py.errors import Mm2Error, Verdict, cluster_of, shortened
from mm2py.telemetry.events import TaskRestarted


_PAUSES = Backoff(1.0, 60.0)
#: After this time without a failure the next one counts as the first.
_HEALTHY_S = 300.0
#: Time limit for leaving a group, or a topic, at the end.
_LAST_S = 2.0


async def supervise(
    task: str,
    body: Callable[[], Awaitable[None]],
    *,
    clock: Clock,
    jitter: Callable[[], float],
    report: Callable[[TaskRestarted], None],
) -> None:
    """
    Run *body* until it returns, with a pause and a restart after a failure.

    An error whose verdict is `Verdict.STOP_FLOW` is raised, by itself.
    """
    pauses = _PAUSES.pauses(jitter)
    while True:
        begun = clock.monotonic()
        failures: tuple[BaseException, ...] = ()
        try:
            await _apart(task, body)
        except* Exception as group:  # noqa: BLE001 (the one place that does)
            failures = tuple(leaves(group))
        if not failures:
            return
        for failure in failures:
            if isinstance(failure, Mm2Error) and failure.verdict is Verdict.STOP_FLOW:
                raise failure
        if clock.monotonic() - begun >= _HEALTHY_S:
            pauses = _PAUSES.pauses(jitter)
        pause_s = next(pauses)
        causes, exception = tuple(map(_named, failures)), _traceback(failures)
        report(TaskRestarted(task, causes, pause_s, exception, cluster_of(*failures)))
        await clock.sleep(pause_s)


async def _apart(name: str, body: Callable[[], Awaitable[None]]) -> None:
    """
    Await *body* in a task of its own. If this one is cancelled, so is that, and then `CancelledError` is raised.

    Before Python 3.13 a group of tasks raises the failures of its tasks in place of its cancellation, and a failure
    leaves its task with a count of cancellations (`Task.cancelling`) that nobody asked for.
    """

    async def run() -> None:
        await body()

    running = asyncio.get_running_loop().create_task(run(), name=name)
    is_cancelled = False
    while not running.done():
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            is_cancelled = True
            running.cancel()
    if is_cancelled:
        if not running.cancelled():
            running.exception()  # else asyncio would print it
        raise asyncio.CancelledError
    running.result()


async def until_set(event: asyncio.Event, within_s: float | None) -> None:
    """Wait until *event* is set, but no longer than *within_s*."""
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()


async def in_passing(last: Awaitable[None]) -> None:
    """Await what spares others a time-out at an end; let it be if it fails, or takes long."""
    with suppress(Mm2Error, TimeoutError):
        async with asyncio.timeout(_LAST_S):
            await last


def leaves(group: BaseExceptionGroup[BaseException]) -> Iterator[BaseException]:
    """Return the exceptions inside nested groups."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from leaves(error)
        else:
            yield error


def _named(error: BaseException) -> str:
    return shortened(f"{type(error).__name__}: {error}")


def _traceback(errors: tuple[BaseException, ...]) -> str:
    """Return the traceback of a bug; expected errors need none."""
    return "".join("".join(traceback.format_exception(error)) for error in errors if not isinstance(error, Mm2Error))


async def cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    """Cancel *tasks* and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
