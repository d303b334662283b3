"""Fetch v13 as a schema, for brokers that exist only as answers: topics by their ids (KIP-516)."""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from typing import Any

from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.types import Array, Bytes, Int8, Int16, Int32, Int64, String, TaggedFields

from mm2py.wire.requests import THROTTLE, Uuid, answer, flexible, rows


_ANSWERS = rows(
    "topics",
    ("topic_id", Uuid),
    rows(
        "partitions",
        ("partition", Int32),
        ("error_code", Int16),
        ("high_watermark", Int64),
        ("last_stable_offset", Int64),
        ("log_start_offset", Int64),
        rows("aborted_transactions", ("producer_id", Int64), ("first_offset", Int64)),
        ("preferred_read_replica", Int32),
        ("records", Bytes),
    ),
)
_WANTED = rows(
    "topics",
    ("topic_id", Uuid),
    rows(
        "partitions",
        ("partition", Int32),
        ("current_leader_epoch", Int32),
        ("fetch_offset", Int64),
        ("last_fetched_epoch", Int32),
        ("log_start_offset", Int64),
        ("max_bytes", Int32),
    ),
)


class FetchRequest_v13(RequestStruct):  # noqa: N801
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = answer(
        1,
        13,
        flexible(("header_tags", TaggedFields), THROTTLE, ("error_code", Int16), ("session_id", Int32), _ANSWERS),
    )
    SCHEMA = flexible(
        ("header_tags", TaggedFields),
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        _WANTED,
        rows("forgotten_topics_data", ("topic_id", Uuid), ("partitions", Array(Int32))),
        ("rack_id", String()),
    )


FetchResponse_v13 = FetchRequest_v13.RESPONSE_TYPE


def tagged(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a partition's row of version 11 as one of version 13, which has room for tags."""
    *most, aborted, replica, records = row
    return (*most, None if aborted is None else [(*it, {}) for it in aborted], replica, records, {})
