"""Moving leaders: the order of replicas, which says who is preferred, and the election of the preferred ones."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from aiokafka.protocol.admin import AlterPartitionReassignmentsRequest
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import Array, Int8, Int16, Int32, Schema, String

from bench.broker import REQUEST_TIMEOUT_MS, BenchBrokerError
from bench.cluster import PARTITIONS_A_REQUEST, RETRY_S, Cluster, Place


PREFERRED = 0


async def reorder(cluster: Cluster, places: Sequence[Place], replicas: Sequence[int]) -> None:
    """Give *places* those replicas, the preferred leader first."""
    for topics in _chunks(places):
        entries = [(topic, [(number, list(replicas), {}) for number in numbers], {}) for topic, numbers in topics]
        answer = await cluster.ask_any(AlterPartitionReassignmentsRequest(REQUEST_TIMEOUT_MS, entries, {}))
        codes = {answer.error_code, *(code for _, found, _ in answer.responses for _, code, *_ in found)}
        if codes != {0}:
            raise BenchBrokerError("reassign", f"errors {sorted(codes)}")


async def elect(cluster: Cluster, places: Sequence[Place]) -> None:
    """Ask for the preferred leaders of *places*; whether one could be had shows in the metadata."""
    for topics in _chunks(places):
        await cluster.ask_any(ElectLeaders(topics))


async def until_led_by(cluster: Cluster, places: Sequence[Place], leader: int, *, within_s: float) -> None:
    """Wait until *leader* leads all of *places*."""
    topics = sorted({topic for topic, _ in places})
    async with asyncio.timeout(within_s):
        while True:
            await cluster.refresh(topics)
            if all(cluster.leader(place) == leader for place in places):
                return
            await asyncio.sleep(RETRY_S)


async def lead(cluster: Cluster, places: Sequence[Place], leader: int, *, within_s: float) -> None:
    """Elect *leader*, which is the preferred one, again and again until it leads all of *places*."""
    async with asyncio.timeout(within_s):
        while True:
            await elect(cluster, places)
            try:
                await until_led_by(cluster, places, leader, within_s=1.0)
            except TimeoutError:  # it has not caught up yet
                continue
            return


def _chunks(places: Sequence[Place]) -> Iterator[list[tuple[str, list[int]]]]:
    ordered = sorted(places)
    for at in range(0, len(ordered), PARTITIONS_A_REQUEST):
        by_topic = itertools.groupby(ordered[at : at + PARTITIONS_A_REQUEST], key=lambda place: place[0])
        yield [(topic, [number for _, number in group]) for topic, group in by_topic]


class _ElectLeadersResponseV1(Response):
    API_KEY = 43
    API_VERSION = 1
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        ("error_code", Int16),
        (
            "topics",
            Array(
                ("topic", String("utf-8")),
                (
                    "partitions",
                    Array(("partition", Int32), ("error_code", Int16), ("error_message", String("utf-8"))),
                ),
            ),
        ),
    )


class _ElectLeadersRequestV1(RequestStruct):
    API_KEY = 43
    API_VERSION = 1
    RESPONSE_TYPE = _ElectLeadersResponseV1
    SCHEMA = Schema(
        ("election_type", Int8),
        ("topics", Array(("topic", String("utf-8")), ("partitions", Array(Int32)))),
        ("timeout_ms", Int32),
    )


class ElectLeaders(Request[_ElectLeadersRequestV1]):
    API_KEY = 43

    def __init__(self, topics: Sequence[tuple[str, Sequence[int]]]) -> None:
        """Ask for the preferred leaders of some partitions of each topic (KIP-460)."""
        self._topics = [(topic, list(numbers)) for topic, numbers in topics]

    def build(self, request_struct_class: type[_ElectLeadersRequestV1]) -> Any:
        return request_struct_class(PREFERRED, self._topics, REQUEST_TIMEOUT_MS)
