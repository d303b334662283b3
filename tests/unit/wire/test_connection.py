"""One connection to one broker: frames at every boundary, the order of answers, deadlines, and what a loss does."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import struct
import threading
from collections.abc import AsyncIterator, Callable

import pytest
from aiokafka.protocol.admin import ApiVersionRequest
from hypothesis import given
from hypothesis import strategies as st

from mm2py.errors import BrokerConnectionError
from mm2py.wire import connection
from mm2py.wire.answers import read_response
from mm2py.wire.connection import BrokerConnection, _why
from mm2py.wire.groups.requests import JoinGroupRequest
from tests.support.line import ENDPOINT, Frames, Line, frame


_MIB = 1024 * 1024


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line()
    yield line
    line.connection.close()


BODIES = [b"", b"x", b"y" * 300, b"", b"z" * 17]


async def test_frames_arrive_whole_wherever_they_are_cut(line: Line) -> None:
    """Answers are put together again when the stream is cut in two at any byte."""
    stream = b"".join(frame(number + 1, body) for number, body in enumerate(BODIES))
    for cut in range(1, len(stream)):
        cut_line = Line()
        for _ in BODIES:
            cut_line.ask()
        cut_line.feed(stream[:cut])
        cut_line.feed(stream[cut:])
        cut_line.connection.close()

        assert [received[4:] for received in cut_line.frames.received] == BODIES
        assert not cut_line.frames.lost


@given(
    st.lists(st.sampled_from([0, 1, 100, 65_531, 65_532, 65_533, 70_000, 200_000, _MIB + 5]), min_size=1, max_size=6),
    st.lists(st.sampled_from([1, 3, 4, 5, 1_000, 65_535, 65_536, 300_000]), min_size=1, max_size=5),
)
async def test_frames_of_any_size_arrive_in_any_pieces(sizes: list[int], pieces: list[int]) -> None:
    """Small and large answers, cut into any pieces, come out one by one with their own bytes."""
    line = Line()
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    for _ in bodies:
        line.ask()
    # One byte at a time only for the first few, lest a test takes minutes.
    chunks = iter(lambda: pieces[0] if pieces[0] > 5 else 4096, None)
    stream = b"".join(frame(number + 1, body) for number, body in enumerate(bodies))
    line.feed(stream[:40], iter(lambda: min(pieces), None))
    line.feed(stream[40:], chunks)
    line.connection.close()

    assert [received[4:] == body for received, body in zip(line.frames.received, bodies, strict=True)]


async def test_memory_of_an_answer_is_its_owners(line: Line) -> None:
    """An answer that is kept stays as it was, whatever arrives later, and small ones may be changed in place."""
    kept: list[memoryview] = []

    class Keeper(Frames):
        def frame_received(self, frame: memoryview) -> None:
            frame[4:] = bytes(byte ^ 0xFF for byte in frame[4:])
            kept.append(frame)

    keeper = Keeper()
    for number in range(4):
        line.ask(handler=keeper)
        line.feed(frame(number + 1, bytes([number]) * 50))

    assert [bytes(frame[4:]) for frame in kept] == [bytes([number ^ 0xFF]) * 50 for number in range(4)]


async def test_a_connection_knows_of_an_answer_that_has_arrived_in_part(line: Line) -> None:
    """Until then a broker may hold it back."""
    line.ask()
    known, stream = [line.connection.is_receiving], frame(1, b"x" * 200_000)
    for part in (stream[:1_000], stream[1_000:]):
        line.feed(part)
        known.append(line.connection.is_receiving)

    assert known == [False, True, False]


async def test_large_answers_share_memory_once_it_is_released(line: Line) -> None:
    """The memory of a large answer is used again once no view refers to it; until then it is counted."""
    kept: list[memoryview] = []

    class Keeper(Frames):
        def frame_received(self, frame: memoryview) -> None:
            kept.append(frame[10:20])

    keeper = Keeper()
    for number in (1, 2):
        line.ask(handler=keeper)
        line.feed(frame(number, bytes([number]) * (2 * _MIB)))

    assert line.connection.held_bytes >= 4 * _MIB
    assert [bytes(view) for view in kept] == [b"\x01" * 10, b"\x02" * 10]

    memory = [id(view.obj) for view in kept]
    kept.clear()

    assert line.connection.held_bytes == 0

    line.ask(handler=keeper)
    line.feed(frame(3, b"\x03" * (2 * _MIB)))

    assert id(kept[0].obj) in memory


async def test_pool_does_not_grow_without_bound(line: Line) -> None:
    """However many large answers of however many sizes arrive, a handful of buffers stays behind."""
    for number in range(1, 40):
        line.ask()
        line.feed(frame(number, b"x" * (_MIB + number * 300_000)))
        line.frames.received.clear()

    assert len(line.connection._frames._pool._buffers) <= 8


async def test_request_is_this_to_the_byte(line: Line) -> None:
    """A raw request has a version 1 header with size, key, version, correlation id and client id."""
    line.connection.send_raw(1, 11, [b"bo", bytearray(b"dy"), memoryview(b"!")], line.frames)

    assert line.transport.written == [bytes.fromhex("00000014 0001 000b 00000001 0005") + b"mm2py" + b"body!"]


async def test_correlation_ids_count_up_and_wrap(line: Line) -> None:
    """Each request has the next correlation id; after the greatest one comes 0."""
    line.connection._correlation_id = 0x7FFFFFFE
    line.ask()
    line.ask()
    sent = [struct.unpack_from(">i", message, 8)[0] for message in line.transport.written]
    line.feed(frame(0x7FFFFFFF, b"a") + frame(0, b"b"))

    assert sent == [0x7FFFFFFF, 0]
    assert [received[4:] for received in line.frames.received] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("asked", "said", "cause"),
    [
        *((2, frame(correlation_id, b"x"), "not the oldest") for correlation_id in (2, 3, -1)),
        (0, frame(1, b"x"), ""),
        *((1, struct.pack(">i", size) + b"1234", str(size)) for size in (3, 0, -1, -(1 << 31))),
    ],
)
async def test_what_no_broker_says_closes(line: Line, asked: int, said: bytes, cause: str) -> None:
    """An answer to no request or not to the oldest, or a size that holds no correlation id, is an end for all."""
    for _ in range(asked):
        line.ask()
    line.feed(said)

    assert line.connection.is_closed
    assert line.transport.is_aborted
    assert not line.frames.received
    assert [cause in error.cause for error in line.frames.lost] == [True] * asked


async def test_unanswered_request_closes_after_its_deadline(line: Line) -> None:
    """When the oldest request's time is over everything unanswered fails, the younger ones as well."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    line.ask()
    await asyncio.sleep(4.5)
    line.ask()

    assert not line.connection.is_closed
    await asyncio.sleep(0.6)

    assert line.connection.is_closed
    assert len(line.frames.lost) == 2
    assert loop.time() - started == pytest.approx(5.1)


