"""Produce v13 as a schema, for brokers that exist only as answers: topics by their ids (KIP-516)."""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import Bytes, Int16, Int32, Int64, String, TaggedFields

from mm2py.wire.requests import THROTTLE, Uuid, answer, flexible, rows


class ProduceRequest_v13(RequestStruct):  # noqa: N801
    API_KEY = 0
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(
        0,
        13,
        flexible(
            ("header_tags", TaggedFields),
            rows(
                "topics",
                ("topic_id", Uuid),
                rows(
                    "partitions",
                    ("partition", Int32),
                    ("error_code", Int16),
                    ("offset", Int64),
                    ("timestamp", Int64),
                    ("log_start_offset", Int64),
                    rows("record_errors", ("batch_index", Int32), ("message", String())),
                    ("error_message", String()),
                ),
            ),
            THROTTLE,
        ),
    )
    SCHEMA = flexible(
        ("header_tags", TaggedFields),
        ("transactional_id", String()),
        ("required_acks", Int16),
        ("timeout", Int32),
        rows("topics", ("topic_id", Uuid), rows("partitions", ("partition", Int32), ("messages", Bytes))),
    )


def told_by_id(topics: list[Any], throttle_ms: int = 0) -> bytes:
    """Return the answer, by the topics' ids, that says what version 8 says in *topics*."""
    tagged = [
        (topic_id, [(*most, [(*it, {}) for it in errors], text, {}) for *most, errors, text in rows], {})
        for topic_id, rows in topics
    ]
    body: bytes = ProduceRequest_v13.RESPONSE_TYPE({}, tagged, throttle_ms, {}).encode()
    return body
