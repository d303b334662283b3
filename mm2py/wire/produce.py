"""
Raw produces by an idempotent producer of our own (KIP-98).

A broker takes exactly one batch per partition and request, so throughput comes from many partitions per request and
several requests in flight. It keeps the last five sequences of a producer and partition: with no more than five
requests in flight, a batch that is sent again is recognised, not appended twice.

Brokers from 4.1 on are told a topic's id (KIP-516) in Produce v13: one that was deleted and created again meanwhile
gets none of the batches, but UNKNOWN_TOPIC_ID is answered. Within a transaction that version would also add the
partitions to it (KIP-890), which is done before. Others are told its name, in Produce v8, for its error messages, and
brokers before 2.4 in v7, which has none.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
from aiokafka.protocol.transaction import InitProducerIdRequest

from mm2py.errors import BrokerAnsweredError, shortened
from mm2py.model.epoch import ProducerMark
from mm2py.wire.answers import taking_apart
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import Buffer
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.flexible import NO_TAGS, TOPIC_ID_BYTES, behind_tags, nullable_text, packed_varint, varint
from mm2py.wire.patience import Patience
from mm2py.wire.security.access import NotAuthorizedError


API_KEY: Final = 0
API_VERSION: Final = 8
#: Has no messages; the oldest that takes zstd.
OLD_API_VERSION: Final = 7
#: Topics by their ids.
BY_ID_API_VERSION: Final = 13
ACKS_ALL: Final = -1

_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
#: acks, timeout, number of topics; the transactional id stands before them
_REQUEST: Final = struct.Struct(">hii")
_LOADING_S: Final = 10.0
#: The number of a request that brokers take from 2.8 on (KIP-700).
_DESCRIBE_CLUSTER: Final = 60
_NO_TRANSACTION: Final = _INT16.pack(-1)
#: partition, size of the batch
_PARTITION: Final = struct.Struct(">ii")
#: partition, error, base offset, log append time, log start offset
_ANSWER: Final = struct.Struct(">ihqqq")
_ANSWER_BY_ID: Final = struct.Struct(">ihqqq3s")
#: No record errors, no message, no tagged fields.
_NO_MESSAGE: Final = b"\x01\x00\x00"


@attrs.frozen
class PartitionAck:
    """
    The broker's result for one partition's batch; `base_offset` is the downstream offset of its first record. `topic`
    is what the broker was told: a name, or the bytes of an id.

    Where records keep their own timestamps (CreateTime), `append_ms` is -1 for a batch that was appended. For one that
    the broker takes for a repetition, by its sequences alone, it is the last timestamp of the batch that it has.
    """

    topic: bytes
    partition: int
    error_code: int
    base_offset: int
    message: str
    append_ms: int = -1


#: Per topic, by name or id, its (partition, signed batch) pairs.
Batches = Sequence[tuple[bytes, Sequence[tuple[int, memoryview]]]]


def request_pieces(
    batches: Batches, timeout_ms: int, transactional_id: bytes = b"", *, version: int = API_VERSION
) -> list[Buffer]:
    """Return the body of a produce request for *batches*."""
    if version >= BY_ID_API_VERSION:
        return _pieces_by_id(batches, timeout_ms)
    name = _INT16.pack(len(transactional_id)) + transactional_id if transactional_id else _NO_TRANSACTION
    pieces: list[Buffer] = [name + _REQUEST.pack(ACKS_ALL, timeout_ms, len(batches))]
    for topic, partitions in batches:
        pieces.append(_INT16.pack(len(topic)) + topic + _INT32.pack(len(partitions)))
        for number, batch in partitions:
            pieces.append(_PARTITION.pack(number, len(batch)))
            pieces.append(batch)
    return pieces


def _pieces_by_id(batches: Batches, timeout_ms: int) -> list[Buffer]:
    # The first byte ends the request's header; there is no transactional id.
    head = b"\x00\x00" + _INT16.pack(ACKS_ALL) + _INT32.pack(timeout_ms) + packed_varint(len(batches) + 1)
    pieces: list[Buffer] = []
    for topic_id, partitions in batches:
        head += topic_id + packed_varint(len(partitions) + 1)
        for number, batch in partitions:
            pieces += (head + _INT32.pack(number) + packed_varint(len(batch) + 1), batch)
            head = NO_TAGS
        head += NO_TAGS
    pieces.append(head + NO_TAGS)
    return pieces


def spoken_version(versions: Mapping[int, tuple[int, int]], *, has_ids: bool = False) -> int:
    """Return which version to speak with a broker that has these, by request, if topics' ids may be used or not."""
    _, newest = versions.get(API_KEY, (0, API_VERSION))
    if has_ids and newest >= BY_ID_API_VERSION:
        return BY_ID_API_VERSION
    return API_VERSION if newest >= API_VERSION else OLD_API_VERSION


def read_answer(frame: memoryview, version: int = API_VERSION) -> tuple[list[PartitionAck], int]:
    """
    Take a produce answer apart: its acknowledgements, and the milliseconds of quota throttling.

    Raise `MalformedAnswerError` where it is not what it claims to be.
    """
    with taking_apart(f"Produce v{version}"):
        if version >= BY_ID_API_VERSION:
            return _read_answer_by_id(frame)
        return _read_answer(frame, has_messages=version >= API_VERSION)


