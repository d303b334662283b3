"""
From the lines of a file to the settings of its clusters and flows.

Invalid values are replaced by their default here: `mm2py.config.lint` reports each of them, and nothing runs while
there is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias, cast

import attrs

from mm2py.config.keys.row import LAST_PORT, Key
from mm2py.config.keys.table import key_named
from mm2py.config.layers import Layers, Side, Value, spellings
from mm2py.config.problem import Problem
from mm2py.config.properties import escaped
from mm2py.config.security import client_key_in, read_security
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.model.flow import Flow
from mm2py.model.patterns import split_list


_ADDRESS = re.compile(r"(?:[0-9a-zA-Z%._-]*://)?(\[[0-9a-fA-F:.%]+\]|[0-9a-zA-Z%._-]+):([0-9]{1,5})")
HEARTBEAT_INTERVAL = "emit.heartbeats.interval.seconds"
#: How often topics and groups are listed if the file does not say; Java's default of 600 s is for all that it reads.
_LOOK_INTERVAL_S = 30.0
#: Returns the spellings of a connection setting, the strongest first.
_Ways: TypeAlias = Callable[[str], tuple[str, ...]]
#: What the lines begin with that say how a connector names its target, which is reached by other addresses.
NAMED_AGAIN: Final = "named.again"


@attrs.frozen
class ProcessReader:
    """Typed access to the keys of the process."""

    layers: Layers

    def ways(self, key: Key, side: Side = Side.SOURCE) -> tuple[str, ...]:  # noqa: ARG002 - the process has no sides
        """Return all spellings of *key*, the strongest first."""
        return (key.name, *key.aliases)

    def line(self, name: str, side: Side = Side.SOURCE) -> Value | None:
        """Return the strongest line of a key, by its full *name*."""
        return self.layers.first(self.ways(key_named(name), side))

    def read(self, key: Key) -> object:
        """Read *key*: the strongest line, or the default."""
        line = self.layers.first(self.ways(key)) or Value(key.default or "")
        try:
            return key.parse(line.text)
        except ValueError:
            return key.kind.parse(key.default or "")

    def flag(self, name: str) -> bool:
        return cast("bool", self._read(name))

    def number(self, name: str) -> int:
        return cast("int", self._read(name))

    def number_if_set(self, name: str) -> int | None:
        """Return the number in a line; None if there is no line, or no valid one."""
        line = self.line(name)
        try:
            return None if line is None else cast("int", key_named(name).parse(line.text))
        except ValueError:
            return None

    def text(self, name: str) -> str:
        return cast("str", self._read(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return cast("tuple[str, ...]", self._read(name))

    def _read(self, name: str) -> object:
        return self.read(key_named(name))


@attrs.frozen
class FlowReader(ProcessReader):
    """Typed access to the keys of one flow."""

    flow: Flow

    def ways(self, key: Key, side: Side = Side.SOURCE) -> tuple[str, ...]:
        return spellings(key, self.flow, side)

    def alias(self, side: Side) -> str:
        """Return the name of one of the flow's clusters."""
        return self.flow.source if side is Side.SOURCE else self.flow.target

    def own(self, name: str) -> Value | None:
        """Return the flow's own line of exactly that *name*."""
        return self.layers.get(f"{self.flow}.{name}")

    def beginning(self, stem: str) -> Iterator[tuple[str, Value]]:
        """Return the flow's own lines whose names begin with *stem*, with these names."""
        prefix = f"{self.flow}."
        for line in self.layers.lines():
            if line.counts_as.startswith(prefix + stem):
                yield line.counts_as.removeprefix(prefix), line

    def spelt(self, line: Value, name: str) -> str:
        """Return how the flow's own line of that *name* is written in the file of another *line*."""
        return line.spelt(f"{self.flow}.{name}")


def cluster_aliases(layers: Layers) -> tuple[str, ...]:
    """Return the aliases in ``clusters``, as far as they are valid."""
    line = layers.get("clusters")
    return tuple(dict.fromkeys(alias for alias in split_list(line.text) if alias)) if line else ()


def running_flows(layers: Layers, targets: Sequence[str] = ()) -> tuple[Flow, ...]:
    """Return the flows that a node runs: enabled ones, and those that emit heartbeats, as MirrorMaker selects them. A
    top-level ``enabled`` is ignored here, but applies to flows selected because of heartbeats.
    """
    aliases = cluster_aliases(layers)
    pairs = (Flow(source, target) for source in aliases for target in aliases if source != target)
    wanted = (flow for flow in pairs if not targets or flow.target in targets)
    return tuple(
        flow for flow in wanted if _is_enabled_itself(layers, flow) or emits_heartbeats(FlowReader(layers, flow))
    )


def _is_enabled_itself(layers: Layers, flow: Flow) -> bool:
    line = layers.get(f"{flow}.enabled")
    return line is not None and line.text.strip().lower() == "true"


