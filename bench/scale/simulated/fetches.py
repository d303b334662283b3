"""
Fetch version 13 as a simulated broker serves it: sessions (KIP-227) and long polls.

What an answer costs depends on the partitions that have something new, never on those in the session: the simulated
broker is to be no part of what is measured.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import attrs
from aiokafka.protocol.fetch import FetchRequest_v11

from bench.scale.simulated.logs import Log, Reader, SimulatedCluster, varint


VERSION = 13
_NO_SESSION = -1
_UNKNOWN_TOPIC_ID, _SESSION_NOT_FOUND, _INVALID_EPOCH = 100, 70, 71
_ID_BYTES = 16
#: replica, wait, least bytes, most bytes, isolation, session, epoch
_HEAD = struct.Struct(">iiiibii")
#: partition, leader epoch, offset, last epoch, log start, most bytes, tags
_WANTED = struct.Struct(">iiqiqiB")
_NUMBER = struct.Struct(">i")
#: throttle, error, session
_ANSWER_HEAD = struct.Struct(">ihi")
#: partition, error, high watermark, last stable offset, log start, aborted and one, replica
_ANSWER = struct.Struct(">ihqqqBi")

#: A topic's id and a partition's number.
Key = tuple[bytes, int]


@attrs.define(eq=False)
class Session(Reader):
    """What one fetcher has asked for."""

    number: int
    epoch: int = 0
    logs: dict[Key, Log] = attrs.field(factory=dict)
    offsets: dict[Log, int] = attrs.field(factory=dict)
    most: dict[Log, int] = attrs.field(factory=dict)
    #: Those that may have records for it, and those that it has not heard of; in the order of their turns.
    news: dict[Log, None] = attrs.field(factory=dict)
    unheard: dict[Log, None] = attrs.field(factory=dict)
    unknown: list[Key] = attrs.field(factory=list)
    woken: asyncio.Event = attrs.field(factory=asyncio.Event)

    def has_news(self, log: Log) -> None:
        self.news[log] = None
        self.woken.set()

    def want(self, key: Key, log: Log, offset: int, most: int) -> None:
        """Read *log* from *offset* on."""
        if key not in self.logs:
            self.logs[key] = log
            self.unheard[log] = None
            log.readers.append(self)
        self.offsets[log], self.most[log] = offset, most
        if offset < log.end:
            self.news[log] = None
        else:
            self.news.pop(log, None)

    def forget(self, key: Key) -> None:
        """Do not read that partition any more."""
        log = self.logs.pop(key, None)
        if log is not None:
            log.readers.remove(self)
            for of_logs in (self.offsets, self.most, self.news, self.unheard):
                of_logs.pop(log, None)

    def close(self) -> None:
        """Forget everything."""
        for key in list(self.logs):
            self.forget(key)


@attrs.define(eq=False)
class _Asked:
    wait_s: float
    most: int
    session: int
    epoch: int
    wanted: list[tuple[Key, int, int]]
    forgotten: list[Key]


class Fetches:
    """The fetch sessions of one connection."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._sessions: dict[int, Session] = {}
        self._made = 0

    def close(self) -> None:
        """Forget all sessions."""
        for session in self._sessions.values():
            session.close()

    async def answer(self, body: memoryview) -> bytes:
        """Answer a request once there is something, or its time is over."""
        asked = _read(body)
        session = self._session(asked)
        if isinstance(session, int):
            return _ANSWER_HEAD.pack(0, session, 0) + b"\x01\x00"
        for key in asked.forgotten:
            session.forget(key)
        for key, offset, most in asked.wanted:
            topic = self._cluster.by_id.get(key[0])
            if topic is None or key[1] >= len(topic.logs):
                session.unknown.append(key)
            else:
                session.want(key, topic.logs[key[1]], offset, most)
        if not (session.news or session.unheard or session.unknown):
            session.woken.clear()
            try:
                async with asyncio.timeout(asked.wait_s):
                    await session.woken.wait()
            except TimeoutError:
                pass
        rows = _rows(session, asked.most)
        if session.number == 0:
            session.close()
        return _ANSWER_HEAD.pack(0, 0, session.number) + rows

    def _session(self, asked: _Asked) -> Session | int:
        """Return the session of a request, or the error."""
        if asked.epoch == _NO_SESSION:
            return Session(0)
        if asked.epoch == 0:
            old = self._sessions.pop(asked.session, None)
            if old is not None:
                old.close()
            self._made += 1
            session = self._sessions[self._made] = Session(self._made)
        else:
            found = self._sessions.get(asked.session)
            if found is None:
                return _SESSION_NOT_FOUND
            session = found
            if asked.epoch != session.epoch:
                return _INVALID_EPOCH
        session.epoch += 1
        return session


