"""
Every error this package raises on purpose.

An error says what went wrong and where in its fields, what the caller may do about it in `verdict`, and what the
operator may try in `hint`. Errors cross Spark's process border, so they pickle: fields are positional.
"""

from __future__ import annotations

import enum
from typing import ClassVar, Final

import attrs


#: As much is kept, in characters, of what a broker, Spark or somebody's function says of one failure.
_LONGEST_WORDS: Final = 1_000


def shortened(text: str, longest: int = _LONGEST_WORDS) -> str:
    """
    Return *text*; of one that is longer than *longest* characters the beginning and the end.

    Whatever others say passes through here before it becomes part of an error or an event: they may say it of every
    record of a batch, and it is told again at every retry.
    """
    if len(text) <= longest:
        return text
    end = longest // 4
    return f"{text[: longest - end]} … ({len(text) - longest} characters left out) … {text[-end:]}"


class Verdict(enum.Enum):
    """What the caller of a failed step may do about it."""

    RETRY = "retry"
    REFRESH_METADATA = "refresh-metadata"
    RESTART_TASK = "restart-task"
    STOP_FLOW = "stop-flow"


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
class BrokerConnectionError(Mm2Error):
    """A connection to one broker broke or timed out; what was in flight on it is unsure."""

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
class OpenTransactionError(BrokerAnsweredError):
    """What lies behind an offset cannot be read, or counts for nothing yet: a transaction there is still open."""

    hint: ClassVar[str] = (
        "it ends with its producer or, once transaction.timeout.ms is over, by itself. kafka-transactions.sh of that "
        "cluster shows the producer (describe-producers), and ends a transaction that stays (abort --start-offset)"
    )


@attrs.define(eq=False)
class CorruptBatchError(Mm2Error):
    """A record batch of the source does not match its own checksum or structure."""

    hint: ClassVar[str] = (
        "the source broker's copy is damaged: check its disk, move leadership to a healthy replica, "
        "or step over the batch by setting the partition's position past it"
    )

    topic: str
    partition: int
    offset: int
    detail: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"corrupt record batch at {self.topic}-{self.partition} offset {self.offset}: {self.detail}"


@attrs.define(eq=False)
class RecordTooLargeError(Mm2Error):
    """A single source record does not fit into any batch the target topic takes."""

    hint: ClassVar[str] = "raise max.message.bytes of the remote topic, or message.max.bytes of the target brokers"

    topic: str
    partition: int
    offset: int
    size_bytes: int
    limit_bytes: int

    def __str__(self) -> str:
        return (
            f"record {self.topic}-{self.partition} offset {self.offset} needs {self.size_bytes} bytes, "
            f"the target takes {self.limit_bytes}"
        )


@attrs.define(eq=False)
class UnknownFlowError(Mm2Error):
    """Somebody asked for a flow that this node does not run."""

    hint: ClassVar[str] = "GET /status lists the flows of this node; another node may run it"

    flow: str

    def __str__(self) -> str:
        return f"this node does not run flow {self.flow}"


@attrs.define(eq=False)
class UnknownConnectorError(Mm2Error):
    """A flow has no task group of that name, or it was deleted."""

    hint: ClassVar[str] = "the flow's status lists its connectors; putting the config of a deleted one creates it again"

    flow: str
    connector: str

    def __str__(self) -> str:
        return f"flow {self.flow} has no connector {self.connector}" if self.flow else f"no connector {self.connector}"


@attrs.define(eq=False)
class UnknownTaskError(Mm2Error):
    """A task group has no task of that number."""

    hint: ClassVar[str] = "the connector's status lists its tasks"

    flow: str
    connector: str
    task: int

    def __str__(self) -> str:
        return f"{self.connector} of flow {self.flow} has no task {self.task}"


@attrs.define(eq=False)
class OverrideRejectedError(Mm2Error):
    """An order cannot be obeyed as it was given; each problem is a sentence that names what is wrong."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.problems)


@attrs.define(eq=False)
class OverrideConflictError(Mm2Error):
    """An order contradicts another one that still holds, or what the flow is doing right now."""

    what: str
    way_out: str = ""

    def __str__(self) -> str:
        return f"{self.what}: {self.way_out}" if self.way_out else self.what


@attrs.define(eq=False)
class OverridesNotStoredError(Mm2Error):
    """The target cluster does not hold an order, so that it would be forgotten; it was not obeyed either."""

    verdict: ClassVar[Verdict] = Verdict.RETRY
    hint: ClassVar[str] = "try again once the target cluster answers"

    flow: str
    cluster: str
    cause: str

    def __str__(self) -> str:
        return f"orders of flow {self.flow} cannot be kept on cluster {self.cluster}: {self.cause}"
