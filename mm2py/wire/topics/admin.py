"""
What the control plane asks of a cluster: which topics there are, how they are configured, and to create or grow some.

Verbs are small and results plain. What goes wrong with one topic is that topic's result; only a cluster that does not
answer at all is raised. A command whose answer was lost is repeated, and then finding its work done counts as done.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import attrs
from aiokafka.protocol.admin import CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest

from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError
from mm2py.model.acl import Operation, operations_of
from mm2py.model.topic import ConfigEntry, ConfigSource, NewTopic, TopicDescription, TopicsView
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.metadata import NO_LEADER
from mm2py.wire.patience import Patience
from mm2py.wire.requests import CreateTopicsRequest, OperationsRequest
from mm2py.wire.topics.configs import Changes, Refusals, alter_topic_configs


T = TypeVar("T")
Result = BrokerAnsweredError | None
Configs = Mapping[str, ConfigEntry]

_TOPIC: Final = 2
_BROKER: Final = 4

#: A KRaft controller refuses commands of more than 10 000 metadata records; a partition is one, a topic or config too.
_COMMAND_RECORDS = 5_000
_TOPICS_PER_DESCRIBE = 250
_TOPICS_PER_QUESTION = 1_000
_CONFIG_SOURCES = frozenset(ConfigSource)


class Admin:
    """The admin verbs on one cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # The broker must give up before our own request timeout does, else its answer is lost.
        self._broker_timeout_ms = cluster.endpoint.request_timeout_ms * 3 // 4

    async def list_topics(self) -> TopicsView:
        """Look at all topics, Kafka's internal ones marked."""
        await self._cluster.refresh_metadata(None)
        return TopicsView(
            {
                name: TopicDescription(
                    topic_id=topic.topic_id,
                    partitions={
                        number: None if partition.leader == NO_LEADER else partition.leader
                        for number, partition in sorted(topic.partitions.items())
                    },
                    is_internal=topic.is_internal,
                    replication_factor=max(len(partition.replicas) for partition in topic.partitions.values()),
                )
                for name, topic in sorted(self._cluster.metadata.topics.items())
                if topic.partitions
            }
        )

    async def unlisted(self, topics: Collection[str]) -> dict[str, BrokerAnsweredError | None]:
        """Return those of *topics* that are there, with the refusal if we may not see them: a listing leaves these out
        as if they were gone.
        """
        await self._cluster.refresh_metadata(topics)
        known = self._cluster.metadata.topics
        there = {it: known[it].error_code for it in sorted(topics) if it in known and not known[it].is_missing}
        is_denied = {topic: code == ErrorCode.TOPIC_AUTHORIZATION_FAILED for topic, code in there.items()}
        return {
            topic: error_of(code, self._cluster.alias, "Metadata", topic) if is_denied[topic] else None
            for topic, code in there.items()
        }

    async def missing(self, topics: Collection[str]) -> frozenset[str]:
        """Return those of *topics* of which the brokers say that there is no such topic."""
        await self._cluster.refresh_metadata(topics)
        known = self._cluster.metadata.topics
        return frozenset(topic for topic in topics if topic in known and known[topic].is_missing)

    @property
    def cluster_id(self) -> str | None:
        """The cluster's own id, None as long as it is unknown."""
        return self._cluster.metadata.cluster_id

    @property
    def brokers(self) -> int:
        """How many brokers are up, as far as it is known."""
        return len(self._cluster.brokers)

    @property
    def all_brokers(self) -> int:
        """How many brokers the cluster has, as of the last `list_topics`: one that restarts still has its replicas."""
        topics = self._cluster.metadata.topics.values()
        replicas = {partition.replicas for topic in topics for partition in topic.partitions.values()}
        return len(self._cluster.brokers.keys() | set(itertools.chain.from_iterable(replicas)))

    async def create_topics(self, topics: Sequence[NewTopic], *, is_trial: bool = False) -> dict[str, Result]:
        """Create *topics*; per topic None where it was created, else the broker's error, TOPIC_ALREADY_EXISTS too. A
        trial creates nothing, and has the same answers.
        """
        results: dict[str, Result] = {}
        for chunk in _chunks(topics, lambda topic: 1 + max(1, topic.partitions) + len(topic.configs)):
            results |= await self._create({topic.name: topic for topic in chunk}, is_trial=is_trial)
        return results

    async def _create(self, topics: Mapping[str, NewTopic], *, is_trial: bool) -> dict[str, Result]:
        def request_for(names: Sequence[str]) -> CreateTopicsRequest:
            wanted = [topics[name] for name in names]
            rows = [(topic.name, topic.partitions, topic.replication_factor, topic.configs) for topic in wanted]
            return CreateTopicsRequest(rows, self._broker_timeout_ms, is_trial=is_trial)

        return await self._command(topics, "CreateTopics", request_for, done_before=ErrorCode.TOPIC_ALREADY_EXISTS)

    async def delete_topics(self, topics: Collection[str]) -> dict[str, Result]:
        """Delete *topics* with all that they hold; per topic None once it is gone, else the broker's error."""

        def request_for(names: Sequence[str]) -> Any:
            return DeleteTopicsRequest(list(names), self._broker_timeout_ms)

        return await self._command(
            topics, "DeleteTopics", request_for, done_before=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    async def grow_partitions(self, totals: Mapping[str, int]) -> dict[str, Result]:
        """Return each topic as many partitions as *totals* says in all; per topic None or the broker's error."""
        results: dict[str, Result] = {}
        for chunk in _chunks(list(totals), totals.__getitem__):
            results |= await self._grow({topic: totals[topic] for topic in chunk})
        return results

    async def _grow(self, totals: Mapping[str, int]) -> dict[str, Result]:
        def request_for(names: Sequence[str]) -> Any:
            rows = [(name, (totals[name], None)) for name in names]
            return CreatePartitionsRequest(rows, self._broker_timeout_ms, validate_only=False)

        return await self._command(totals, "CreatePartitions", request_for, done_before=ErrorCode.INVALID_PARTITIONS)

    async def _command(
        self,
        topics: Iterable[str],
        name: str,
        request_for: Callable[[Sequence[str]], Any],
        *,
        done_before: ErrorCode,
    ) -> dict[str, Result]:
        """
        Have the controller do something to each topic, and repeat what may succeed later.

        After an attempt whose end is unknown, *done_before* says that the attempt had succeeded after all.
        """
        results: dict[str, Result] = {}
        pending = list(topics)
        unsure: set[str] = set()
        patience = Patience(self._cluster.clock, self._cluster.endpoint.request_timeout_ms / 1000)
        while pending:
            for topic, result in (await self._command_once(pending, name, request_for)).items():
                is_done = result is not None and result.code == done_before and topic in unsure
                results[topic] = None if is_done else result
                if result is not None and result.code in (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT):
                    unsure.add(topic)
            pending = [
                topic
                for topic in pending
                if (result := results[topic]) is not None and not patience.is_over_for(result.code)
            ]
            if pending:
                await patience.pause()
                await self._cluster.refresh_metadata(())
        return results

    async def _command_once(
        self, topics: Sequence[str], name: str, request_for: Callable[[Sequence[str]], Any]
    ) -> dict[str, Result]:
        alias = self._cluster.alias
        try:
            response = await self._cluster.send_to_controller(request_for(topics))
        except BrokerAnsweredError as error:
            return dict.fromkeys(topics, error)
        except BrokerConnectionError as error:
            return dict.fromkeys(topics, error_of(ErrorCode.NETWORK_EXCEPTION, alias, name, str(error)))
        silent = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, alias, name, "left out of the answer")
        rows = response.topic_error_codes if name == "DeleteTopics" else response.topic_errors
        results = ((topic, _refusal(alias, name, topic, code, *rest)) for topic, code, *rest in rows)
        return by_asked(topics, results, silent)

    async def topic_configs(
        self, topics: Collection[str], keys: Collection[str] | None = None
    ) -> dict[str, Configs | BrokerAnsweredError]:
        """Read the configs of *topics*, all of them or only *keys*."""
        results: dict[str, Configs | BrokerAnsweredError] = {}
        names = sorted(topics)
        for at in range(0, len(names), _TOPICS_PER_DESCRIBE):
            some = names[at : at + _TOPICS_PER_DESCRIBE]
            try:
                response = await self._cluster.send_to_any(_describe_request(_TOPIC, some, keys))
            except BrokerAnsweredError as error:
                results.update(dict.fromkeys(some, error))
            else:
                results.update(self._described(some, response))
        return results

    async def alter_topic_configs(self, changes: Mapping[str, Changes]) -> Refusals:
        """Change configs of topics key by key; give what was refused, by topic and key."""
        return await alter_topic_configs(self._cluster, changes)

    async def broker_configs(self, keys: Collection[str] | None = None) -> Configs:
        """
        Read the configs of one broker, all of them or only *keys*; brokers of one cluster are taken to be alike.

        Raises `BrokerAnsweredError` where we may not.
        """
        cause: BrokerConnectionError | None = None
        for node_id in self._cluster.brokers:
            # A broker describes only itself.
            request = _describe_request(_BROKER, [str(node_id)], keys)
            try:
                response = await self._cluster.send_to(node_id, request)
            except BrokerConnectionError as error:
                cause = error
                continue
            described = self._described([str(node_id)], response)[str(node_id)]
            if isinstance(described, BrokerAnsweredError):
                raise described
            return described
        servers = ",".join(map(str, self._cluster.brokers.values()))
        raise ClusterUnreachableError(self._cluster.alias, servers, str(cause or "no broker is known")) from cause

    def _described(self, asked: Sequence[str], response: Any) -> dict[str, Configs | BrokerAnsweredError]:
        alias, request = self._cluster.alias, "DescribeConfigs"
        silent = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, alias, request, "left out of the answer")
        results: Iterator[tuple[str, Configs | BrokerAnsweredError]] = (
            (name, _refusal(alias, request, name, code, message) or {key: _entry(*fields) for key, *fields in rows})
            for code, message, _kind, name, rows in response.resources
        )
        return by_asked(asked, results, silent)


