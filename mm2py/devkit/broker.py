"""
Kafka clusters of real brokers on this machine.

A cluster is one or more KRaft nodes, each broker and controller in one process, with ports, data and logs of its own.
A node counts as started when it answers an ApiVersions and a Metadata request and lists itself among the brokers;
there are no sleeps for readiness. Blocking throughout: from asyncio, call it with `asyncio.to_thread`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import socket
import struct
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

import attrs

from mm2py.devkit.jars import kafka_jars, locked
from mm2py.devkit.java import JvmOptions, run_tool
from mm2py.devkit.ports import HOST, free_ports
from mm2py.devkit.process import LoggedProcess, start_process
from mm2py.errors import Mm2Error


#: How long a node may take to its first answer. A start takes two seconds; a loaded machine is given much more.
START_LIMIT_S = 90.0

_POLL_S = 0.05
_PROBE_LIMIT_S = 5.0
_API_VERSIONS, _METADATA = 18, 3


@attrs.define(eq=False)
class BrokerNotStartedError(Mm2Error):
    """A broker ended, or did not answer in time, while it was started."""

    hint: ClassVar[str] = "the broker's own words are below"

    broker: str
    cause: str
    log_file: str
    log_tail: str

    def __str__(self) -> str:
        return f"{self.broker} did not start: {self.cause}; {self.hint} (whole log: {self.log_file})\n{self.log_tail}"


@attrs.frozen
class BrokerNode:
    """Where one broker of a cluster is. Its place in the cluster is its broker id."""

    broker_id: int
    port: int
    controller_port: int
    directory: Path
    #: Ports of further listeners, by the listener's name.
    ports: Mapping[str, int] = attrs.field(factory=dict)
    #: Ports to which the broker sends the clients of listeners that a proxy stands before.
    proxy_ports: Mapping[str, int] = attrs.field(factory=dict)

    @property
    def log_file(self) -> Path:
        return self.directory / "broker.log"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"


class KafkaCluster:
    """
    One cluster; a context manager that starts it and ends it.

    Brokers are counted from 0 and that number is their broker id. Without *work_dir* everything lies in a temporary
    folder that goes away at the end; with it, a later cluster of the same name and size finds the data again.
    *properties* win over what is written here. Beside PLAINTEXT, by which a cluster is watched, each broker has the
    *listeners* given as security protocols by name; *scram_users* are there from the beginning. Clients of a listener
    in *proxied* are sent to another port of each broker, where the caller has a proxy listen.
    """

    def __init__(
        self,
        name: str,
        *,
        brokers: int = 1,
        properties: Mapping[str, str] | None = None,
        work_dir: Path | None = None,
        jvm: JvmOptions | None = None,
        listeners: Mapping[str, str] | None = None,
        proxied: Sequence[str] = (),
        scram_users: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self._listeners = dict(listeners or {})
        self._scram_users = dict(scram_users or {})
        self._properties = dict(properties or {})
        self._jvm = jvm or JvmOptions()
        self._is_scratch = work_dir is None
        self.work_dir = work_dir or Path(tempfile.mkdtemp(prefix=f"mm2py-{name}-"))
        behind = 2 + len(self._listeners)
        each = behind + len(proxied)
        ports = [free[at : at + each] for free in [free_ports(each * brokers)] for at in range(0, each * brokers, each)]
        self.nodes = tuple(
            BrokerNode(
                number,
                ports[number][0],
                ports[number][1],
                self.work_dir / f"{name}-{number}",
                dict(zip(self._listeners, ports[number][2:behind], strict=True)),
                dict(zip(proxied, ports[number][behind:], strict=True)),
            )
            for number in range(brokers)
        )
        self._processes: dict[int, LoggedProcess] = {}

    def __enter__(self) -> Self:
        try:
            self.start_all()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, as ``bootstrap.servers`` takes them."""
        return ",".join(f"{HOST}:{node.port}" for node in self.nodes)

    def servers(self, listener: str) -> str:
        """All brokers at a *listener* of their own, as ``bootstrap.servers`` takes them."""
        return ",".join(f"{HOST}:{node.proxy_ports.get(listener, node.ports[listener])}" for node in self.nodes)

    def start_all(self) -> None:
        """Start every broker that does not run and wait until each knows all of them."""
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        """Start every broker that does not run, without waiting. Launch several clusters, then await each."""
        self._write_settings()
        if not self.nodes[0].data.exists():
            self._format()
        for node in self.nodes:
            if not self.is_running(node.broker_id):
                self._spawn(node)

    def await_ready(self) -> None:
        """Wait until every broker answers and lists all of them."""
        deadline = time.monotonic() + START_LIMIT_S
        for node in self.nodes:
            self._await_node(node, len(self.nodes), deadline)

    def start(self, broker_id: int) -> None:
        """Start one broker that was killed and wait until it answers, which takes a majority of the cluster."""
        if not self.is_running(broker_id):
            self._spawn(self.nodes[broker_id])
        self._await_node(self.nodes[broker_id], 1, time.monotonic() + START_LIMIT_S)

    def terminate(self, broker_id: int, *, grace_s: float) -> int:
        """Stop one broker cleanly, by force once *grace_s* seconds have passed; give its exit code."""
        return self._processes[broker_id].terminate(grace_s)

    def kill(self, broker_id: int) -> None:
        """End one broker with SIGKILL."""
        self._processes[broker_id].kill()

    def pause(self, broker_id: int) -> None:
        """Freeze one broker: connections stay open, without answers."""
        self._processes[broker_id].pause()

    def resume(self, broker_id: int) -> None:
        """Resume a frozen broker."""
        self._processes[broker_id].resume()

    def is_running(self, broker_id: int) -> bool:
        process = self._processes.get(broker_id)
        return process is not None and process.is_running

    def exit_code(self, broker_id: int) -> int | None:
        """Return how a broker ended, None while it runs; minus the signal's number if a signal ended it."""
        return self._processes[broker_id].exit_code

    def pid(self, broker_id: int) -> int:
        """Return the process id of a broker, to measure it."""
        return self._processes[broker_id].pid

    def log_tail(self, broker_id: int = 0, lines: int = 40) -> str:
        """Return the last lines of one broker's log."""
        return self._processes[broker_id].log_tail(lines)

    def warnings(self, lines: int = 20) -> dict[str, str]:
        """Return what each broker logged as more than information, for a failure's report."""
        return {process.name: process.log_warnings(lines) for process in self._processes.values()}

    def stop(self) -> None:
        """End every broker, at once and without ceremony, and remove what was temporary."""
        for process in self._processes.values():
            process.kill()
        self._processes.clear()
        if self._is_scratch:
            shutil.rmtree(self.work_dir, ignore_errors=True)

    def _spawn(self, node: BrokerNode) -> None:
        command = self._jvm.command("kafka.Kafka", str(node.properties_file), scratch=node.directory)
        name = f"broker {node.broker_id} of {self.name}"
        self._processes[node.broker_id] = start_process(name, command, log_file=node.log_file, cwd=node.directory)

    def _write_settings(self) -> None:
        for node in self.nodes:
            node.directory.mkdir(parents=True, exist_ok=True)
            node.properties_file.write_text(_properties_text(self._server_properties(node)))

    def _format(self) -> None:
        """
        Format every node's data folder.

        Each gets the files of Kafka's tool with a cluster id, a broker id and a folder id of its own, which is all that
        the tool would do, and a Java start less.
        """
        formatted, cluster_id = _formatted_data(self._scram_users), _kafka_uuid()
        for node in self.nodes:
            shutil.copytree(formatted, node.data)
            meta = {
                "version": "1",
                "cluster.id": cluster_id,
                "node.id": str(node.broker_id),
                "directory.id": _kafka_uuid(),
            }
            (node.data / "meta.properties").write_text(_properties_text(meta))

    def _server_properties(self, node: BrokerNode) -> dict[str, str]:
        copies = str(min(3, len(self.nodes)))
        further = "".join(f",{name}://{HOST}:{node.ports[name]}" for name in self._listeners)
        advertised = {"PLAINTEXT": node.port, **node.ports, **node.proxy_ports}
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **self._listeners}
        voters = ",".join(f"{other.broker_id}@{HOST}:{other.controller_port}" for other in self.nodes)
        return {
            "process.roles": "broker,controller",
            "broker.rack": f"rack-{node.broker_id}",
            "node.id": str(node.broker_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{HOST}:{node.port},CONTROLLER://{HOST}:{node.controller_port}{further}",
            "advertised.listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in advertised.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{it}" for name, it in protocols.items()),
            "log.dirs": str(node.data),
            "auto.create.topics.enable": "false",
            "default.replication.factor": copies,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": "1",
            # Few partitions in the brokers' own topics: the first group and the first transaction start quickly.
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.num.partitions": "4",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Test records carry timestamps of any age: nothing may go away because of it, and two records far apart
            # do not open a new segment (the value is a hundred years).
            "log.retention.ms": "-1",
            "log.roll.ms": "3155760000000",
            "message.max.bytes": "16777216",
            "replica.fetch.max.bytes": "16777216",
            # A killed broker may come back as soon as its session is over; Kafka's nine seconds are a long wait.
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "num.network.threads": "2",
            "num.io.threads": "4",
            "log.cleaner.dedupe.buffer.size": "4194304",
            **self._properties,
        }

    def _await_node(self, node: BrokerNode, brokers: int, deadline: float) -> None:
        process = self._processes[node.broker_id]
        while True:
            # Those that run wait for one that ended; the words of that one are the ones to read.
            for other in (process, *(self._processes.values() if brokers == len(self.nodes) else ())):
                if not other.is_running:
                    raise self._not_started(other, f"it ended with exit code {other.exit_code}")
            listed = _listed_brokers(node.port)
            if node.broker_id in listed and len(listed) >= brokers:
                return
            if time.monotonic() > deadline:
                cause = f"it lists brokers {sorted(listed)} of {brokers}" if listed else "it does not answer"
                raise self._not_started(process, f"{cause} after {START_LIMIT_S:g} s")
            time.sleep(_POLL_S)

    @staticmethod
    def _not_started(process: LoggedProcess, cause: str) -> BrokerNotStartedError:
        return BrokerNotStartedError(process.name, cause, str(process.log_file), process.log_warnings())