async def test_answered_requests_have_no_deadline(line: Line) -> None:
    """An answer in time lets the connection live on, however long nothing is asked, and the next one has its own."""
    line.ask()
    await asyncio.sleep(4.9)
    line.feed(frame(1, b"x"))
    await asyncio.sleep(100)
    line.ask()
    await asyncio.sleep(4.9)

    assert not line.connection.is_closed
    await asyncio.sleep(0.2)

    assert line.connection.is_closed


async def test_requests_held_back_on_purpose_have_more_time(line: Line) -> None:
    """The time for which a broker may hold a request back is added to its deadline."""
    line.ask(extra_wait_s=10)
    await asyncio.sleep(14.9)

    assert not line.connection.is_closed
    await asyncio.sleep(0.2)

    assert line.connection.is_closed


async def test_a_join_is_held_back_for_a_session(line: Line) -> None:
    """A group's coordinator answers a JoinGroup once all members have joined, so its deadline is a session later."""
    line.connection.versions[JoinGroupRequest.API_KEY] = (0, 9)
    joining = JoinGroupRequest("A-mm2", 30_000, 30_000, "", "node-1", "connect", [("mm2py-1", b"")])
    asked = asyncio.create_task(line.connection.send(joining))
    await asyncio.sleep(34.9)

    assert not line.connection.is_closed
    await asyncio.sleep(0.2)

    assert line.connection.is_closed
    with pytest.raises(BrokerConnectionError):
        await asked


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (lambda c: c.eof_received(), "the broker closed the connection"),
        (lambda c: c.connection_lost(None), "the broker closed the connection"),
        (lambda c: c.connection_lost(ConnectionResetError("reset by peer")), "reset by peer"),
        (lambda c: c.close("no longer needed"), "no longer needed"),
    ],
    ids=["eof", "lost", "reset", "closed"],
)
async def test_loss_fails_every_request_once(line: Line, end: Callable[[BrokerConnection], None], cause: str) -> None:
    """However a connection ends, each unanswered request learns it once, with the cause."""
    answered = Frames()
    line.ask(handler=answered)
    line.feed(frame(1, b"x"))
    line.ask()
    line.ask()
    end(line.connection)
    line.connection.connection_lost(None)

    assert [error.cause for error in line.frames.lost] == [cause, cause]
    assert not answered.lost
    assert line.connection.is_closed


