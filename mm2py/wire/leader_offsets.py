"""Offsets of partitions, as their leaders at one cluster answer."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from typing import Any, Protocol

from mm2py.clock import Clock
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError
from mm2py.model.flow import TopicPartition
from mm2py.wire.answers import by_asked
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.metadata import ClusterMetadata
from mm2py.wire.patience import Patience, may_last
from mm2py.wire.requests import ListOffsetsRequest


#: An offset, or why there is none.
Answer = int | BrokerAnsweredError


class Leaders(Protocol):
    """What knows the leaders and reaches them: `mm2py.wire.cluster.Cluster`."""

    clock: Clock

    @property
    def alias(self) -> str: ...

    @property
    def metadata(self) -> ClusterMetadata: ...

    def leader(self, tp: TopicPartition) -> int | None: ...

    def leader_epoch(self, tp: TopicPartition) -> int: ...

    async def ensure_metadata(self, topics: Collection[str]) -> None: ...

    async def refresh_metadata(self, topics: Collection[str] | None) -> None: ...

    async def send_to(self, node_id: int, request: Any) -> Any: ...


class LeaderOffsets:
    """Asks leaders for offsets, for as long as a request may take if they have moved."""

    def __init__(self, leaders: Leaders, timeout_s: float) -> None:
        self._leaders = leaders
        self._timeout_s = timeout_s
        #: What was waited for in vain, and has not answered since: all others would wait for it again and again.
        self._given_up: set[TopicPartition] = set()

    async def ask(
        self, partitions: Collection[TopicPartition], when: int, *, reads_committed: bool, patience_s: float | None
    ) -> dict[TopicPartition, Answer]:
        """Return an offset of each partition, or an error: see `Cluster.list_offsets`."""
        known: dict[TopicPartition, Answer] = {}
        pending, leaders = set(partitions), self._leaders
        patience = Patience(leaders.clock, self._timeout_s if patience_s is None else patience_s)
        await leaders.ensure_metadata({tp.topic for tp in pending})
        if given_up := pending & self._given_up:
            await leaders.refresh_metadata({tp.topic for tp in given_up})
        while pending:
            answers = await self._ask_once(pending, when, reads_committed=reads_committed)
            known.update(answers)
            failed = {tp: answer for tp, answer in answers.items() if isinstance(answer, BrokerAnsweredError)}
            pending = {tp for tp, error in failed.items() if not patience.is_over_for(error.code)} - given_up
            self._given_up -= answers.keys()
            self._given_up |= {tp for tp, error in failed.items() if tp not in pending and may_last(error.code)}
            if pending:
                await patience.pause()
                await leaders.refresh_metadata({tp.topic for tp in pending})
        return known

    async def _ask_once(
        self, partitions: Iterable[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, Answer]:
        answers: dict[TopicPartition, Answer] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            leader = self._leaders.leader(tp)
            if leader is None:
                answers[tp] = self._no_leader_error(tp)
            else:
                by_leader.setdefault(leader, []).append(tp)

        async def ask(node_id: int, group: list[TopicPartition]) -> None:
            answers.update(await self._ask_leader(node_id, group, when, reads_committed=reads_committed))

        async with asyncio.TaskGroup() as tasks:
            for node_id, group in by_leader.items():
                tasks.create_task(ask(node_id, group), name=f"{self._leaders.alias}/list-offsets/{node_id}")
        return answers

    def _no_leader_error(self, tp: TopicPartition) -> BrokerAnsweredError:
        code: int = ErrorCode.LEADER_NOT_AVAILABLE
        metadata = self._leaders.metadata
        if metadata.partition(tp) is None:
            topic = metadata.topics.get(tp.topic)
            code = (topic.error_code if topic else 0) or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return error_of(code, self._leaders.alias, "Metadata", str(tp))

    async def _ask_leader(
        self, node_id: int, partitions: list[TopicPartition], when: int, *, reads_committed: bool
    ) -> dict[TopicPartition, Answer]:
        leaders, alias = self._leaders, self._leaders.alias
        by_topic: dict[str, list[tuple[int, int]]] = {}
        for tp in partitions:
            by_topic.setdefault(tp.topic, []).append((tp.partition, leaders.leader_epoch(tp)))
        # A partition missing in the broker's answer is treated as one it does not lead.
        silent = error_of(ErrorCode.NOT_LEADER_OR_FOLLOWER, alias, "ListOffsets", "missing in the answer")
        try:
            response = await leaders.send_to(
                node_id, ListOffsetsRequest(by_topic, when, reads_committed=reads_committed)
            )
        except BrokerAnsweredError as error:
            return dict.fromkeys(partitions, error)
        except BrokerConnectionError as error:
            lost = error_of(ErrorCode.NETWORK_EXCEPTION, alias, "ListOffsets", str(error))
            return dict.fromkeys(partitions, lost)
        rows = (
            (
                TopicPartition(topic, number),
                error_of(code, alias, "ListOffsets", f"{topic}-{number}") if code else offset,
            )
            for topic, answers, *_ in response.topics
            for number, code, _timestamp, offset, *_ in answers
        )
        return by_asked(partitions, rows, silent)
