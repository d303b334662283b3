"""A broker of which tests of fetching read what it is asked, and decide what it answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

from aiokafka.protocol.fetch import FetchRequest_v10, FetchRequest_v11, FetchResponse_v10, FetchResponse_v11

from mm2py.errors import BrokerConnectionError
from mm2py.wire.connection import BrokerConnection, Buffer
from mm2py.wire.fetch import FetchSession
from mm2py.wire.fetch_forms import FetchPosition, FetchSizes
from mm2py.wire.requests import MetadataRequest_v11, id_bytes
from tests.support.fetch_v13 import FetchRequest_v13, FetchResponse_v13, tagged


SIZES = FetchSizes(min_bytes=1, max_bytes=8_000_000, partition_max_bytes=1_000_000, reads_committed=False)
SESSION = 77
IDS = {
    "orders": "AAAAAAAAAAAAAAAAAAAAAQ",
    "users": "AAAAAAAAAAAAAAAAAAAAAg",
    "unknown": "AAAAAAAAAAAAAAAAAAAAAw",
}
NAMES = {topic_id: name for name, topic_id in IDS.items()}


class Asked(NamedTuple):
    """A request as the broker reads it: per topic what is named and what is forgotten."""

    session: tuple[int, int]
    named: dict[str, dict[int, tuple[int, int]]]
    forgotten: dict[str, list[int]]


class FetchBroker:
    """
    Stands for a connection to a broker that takes Fetch up to *version*.

    It keeps what was sent, answers with what was queued and then without news, and names the topics in `topic_ids` if
    it is asked.
    """

    def __init__(self, version: int = 18) -> None:
        self.versions = {1: (4, version)}
        self.version = 13 if version >= 13 else min(version, 11)
        self.topic_ids: dict[str, str | None] = dict(IDS)
        self.asked_for_topics = 0
        self.given_up = ""
        self.requests: list[bytes] = []
        self.waits: list[float] = []
        self.answers: deque[bytes] = deque()

    async def request_raw(
        self, api_key: int, api_version: int, pieces: Sequence[Buffer], *, extra_wait_s: float = 0.0
    ) -> memoryview:
        assert (api_key, api_version) == (1, self.version)
        self.requests.append(b"".join(pieces))
        self.waits.append(extra_wait_s)
        if not self.answers:
            self.will_answer()
        return memoryview(self.answers.popleft())

    async def send(self, request: Any) -> Any:
        self.asked_for_topics += 1
        known = [(0, topic, self.topic_ids[topic], False, [], 0, {}) for topic in request._topics]
        return MetadataRequest_v11.RESPONSE_TYPE(0, [], None, -1, known, {})

    def give_up(self, cause: str) -> BrokerConnectionError:
        self.given_up = cause
        return BrokerConnectionError("A", "a:1", cause)

    @property
    def request(self) -> Any:
        """The last request, decoded."""
        kinds = {10: FetchRequest_v10, 11: FetchRequest_v11, 13: FetchRequest_v13}
        return kinds[self.version].decode(self.requests[-1])

    @property
    def asked(self) -> Asked:
        request = self.request
        named = {
            NAMES.get(topic, topic): {number: (offset, epoch) for number, epoch, offset, *_ in partitions}
            for topic, partitions, *_ in request.topics
        }
        forgotten = {NAMES.get(topic, topic): numbers for topic, numbers, *_ in request.forgotten_topics_data}
        return Asked((request.session_id, request.session_epoch), named, forgotten)

    def will_answer(
        self, *topics: tuple[str, Sequence[tuple[Any, ...]]], session: int = SESSION, error: int = 0, throttle: int = 0
    ) -> None:
        if self.version == 10:
            named = [(topic, [(*it[:-2], it[-1]) for it in rows]) for topic, rows in topics]
            body = FetchResponse_v10(throttle, error, session, named).encode()
        elif self.version < 13:
            body = FetchResponse_v11(throttle, error, session, list(topics)).encode()
        else:
            by_id = [(IDS[topic], [tagged(row) for row in rows], {}) for topic, rows in topics]
            body = FetchResponse_v13({}, throttle, error, session, by_id, {}).encode()
        self.answers.append(b"\x00\x00\x00\x01" + body)


def position(number: int, offset: int, *, topic: bytes = b"orders", epoch: int = 3) -> FetchPosition:
    return FetchPosition(topic, number, offset, epoch, None, topic_id=id_bytes(IDS[topic.decode()]))


def row(number: int, records: bytes = b"", *, error: int = 0, aborted: Any = ()) -> tuple[Any, ...]:
    return (number, error, 900, 800, 100, list(aborted), -1, records)


def session_with(broker: FetchBroker) -> FetchSession:
    """Return a session with a broker that tells the ids of topics if it is asked."""
    return FetchSession(cast("BrokerConnection", broker), has_ids=True)
