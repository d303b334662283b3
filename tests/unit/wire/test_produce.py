"""Produce requests and answers as aiokafka reads and writes them, and where our producer id comes from."""

from __future__ import annotations

import base64
from typing import Any, cast

import pytest
from aiokafka.protocol.produce import ProduceRequest_v8, ProduceResponse_v7, ProduceResponse_v8
from aiokafka.protocol.transaction import InitProducerIdResponse_v0

from mm2py.errors import BrokerAnsweredError
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import ProducerMark
from mm2py.wire.cluster import Cluster
from mm2py.wire.produce import PartitionAck, init_producer_id, read_answer, request_pieces, spoken_version
from tests.support.batches import build_batch
from tests.support.clocks import LoopClock
from tests.support.produce_v13 import ProduceRequest_v13, told_by_id


ORDERS, USERS = "b3JkZXJzb3JkZXJzb3JkZQ", "dXNlcnN1c2Vyc3VzZXJzdQ"


def id_bytes(topic_id: str) -> bytes:
    return base64.urlsafe_b64decode(topic_id + "==")


@pytest.mark.parametrize("transactional_id", [None, "mm2py-A->B-x"])
def test_request_is_what_aiokafka_reads(transactional_id: str | None) -> None:
    """Several topics and partitions come out of aiokafka's own class as they went in, in a transaction or not."""
    batches = [build_batch(n + 1, base_offset=0) for n in range(3)]
    pieces = request_pieces(
        [
            (b"orders", [(0, memoryview(batches[0])), (7, memoryview(batches[1]))]),
            ("größen".encode(), [(1, memoryview(batches[2]))]),
        ],
        1234,
        transactional_id and transactional_id.encode(),
    )
    request = ProduceRequest_v8.decode(b"".join(pieces))

    assert (request.transactional_id, request.required_acks, request.timeout) == (transactional_id, -1, 1234)
    assert request.topics == [("orders", [(0, batches[0]), (7, batches[1])]), ("größen", [(1, batches[2])])]


def test_request_by_ids_is_what_its_schema_reads() -> None:
    """Version 13 has the ids in place of the names, and nothing behind the last field."""
    batches = [build_batch(n + 1, base_offset=0) for n in range(3)]
    pieces = request_pieces(
        [
            (id_bytes(ORDERS), [(0, memoryview(batches[0])), (7, memoryview(batches[1]))]),
            (id_bytes(USERS), [(1, memoryview(batches[2]))]),
        ],
        1234,
        version=13,
    )
    body = b"".join(pieces)
    request = ProduceRequest_v13.decode(body)

    assert (request.transactional_id, request.required_acks, request.timeout) == (None, -1, 1234)
    assert request.topics == [
        (ORDERS, [(0, batches[0], {}), (7, batches[1], {})], {}),
        (USERS, [(1, batches[2], {})], {}),
    ]
    assert request.encode() == body


@pytest.mark.parametrize("version", [8, 13])
def test_batches_are_not_copied(version: int) -> None:
    """The pieces of a request hold the batches themselves."""
    batch = memoryview(bytearray(build_batch(3)))

    assert any(piece is batch for piece in request_pieces([(b"t" * 16, [(0, batch)])], 1, version=version))


def answer(topics: list[Any], throttle_ms: int = 0) -> memoryview:
    return memoryview(b"\x00\x00\x00\x09" + ProduceResponse_v8(topics, throttle_ms).encode())


@pytest.mark.parametrize(
    ("record_errors", "message", "expected"),
    [
        ([], None, ""),
        ([], "", ""),
        ([], "too old", "too old"),
        ([(3, "bad key")], None, "bad key"),
        (
            [(3, "bad key"), (4, None), (5, "bad value")],
            "invalid records",
            "bad key (and 2 more records); invalid records",
        ),
        (
            [(n, "too new") for n in range(125)],
            "invalid timestamp",
            "too new (and 124 more records); invalid timestamp",
        ),
        ([(0, "größer")], "ü", "größer; ü"),
        (
            [(n, "no key") for n in range(9)],
            "One or more records have been rejected due to 9 record errors in total: [RecordError(message='no key')]",
            "no key (and 8 more records)",
        ),
    ],
)
def test_error_messages_are_put_together(record_errors: list[Any], message: str | None, expected: str) -> None:
    """What version 8 says of single records and of the batch becomes one message (KIP-467), however many it refuses."""
    row = (0, 87, -1, -1, -1, record_errors, message)
    acks, _ = read_answer(answer([("t", [row])]))
    by_id, _ = read_answer(memoryview(b"\x00\x00\x00\x09" + told_by_id([(ORDERS, [row])])), 13)

    assert acks == [PartitionAck(b"t", 0, 87, -1, expected)]
    assert by_id == [PartitionAck(id_bytes(ORDERS), 0, 87, -1, expected)]