def start_clusters(clusters: Sequence[KafkaCluster]) -> None:
    """Start several clusters side by side; all are stopped again when one of them does not start."""
    try:
        for cluster in clusters:
            cluster.launch()
        for cluster in clusters:
            cluster.await_ready()
    except BaseException:
        for cluster in clusters:
            cluster.stop()
        raise


def _formatted_data(scram_users: Mapping[str, str]) -> Path:
    """Return a data folder that Kafka's tool formatted for these users; it is made once, next to the jars."""
    users = [
        word
        for user, password in scram_users.items()
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for word in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
    ]
    jars = kafka_jars().directory
    data = jars.with_name(f"{jars.name}-data-{hashlib.sha256(repr(users).encode()).hexdigest()[:8]}")
    if data.is_dir():
        return data
    with locked(data.with_name(f"{data.name}.lock")), tempfile.TemporaryDirectory(dir=data.parent) as scratch:
        if not data.is_dir():
            settings, unfinished = Path(scratch) / "server.properties", Path(scratch) / "data"
            node = {"process.roles": "broker,controller", "node.id": "0", "log.dirs": str(unfinished)}
            peers = {"controller.listener.names": "CONTROLLER", "controller.quorum.voters": f"0@{HOST}:1"}
            listeners = {"listeners": f"PLAINTEXT://{HOST}:0,CONTROLLER://{HOST}:1"}
            settings.write_text(_properties_text(node | peers | listeners))
            run_tool("kafka.tools.StorageTool", "format", "-t", _kafka_uuid(), "-c", str(settings), *users)
            unfinished.rename(data)
    return data