def _read_answer_by_id(frame: memoryview) -> tuple[list[PartitionAck], int]:
    acks: list[PartitionAck] = []
    topic_count, at = varint(frame, behind_tags(frame, 4))
    for _ in range(topic_count - 1):
        topic_id = bytes(frame[at : at + TOPIC_ID_BYTES])
        count, at = varint(frame, at + TOPIC_ID_BYTES)
        for _ in range(count - 1):
            number, error_code, base_offset, append_ms, _, rest = _ANSWER_BY_ID.unpack_from(frame, at)
            if rest == _NO_MESSAGE:
                message, at = "", at + _ANSWER_BY_ID.size
            else:
                message, at = _message_by_id(frame, at + _ANSWER.size)
                at = behind_tags(frame, at)
            acks.append(PartitionAck(topic_id, number, error_code, base_offset, message, append_ms))
        at = behind_tags(frame, at)
    (throttle_ms,) = _INT32.unpack_from(frame, at)
    return acks, throttle_ms


def _read_answer(frame: memoryview, *, has_messages: bool) -> tuple[list[PartitionAck], int]:
    acks: list[PartitionAck] = []
    at = 4
    (topic_count,) = _INT32.unpack_from(frame, at)
    at += 4
    for _ in range(topic_count):
        (size,) = _INT16.unpack_from(frame, at)
        if size < 0:
            raise struct.error("a topic has no name")
        at += 2
        topic = bytes(frame[at : at + size])
        at += size
        (count,) = _INT32.unpack_from(frame, at)
        at += 4
        for _ in range(count):
            number, error_code, base_offset, append_ms, _ = _ANSWER.unpack_from(frame, at)
            at += _ANSWER.size
            message, at = _message(frame, at) if has_messages else ("", at)
            acks.append(PartitionAck(topic, number, error_code, base_offset, message, append_ms))
    (throttle_ms,) = _INT32.unpack_from(frame, at)
    return acks, throttle_ms


def _message_by_id(frame: memoryview, at: int) -> tuple[str, int]:
    count, at = varint(frame, at)
    first, record_errors = "", max(0, count - 1)
    for _ in range(record_errors):
        text, at = nullable_text(frame, at + _INT32.size)
        first, at = first or text, behind_tags(frame, at)
    text, at = nullable_text(frame, at)
    return _put_together(first, record_errors, text), at


def _message(frame: memoryview, at: int) -> tuple[str, int]:
    (record_errors,) = _INT32.unpack_from(frame, at)
    at += _INT32.size
    first = ""
    for _ in range(record_errors):
        text, at = _nullable_string(frame, at + _INT32.size)
        first = first or text
    text, at = _nullable_string(frame, at)
    return _put_together(first, record_errors, text), at


def _put_together(first: str, record_errors: int, text: str) -> str:
    """Return the broker's message about a batch. Brokers repeat it for every rejected record, so the *first* one is
    returned, with the number of others. The *text* about the batch may list the first ones again.
    """
    if first and first in text:
        text = ""
    if first and record_errors > 1:
        first = f"{first} (and {record_errors - 1} more records)"
    return "; ".join(shortened(it) for it in (first, text) if it)


def _nullable_string(frame: memoryview, at: int) -> tuple[str, int]:
    (size,) = _INT16.unpack_from(frame, at)
    at += 2
    if size < 0:
        return "", at
    return bytes(frame[at : at + size]).decode(errors="replace"), at + size


async def init_producer_id(cluster: Cluster, *, for_topic: str = "") -> ProducerMark:
    """
    Request a new producer id from *cluster*, to write any number of partitions from sequence 0 on.

    A broker that was just started answers with an error and id -1 until it has ids to give, so it is asked for a while.
    Brokers from 2.8 on give ids to all that may write any topic: one that is refused may not write *for_topic* either.
    """
    request = InitProducerIdRequest(None, cluster.endpoint.request_timeout_ms)
    patience = Patience(cluster.clock, _LOADING_S)
    while True:
        response = await cluster.send_to_any(request)
        if response.error_code == 0 and response.producer_id >= 0:
            return ProducerMark(response.producer_id, response.producer_epoch, 0)
        if patience.is_over_for(response.error_code):
            error: BrokerAnsweredError = error_of(response.error_code, cluster.endpoint.alias, "InitProducerId", "")
            if (
                for_topic
                and error.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
                and await _gives_ids_to_writers(cluster)
            ):
                grant = f"WRITE on topic {for_topic}"
                raise NotAuthorizedError(error.cluster, error.request, error.code, error.name, error.detail, grant)
            raise error
        await patience.pause()


async def _gives_ids_to_writers(cluster: Cluster) -> bool:
    """Whether the brokers are of 2.8 or newer: since then they describe their cluster."""
    for node_id in cluster.brokers:
        return _DESCRIBE_CLUSTER in (await cluster.connection(node_id)).versions
    return False
