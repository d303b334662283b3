"""Produce requests of the copier that a line holds back, and that arrive after the copier has given them up."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import attrs

from mm2py.clock import SystemClock
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import TopicPartition
from mm2py.wire.cluster import Cluster
from mm2py.wire.connection import BrokerConnection, Buffer, FrameHandler
from mm2py.wire.produce import API_KEY, PartitionAck, read_answer


@attrs.define
class HeldRequests:
    """The requests that were sent while the line held them back: each one's version and body."""

    bodies: list[tuple[int, bytes]] = attrs.field(factory=list)
    is_holding: bool = True

    async def arrive(self, bootstrap: str, tp: TopicPartition) -> list[PartitionAck]:
        """Have them arrive at the leader of *tp*, in order, and return its answers."""
        acks: list[PartitionAck] = []
        async with Cluster(ClusterEndpoint("B", tuple(bootstrap.split(","))), SystemClock()) as cluster:
            await cluster.refresh_metadata([tp.topic])
            leader = cluster.leader(tp)
            assert leader is not None
            connection = await cluster.connection(leader, "late")
            for version, body in self.bodies:
                told, _ = read_answer(await connection.request_raw(API_KEY, version, [body]), version)
                acks += told
        return acks


@contextmanager
def held_requests() -> Iterator[HeldRequests]:
    """Hold back all produce requests of copiers in this process; they stay on their way when their senders end."""
    held, send = HeldRequests(), BrokerConnection.send_raw

    def hold(
        self: Any, api_key: int, api_version: int, pieces: Sequence[Buffer], handler: FrameHandler, **more: Any
    ) -> None:
        if api_key != API_KEY or not held.is_holding:
            send(self, api_key, api_version, pieces, handler, **more)
            return
        held.bodies.append((api_version, b"".join(pieces)))
        self._waiting.append((self._next_correlation_id(), math.inf, handler))

    with mock.patch.object(BrokerConnection, "send_raw", hold):
        yield held