def test_answer_is_taken_apart() -> None:
    """Every partition of every topic gets its code and base offset, and the throttling is told."""
    acks, throttle_ms = read_answer(
        answer(
            [
                ("orders", [(0, 0, 1 << 40, -1, 5, [], None), (3, 6, -1, -1, -1, [(1, "x" * 300)], "moved")]),
                ("users", [(0, 0, 17, 99, 0, [], None)]),
            ],
            throttle_ms=1500,
        )
    )

    assert acks == [
        PartitionAck(b"orders", 0, 0, 1 << 40, ""),
        PartitionAck(b"orders", 3, 6, -1, "x" * 300 + "; moved"),
        PartitionAck(b"users", 0, 0, 17, "", 99),
    ]
    assert throttle_ms == 1500


def test_answer_by_ids_is_taken_apart() -> None:
    """So it is where brokers know topics by their ids, who add where leaders went in tagged fields (KIP-951)."""
    moved = {1: b"\x09\x00\x00\x00\x02\x00\x00\x00\x05\x00", 200: b"\x82\x01" + b"y" * 130}
    topics = [
        (ORDERS, [(0, 0, 1 << 40, -1, 5, [], None, {}), (3, 6, -1, -1, -1, [], "moved", moved)], {}),
        (USERS, [(0, 0, 17, 99, 0, [], None, {})], {}),
    ]
    body = ProduceRequest_v13.RESPONSE_TYPE({}, topics, 1500, {1: b"\x01x"}).encode()

    assert read_answer(memoryview(b"\x00\x00\x00\x09" + body), 13) == (
        [
            PartitionAck(id_bytes(ORDERS), 0, 0, 1 << 40, ""),
            PartitionAck(id_bytes(ORDERS), 3, 6, -1, "moved"),
            PartitionAck(id_bytes(USERS), 0, 0, 17, "", 99),
        ],
        1500,
    )


def test_brokers_before_2_4_send_no_messages() -> None:
    """They are spoken to in version 7, whose request is the same."""
    topics = [("orders", [(0, 0, 1 << 40, -1, 5), (3, 6, -1, -1, -1)])]
    frame = memoryview(b"\x00\x00\x00\x09" + ProduceResponse_v7(topics, 20).encode())
    version = spoken_version({0: (0, 7)})

    assert (version, spoken_version({0: (0, 11)}), spoken_version({0: (0, 13)})) == (7, 8, 8)
    assert [spoken_version({0: (0, newest)}, has_ids=True) for newest in (7, 12, 13, 14)] == [7, 8, 13, 13]
    assert read_answer(frame, version) == (
        [PartitionAck(b"orders", 0, 0, 1 << 40, ""), PartitionAck(b"orders", 3, 6, -1, "")],
        20,
    )


def test_empty_answer_has_no_acknowledgements() -> None:
    """An answer without topics is taken for what it is."""
    assert read_answer(answer([], 20)) == ([], 20)
    assert read_answer(memoryview(b"\x00\x00\x00\x09" + told_by_id([], 20)), 13) == ([], 20)


class AnsweringCluster:
    """Stands for a cluster that gives out producer ids: error code, id and epoch, one answer after the other."""

    def __init__(self, *answers: tuple[int, int, int]) -> None:
        self.endpoint = ClusterEndpoint("B", ("b:9092",))
        self.clock = LoopClock()
        self.asked = 0
        self._answers = answers

    async def send_to_any(self, _request: Any) -> Any:
        answer = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return InitProducerIdResponse_v0(0, *answer)


async def test_a_broker_that_was_just_started_is_asked_again() -> None:
    """A coordinator that loads answers an error with producer id -1, until it has one to give: sequences begin at 0."""
    cluster = AnsweringCluster((14, -1, -1), (14, -1, -1), (0, 4000, 2))
    began = cluster.clock.monotonic()

    assert await init_producer_id(cast("Cluster", cluster)) == ProducerMark(4000, 2, 0)
    assert cluster.clock.monotonic() - began < 1


@pytest.mark.parametrize("code", [14, 15, 31, 0])
async def test_failed_producer_id_is_an_error(code: int) -> None:
    """What is refused, or is not there for long, is an error, and id -1 is never used."""
    with pytest.raises(BrokerAnsweredError) as caught:
        await init_producer_id(cast("Cluster", AnsweringCluster((code, -1, 0))))
    assert caught.value.code == code