async def test_nothing_more_is_written_once_a_write_has_failed(line: Line) -> None:
    """
    The socket fails with a request; before asyncio reports that, another one is sent.

    Python 3.12 to 3.13.5 would keep it, and the socket's number, with which the next connection would never be open.
    """
    line.ask()
    line.transport.has_failed = True
    line.ask()

    assert len(line.transport.written) == 1

    line.connection.connection_lost(ConnectionResetError("reset by peer"))

    assert len(line.frames.lost) == 2


async def test_closed_connection_takes_no_requests(line: Line) -> None:
    """Sending on a closed connection raises at once, and the handler is not asked."""
    line.connection.close()

    with pytest.raises(BrokerConnectionError):
        line.ask()
    with pytest.raises(BrokerConnectionError):
        await line.connection.request_raw(1, 11, [b"x"])
    with pytest.raises(BrokerConnectionError):
        await line.connection.send(ApiVersionRequest())
    assert not line.frames.lost


async def test_handler_may_send_and_close_from_within(line: Line) -> None:
    """An answer's handler may send the next request, or close the connection, in the same turn."""

    class Busy(Frames):
        def frame_received(self, frame: memoryview) -> None:
            super().frame_received(frame)
            if len(self.received) == 1:
                line.ask(handler=self)
            else:
                line.connection.close("enough")

    busy = Busy()
    line.ask(handler=busy)
    line.feed(frame(1, b"a") + frame(2, b"b") + frame(3, b"c"))

    assert [received[4:] for received in busy.received] == [b"a", b"b"]
    assert line.connection.is_closed


async def test_given_up_request_does_not_disturb_the_next(line: Line) -> None:
    """The answer to a request whose waiter was cancelled is thrown away, and the next waiter gets its own."""
    first = asyncio.ensure_future(line.connection.request_raw(1, 11, [b"x"]))
    second = asyncio.ensure_future(line.connection.request_raw(1, 11, [b"y"]))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    line.feed(frame(1, b"abandoned") + frame(2, b"mine"))

    assert bytes((await second)[4:]) == b"mine"
    assert first.cancelled()


async def test_aiokafkas_requests_are_encoded_and_decoded(line: Line) -> None:
    """Ordinary requests are aiokafka's, with the version that both sides know."""
    line.connection.versions = {18: (0, 0)}
    waiting = asyncio.ensure_future(line.connection.send(ApiVersionRequest()))
    await asyncio.sleep(0)
    key, version = struct.unpack_from(">hh", line.transport.written[0], 4)
    line.feed(frame(1, bytes.fromhex("0000 00000001 0012 0000 0003")))
    answer = await waiting

    assert (key, version) == (18, 0)
    assert answer.api_versions == [(18, 0, 3)]


async def test_a_long_answer_is_read_in_a_thread(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop does not stand still while an answer about very many partitions is decoded."""
    read_in: list[int] = []

    def read(prepared: object, answer: memoryview) -> object:
        read_in.append(threading.get_ident())
        return read_response(prepared, answer)

    monkeypatch.setattr(connection, "read_response", read)
    line.connection.versions = {18: (0, 0)}
    for number, count in ((1, 2), (2, 20_000)):
        waiting = asyncio.ensure_future(line.connection.send(ApiVersionRequest()))
        await asyncio.sleep(0)
        line.feed(frame(number, struct.pack(">hi", 0, count) + bytes(6 * count)))
        assert len((await waiting).api_versions) == count

    assert read_in[0] == threading.get_ident() != read_in[1]


async def test_why_there_is_no_connection_is_told_in_words() -> None:
    """If no process listens on the port, the error has the cause, and the address only once."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(BrokerConnectionError) as caught:
        await BrokerConnection.open(ENDPOINT, "127.0.0.1", port)

    assert str(caught.value) == f"connection to broker 127.0.0.1:{port} of cluster A: connection refused"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (socket.gaierror(-2, "Name or service not known"), "the host's name is not known (Name or service not known)"),
        (TimeoutError(), "no answer in time"),
        (OSError("Multiple exceptions: refused, refused"), "Multiple exceptions: refused, refused"),
        (EOFError(), "EOFError"),
    ],
    ids=["name", "time", "several", "no words"],
)
def test_causes_in_words(error: Exception, words: str) -> None:
    """Whatever kept us from connecting has a name that is no address, number or empty text."""
    assert _why(error) == words


def test_a_limit_of_open_files_is_named() -> None:
    """Neither the network nor a broker is what an operator has to look at then."""
    assert re.search("as many files open as it may, [0-9]+: raise ulimit -n", _why(OSError(errno.EMFILE, "")))
