"""
An event loop in virtual time, on which several machines run side by side.

A `Host` is a context variable: whatever a machine starts inherits it, so each callback knows whose it is. That is what
lets one process hold many machines: a frozen host's callbacks are parked, a killed one's are dropped at whatever
``await`` they stand, without a ``finally`` being run, and between hosts the order of callbacks is drawn by the seed.
Within a host they stay in asyncio's own order, which programs may rely on.
"""

# It is made of what asyncio has under private names.
# mypy: disable-error-code="attr-defined, has-type, override"

from __future__ import annotations

import asyncio
import collections
import contextvars
import heapq
import random
import sys
from collections.abc import Callable, Coroutine
from typing import Any


HOST: contextvars.ContextVar[Host | None] = contextvars.ContextVar("host", default=None)

#: More turns than that without a jump of time are an endless loop.
_TURNS_AT_ONCE = 200_000
#: What a turn takes: time that stands still would make a loop of `sleep(until - now)`, whose rest is 1e-14 s by
#: rounding, an endless one.
_TURN_S = 1e-6


class LivelockError(AssertionError):
    """Callbacks follow each other without end, or nothing is left to happen."""


class Host:
    """A machine, or a process on one: what runs there, and the state of its clock."""

    def __init__(self, loop: SimLoop, name: str, machine: str = "") -> None:
        self.loop = loop
        self.name = name
        #: Whose network it uses; a worker's is that of its node.
        self.machine = machine or name
        #: A number of its process, which differs from run to run of a node.
        self.pid = 0
        self.is_dead = self.is_frozen = False
        #: Neither; each callback asks.
        self.is_up = True
        #: What a node runs its epochs with.
        self.epochs: Any = None
        #: What the wall clock is ahead of the true time.
        self.clock_ahead_ms = 0
        self._parked: collections.deque[asyncio.Handle] = collections.deque()
        #: Tasks of a killed host stay referenced: collected, their ``finally`` blocks would still be run.
        self._buried: list[asyncio.Task[Any]] = []
        self.context = contextvars.copy_context()
        self.context.run(HOST.set, self)

    def __repr__(self) -> str:
        return self.name

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run *work* on this host."""
        return self.loop.create_task(work, name=name, context=self.context)

    def call_later(self, seconds: float, call: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        """Have *call* run on this host."""
        return self.loop.call_later(seconds, call, *args, context=self.context)

    def tasks(self) -> list[asyncio.Task[Any]]:
        """Return what runs on this host."""
        return [task for task in asyncio.all_tasks(self.loop) if getattr(task, "host", None) is self]

    def kill(self) -> None:
        """Lose all that runs here, wherever it stands."""
        self._buried += self.tasks()
        self.loop.graveyard.append(self)
        self.is_dead, self.is_up = True, False
        self._parked.clear()

    def freeze(self) -> None:
        """Stop the host; timers that expire meanwhile run when it thaws."""
        self.is_frozen, self.is_up = True, False

    def thaw(self) -> None:
        """Let a frozen host go on."""
        self.is_frozen, self.is_up = False, not self.is_dead
        if not self.is_dead:
            self.loop.resume(self._parked)
        self._parked = collections.deque()

    def park(self, handle: asyncio.Handle) -> None:
        """Keep a callback of a frozen host."""
        self._parked.append(handle)


class SimTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash is the same in each run: sets of tasks are iterated, in TaskGroup and elsewhere."""

    def __init__(self, coro: Any, *, loop: SimLoop, context: contextvars.Context | None = None) -> None:
        self._number = loop.number()
        #: Where it runs.
        self.host = HOST.get() if context is None else context.get(HOST)
        super().__init__(coro, loop=loop, context=context)

    def __hash__(self) -> int:
        return self._number


class SimFuture(asyncio.Future):  # type: ignore[type-arg]
    """As `SimTask`: asyncio.wait takes sets of futures."""

    def __init__(self, *, loop: SimLoop) -> None:
        self._number = loop.number()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


def _nothing() -> None:
    """Stand for what a cancelled timer has let go."""


