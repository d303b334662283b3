"""What a check found out: about each cluster, each flow, and the machine."""

from __future__ import annotations

import enum

import attrs

from mm2py.model.flow import Flow


class Level(enum.Enum):
    """How much a finding matters."""

    #: The flow would not start, or not copy all.
    ERROR = "error"
    #: It runs, without something that the file asks for.
    WARNING = "warning"
    #: A cluster does not answer, so nothing is known of it.
    UNREACHABLE = "unreachable"
    #: It cannot be found out without changing something.
    UNKNOWN = "unknown"


@attrs.frozen
class Finding:
    """One thing that was found out, about a cluster, a flow or this machine."""

    level: Level
    #: The alias, the flow, or what of the machine it is about.
    where: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text}; {self.hint}" if self.hint else self.text


@attrs.frozen
class CheckedCluster:
    """A cluster as a client of the mirror sees it. An unreachable one has no id and no brokers."""

    alias: str
    servers: tuple[str, ...]
    #: How it is entered, and as whom, as far as that can be known from here.
    protocol: str
    principal: str
    cluster_id: str | None = None
    brokers: tuple[str, ...] = ()
    is_reachable: bool = False


@attrs.frozen
class CheckedFlow:
    """What a flow would mirror. What is unknown is None."""

    flow: Flow
    is_enabled: bool
    #: Its clusters that could not be asked.
    away: tuple[str, ...] = ()
    topics: int | None = None
    partitions: int | None = None
    #: How many remote topics there are already.
    remote_topics: int | None = None
    groups: int | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> str:
        """The verdict in a few words."""
        if any(finding.level is Level.ERROR for finding in self.findings):
            return "error"
        return f"waits for {' and '.join(self.away)}" if self.away else "ready"
