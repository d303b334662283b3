"""The messages between a daemon and the workers of its copy tasks."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio

from mm2py.pipeline.copy.next_plans import NOTHING, Cipher, Messages


_KEY = bytes(range(32))


class Wire:
    """Both ends of a connection, and the bytes that one of them would send."""

    def __init__(self, ours: asyncio.StreamWriter, theirs: asyncio.StreamReader) -> None:
        self.writer = ours
        self.reader = theirs

    def end(self, cipher: Cipher | None = None) -> Messages:
        """Return the end that receives what `writer` sends."""
        return Messages(self.reader, self.writer, cipher)


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    """Connect two sockets."""
    left, right = socket.socketpair()
    _, writer = await asyncio.open_connection(sock=left)
    reader, other = await asyncio.open_connection(sock=right)
    yield Wire(writer, reader)
    for end in (writer, other):
        end.close()


def _sealed(*contents: bytes, is_worker: bool = True) -> list[bytes]:
    cipher = Cipher(_KEY, is_worker=is_worker)
    return [len(sealed).to_bytes(8, "big") + sealed for sealed in map(cipher.seal, contents)]


@pytest.mark.parametrize("is_sealed", [False, True], ids=["open", "sealed"])
async def test_messages_arrive_in_their_order(wire: Wire, is_sealed: bool) -> None:
    """Empty and long ones too, and the end."""
    sent = [NOTHING, b"x" * 1_000_000, b"plan"]
    sender = Messages(wire.reader, wire.writer, Cipher(_KEY, is_worker=True) if is_sealed else None)
    receiver = wire.end(Cipher(_KEY, is_worker=False) if is_sealed else None)
    for content in sent:
        sender.write(content)
    wire.writer.close()

    assert [await receiver.read() for _ in range(4)] == [*sent, None]


async def test_an_empty_message_is_written_without_an_empty_piece(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """From Python 3.12 on it would keep the connection open for good, and the event loop busy with it."""
    written: list[bytes] = []
    monkeypatch.setattr(wire.writer, "writelines", written.extend)
    wire.end().write(NOTHING)

    assert written == [bytes(8)]


async def test_nothing_is_written_once_the_connection_is_lost(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 to 3.13.5 would raise, and the outcome of an epoch that has copied would be lost with its task."""
    written: list[bytes] = []
    monkeypatch.setattr(wire.writer, "writelines", written.extend)
    wire.writer.transport.abort()
    wire.end().write(b"outcome")

    assert written == []


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(lambda: _sealed(b"a", b"b")[1], id="out of turn"),
        pytest.param(lambda: _sealed(b"a", is_worker=False)[0], id="one of our own"),
        pytest.param(lambda: _sealed(b"a")[0][:-1] + b"?", id="altered"),
        pytest.param(lambda: (1).to_bytes(8, "big") + b"a", id="not sealed"),
    ],
)
async def test_what_the_other_end_has_not_sent_ends_the_connection(wire: Wire, told: Callable[[], bytes]) -> None:
    """It is no message, as if the connection had been closed."""
    wire.writer.write(told())

    assert await wire.end(Cipher(_KEY, is_worker=False)).read() is None


async def test_nothing_is_taken_twice(wire: Wire) -> None:
    """A message that is sent again by someone who has read it is none."""
    (once,) = _sealed(b"a")
    receiver = wire.end(Cipher(_KEY, is_worker=False))
    wire.writer.write(once + once)

    assert [await receiver.read(), await receiver.read()] == [b"a", None]


async def test_a_long_greeting_is_not_waited_for(wire: Wire) -> None:
    """Who has not shown a key cannot have memory filled."""
    wire.writer.write((1 << 60).to_bytes(8, "big"))

    async with asyncio.timeout(5):
        assert await wire.end().read(at_most=64) is None