class SimHandle(asyncio.Handle):
    """A callback that is made at once, and can do without what asyncio knows for debugging."""

    __slots__ = ()

    def __init__(
        self, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:  # fmt: skip
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled = False
        self._repr = self._source_traceback = None


class SimTimer(asyncio.TimerHandle):
    """As `SimHandle`: there are more timers than of anything else."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: tuple[Any, ...], loop: SimLoop,
        context: contextvars.Context | None,
    ) -> None:  # fmt: skip
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args, self._when = loop, callback, args, when
        self._cancelled, self._scheduled = False, True
        self._repr = self._source_traceback = None

    def cancel(self) -> None:
        """Drop it; it stays armed until its time, or until many are dropped."""
        if not self._cancelled:
            self._cancelled = True
            self._callback, self._args = _nothing, ()
            if self._scheduled:
                self._loop._timer_cancelled_count += 1


class SimLoop(asyncio.BaseEventLoop):
    """Time stands still while anything is ready, then jumps to the next timer. There are no threads and no sockets."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.random = random.Random(f"loop {seed}")
        self.network: Any = None
        self.graveyard: list[Host] = []
        self.turns = 0
        self._now = 0.0
        self._numbers = self._armed = 0
        #: Tuples, whose order is known without a call of Python code: when, which one, the timer.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._turns_now = 0
        #: What was raised where none awaits it, and tasks that were forgotten.
        self.unhandled: list[str] = []
        self.set_task_factory(lambda loop, coro, context=None: SimTask(coro, loop=loop, context=context))

    def number(self) -> int:
        """Return the number of one more task or future."""
        self._numbers += 1
        return self._numbers

    def time(self) -> float:
        return self._now

    def create_future(self) -> SimFuture:
        return SimFuture(loop=self)

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Note what is wrong, whatever handler a daemon has set: one loop has many."""
        self.unhandled.append(f"{self._now:.3f} s: {context.get('message')}: {context.get('exception')!r}")

    def resume(self, handles: collections.deque[asyncio.Handle]) -> None:
        """Have what a host missed run now."""
        self._ready.extend(handles)

    def _run_once(self) -> None:
        """Run turns until the loop is stopped: asyncio asks for one, and most time would go into asking."""
        ready, host_of = self._ready, HOST
        while True:
            self._begin_turn(ready)
            for _ in range(len(ready)):
                handle = ready.popleft()
                if handle._cancelled:
                    continue
                context = handle._context
                host = context.get(host_of)
                if host is None or host.is_up:
                    self.turns += 1
                    try:
                        context.run(handle._callback, *handle._args)
                    except (SystemExit, KeyboardInterrupt):
                        raise
                    except BaseException:  # noqa: BLE001 - as asyncio does
                        self._failed(handle)
                elif not host.is_dead:
                    host.park(handle)
            if self._stopping:
                return

    def _begin_turn(self, ready: collections.deque[asyncio.Handle]) -> None:
        timers = self._timers
        if not ready or (timers and timers[0][0] <= self._now):
            self._expire_timers(ready)
        self._turns_now += 1
        self._now += _TURN_S
        if self._turns_now > _TURNS_AT_ONCE:
            raise LivelockError(f"at {self._now:.3f} s: {list(ready)[:5]}")
        if len(ready) > 1:
            self._mix(ready)

    def _failed(self, handle: asyncio.Handle) -> None:
        name = getattr(handle._callback, "__qualname__", handle._callback)
        self.call_exception_handler({"message": f"Exception in callback {name}", "exception": sys.exception()})

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """Have *callback* run in the next turn."""
        handle = SimHandle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Have *callback* run after so many seconds."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        """Have *callback* run at a time; what is due at the same one runs in the order in which it was asked for."""
        timer = SimTimer(when, callback, args, self, context)
        self._armed += 1
        heapq.heappush(self._timers, (when, self._armed, timer))
        return timer

    def _expire_timers(self, ready: collections.deque[asyncio.Handle]) -> None:
        """Let time jump if nothing is ready, and take the timers that are due."""
        timers, pop = self._timers, heapq.heappop
        if self._timer_cancelled_count > 1_000 and self._timer_cancelled_count * 2 > len(timers):
            timers[:] = [it for it in timers if not it[2]._cancelled]
            heapq.heapify(timers)
            self._timer_cancelled_count = 0
        while timers and timers[0][2]._cancelled:
            pop(timers)[2]._scheduled = False
        if not ready:
            if not timers:
                raise LivelockError("nothing is ready, and no timer is armed")
            if timers[0][0] > self._now:
                self._now, self._turns_now = timers[0][0], 0
        now = self._now
        while timers and timers[0][0] <= now:
            handle = pop(timers)[2]
            handle._scheduled = False
            if not handle._cancelled:
                ready.append(handle)

    def _mix(self, ready: collections.deque[asyncio.Handle]) -> None:
        """Draw whose turn it is among hosts; each one's callbacks stay in their order."""
        by_host: dict[Host | None, collections.deque[asyncio.Handle]] = {}
        for handle in ready:
            host = handle._context.get(HOST)
            if host in by_host:
                by_host[host].append(handle)
            else:
                by_host[host] = collections.deque((handle,))
        if len(by_host) == 1:
            return
        ready.clear()
        lines, draw = list(by_host.values()), self.random.random
        while lines:
            line = lines[int(draw() * len(lines))]
            ready.append(line.popleft())
            if not line:
                lines.remove(line)

    # What would leave the process.

    def _process_events(self, event_list: object) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def set_default_executor(self, _executor: object) -> None:
        """Take none: there are no threads."""

    def run_in_executor(self, _executor: object, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """Run *func* here and now; its awaiter goes on in a later turn, as after a thread."""
        done = self.create_future()
        try:
            result = func(*args)
        except BaseException as error:  # noqa: BLE001 - it is the awaiter's
            done.set_exception(error)
        else:
            done.set_result(result)
        return done

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return await self.network.look_up(host, port)

    async def sock_connect(self, sock: Any, address: Any) -> None:
        await self.network.connect(sock, address)

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, sock: Any = None, ssl: Any = None, **_: Any
    ) -> Any:
        assert ssl is None, "there is no TLS in here"
        if sock is None:  # the probe that asks whether a port speaks TLS
            return await self.network.open((host, port), protocol_factory())
        return self.network.attach(sock, protocol_factory())

    async def create_server(self, protocol_factory: Any, *_: Any, sock: Any = None, **__: Any) -> Any:
        return sock.serve(self.network, protocol_factory)


class SimClock:
    """The clock of whichever host asks."""

    def __init__(self, loop: SimLoop, wall_start_ms: int = 1_735_689_600_000) -> None:
        self._loop = loop
        self._start_ms = wall_start_ms

    def wall_ms(self) -> int:
        host = HOST.get()
        return self._start_ms + round(self._loop.time() * 1_000) + (host.clock_ahead_ms if host is not None else 0)

    def monotonic(self) -> float:
        return self._loop.time()

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Return what waits so long."""
        return asyncio.sleep(seconds)
