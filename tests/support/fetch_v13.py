"""Fetch v13 as a schema, for brokers that exist only as answers: topics by their ids (KIP-516)."""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from aiokafka.protocol.api import RequestStruct, Response
from aiokafka.protocol.types import (
    CompactArray,
    CompactBytes,
    CompactString,
    Int8,
    Int16,
    Int32,
    Int64,
    Schema,
    TaggedFields,
)

from mm2py.wire.requests import Uuid


class FetchResponse_v13(Response):  # noqa: N801
    API_KEY = 1
    API_VERSION = 13
    SCHEMA = Schema(
        ("header_tags", TaggedFields),
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        ("session_id", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("error_code", Int16),
                        ("high_watermark", Int64),
                        ("last_stable_offset", Int64),
                        ("log_start_offset", Int64),
                        (
                            "aborted_transactions",
                            CompactArray(("producer_id", Int64), ("first_offset", Int64), ("tags", TaggedFields)),
                        ),
                        ("preferred_read_replica", Int32),
                        ("records", CompactBytes),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        ("tags", TaggedFields),
    )


class FetchRequest_v13(RequestStruct):  # noqa: N801
    API_KEY = 1
    API_VERSION = 13
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = FetchResponse_v13
    SCHEMA = Schema(
        ("header_tags", TaggedFields),
        ("replica_id", Int32),
        ("max_wait_time", Int32),
        ("min_bytes", Int32),
        ("max_bytes", Int32),
        ("isolation_level", Int8),
        ("session_id", Int32),
        ("session_epoch", Int32),
        (
            "topics",
            CompactArray(
                ("topic_id", Uuid),
                (
                    "partitions",
                    CompactArray(
                        ("partition", Int32),
                        ("current_leader_epoch", Int32),
                        ("fetch_offset", Int64),
                        ("last_fetched_epoch", Int32),
                        ("log_start_offset", Int64),
                        ("max_bytes", Int32),
                        ("tags", TaggedFields),
                    ),
                ),
                ("tags", TaggedFields),
            ),
        ),
        (
            "forgotten_topics_data",
            CompactArray(("topic_id", Uuid), ("partitions", CompactArray(Int32)), ("tags", TaggedFields)),
        ),
        ("rack_id", CompactString("utf-8")),
        ("tags", TaggedFields),
    )