def _properties_text(properties: Mapping[str, str]) -> str:
    # JSON's escapes are among those of Java, which would take the bytes of anything else for ISO-8859-1.
    return "".join(f"{key}={json.dumps(value)[1:-1]}\n" for key, value in properties.items())


def _kafka_uuid() -> str:
    """Make an id as Kafka writes them; one that starts with a dash would look like an option to its tools."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text


def _listed_brokers(port: int) -> set[int]:
    """Ask the broker at *port* which brokers it knows; empty when it does not answer."""
    try:
        with socket.create_connection((HOST, port), _PROBE_LIMIT_S) as connection:
            _ask(connection, _API_VERSIONS, 0, b"")
            answer = _ask(connection, _METADATA, 1, struct.pack(">i", 0))
    except OSError:
        return set()
    (count,) = struct.unpack_from(">i", answer, 0)
    found, at = set(), 4
    for _ in range(count):
        broker_id, host_length = struct.unpack_from(">ih", answer, at)
        at += 4 + 2 + host_length + 4
        (rack_length,) = struct.unpack_from(">h", answer, at)
        at += 2 + max(0, rack_length)
        found.add(broker_id)
    return found


def _ask(connection: socket.socket, api_key: int, version: int, body: bytes) -> bytes:
    """Send one request with header version 1 and give the answer's body."""
    client = b"mm2py-devkit"
    request = struct.pack(">hhih", api_key, version, 1, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, size)[4:]


def _read(connection: socket.socket, size: int) -> bytes:
    """Read exactly *size* bytes."""
    parts: list[bytes] = []
    while size:
        part = connection.recv(size)
        if not part:
            raise ConnectionResetError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
