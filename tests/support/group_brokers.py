"""Brokers that coordinate consumer groups and exist only as answers; see `tests.support.fake_brokers`."""

from __future__ import annotations

from typing import Any

import attrs

from mm2py.model.flow import TopicPartition
from mm2py.wire.error_codes import ErrorCode
from tests.support.fake_brokers import NEW_VERSIONS, FakeBrokers


OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, DESCRIBE, LIST = 8, 9, 10, 15, 16
OFFSET_DELETE, CONSUMER_DESCRIBE = 47, 69
NEW = {
    OFFSET_COMMIT: (2, 10), OFFSET_FETCH: (1, 10), FIND_COORDINATOR: (0, 6), DESCRIBE: (0, 6), LIST: (0, 5),
    OFFSET_DELETE: (0, 0), CONSUMER_DESCRIBE: (0, 1),
}  # fmt: skip
OLD = {
    OFFSET_COMMIT: (0, 6), OFFSET_FETCH: (0, 5), FIND_COORDINATOR: (0, 2), DESCRIBE: (0, 2), LIST: (0, 2),
}  # fmt: skip


@attrs.define
class FakeGroup:
    """A group and who coordinates it."""

    coordinator: int = 0
    kind: str = "classic"
    state: str = "Empty"
    protocol: str = "consumer"
    members: int = 0
    offsets: dict[TopicPartition, int] = attrs.field(factory=dict)


class GroupBrokers(FakeBrokers):
    """Brokers that coordinate groups. `errors` holds codes that a coordinator answers for a group."""

    def __init__(self) -> None:
        super().__init__()
        self.versions = NEW_VERSIONS | NEW
        self.groups: dict[str, FakeGroup] = {}
        self.errors: dict[str, int] = {}
        self.refuses_to_list: set[int] = set()

    def answer(self, node_id: int, request: Any) -> Any:
        plain = {
            FIND_COORDINATOR: self.find_coordinator,
            LIST: self.list_groups,
            DESCRIBE: self.describe_classic,
            CONSUMER_DESCRIBE: self.describe_consumer,
            OFFSET_FETCH: self.fetch_offsets,
            OFFSET_COMMIT: self.commit,
        }
        answer = None if self._scripts[request.API_KEY] else plain.get(request.API_KEY)
        return answer(node_id, request) if answer else super().answer(node_id, request)

    def code(self, node_id: int, name: str) -> int:
        if name in self.errors:
            return self.errors[name]
        group = self.groups.get(name, FakeGroup())
        return 0 if group.coordinator == node_id else int(ErrorCode.NOT_COORDINATOR)

    def find_coordinator(self, _node_id: int, request: Any) -> Any:
        if request.API_VERSION < 4:
            return request.RESPONSE_TYPE(0, 0, None, self.groups[request.coordinator_key].coordinator, "h", 1)
        rows = []
        for name in request.coordinator_keys:
            code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED) if name == "forbidden" else 0
            rows.append((name, self.groups.get(name, FakeGroup()).coordinator, "h", 1, code, None, {}))
        return request.RESPONSE_TYPE(0, rows, {})

    def list_groups(self, node_id: int, request: Any) -> Any:
        if node_id in self.refuses_to_list:
            return request.RESPONSE_TYPE(0, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), [], {})
        own = {name: group for name, group in self.groups.items() if group.coordinator == node_id}
        if request.API_VERSION < 4:
            return request.RESPONSE_TYPE(0, 0, [(name, group.protocol) for name, group in own.items()])
        rows = [(name, group.protocol, group.state, group.kind, {}) for name, group in own.items()]
        return request.RESPONSE_TYPE(0, 0, rows, {})

    def describe_classic(self, node_id: int, request: Any) -> Any:
        rows = []
        for name in request.groups:
            group = self.groups.get(name)
            member = ("m", *([None] if request.API_VERSION >= 4 else []), "c", "h", b"", b"")
            operations = (0,) if request.API_VERSION >= 3 else ()
            if group is None or group.kind != "classic":
                rows.append((0, name, "Dead", "", "", [], *operations))
            else:
                code = self.code(node_id, name)
                rows.append((code, name, group.state, group.protocol, "", [member] * group.members, *operations))
        return request.RESPONSE_TYPE(0, rows)

    def describe_consumer(self, node_id: int, request: Any) -> Any:
        rows = []
        nothing = ([], {})
        member = ("m", None, None, 1, "c", "h", ["t"], None, nothing, nothing, {})
        for name in request.groups:
            group = self.groups.get(name, FakeGroup())
            is_consumer = group.kind == "consumer"
            code = self.code(node_id, name) if is_consumer else int(ErrorCode.GROUP_ID_NOT_FOUND)
            rows.append((code, None, name, group.state, 1, 1, "range", [member] * group.members, 0, {}))
        return request.RESPONSE_TYPE(0, rows, {})

    def fetch_offsets(self, node_id: int, request: Any) -> Any:
        if request.API_VERSION < 8:
            offsets = self.groups[request.consumer_group].offsets
            topics = [(tp.topic, [(tp.partition, offset, None, 0)]) for tp, offset in offsets.items()]
            return request.RESPONSE_TYPE(0, topics, self.code(node_id, request.consumer_group))
        rows = []
        for name, *_ in request.groups:
            offsets = self.groups.get(name, FakeGroup()).offsets
            topics = [(tp.topic, [(tp.partition, offset, -1, "m", 0, {})], {}) for tp, offset in offsets.items()]
            rows.append((name, topics, self.code(node_id, name), {}))
        return request.RESPONSE_TYPE(0, rows, {})

    def commit(self, node_id: int, request: Any) -> Any:
        name = request.consumer_group
        group = self.groups.setdefault(name, FakeGroup(protocol=""))
        code = self.code(node_id, name) or (int(ErrorCode.UNKNOWN_MEMBER_ID) if group.members else 0)
        topics = []
        for topic, rows in request.topics:
            topics.append((topic, [(number, code) for number, *_ in rows]))
            if not code:
                group.offsets |= {TopicPartition(topic, number): offset for number, offset, _ in rows}
        return request.RESPONSE_TYPE(0, topics)
