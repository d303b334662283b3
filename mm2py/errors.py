"""
Every error this package raises on purpose.

An error has what went wrong and where in its fields, what the caller may do in `verdict`, and what the operator may try
in `hint`. Errors cross Spark's process border, so they pickle: fields are positional.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final

import attrs


#: Longest error message, in characters, that is kept from a broker, Spark or a user's function.
_LONGEST_WORDS: Final = 1_000


def shortened(text: str, longest: int = _LONGEST_WORDS) -> str:
    """Return *text*; if it is longer than *longest* characters, its beginning and end. Foreign messages pass through
    here before they become part of an error or an event: they may repeat it for every record of a batch, and at every
    retry.
    """
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end]} … ({len(text) - longest} characters omitted) … {text[-end:]}"


class Verdict(enum.Enum):
    """How the caller of a failed step may react."""

    RETRY = "retry"
    REFRESH_METADATA = "refresh-metadata"
    RESTART_TASK = "restart-task"
    STOP_FLOW = "stop-flow"
    #: Another node has taken over, which is reported where that is noticed.
    STAND_BY = "stand-by"


class Mm2Error(Exception):
    """The root of every error this package raises on purpose."""

    verdict: ClassVar[Verdict] = Verdict.RESTART_TASK
    hint: ClassVar[str] = ""


@attrs.define(eq=False)
class ClusterUnreachableError(Mm2Error):
    """None of a cluster's bootstrap servers answered."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "check its bootstrap.servers, the network, and that the brokers are up"

    cluster: str
    servers: str
    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"cluster {self.cluster} does not answer at {self.servers}: {self.cause}"


@attrs.define(eq=False)
class ClusterSilentError(ClusterUnreachableError):
    """A cluster's brokers are there, but none has answered for seconds: they are frozen, or their answers get lost."""

    hint: ClassVar[str] = "check the network, and whether the brokers' processes are stopped or overloaded"


@attrs.define(eq=False)
class AdminTimeoutError(Mm2Error):
    """A round of a periodic job took longer than `admin.timeout.ms` and was abandoned."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = (
        "if the brokers are merely slow, or there are very many topics or groups, raise admin.timeout.ms"
    )

    limit_ms: int

    def __str__(self) -> str:
        return f"given up after {self.limit_ms / 1000:g} s (admin.timeout.ms)"


@attrs.define(eq=False)
class BrokerConnectionError(Mm2Error):
    """A connection to one broker failed or timed out; the state of requests in flight is unknown."""

    verdict: ClassVar[Verdict] = Verdict.REFRESH_METADATA

    cluster: str
    broker: str
    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"connection to broker {self.broker} of cluster {self.cluster}: {self.cause}"


@attrs.define(eq=False)
class BrokerAnsweredError(Mm2Error):
    """A broker answered a request with an error code."""

    cluster: str
    request: str
    code: int
    name: str
    detail: str = attrs.field(default="", converter=shortened)

    def __str__(self) -> str:
        tail = f" ({self.detail})" if self.detail else ""
        return f"cluster {self.cluster} answered {self.request} with {self.name} [{self.code}]{tail}"


@attrs.define(eq=False)
class NoLeaderError(BrokerAnsweredError):
    """A partition has no leader now; `detail` names it."""

    hint: ClassVar[str] = (
        "all brokers that hold it are down, or their disks: kafka-topics.sh --describe --unavailable-partitions names "
        "them. It is tried again by itself"
    )

    def __str__(self) -> str:
        return f"no broker of cluster {self.cluster} leads {self.detail}"


@attrs.define(eq=False)
class CoordinatorAwayError(BrokerAnsweredError):
    """No broker coordinates a group or a transactional id."""

    hint: ClassVar[str] = (
        "check that __consumer_offsets (groups) and __transaction_state (transactional ids) of that cluster have their "
        "partitions online, with as many replicas in sync as their min.insync.replicas; they cannot be created with "
        "fewer brokers than their replication factor"
    )


@attrs.define(eq=False)
class OpenTransactionError(BrokerAnsweredError):
    """Records after an offset cannot be read, or are not committed yet: a transaction there is still open."""

    hint: ClassVar[str] = (
        "it ends with its producer or, once transaction.timeout.ms is over, by itself. kafka-transactions.sh on that "
        "cluster shows the producer (describe-producers), and aborts a hanging transaction (abort --start-offset)"
    )


@attrs.define(eq=False)
class UnendedTransactionError(BrokerAnsweredError):
    """The last transaction of a producer of the mirror's own is still being ended by the brokers."""

    hint: ClassVar[str] = (
        "it is tried again by itself. If it stays, a partition that was written to has no leader, or fewer replicas in "
        "sync than its min.insync.replicas: kafka-transactions.sh describe names them"
    )


@attrs.define(eq=False)
class TooFewReplicasError(BrokerAnsweredError):
    """A partition takes no records, because too few of its replicas are in sync; `detail` names it."""

    hint: ClassVar[str] = (
        "it is tried again by itself; if all brokers are up, the topic has fewer replicas than its min.insync.replicas"
    )


