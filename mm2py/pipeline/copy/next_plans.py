"""
The Unix socket on which a Python worker hands in its outcome and is given the next plan while its Spark task stays.

Between two Spark jobs no record of a copy task moves, for as long as Spark takes to end one and to start the other. A
worker that finds no socket, or is given no plan, ends its task: nothing depends on the socket but time.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from mm2py.model.epoch import EpochOutcome


#: A message's length; of a worker's first one there is only this, the number of its Spark job.
_HEAD: Final = struct.Struct(">Q")


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield another name of the Unix socket *path*, within the kernel's 108 bytes. Raise `OSError` if there is none."""
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)  # noqa: PTH120 - no pathlib in workers
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"  # noqa: PTH119
    finally:
        os.close(folder)


async def read_number(reader: asyncio.StreamReader) -> int | None:
    """Return the number that comes next; None at the end."""
    try:
        number: int = _HEAD.unpack(await reader.readexactly(_HEAD.size))[0]
    except (asyncio.IncompleteReadError, OSError):
        return None
    return number


async def read_message(reader: asyncio.StreamReader) -> bytes | None:
    """Return the message that comes next; None at the end."""
    length = await read_number(reader)
    try:
        return None if length is None else await reader.readexactly(length)
    except (asyncio.IncompleteReadError, OSError):
        return None


def write_message(writer: asyncio.StreamWriter, content: bytes) -> None:
    """Send *content*, as soon as the other end takes it."""
    writer.writelines((_HEAD.pack(len(content)), content))


class NextPlans:
    """The worker's end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, path: str, job: int) -> Self | None:
        """Connect to the daemon's socket at *path* as the Spark job with that number; return None if that fails."""
        try:
            with short_path(path) as short:
                reader, writer = await asyncio.open_unix_connection(short)
        except OSError:
            return None
        writer.write(_HEAD.pack(job))
        return cls(reader, writer)

    async def after(self, outcome: EpochOutcome | None) -> bytes | None:
        """Hand *outcome* in, or None to ask for the whole plan; return the next sealed plan, None if there is none."""
        write_message(self._writer, pickle.dumps(outcome, protocol=5))
        return await read_message(self._reader)

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()
