"""Coordinators of transactions for unit tests, which answer by a script."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import attrs
from aiokafka.protocol.transaction import AddPartitionsToTxnRequest, EndTxnRequest

from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.transactions import InitTransactionsRequest
from tests.support.clocks import LoopClock


@attrs.define
class Coordinators:
    """Brokers of which the first is the coordinator until a client looks it up again; answers come from a script."""

    answers: list[Any] = attrs.field(factory=list)
    asked: list[tuple[int, str]] = attrs.field(factory=list)
    #: Producer id and epoch of each request that renews a producer.
    renewed: list[tuple[int, int]] = attrs.field(factory=list)
    timeouts_ms: list[int] = attrs.field(factory=list)
    #: The ids that were opened or renewed.
    opened: list[str] = attrs.field(factory=list)
    lookups: int = 0
    doubted: list[int] = attrs.field(factory=list)
    brokers: dict[int, str] = attrs.field(factory=lambda: {1: "one", 2: "two", 3: "three"})
    alias: str = "B"
    endpoint: ClusterEndpoint = attrs.field(factory=lambda: ClusterEndpoint("B", ("b:1",)))
    clock: LoopClock = attrs.field(factory=LoopClock)
    #: What is known of its topics.
    metadata: Any = attrs.field(factory=lambda: SimpleNamespace(topics={}))

    @property
    def names(self) -> list[str]:
        """What was asked, without of whom."""
        return [name for _, name in self.asked]

    async def send_to_any(self, request: Any, _purpose: str = "") -> Any:
        self.lookups += 1
        return SimpleNamespace(coordinators=[(request._keys[0], self.lookups, "host", 9092, 0, None, {})])

    async def refresh_metadata(self, _topics: object) -> None:
        return

    def doubt(self, node: int) -> None:
        self.doubted.append(node)

    async def send_to(self, node: int, request: Any, _purpose: str) -> Any:
        self.asked.append((node, type(request).__name__.removesuffix("Request")))
        answer = self.answers.pop(0) if self.answers else 0
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, list):
            return SimpleNamespace(errors=answer)
        match request:
            case InitTransactionsRequest():
                self.timeouts_ms.append(request._timeout_ms)
                self.opened.append(request._transactional_id)
                if request._producer != (-1, -1):
                    self.renewed.append(request._producer)
                return SimpleNamespace(error_code=answer, producer_id=7, producer_epoch=len(self.asked))
            case AddPartitionsToTxnRequest():
                return SimpleNamespace(errors=[("t", [(0, answer)])])
            case EndTxnRequest():
                return SimpleNamespace(error_code=answer)