@attrs.define(eq=False)
class WrongTimeError(BrokerAnsweredError):
    """A broker refused a record of the mirror's own, which has the time of this host."""

    hint: ClassVar[str] = (
        "set the clocks of this host and of the brokers right: they differ by more than "
        "message.timestamp.after.max.ms or message.timestamp.before.max.ms of the topic"
    )


@attrs.define(eq=False)
class NoAnswerError(BrokerAnsweredError):
    """A broker did not answer; where each partition has an answer of its own, this is it."""

    hint: ClassVar[str] = "check the network, and that the brokers are up"

    def __str__(self) -> str:
        return f"cluster {self.cluster} did not answer {self.request} ({self.detail})"


@attrs.define(eq=False)
class CorruptBatchError(Mm2Error):
    """A record batch of the source does not match its own checksum or structure."""

    hint: ClassVar[str] = (
        "the source broker's copy is damaged: check its disk, move leadership to a healthy replica, or skip the batch "
        "by setting the partition's position past it"
    )

    topic: str
    partition: int
    offset: int
    detail: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"corrupt record batch at {self.topic}-{self.partition} offset {self.offset}: {self.detail}"


@attrs.define(eq=False)
class HeaderNameError(CorruptBatchError):
    """A batch of the source is sound, but the name of one of its headers is not UTF-8."""

    hint: ClassVar[str] = (
        "nothing is damaged: a producer named a header so. Such batches are copied by mm2py's compiled code, which is "
        "missing where the copy ran, and never with transforms; or skip the batch by setting the partition's position "
        "past it"
    )

    def __str__(self) -> str:
        return f"the batch at {self.topic}-{self.partition} offset {self.offset} cannot be opened: {self.detail}"


@attrs.define(eq=False)
class RecordTooLargeError(Mm2Error):
    """A single source record is larger than any batch the target topic accepts."""

    hint: ClassVar[str] = "raise max.message.bytes of the remote topic, or message.max.bytes of the target brokers"

    topic: str
    partition: int
    offset: int
    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"record {self.topic}-{self.partition} offset {self.offset} needs {self.size_bytes} bytes, the target "
            f"accepts {self.limit_bytes}"
        )


@attrs.define(eq=False)
class UnknownFlowError(Mm2Error):
    """A request named a flow that this node does not run."""

    hint: ClassVar[str] = "GET /status lists the flows of this node; another node may run it"

    flow: str

    def __str__(self) -> str:
        return f"this node does not run flow {self.flow}"


@attrs.define(eq=False)
class UnknownConnectorError(Mm2Error):
    """A flow has no task group with that name, or it was deleted."""

    hint: ClassVar[str] = "the flow's status lists its connectors; putting the config of a deleted one creates it again"

    flow: str
    connector: str

    def __str__(self) -> str:
        return f"flow {self.flow} has no connector {self.connector}" if self.flow else f"no connector {self.connector}"


@attrs.define(eq=False)
class UnknownTaskError(Mm2Error):
    """A task group has no task with that number."""

    hint: ClassVar[str] = "the connector's status lists its tasks"

    flow: str
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector} of flow {self.flow} has no task {self.task}"


@attrs.define(eq=False)
class OverrideRejectedError(Mm2Error):
    """An override is invalid; each problem is a sentence that names what is wrong."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


@attrs.define(eq=False)
class OverrideConflictError(Mm2Error):
    """An override conflicts with another one in force, or with the current state of the flow."""

    what: str
    way_out: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.way_out}" if self.way_out else self.what


@attrs.define(eq=False)
class OverridesNotStoredError(Mm2Error):
    """The target cluster did not store an override, so it was not applied either; or it did not let offsets be read."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "try again once the target cluster answers"

    flow: str
    cluster: str
    cause: str

    def __str__(self) -> str:
        what = f"overrides and offsets of flow {self.flow}"
        return f"{what} cannot be read or stored on cluster {self.cluster}: {self.cause}"


@attrs.define(eq=False)
class RestartNotPassedOnError(Mm2Error):
    """A restart could not be passed on to the nodes of a flow that run what is to be restarted."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "ask one of them, or try again once the target cluster answers"

    flow: str
    nodes: str
    cause: str

    def __str__(self) -> str:
        return f"the restart in flow {self.flow} could not be passed on to {self.nodes}: {self.cause}"


@attrs.define(eq=False)
class TopicsUnknownError(Mm2Error):
    """A node that copies nothing of a flow cannot look which topics the flow mirrors."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "ask a node that copies them: mm2py nodes"

    flow: str
    cause: str

    def __str__(self) -> str:
        return f"this node copies nothing of flow {self.flow}, and cannot look which topics it mirrors: {self.cause}"


@attrs.define(eq=False)
class ConnectorsNotStoredError(Mm2Error):
    """The target cluster did not store a change of a worker's connectors, or it is uncertain whether it did."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "try again once the target cluster answers"

    cluster: str
    topic: str
    cause: str

    def __str__(self) -> str:
        return f"connectors cannot be stored in {self.topic} on cluster {self.cluster}: {self.cause}"


def cluster_of(*errors: BaseException) -> str:
    """Return the cluster that all of *errors* are about; empty if they are about several, or none."""
    clusters = {getattr(error, "cluster", "") for error in errors}
    return str(clusters.pop()) if len(clusters) == 1 else ""