def emits_heartbeats(of: FlowReader) -> bool:
    """Whether a flow's MirrorHeartbeatConnector has anything to do."""
    return of.flag("emit.heartbeats.enabled") and of.number(HEARTBEAT_INTERVAL) >= 0


def periodic(of: FlowReader, job: str) -> tuple[bool, float]:
    """Return whether a periodic job is done, and how often: never, if that is 0 or less, as Java's Scheduler has it."""
    name = f"{job}.interval.seconds"
    seconds = of.number(name)
    is_due = of.flag(f"{job}.enabled") and seconds > 0
    return is_due, float(seconds if seconds > 0 else int(key_named(name).default or "0"))


def look_interval_s(of: FlowReader, key: str) -> float:
    """Return how often a listing, which costs little, is repeated: as the file says, else more often than in Java."""
    written = of.number_if_set(key)
    return _LOOK_INTERVAL_S if written is None or written <= 0 else float(written)


def flow_endpoint(of: FlowReader, side: Side) -> ClusterEndpoint | Problem:
    """Read the connection settings of a flow for its source or target cluster."""
    server = key_named("bootstrap.servers")
    reached = _reach(of.layers, of.alias(side), lambda name: of.ways(attrs.evolve(server, name=name), side))
    if isinstance(reached, Problem):
        return reached
    role = "consumer" if side is Side.SOURCE else "producer"
    return attrs.evolve(
        reached,
        client_id=of.text(f"{role}.client.id") or str(of.flow),
        request_timeout_ms=of.number(f"{role}.request.timeout.ms"),
        metadata_max_age_ms=of.number(f"{role}.metadata.max.age.ms"),
        reconnect_backoff_ms=of.number(f"{role}.reconnect.backoff.ms"),
        reconnect_backoff_max_ms=of.number(f"{role}.reconnect.backoff.max.ms"),
        connection_setup_ms=of.number(f"{role}.socket.connection.setup.timeout.ms"),
        send_buffer_bytes=of.number(f"{role}.send.buffer.bytes"),
        receive_buffer_bytes=of.number(f"{role}.receive.buffer.bytes"),
    )


def cluster_endpoint(layers: Layers, alias: str) -> ClusterEndpoint | Problem:
    """Read the connection settings of cluster *alias*, independently of a flow."""
    return _reach(layers, alias, lambda name: (f"{alias}.{name}", name))


@attrs.frozen
class NamedAgain:
    """How a connector names one of its flow's clusters, by other addresses than those that are used: the flow runs if
    that is the same cluster.
    """

    key: str
    #: The connector, or its file.
    where: str
    endpoint: ClusterEndpoint


def target_named_again(layers: Layers, flow: Flow) -> NamedAgain | Problem | None:
    """Read how a connector names its target by other addresses than those that are used; None if it does not."""
    owner = f"{flow}.{NAMED_AGAIN}"
    servers = layers.get(f"{owner}.bootstrap.servers")
    if servers is None:
        return None
    end = cluster_endpoint(layers, owner)
    if isinstance(end, Problem):
        return end
    where = servers.where.rpartition(":")[0] or servers.where
    return NamedAgain(servers.key, where, attrs.evolve(end, alias=flow.target))


def _reach(layers: Layers, alias: str, ways: _Ways) -> ClusterEndpoint | Problem:
    servers = layers.first(ways("bootstrap.servers"))
    wanted = f"{alias}.bootstrap.servers"
    if servers is None:
        listed = layers.get("clusters")
        where = listed.where if listed else ""
        return Problem(where, wanted, f"cluster {alias} has no bootstrap.servers", f"add {escaped(wanted)} = host:port")
    try:
        addresses = parse_servers(servers.text)
    except ValueError as error:
        hint = f"write {escaped(servers.key)} = host1:9092, host2:9092"
        return Problem(servers.where, servers.key, servers.reason(error), hint)
    security = _security(layers, ways)
    return security if isinstance(security, Problem) else ClusterEndpoint(alias, addresses, security=security)


def _security(layers: Layers, ways: _Ways) -> Security | Problem:
    names = {name for line in layers.lines() if (name := client_key_in(line.counts_as)) is not None}
    found = {name: layers.first(ways(name)) for name in names}
    protocol = layers.first(ways("security.protocol")) or Value("PLAINTEXT")
    return read_security(protocol, {name: line for name, line in found.items() if line is not None})


def parse_servers(text: str) -> tuple[str, ...]:
    """Parse a list of brokers. Raise ValueError that names an invalid address."""
    addresses = [address for address in split_list(text) if address]
    if not addresses:
        raise ValueError("no broker is named")
    return tuple(_parse_address(address) for address in addresses)


def _parse_address(address: str) -> str:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        raise ValueError(f"{address!r} is not of the form host:port")
    port = int(match.group(2))
    if not 0 < port <= LAST_PORT:
        raise ValueError(f"{address!r}: there is no port {port}")
    return f"{match.group(1)}:{port}"
