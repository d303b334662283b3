"""
The same questions put to a real broker and to the simulated one, and their answers compared field by field.

What has to differ is masked: ids, addresses and times are replaced by the order in which they appeared, so that the
same one twice is still the same one. Answers come in Kafka's bytes, by the schemas of the versions that the product
sends.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import attrs
from aiokafka.protocol.types import Array, Schema

from mm2py.devkit.broker import KafkaCluster
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import LATEST, CreateTopicsRequest_v4, ListOffsetsRequest_v4, MetadataRequest_v11
from tests.simulated.cluster import Cluster as SimCluster
from tests.simulated.front import served
from tests.support.fetch_v13 import FetchRequest_v13
from tests.support.produce_v13 import ProduceRequest_v13


#: Fields whose values are a cluster's own.
_OWN = frozenset({
    "producer_id", "session_id", "topic_id", "member_id", "leader_id", "cluster_id", "host", "port", "client_host",
})  # fmt: skip
#: Fields of which only is compared whether there is something: texts, and what the machine decides.
_WHETHER = frozenset({"error_message", "message", "rack", "throttle_time_ms", "config_synonyms"})
#: Where the schema has the header's tags itself.
_WITH_HEADER = (FetchRequest_v13, ProduceRequest_v13)
_PASSING = frozenset({
    ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_OR_FOLLOWER,
})  # fmt: skip
_WITHIN_S = 60.0
#: Between two clients that ask at once.
_HEARD_S = 0.1
#: How often a broker is asked for what it may not know yet.
_TIMES = 500


@attrs.define
class Side:
    """One of the two that are asked, and what it said."""

    opener: Callable[[], Awaitable[BrokerConnection]]
    prefix: str
    #: The cluster, if it is the simulated one.
    model: SimCluster | None
    #: What the model answered, as far as that is known.
    expected: list[tuple[str, Any]]
    #: What was asked and answered, masked.
    answers: list[tuple[str, Any]] = attrs.field(factory=list)
    connections: list[BrokerConnection] = attrs.field(factory=list)
    _known: dict[str, dict[Any, str]] = attrs.field(factory=dict)

    async def ask(self, request: Any, *, by: int = 0, notes: Callable[[Any], Any] | bool = True) -> Any:
        """
        Send a request of one version and return the answer.

        *by* is which of the clients asks, each over a connection of its own; *notes* what of the answer is compared,
        all of it by default.
        """
        return self._note(request, await self._send(request, by), notes)

    async def together(self, *requests: tuple[int, Any]) -> list[Any]:
        """Have several clients ask at once, as brokers hold some answers back for others; the first is heard first."""
        async with asyncio.TaskGroup() as tasks:
            sent = []
            for by, request in requests:
                sent.append(tasks.create_task(self._send(request, by)))
                await asyncio.sleep(_HEARD_S)
        return [self._note(request, it.result(), notes=True) for (_, request), it in zip(requests, sent, strict=True)]

    async def _send(self, request: Any, by: int) -> Any:
        while len(self.connections) <= by:
            self.connections.append(await self.opener())
        has_header = request.FLEXIBLE_VERSION and not isinstance(request, _WITH_HEADER)
        body = b"\0" * has_header + request.encode()
        frame = await self.connections[by].request_raw(request.API_KEY, request.API_VERSION, [body], extra_wait_s=60)
        return request.RESPONSE_TYPE.decode(bytes(frame[4 + has_header :]))

    def _note(self, request: Any, answer: Any, notes: Callable[[Any], Any] | bool) -> Any:
        if notes:
            seen = notes(answer) if callable(notes) else self._masked(answer.SCHEMA, _values(answer))
            self.answers.append((type(request).__name__, seen))
        return answer

    async def settled(self, make: Callable[[], Any], *codes: int) -> Any:
        """Ask until the answer holds none of *codes*, nor what passes by itself; only the last answer is compared."""
        passing = _PASSING | set(codes)
        async with asyncio.timeout(_WITHIN_S):
            while True:
                answer = await self.ask(make())
                if not passing & set(_codes(answer.SCHEMA, _values(answer))):
                    return answer
                self.answers.pop()
                await asyncio.sleep(0.02)

    async def read(self, request: Any, *, notes: Callable[[Any], Any] | bool = True) -> Any:
        """Ask for what a broker may not know yet: again for a while, as long as it is not what the model says."""
        answer, at = await self.ask(request, notes=notes), len(self.answers) - 1
        for _ in range(_TIMES):
            if not self.expected or self.answers[at:] == self.expected[at : at + 1]:
                break
            self.answers.pop()
            await asyncio.sleep(0.02)
            answer = await self.ask(request, notes=notes)
        return answer

    async def known(self, name: str, partitions: int = 1, **configs: str) -> str:
        """Create a topic, wait until the broker leads it, and return its id."""
        named = {key.replace("_", "."): value for key, value in configs.items()}
        await self.ask(CreateTopicsRequest_v4([(name, partitions, 1, [], list(named.items()))], 30_000, False))
        request = MetadataRequest_v11([(None, name, {})], False, False, {})
        answer = await self.settled(lambda: request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        ends = ListOffsetsRequest_v4(-1, 0, [(name, [(number, -1, LATEST) for number in range(partitions)])])
        await self.settled(lambda: ends, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return str(answer.topics[0][2])

    def _masked(self, kind: Any, value: Any, name: str = "") -> Any:
        if isinstance(kind, Schema):
            fields = zip(kind.names, kind.fields, value, strict=False)
            return {inner: self._masked(of, it, inner) for inner, of, it in fields if inner != "tags"}
        if isinstance(kind, Array):
            return (
                None if value is None else [self._masked(kind.array_of, it, name) for it in self._sorted(kind, value)]
            )
        if name in _WHETHER:
            return bool(value)
        if name in _OWN and value not in (None, "", -1) and (name, value) != ("session_id", 0):
            name = "member_id" if name == "leader_id" else name
            known = self._known.setdefault(name, {})
            return known.setdefault(value, f"{name} {len(known) + 1}")
        return value

    def _sorted(self, kind: Any, rows: list[Any]) -> list[Any]:
        """Return rows in an order of what is known of them, as brokers keep many in hash maps."""
        if not isinstance(kind.array_of, Schema):
            return rows
        known = self._known

        def shown(name: str, value: Any) -> Any:
            return known.get(name, {}).get(value) if name in _OWN else None if name in _WHETHER else value

        names = kind.array_of.names
        return sorted(rows, key=lambda row: repr([shown(*field) for field in zip(names, row, strict=False)]))


def _values(answer: Any) -> list[Any]:
    return [getattr(answer, name) for name in answer.SCHEMA.names]


def _codes(kind: Any, value: Any, name: str = "") -> list[int]:
    if isinstance(kind, Schema):
        return [c for n, k, v in zip(kind.names, kind.fields, value, strict=False) for c in _codes(k, v, n)]
    if isinstance(kind, Array):
        return [code for it in value or () for code in _codes(kind.array_of, it, name)]
    return [value] if name == "error_code" else []


def _differences(place: str, model: Any, broker: Any) -> Iterator[str]:
    """Return where two answers differ, and in what."""
    if isinstance(model, dict) and isinstance(broker, dict):
        for name in model:
            yield from _differences(f"{place}.{name}", model[name], broker.get(name))
    elif isinstance(model, list | tuple) and isinstance(broker, list | tuple) and len(model) == len(broker):
        for at, pair in enumerate(zip(model, broker, strict=True)):
            is_asked = not place and isinstance(pair[0], tuple)
            yield from _differences(f"{at} {pair[0][0]}" if is_asked else f"{place}[{at}]", *pair)
    elif model != broker:
        yield f"{place}: the model says {model!r}, a broker {broker!r}"


Contract = Callable[[Side], Awaitable[None]]


def contract(asks: Contract) -> Callable[..., Awaitable[None]]:
    """Make a test of *asks*, which is put to both: their answers are the same."""

    async def test(backup: KafkaCluster, prefix: str) -> None:
        async with served("B") as model:
            model.coordinator.first_delay_s = 0.0  # as the tests' brokers have it
            found = [await _answers(asks, model.servers, prefix, [], model)]
            found.append(await _answers(asks, backup.bootstrap_servers, prefix, found[0]))

        differences = list(_differences("", *found))
        assert not differences, differences

    functools.update_wrapper(test, asks, assigned=("__module__", "__name__", "__doc__"), updated=())
    del test.__wrapped__  # type: ignore[attr-defined]
    return test


async def _answers(
    asks: Contract, servers: str, prefix: str, expected: list[tuple[str, Any]], model: SimCluster | None = None
) -> list[tuple[str, Any]]:
    host, _, port = servers.partition(":")
    endpoint = ClusterEndpoint("B", (servers,), client_id="asker")
    side = Side(lambda: BrokerConnection.open(endpoint, host, int(port)), prefix, model, expected)
    try:
        await asks(side)
    finally:
        for connection in side.connections:
            connection.close()
    return side.answers