def _rows(session: Session, most: int) -> bytes:
    by_topic: dict[bytes, list[bytes]] = {}
    for log in list(session.unheard | session.news):
        offset = session.offsets[log]
        records = log.read(offset, session.most[log]) if most > 0 else b""
        most -= len(records)
        if offset >= log.end:
            session.news.pop(log, None)
        elif records:  # those that had their turn are served last
            session.news[log] = session.news.pop(log, None)
        if records or log in session.unheard:
            session.unheard.pop(log, None)
            by_topic.setdefault(log.topic.raw_id, []).append(_row(log.number, 0, log.end, records))
    for topic_id, number in session.unknown:
        by_topic.setdefault(topic_id, []).append(_row(number, _UNKNOWN_TOPIC_ID, -1, b""))
    session.unknown.clear()
    out = [varint(len(by_topic) + 1)]
    for topic_id, rows in by_topic.items():
        out += [topic_id, varint(len(rows) + 1), *rows, b"\x00"]
    return b"".join([*out, b"\x00"])


def _row(number: int, error: int, end: int, records: bytes) -> bytes:
    start = -1 if error else 0
    return _ANSWER.pack(number, error, end, end, start, 1, -1) + varint(len(records) + 1) + records + b"\x00"


def _read(body: memoryview) -> _Asked:
    _, wait_ms, _, most, _, session, epoch = _HEAD.unpack_from(body)
    at = _HEAD.size
    wanted: list[tuple[Key, int, int]] = []
    topics, at = _number(body, at)
    for _ in range(topics - 1):
        topic_id = bytes(body[at : at + _ID_BYTES])
        count, at = _number(body, at + _ID_BYTES)
        for _ in range(count - 1):
            number, _, offset, _, _, most_of_it, _ = _WANTED.unpack_from(body, at)
            at += _WANTED.size
            wanted.append(((topic_id, number), offset, most_of_it))
        at += 1
    forgotten: list[Key] = []
    topics, at = _number(body, at)
    for _ in range(topics - 1):
        topic_id = bytes(body[at : at + _ID_BYTES])
        count, at = _number(body, at + _ID_BYTES)
        for _ in range(count - 1):
            forgotten.append((topic_id, _NUMBER.unpack_from(body, at)[0]))
            at += _NUMBER.size
        at += 1
    return _Asked(wait_ms / 1000, most, session, epoch, wanted, forgotten)


def _number(body: memoryview, at: int) -> tuple[int, int]:
    value, shift = 0, 0
    while True:
        byte = body[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fetch_by_name(cluster: SimulatedCluster, request: Any) -> Any:
    """Answer a fetch of version 11 at once, outside any session: how a log is read to its end."""
    topics = []
    for topic, partitions in request.topics:
        rows = []
        for number, _epoch, offset, _start, most in partitions:
            log = cluster.log(topic, number)
            end = -1 if log is None else log.end
            records = b"" if log is None else log.read(offset, most)
            rows.append((number, 3 if log is None else 0, end, end, 0, [], -1, records))
        topics.append((topic, rows))
    return FetchRequest_v11.RESPONSE_TYPE(0, 0, 0, topics)
