"""
A broker that is simulated: Kafka's protocol on a socket, as far as one mirror asks for it.

Each request has the one version that is listed here. Requests and answers go through the schemas of aiokafka and of
mm2py, except for the four whose size grows with the partitions of the flow. Left out: replication, leaders that move,
quotas, ACLs, compaction and retention, sequences (nothing is written twice here), and the isolation of transactions,
whose batches can be read at once.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from io import BytesIO
from typing import Any

import attrs
from aiokafka.protocol import admin, group, produce, transaction
from aiokafka.protocol.api import RequestStruct
from aiokafka.protocol.fetch import FetchRequest_v11

from bench.scale.simulated import fetches
from bench.scale.simulated.fetches import Fetches, fetch_by_name
from bench.scale.simulated.logs import NODE, SimulatedCluster, compact, varint
from mm2py.wire import log_end, requests, transactions
from mm2py.wire.groups import requests as groups
from mm2py.wire.topics import configs


HOST = "127.0.0.1"
UNKNOWN_TOPIC, TOPIC_EXISTS, SECURITY_DISABLED = 3, 36, 54
LATEST, EARLIEST = -1, -2
TOPIC = 2
FETCH, LIST_OFFSETS, METADATA = 1, 2, 3

_SIZE = struct.Struct(">i")
#: api key, version, correlation id, length of the client's id
_HEADER = struct.Struct(">hhih")
#: throttle; then brokers: one, its id
_METADATA_HEAD = struct.Struct(">iBi")
_OFFSET_ROW = struct.Struct(">ihqqiB")

STRUCTS: tuple[Any, ...] = (
    produce.ProduceRequest_v7,
    FetchRequest_v11,
    groups.OffsetFetchRequest_v8,
    groups.FindCoordinatorRequest_v4,
    group.JoinGroupRequest_v5,
    groups.HeartbeatRequest_v3,
    group.LeaveGroupRequest_v1,
    group.SyncGroupRequest_v3,
    groups.DescribeGroupsRequest_v4,
    groups.ListGroupsRequest_v5,
    admin.ApiVersionRequest_v0,
    requests.CreateTopicsRequest_v4,
    transaction.InitProducerIdRequest_v0,
    transactions.InitProducerIdRequest_v3,
    log_end.OffsetForLeaderEpochRequest_v3,
    transaction.AddPartitionsToTxnRequest_v0,
    transaction.EndTxnRequest_v0,
    admin.DescribeAclsRequest_v1,
    admin.DescribeConfigsRequest_v2,
    admin.CreatePartitionsRequest_v1,
    configs.IncrementalAlterConfigsRequest_v0,
    requests.ListOffsetsRequest_v8,
    requests.MetadataRequest_v11,
)
BY_VERSION: dict[tuple[int, int], type[RequestStruct]] = {(it.API_KEY, it.API_VERSION): it for it in STRUCTS}


def spoken() -> dict[int, tuple[int, int]]:
    """Return the oldest and newest version of each request."""
    found: dict[int, tuple[int, int]] = {}
    for key, version in [*BY_VERSION, (FETCH, fetches.VERSION)]:
        oldest, newest = found.get(key, (version, version))
        found[key] = min(oldest, version), max(newest, version)
    return found


@attrs.define(eq=False)
class _Member:
    member_id: str
    instance: str | None
    metadata: bytes
    generation: int = 0
    assignment: bytes = b""


@attrs.define(eq=False)
class SimulatedBroker:
    """The only broker of a cluster."""

    cluster: SimulatedCluster
    port: int = 0
    _producer_ids: int = 1000
    _epochs: dict[str, tuple[int, int]] = attrs.field(factory=dict)
    _members: dict[str, _Member] = attrs.field(factory=dict)
    _tasks: set[asyncio.Task[None]] = attrs.field(factory=set)
    _answers: dict[int, Callable[[Any], Any]] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._answers = {
            0: self._produce,
            9: lambda it: it.RESPONSE_TYPE(0, [(name, [], 0, {}) for name, *_ in it.groups], {}),
            10: self._coordinators,
            11: self._join,
            12: lambda it: it.RESPONSE_TYPE(0, 0),
            13: self._leave,
            14: self._sync,
            15: self._describe_groups,
            16: lambda it: it.RESPONSE_TYPE(0, 0, [], {}),
            18: lambda it: it.RESPONSE_TYPE(0, [(key, *versions) for key, versions in spoken().items()]),
            19: self._create_topics,
            22: self._init_producer,
            23: self._epoch_ends,
            24: self._add_partitions,
            26: lambda it: it.RESPONSE_TYPE(0, 0),
            29: lambda it: it.RESPONSE_TYPE(0, SECURITY_DISABLED, "No Authorizer is configured", []),
            32: self._describe_configs,
            37: self._create_partitions,
            44: self._alter_configs,
        }

    async def start(self) -> None:
        """Listen on a free port."""
        server = await asyncio.start_server(self._serve, HOST, 0, limit=1 << 26)
        self.port = server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of a connection, one after the other."""
        fetching = Fetches(self.cluster)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while True:
                (size,) = _SIZE.unpack(await reader.readexactly(_SIZE.size))
                writer.writelines(await self._answer(memoryview(await reader.readexactly(size)), fetching))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            fetching.close()
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, frame: memoryview, fetching: Fetches) -> list[bytes]:
        key, version, correlation, client_size = _HEADER.unpack_from(frame)
        body = frame[_HEADER.size + max(0, client_size) :]
        if (key, version) == (FETCH, fetches.VERSION):
            # The first byte ends the header of a flexible request, and of its answer.
            answer = b"\x00" + await fetching.answer(body[1:])
        else:
            struct_class = BY_VERSION[key, version]
            is_flexible = struct_class.FLEXIBLE_VERSION
            request = struct_class.decode(BytesIO(body[is_flexible:]))
            answer = (b"\x00" if is_flexible else b"") + await self._answer_of(key, request)
        return [_SIZE.pack(len(answer) + 4), _SIZE.pack(correlation), answer]

    async def _answer_of(self, key: int, request: Any) -> bytes:
        if key == METADATA:
            return self._metadata(request)
        if key == LIST_OFFSETS:
            return self._list_offsets(request)
        answer = fetch_by_name(self.cluster, request) if key == FETCH else self._answers[key](request)
        if isinstance(answer, Awaitable):
            answer = await answer
        encoded: bytes = answer.encode()
        return encoded

    # What grows with the partitions.

    def _metadata(self, request: Any) -> bytes:
        topics = self.cluster.topics
        if request.topics is None:
            rows = [topic.metadata_row() for topic in topics.values()]
        else:
            rows = [
                topics[name].metadata_row() if name in topics else _unknown_row(name) for _, name, *_ in request.topics
            ]
        head = _METADATA_HEAD.pack(0, 2, NODE) + compact(HOST.encode()) + _SIZE.pack(self.port) + b"\x00\x00"
        return b"".join(
            [head, compact(self.cluster.name.encode()), _SIZE.pack(NODE), varint(len(rows) + 1), *rows, b"\x00"]
        )

    def _list_offsets(self, request: Any) -> bytes:
        out = [_SIZE.pack(0), varint(len(request.topics) + 1)]
        for topic, partitions, *_tags in request.topics:
            out += [compact(topic.encode()), varint(len(partitions) + 1)]
            for number, _known, when, *_rest in partitions:
                log = self.cluster.log(topic, number)
                offset = -1 if log is None or when not in {LATEST, EARLIEST} else log.end if when == LATEST else 0
                out.append(_OFFSET_ROW.pack(number, UNKNOWN_TOPIC if log is None else 0, -1, offset, 0, 0))
            out.append(b"\x00")
        return b"".join([*out, b"\x00"])

    def _produce(self, request: Any) -> Any:
        topics = []
        for topic, partitions in request.topics:
            rows = []
            for number, batch in partitions:
                log = self.cluster.log(topic, number)
                base = -1 if log is None else log.append(batch)
                rows.append((number, UNKNOWN_TOPIC if log is None else 0, base, -1, 0))
                if log is not None:
                    self.cluster.on_append(log, base)
            topics.append((topic, rows))
        return request.RESPONSE_TYPE(topics, 0)

    # Topics.

    def _create_topics(self, request: Any) -> Any:
        rows = []
        for name, partitions, _, _, settings in request.create_topic_requests:
            exists = name in self.cluster.topics
            rows.append((name, TOPIC_EXISTS if exists else 0, None))
            if not exists:
                self.cluster.create(name, max(1, partitions)).configs = dict(settings)
        return request.RESPONSE_TYPE(0, rows)

    def _create_partitions(self, request: Any) -> Any:
        for name, (count, _) in request.topic_partitions:
            self.cluster.topics[name].grow(count)
        return request.RESPONSE_TYPE(0, [(name, 0, None) for name, _ in request.topic_partitions])

    def _describe_configs(self, request: Any) -> Any:
        rows = []
        for kind, name, keys in request.resources:
            topic = self.cluster.topics.get(name) if kind == TOPIC else None
            found = topic.configs if topic else {}
            entries = [(key, text, False, 1, False, []) for key, text in found.items() if keys is None or key in keys]
            rows.append((UNKNOWN_TOPIC if kind == TOPIC and topic is None else 0, None, kind, name, entries))
        return request.RESPONSE_TYPE(0, rows)

    def _alter_configs(self, request: Any) -> Any:
        for _, name, changes in request.resources:
            for key, operation, value in changes:
                if operation == 0:
                    self.cluster.topics[name].configs[key] = value
                else:
                    self.cluster.topics[name].configs.pop(key, None)
        return request.RESPONSE_TYPE(0, [(0, None, kind, name) for kind, name, _ in request.resources])

    def _epoch_ends(self, request: Any) -> Any:
        topics = []
        for topic, partitions in request.topics:
            rows = []
            for number, _, epoch in partitions:
                log = self.cluster.log(topic, number)
                rows.append((UNKNOWN_TOPIC, number, -1, -1) if log is None else (0, number, epoch, log.end))
            topics.append((topic, rows))
        return request.RESPONSE_TYPE(0, topics)

    # Producers and transactions.

    def _init_producer(self, request: Any) -> Any:
        known = self._epochs.get(request.transactional_id or "")
        if known is None:
            self._producer_ids += 1
            known = self._producer_ids, -1
        producer = known[0], known[1] + 1
        if request.transactional_id:
            self._epochs[request.transactional_id] = producer
        tags = ({},) if request.FLEXIBLE_VERSION else ()
        return request.RESPONSE_TYPE(0, 0, *producer, *tags)

    def _add_partitions(self, request: Any) -> Any:
        topics = [(topic, [(number, 0) for number in numbers]) for topic, numbers in request.topics]
        return request.RESPONSE_TYPE(0, topics)

    # Groups of one member.

    def _coordinators(self, request: Any) -> Any:
        rows = [(key, NODE, HOST, self.port, 0, None, {}) for key in request.coordinator_keys]
        return request.RESPONSE_TYPE(0, rows, {})

    def _join(self, request: Any) -> Any:
        protocol, metadata = request.group_protocols[0]
        member_id = request.member_id or f"{request.group}-member"
        known = self._members.get(request.group)
        generation = known.generation + 1 if known else 1
        instance = request.group_instance_id
        self._members[request.group] = _Member(member_id, instance, metadata, generation)
        return request.RESPONSE_TYPE(
            0, 0, generation, protocol, member_id, member_id, [(member_id, instance, metadata)]
        )

    def _sync(self, request: Any) -> Any:
        member = self._members[request.group]
        member.assignment = dict(request.group_assignment).get(member.member_id, member.assignment)
        return request.RESPONSE_TYPE(0, 0, member.assignment)

    def _leave(self, request: Any) -> Any:
        self._members.pop(request.group, None)
        return request.RESPONSE_TYPE(0, 0)

    def _describe_groups(self, request: Any) -> Any:
        rows = []
        for name in request.groups:
            member = self._members.get(name)
            if member is None:
                rows.append((0, name, "Dead", "", "", [], 0))
            else:
                row = member.member_id, member.instance, "", HOST, member.metadata, member.assignment
                rows.append((0, name, "Stable", "", "", [row], 0))
        return request.RESPONSE_TYPE(0, rows)


def _unknown_row(name: str) -> bytes:
    return struct.pack(">h", UNKNOWN_TOPIC) + compact(name.encode()) + bytes(16) + b"\x00\x01" + bytes(4) + b"\x00"
