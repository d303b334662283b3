"""
The connection on which a Python worker hands in its outcome and is given the next plan while its Spark task stays.

Between two Spark jobs no record of a copy task moves, for as long as Spark takes to end one and to start the other. A
worker that gets no connection, or is given no plan, ends its task: nothing depends on the connection but time.

On this machine it is a Unix socket in a folder of ours. To executors of a cluster it is TCP, and each message is sealed
with a key that travels in the Spark job's function. A reader of that could have given Spark anything else, too.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import pickle
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from mm2py.model.epoch import EpochOutcome


#: A message's length; a worker's first eight bytes are the number of its Spark job.
_HEAD: Final = struct.Struct(">Q")
#: The worker's first message, and what ends its epoch early.
NOTHING: Final = b""
_NONCE_BYTES: Final = 12
#: The daemon counts its messages from here, so that the two ends never use a nonce twice.
_DAEMON_S: Final = 1 << 95
_CONNECTS_WITHIN_S: Final = 3.0


@attrs.frozen
class PlansFrom:
    """Where the task of a Spark job gets further plans: at a Unix socket, or at a host and port with the job's key."""

    job: int
    address: str | tuple[str, int]
    key: bytes = attrs.field(default=b"", repr=False)


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


class Cipher:
    """Seals what one end sends and opens what the other one sent, in the order of sending."""

    def __init__(self, key: bytes, *, is_worker: bool) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415 - not needed on this machine
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._aes, self._invalid = AESGCM(key), InvalidTag
        of_worker, of_daemon = itertools.count(), itertools.count(_DAEMON_S)
        self._sent, self._received = (of_worker, of_daemon) if is_worker else (of_daemon, of_worker)

    def seal(self, content: bytes) -> bytes:
        return self._aes.encrypt(next(self._sent).to_bytes(_NONCE_BYTES, "big"), content, None)

    def open(self, sealed: bytes) -> bytes | None:
        """Return what was sealed; None if the other end did not send it, or not now."""
        try:
            return self._aes.decrypt(next(self._received).to_bytes(_NONCE_BYTES, "big"), sealed, None)
        except self._invalid:
            return None


class Messages:
    """One end of the connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, cipher: Cipher | None) -> None:
        self._reader = reader
        self._writer = writer
        self._cipher = cipher

    @property
    def is_closing(self) -> bool:
        return self._writer.is_closing()

    async def read(self, *, at_most: int | None = None) -> bytes | None:
        """Return the message that comes next; None at the end, or if it is longer, or not from the other end."""
        length = await read_number(self._reader)
        if length is None or (at_most is not None and length > at_most):
            return None
        try:
            content = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            return None
        return content if self._cipher is None else self._cipher.open(content)

    def write(self, content: bytes) -> None:
        """Send *content*, as soon as the other end takes it; nothing if the connection is lost."""
        if self.is_closing:  # Python 3.12 to 3.13.5 would raise
            return
        content = content if self._cipher is None else self._cipher.seal(content)
        head = _HEAD.pack(len(content))
        # Python 3.12 and newer never get rid of an empty last piece, and would not close the connection any more.
        self._writer.writelines((head, content) if content else (head,))

    def close(self) -> None:
        self._writer.close()

    async def closed(self) -> None:
        """Close, and wait until what was written is sent."""
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


class NextPlans:
    """The worker's end of the connection, which is made while the first epoch runs."""

    def __init__(self, plans_from: PlansFrom, tasks: asyncio.TaskGroup) -> None:
        #: Set when the epoch under way is to end early.
        self.is_asked_to_end = asyncio.Event()
        self._messages: asyncio.Future[Messages | None] = asyncio.get_running_loop().create_future()
        self._plans: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._listening = tasks.create_task(self._listen(plans_from), name="next plans")

    async def after(self, outcome: EpochOutcome | None) -> bytes | None:
        """Hand *outcome* in, or None to ask for the whole plan; return the next sealed plan, None if there is none."""
        messages = await self._messages
        if messages is None:
            return None
        messages.write(pickle.dumps(outcome, protocol=5))
        return await self._plans.get()

    async def _listen(self, plans_from: PlansFrom) -> None:
        messages = await _connected(plans_from)
        self._messages.set_result(messages)
        try:
            while messages is not None and (message := await messages.read()) is not None:
                if message == NOTHING:
                    self.is_asked_to_end.set()
                else:
                    self.is_asked_to_end.clear()
                    self._plans.put_nowait(message)
        finally:
            self._plans.put_nowait(None)

    async def close(self) -> None:
        self._listening.cancel()
        if self._messages.done() and (messages := self._messages.result()) is not None:
            await messages.closed()


async def _connected(plans_from: PlansFrom) -> Messages | None:
    """Connect to the daemon as a Spark job; return None if that fails."""
    try:
        cipher = Cipher(plans_from.key, is_worker=True) if plans_from.key else None
        async with asyncio.timeout(_CONNECTS_WITHIN_S):
            if isinstance(plans_from.address, str):
                with short_path(plans_from.address) as short:
                    reader, writer = await asyncio.open_unix_connection(short)
            else:
                reader, writer = await asyncio.open_connection(*plans_from.address)
    except (OSError, TimeoutError, ImportError):  # without cryptography, which only secrets need otherwise
        return None
    writer.write(_HEAD.pack(plans_from.job))
    messages = Messages(reader, writer, cipher)
    messages.write(NOTHING)
    return messages
