"""
The control plane's requests for consumer groups: list, describe, read and commit offsets.

Each group has a coordinator, which moves when brokers come and go: it is cached, and looked up again when it reports
that it has moved. What goes wrong with one group is that group's result; only an unreachable cluster raises. Brokers
before 3.0 are queried for one group at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import attrs
from aiokafka.protocol.commit import OffsetCommitRequest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error
from mm2py.model.acl import Operation, operations_of
from mm2py.model.flow import TopicPartition
from mm2py.model.group import CommittedOffset, GroupDescription, GroupListing, GroupType
from mm2py.model.topic import is_other_topic
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of, needs_lookup
from mm2py.wire.groups.requests import (
    NO_GENERATION,
    NO_MEMBER,
    ConsumerGroupDescribeRequest,
    DescribeGroupsRequest,
    FindCoordinatorsRequest,
    ListGroupsRequest,
    OffsetCommitByIdsRequest,
    OffsetFetchRequest,
)
from mm2py.wire.patience import Patience, may_last


T = TypeVar("T")
Failure = BrokerAnsweredError
Offsets = Mapping[TopicPartition, CommittedOffset]

_PURPOSE = "groups"
_GROUPS_PER_REQUEST = 500
_NO_OFFSET = -1
_DEFAULT_RETENTION = -1
_CONSUMER_PROTOCOL = "consumer"
#: The version of DescribeGroups from which on it tells what one may do (KIP-430).
_TELLS_OPERATIONS = 3


@attrs.frozen
class ListedGroups:
    """All groups that the brokers listed. `failures` are the brokers that did not, by node, those gone included."""

    groups: Mapping[str, GroupListing]
    failures: Mapping[int, Failure] = attrs.field(factory=dict)


class Groups:
    """The verbs on consumer groups of one cluster. It opens nothing of its own, so there is nothing to close."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators: dict[str, int] = {}
        #: Groups whose coordinator was waited for in vain, and has not answered since: it is asked once each time.
        self._given_up: set[str] = set()
        self._asks_one_by_one = False

    def keep(self, groups: Collection[str]) -> None:
        """Forget who coordinates all groups but these; there may be new ones all the time."""
        kept = frozenset(groups)
        self._coordinators = {group: node for group, node in self._coordinators.items() if group in kept}
        self._given_up &= kept

    # Listing.

    async def list_groups(self) -> ListedGroups:
        """List the groups of all brokers, of every type and state."""
        await self._cluster.refresh_metadata(())
        patience = self._patience()
        found: dict[str, GroupListing] = {}
        pending = set(self._cluster.brokers)
        failures: dict[int, Failure] = {}
        while pending:
            answers = await self._at_nodes({node: [""] for node in pending}, self._list_of)
            pending = set()
            for node, answer in answers.items():
                if not isinstance(answer, Failure):
                    failures.pop(node, None)
                    found |= answer
                    continue
                # It stays until that broker answers: its groups may have gone to one that was asked before.
                failures[node] = answer
                if not patience.is_over_for(answer.code):
                    pending.add(node)
            if pending:
                await patience.pause()
                await self._cluster.refresh_metadata(())
                pending &= set(self._cluster.brokers)
        if failures and not found and failures.keys() >= self._cluster.brokers.keys():
            raise next(iter(failures.values()))
        return ListedGroups(found, failures)

    async def _list_of(self, node: int, _nothing: Sequence[str]) -> dict[int, dict[str, GroupListing] | Failure]:
        response = await self._send(node, ListGroupsRequest())
        if isinstance(response, Failure):
            return {node: response}
        if response.error_code:
            return {node: self._error(response.error_code, "ListGroups", f"broker {node}")}
        return {node: {listing.group: listing for listing in map(_listing, response.groups)}}

    # Describing.

    async def describe(self, groups: Collection[str]) -> dict[str, GroupDescription | Failure]:
        """
        Describe *groups*, whichever protocol they speak.

        A coordinator describes a group of the consumer protocol as dead when it is asked in the classic way, so that
        is the second question, and only for those that are no consumer groups.
        """
        described = await self._at_coordinators(groups, self._describe_consumer)
        rest = [group for group, answer in described.items() if _is_no_consumer_group(answer)]
        return {**described, **await self._at_coordinators(rest, self._describe_classic)}

    async def _describe_consumer(self, node: int, groups: Sequence[str]) -> Mapping[str, GroupDescription | Failure]:
        response = await self._send(node, ConsumerGroupDescribeRequest(groups))
        if isinstance(response, Failure):
            return dict.fromkeys(groups, response)
        answers: dict[str, GroupDescription | Failure] = self._silent(groups, "ConsumerGroupDescribe")
        for code, message, group, state, _epoch, _assigned, _assignor, members, *_ in response.groups:
            if code:
                answers[group] = self._error(code, "ConsumerGroupDescribe", message or group)
            else:
                answers[group] = GroupDescription(
                    group, GroupType.CONSUMER, _CONSUMER_PROTOCOL, state, len(members or ())
                )
        return answers

    async def _describe_classic(self, node: int, groups: Sequence[str]) -> Mapping[str, GroupDescription | Failure]:
        response = await self._send(node, DescribeGroupsRequest(groups))
        if isinstance(response, Failure):
            return dict.fromkeys(groups, response)
        answers: dict[str, GroupDescription | Failure] = self._silent(groups, "DescribeGroups")
        for code, group, state, protocol_type, _protocol, members, *_ in response.groups:
            if code == ErrorCode.GROUP_ID_NOT_FOUND:
                answers[group] = GroupDescription(group, GroupType.CLASSIC, "", "Dead", exists=False)
            elif code:
                answers[group] = self._error(code, "DescribeGroups", group)
            else:
                exists = state.lower() != "dead"
                answers[group] = GroupDescription(
                    group, GroupType.CLASSIC, protocol_type, state, len(members), exists=exists
                )
        return answers

    async def operations(self, groups: Collection[str]) -> dict[str, frozenset[Operation] | Failure | None]:
        """Return what we may do with each of *groups*, whether it exists or not; None if its broker cannot tell."""
        return await self._at_coordinators(groups, self._operations_at)

    async def _operations_at(
        self, node: int, groups: Sequence[str]
    ) -> Mapping[str, frozenset[Operation] | Failure | None]:
        response = await self._send(node, DescribeGroupsRequest(groups, with_operations=True))
        if isinstance(response, Failure):
            return dict.fromkeys(groups, response)
        answers: dict[str, frozenset[Operation] | Failure | None] = self._silent(groups, "DescribeGroups")
        for code, group, *_, bits in response.groups:
            has_bits = response.API_VERSION >= _TELLS_OPERATIONS and not code
            answers[group] = (
                operations_of(bits) if has_bits else self._error(code, "DescribeGroups", group) if code else None
            )
        return answers

    # Offsets.

    async def committed(self, groups: Collection[str]) -> dict[str, Offsets | Failure]:
        """Read all committed offsets of *groups*; partitions without an offset are omitted."""
        return await self._at_coordinators(groups, self._committed_at)

    async def _committed_at(self, node: int, groups: Sequence[str]) -> Mapping[str, Offsets | Failure]:
        response = await self._send(node, OffsetFetchRequest(groups))
        if isinstance(response, Failure):
            if response.code == ErrorCode.UNSUPPORTED_VERSION and len(groups) > 1:
                # During a rolling upgrade a newer broker looks up coordinators that are older.
                one_by_one = [await self._committed_at(node, [group]) for group in groups]
                return {group: answer for answers in one_by_one for group, answer in answers.items()}
            return dict.fromkeys(groups, response)
        answers: dict[str, Offsets | Failure] = self._silent(groups, "OffsetFetch")
        if response.API_VERSION < OffsetFetchRequest._CLASSES[-1].API_VERSION:  # noqa: SLF001 - aiokafka's own table
            rows = [(groups[0], response.topics, response.error_code)]
        else:
            rows = [(group, topics, code) for group, topics, code, *_ in response.groups]
        for group, topics, code in rows:
            answers[group] = self._error(code, "OffsetFetch", group) if code else _offsets(topics)
        return answers

    async def commit(
        self, group: str, offsets: Offsets, may_send: Callable[[], bool] = lambda: True
    ) -> dict[TopicPartition, Failure | None]:
        """
        Commit *offsets* for an empty group; return per partition None or the broker's error.

        A group that has members is refused with UNKNOWN_MEMBER_ID: that is Kafka's own compare-and-set. An offset of a
        topic whose name another one has by now is refused with UNKNOWN_TOPIC_ID. *may_send* is asked right before each
        attempt; if it says no at the first one, the error is OPERATION_NOT_ATTEMPTED.
        """
        name, failures = "OffsetCommit", list[Failure]()

        async def commit(node: int, _groups: Sequence[str]) -> Mapping[str, dict[TopicPartition, int] | Failure]:
            codes = await self._commit_at(node, group, offsets, may_send)
            if isinstance(codes, Failure):
                if codes.code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    failures.append(codes)
                return {group: codes}
            # A coordinator that moved says so in each partition's code.
            moved = next((code for code in codes.values() if needs_lookup(code)), None)
            if moved is None:
                return {group: codes}
            failures.append(self._error(moved, name, group))
            return {group: failures[-1]}

        answer = (await self._at_coordinators([group], commit))[group]
        if isinstance(answer, Failure):
            is_given_up = answer.code == ErrorCode.OPERATION_NOT_ATTEMPTED and failures
            return dict.fromkeys(offsets, failures[-1] if is_given_up else answer)
        silent = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        codes = {tp: answer.get(tp, silent) for tp in offsets}
        return {tp: self._error(code, name, f"{group} {tp}") if code else None for tp, code in codes.items()}

    async def _commit_at(
        self, node: int, group: str, offsets: Offsets, may_send: Callable[[], bool]
    ) -> dict[TopicPartition, int] | Failure:
        """Commit *offsets* once; return per partition the broker's error code."""
        if not may_send():
            return self._error(ErrorCode.OPERATION_NOT_ATTEMPTED, "OffsetCommit", group)
        names = {it.topic_id: tp.topic for tp, it in offsets.items()}
        if None in names:
            return await self._commit_by_names(node, group, offsets, may_send)
        response = await self._send(node, OffsetCommitByIdsRequest(group, offsets))
        if not isinstance(response, Failure):
            rows = ((names.get(topic_id, ""), some) for topic_id, some, *_ in response.topics)
            return {TopicPartition(topic, number): code for topic, some in rows for number, code, *_ in some}
        if response.code != ErrorCode.UNSUPPORTED_VERSION:
            return response
        return await self._commit_by_names(node, group, offsets, may_send)

    async def _commit_by_names(
        self, node: int, group: str, offsets: Offsets, may_send: Callable[[], bool]
    ) -> dict[TopicPartition, int] | Failure:
        """Do so at a broker before 4.1: a topic that is replaced after this look gets what was meant for it."""
        await self._cluster.refresh_metadata({tp.topic for tp in offsets})
        topics: dict[str, list[tuple[int, int, str]]] = {}
        codes: dict[TopicPartition, int] = {}
        for tp, it in offsets.items():
            if is_other_topic(it.topic_id, self._cluster.topic_id(tp.topic)):
                codes[tp] = int(ErrorCode.UNKNOWN_TOPIC_ID)
            else:
                topics.setdefault(tp.topic, []).append((tp.partition, it.offset, it.metadata))
        if not topics:
            return codes
        if not may_send():
            return self._error(ErrorCode.OPERATION_NOT_ATTEMPTED, "OffsetCommit", group)
        request = OffsetCommitRequest(group, NO_GENERATION, NO_MEMBER, _DEFAULT_RETENTION, list(topics.items()))
        response = await self._send(node, request)
        if isinstance(response, Failure):
            return response
        answered = {TopicPartition(topic, number): code for topic, rows in response.topics for number, code, *_ in rows}
        return codes | answered

    # Coordinators.

    async def _at_coordinators(
        self, groups: Collection[str], ask: Callable[[int, Sequence[str]], Awaitable[Mapping[str, T | Failure]]]
    ) -> dict[str, T | Failure]:
        """Ask each group's coordinator; look it up again and repeat what may succeed later."""
        results: dict[str, T | Failure] = {}
        pending, given_up = sorted(groups), self._given_up.intersection(groups)
        patience = self._patience()
        while pending:
            lost = await self._find_coordinators([group for group in pending if group not in self._coordinators])
            results.update(lost)
            by_node: dict[int, list[str]] = {}
            for group in pending:
                if group not in lost:
                    by_node.setdefault(self._coordinators[group], []).append(group)
            answers = await self._at_nodes(by_node, ask)
            results.update({group: answers[group] for group in pending if group not in lost})
            failed = {group: error for group in pending if isinstance(error := results[group], Failure)}
            for group, error in failed.items():
                if needs_lookup(error.code) or error.code == ErrorCode.NETWORK_EXCEPTION:
                    self._coordinators.pop(group, None)
            left = {group for group, error in failed.items() if not patience.is_over_for(error.code)} - given_up
            self._given_up.difference_update(pending)
            self._given_up |= {group for group, error in failed.items() if group not in left and may_last(error.code)}
            pending = sorted(left)
            if pending:
                await patience.pause()
        return results

    async def _at_nodes(
        self, by_node: Mapping[int, Sequence[str]], ask: Callable[[int, Sequence[str]], Awaitable[Mapping[Any, T]]]
    ) -> dict[Any, T]:
        """Ask all nodes at once, each about its own groups in requests of a bearable size."""
        results: dict[Any, T] = {}
        size = 1 if self._asks_one_by_one else _GROUPS_PER_REQUEST

        unreachable: list[Mm2Error] = []

        async def at_node(node: int, groups: Sequence[str]) -> None:
            try:
                for at in range(0, len(groups), size):
                    results.update(await ask(node, groups[at : at + size]))
            except Mm2Error as error:
                unreachable.append(error)

        async with asyncio.TaskGroup() as tasks:
            for node, groups in by_node.items():
                tasks.create_task(at_node(node, groups), name=f"{self._cluster.alias}/groups/{node}")
        if unreachable:
            raise unreachable[0]
        return results

    async def _find_coordinators(self, groups: Sequence[str]) -> dict[str, Failure]:
        """Look up the coordinators of *groups*; give the errors of those that have none now."""
        if not groups:
            return {}
        lost: dict[str, Failure] = {}
        size = 1 if self._asks_one_by_one else _GROUPS_PER_REQUEST
        for at in range(0, len(groups), size):
            some = groups[at : at + size]
            try:
                response = await self._cluster.send_to_any(FindCoordinatorsRequest(some), _PURPOSE)
            except ClusterUnreachableError:
                await self._cluster.refresh_metadata(())  # raises if the cluster is unreachable
                lost.update(dict.fromkeys(some, self._error(ErrorCode.COORDINATOR_NOT_AVAILABLE, "FindCoordinator")))
                continue
            except BrokerAnsweredError as error:
                if error.code == ErrorCode.UNSUPPORTED_VERSION and size > 1:
                    self._asks_one_by_one = True
                    return await self._find_coordinators(groups)
                lost.update(dict.fromkeys(some, error))
                continue
            lost.update(self._learn(some, response))
        if any(self._coordinators.get(group, -1) not in self._cluster.brokers for group in groups if group not in lost):
            await self._cluster.refresh_metadata(())
        return lost

    def _learn(self, groups: Sequence[str], response: Any) -> dict[str, Failure]:
        if response.API_VERSION < FindCoordinatorsRequest._CLASSES[-1].API_VERSION:  # noqa: SLF001 - aiokafka's table
            self._asks_one_by_one = True
            rows = [(groups[0], (response.coordinator_id, response.error_code, response.error_message))]
        else:
            rows = [(key, (node, code, message)) for key, node, _, _, code, message, *_ in response.coordinators]
        lost: dict[str, Failure] = {}
        silent = (-1, ErrorCode.UNKNOWN_SERVER_ERROR, "missing in the answer")
        for group, (node, code, message) in by_asked(groups, rows, silent).items():
            if code:
                lost[group] = self._error(code, "FindCoordinator", message or group)
            else:
                self._coordinators[group] = node
        return lost

    async def _send(self, node: int, request: Any) -> Any:
        """Ask a broker; a failed connection is an answer that may be better next time."""
        try:
            return await self._cluster.send_to(node, request, _PURPOSE)
        except BrokerAnsweredError as error:
            return error
        except BrokerConnectionError as error:
            await self._cluster.refresh_metadata(())
            return self._error(ErrorCode.NETWORK_EXCEPTION, type(request).__name__, str(error))

    def _silent(self, groups: Sequence[str], request: str) -> dict[str, Any]:
        silent = self._error(ErrorCode.UNKNOWN_SERVER_ERROR, request, "missing in the answer")
        return dict.fromkeys(groups, silent)

    def _patience(self) -> Patience:
        return Patience(self._cluster.clock, self._cluster.endpoint.request_timeout_ms / 1000)

    def _error(self, code: int, request: str, detail: str = "") -> Failure:
        return error_of(code, self._cluster.alias, request, detail)


def _listing(row: Sequence[Any]) -> GroupListing:
    # Versions before 4 give no state, those before 5 no type; tags come last in flexible ones.
    group, protocol_type, *more = (field for field in row if not isinstance(field, dict))
    state, kind = (*more, "", "")[:2]
    return GroupListing(group, GroupType.of(kind), protocol_type, state)


def _is_no_consumer_group(answer: GroupDescription | Failure) -> bool:
    # UNSUPPORTED_VERSION: a broker from before KIP-848, which has classic groups only.
    none_there = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
    return isinstance(answer, Failure) and answer.code in none_there


def _offsets(topics: Sequence[Any]) -> Offsets:
    offsets: dict[TopicPartition, CommittedOffset] = {}
    for topic in topics:
        for row in topic[1]:
            # Version 3 has no leader epoch between offset and metadata.
            number, offset, *_, metadata, code = (field for field in row if not isinstance(field, dict))
            if not code and offset > _NO_OFFSET:
                offsets[TopicPartition(topic[0], number)] = CommittedOffset(offset, metadata or "")
    return offsets
