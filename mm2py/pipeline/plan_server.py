"""Where the Spark tasks of copy jobs get further plans: see `mm2py.pipeline.copy.next_plans`."""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
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
        #: The jobs whose workers have not connected, and where they have to, by number.
        self._expected: dict[int, tuple[CopyJob, PlansFrom]] = {}
        self._numbers = itertools.count(1)
        self._not_before = 0.0
        #: What was reported, and has not changed since.
        self._reported = ""

    async def expect(self, job: CopyJob) -> PlansFrom | None:
        """Return where the worker that gets *job* has to connect; None if it cannot."""
        if self._port == NO_PORT:
            return None
        self._drop_ended()
        self._drop_removed()
        if self._clock.monotonic() < self._not_before:
            return None
        async with self._starting:  # all copy tasks begin at the same moment
            if self._server is None:
                await self._start(job.session)
        if self._server is None:
            return None
        place = PlansFrom(next(self._numbers), self._path)
        if self._port is not None:
            port = self._server.sockets[0].getsockname()[1]
            place = PlansFrom(place.job, (job.session.driver_host, port), os.urandom(_KEY_BYTES))
        self._expected[place.job] = job, place
        return place

    async def _start(self, session: SparkSession) -> None:
        if self._port is None:
            # From Python 3.13 on start_unix_server would remove the socket at the end, by a name that is gone by then.
            listening = socket.socket(socket.AF_UNIX)
            try:
                with short_path(self._path) as short:
                    listening.bind(short)
                self._server = await asyncio.start_server(self._serve, sock=listening)
            except OSError:
                listening.close()
            return
        try:
            self._server = await asyncio.start_server(self._serve, session.bind_address, self._port)
        except OSError as error:
            self._give_up((session.bind_address, self._port), "", error.strerror or str(error))

    def _drop_ended(self) -> None:
        """Forget jobs that have ended; a worker that did its work and did not connect, could not."""
        for job, place in [expected for expected in self._expected.values() if expected[0].has_ended]:
            del self._expected[place.job]
            if not isinstance(place.address, str) and (worker := job.unconnected_worker) is not None:
                self._give_up(place.address, worker, "it did not connect")

    def _drop_removed(self) -> None:
        """Listen no more at a socket that was removed, with Spark's own files."""
        if self._server is not None and self._port is None and not os.path.exists(self._path):  # noqa: PTH110
            self._server.close()
            self._server = None

    def _give_up(self, address: tuple[str, int], worker: str, problem: str) -> None:
        self._not_before = self._clock.monotonic() + _PAUSE_S
        if self._reported != problem:
            self._reported = problem
            self._events.emit(CopyTasksNotReached("{}:{}".format(*address), worker, problem))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_GREETS_WITHIN_S):
                greeted = await self._greeted(reader, writer)
            if greeted is not None:
                job, worker = greeted
                self._reported = ""
                await job.serve(worker)
        except TimeoutError:
            pass
        finally:
            writer.close()

    async def _greeted(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[CopyJob, Messages] | None:
        """Return the job whose worker has connected, and that worker; None if it is a stranger."""
        expected = self._expected.get(await read_number(reader) or 0)
        if expected is None:
            return None
        job, place = expected
        worker = Messages(reader, writer, Cipher(place.key, is_worker=False) if place.key else None)
        is_ours = await worker.read(at_most=_GREETING_BYTES) == NOTHING
        # Another one may have been the same meanwhile.
        return (job, worker) if is_ours and self._expected.pop(place.job, None) is not None else None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