def _refusal(cluster: str, request: str, name: str, code: int, message: str | None = None) -> Result:
    return error_of(code, cluster, request, f"{name}: {message}" if message else name) if code else None


def _describe_request(kind: int, names: Iterable[str], keys: Collection[str] | None) -> DescribeConfigsRequest:
    wanted = None if keys is None else list(keys)
    return DescribeConfigsRequest([(kind, name, wanted) for name in names], include_synonyms=True)


def _entry(
    value: str | None,
    is_read_only: bool,  # noqa: FBT001
    source: int,
    is_sensitive: bool,  # noqa: FBT001
    synonyms: Sequence[tuple[str, str | None, int]] = (),
) -> ConfigEntry:
    known = ConfigSource(source) if source in _CONFIG_SOURCES else ConfigSource.UNKNOWN
    beneath = next((other for _, other, origin in synonyms if origin != ConfigSource.TOPIC), None)
    return ConfigEntry(value, known, is_read_only, is_sensitive, beneath)


def _chunks(items: Iterable[T], records_of: Callable[[T], int]) -> Iterator[list[T]]:
    """Cut *items* so that no command is larger than a controller takes."""
    chunk: list[T] = []
    records = 0
    for item in items:
        size = records_of(item)
        if chunk and records + size > _COMMAND_RECORDS:
            yield chunk
            chunk, records = [], 0
        chunk.append(item)
        records += size
    if chunk:
        yield chunk


@attrs.frozen
class Operations:
    """
    What the principal of a connection may do, as the brokers see it (KIP-430); None where they do not tell.

    A topic that may not be described has none: reading and writing include that.
    """

    cluster: frozenset[Operation] | None = None
    topics: Mapping[str, frozenset[Operation] | None] = attrs.field(factory=dict)


async def allowed_operations(cluster: Cluster, topics: Collection[str]) -> Operations:
    """Ask what we may do with *cluster* and *topics*, whether these exist or not."""
    names, of_cluster = list(topics), None
    found: dict[str, frozenset[Operation] | None] = dict.fromkeys(names)
    for at in range(0, max(1, len(names)), _TOPICS_PER_QUESTION):
        try:
            response = await cluster.send_to_any(OperationsRequest(names[at : at + _TOPICS_PER_QUESTION]))
        except BrokerAnsweredError:  # a broker before Kafka 2.4
            return Operations(None, found)
        for code, topic, _, _, bits, *_ in response.topics:
            found[topic] = frozenset() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else operations_of(bits)
        of_cluster = operations_of(response.authorized_operations)
    return Operations(of_cluster, found)
