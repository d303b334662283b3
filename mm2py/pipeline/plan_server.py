"""Where the Spark tasks of copy jobs get further plans: see `mm2py.pipeline.copy.next_plans`."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
from pathlib import Path
from typing import Final

from mm2py.clock import Clock
from mm2py.pipeline.copy.next_plans import NOTHING, Cipher, Messages, PlansFrom, read_number, short_path
from mm2py.pipeline.copy_job import CopyJob
from mm2py.pipeline.spark.session import SparkSession
from mm2py.telemetry.events import CopyTasksNotReached
from mm2py.telemetry.journal import EventLog


#: The port that stands for none: on a cluster each epoch is then a Spark job.
NO_PORT: Final = -1
_KEY_BYTES: Final = 32
#: How long a stranger may take to show that it has a job's key.
_GREETS_WITHIN_S: Final = 10.0
#: A greeting is nothing, and its tag.
_GREETING_BYTES: Final = 64
#: For how long no worker is asked to connect after one could not, or the port could not be had.
_PAUSE_S: Final = 60.0


class PlanServer:
    """
    The daemon's end: a Unix socket in *folder* where Spark is embedded, else *port* at the driver's address.

    Executors have to reach that port. Where they cannot, their tasks do not stay.
    """

    def __init__(self, folder: Path, clock: Clock, events: EventLog, *, port: int | None) -> None:
        """Create it, for a cluster with a *port*: 0 is any that is free, `NO_PORT` none."""
        self._path = str(folder / "epoch-plans.sock")
        self._clock = clock
        self._events = events
        self._port = port
        self._server: asyncio.Server | None = None
        self._starting = asyncio.Lock()
        self._jobs: dict[int, CopyJob] = {}
        self._keys: dict[int, bytes] = {}
        self._numbers = itertools.count(1)
        self._not_before = 0.0
        #: What was reported, and has not changed since.
        self._reported = ""

    async def expect(self, job: CopyJob) -> PlansFrom | None:
        """Return where the worker that gets *job* has to connect; None if it cannot."""
        if self._port == NO_PORT:
            return None
        self._drop_ended()
        if self._clock.monotonic() < self._not_before:
            return None
        async with self._starting:  # all copy tasks begin at the same moment
            if self._server is None:
                await self._start(job.session)
        if self._server is None:
            return None
        number = next(self._numbers)
        self._jobs[number] = job
        if self._port is None:
            return PlansFrom(number, self._path)
        key = self._keys[number] = os.urandom(_KEY_BYTES)
        return PlansFrom(number, (job.session.driver_host, self._server.sockets[0].getsockname()[1]), key)

    async def _start(self, session: SparkSession) -> None:
        if self._port is None:
            with contextlib.suppress(OSError), short_path(self._path) as short:
                self._server = await asyncio.start_unix_server(self._serve, short)
            return
        try:
            self._server = await asyncio.start_server(self._serve, session.bind_address, self._port)
        except OSError as error:
            self._give_up(f"{session.bind_address}:{self._port}", "", error.strerror or str(error))

    def _drop_ended(self) -> None:
        """Forget jobs that have ended; a worker that did its work and did not connect, could not."""
        for number in [number for number, job in self._jobs.items() if job.has_ended]:
            job = self._jobs.pop(number)
            if self._keys.pop(number, None) is not None and (worker := job.unconnected_worker) is not None:
                server = self._server
                port = server.sockets[0].getsockname()[1] if server is not None else self._port
                self._give_up(f"{job.session.driver_host}:{port}", worker, "it did not connect")

    def _give_up(self, address: str, worker: str, problem: str) -> None:
        self._not_before = self._clock.monotonic() + _PAUSE_S
        if self._reported != problem:
            self._reported = problem
            self._events.emit(CopyTasksNotReached(address, worker, problem))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_GREETS_WITHIN_S):
                number = await read_number(reader) or 0
                key = self._keys.get(number)
                worker = Messages(reader, writer, Cipher(key, is_worker=False) if key else None)
                is_ours = number in self._jobs and await worker.read(at_most=_GREETING_BYTES) == NOTHING
            job = self._jobs.pop(number, None) if is_ours else None
            if job is not None:
                self._keys.pop(number, None)
                self._reported = ""
                await job.serve(worker)
        except TimeoutError:
            pass
        finally:
            writer.close()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
