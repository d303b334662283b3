"""A node as others that would run the same flow see it, and its byte form, which newer nodes may extend."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import attrs

from mm2py.model.foreign import read_json


#: Enough for any reasonable host name, address or machine; longer values are truncated for display.
_LONGEST = 200
#: The end of the last year that has a date.
_LATEST_MS = 253_402_300_799_999


@attrs.frozen
class Node:
    """
    A process that runs flows.

    `machine` names the kernel and the process namespace in which `pid` counts; it is empty if unknown. `begun`
    distinguishes the process from an earlier one with the same number. `rest` is the address of its REST interface,
    empty if it has none. `instance` is its `group.instance.id` in a flow's group: a later process with it replaces it.
    """

    host: str
    pid: int
    machine: str = ""
    begun: str = ""
    rest: str = ""
    started_ms: int = 0
    instance: str = ""

    def __str__(self) -> str:
        return f"mm2py on {self.host}, process {self.pid}"

    @property
    def id(self) -> str:
        """A name that no other process has, on any machine."""
        process = zlib.crc32(f"{self.machine} {self.begun} {self.started_ms}".encode())
        return f"{self.host}-{self.pid}-{process:08x}"

    @property
    def worker_id(self) -> str:
        """
        Its name in Connect's answers: where its REST interface is, or else its id.

        Nodes may have the same: see `distinct_names`.
        """
        return self.rest.rpartition("://")[2].rstrip("/") or self.id

    @property
    def started_at(self) -> str:
        """When it started, by the clock of its own machine; empty if unknown."""
        if not self.started_ms:
            return ""
        started = datetime.fromtimestamp(self.started_ms / 1000, UTC)
        return started.isoformat(timespec="seconds").replace("+00:00", "Z")

    def shares_processes_with(self, other: Node) -> bool:
        """Whether a process number means the same process to both."""
        return bool(self.machine) and self.machine == other.machine


def distinct_names(nodes: Iterable[Node]) -> dict[str, str]:
    """
    Return a name for each of the *nodes* of a flow, by id, that no other one has: its `worker_id`, if that is its own.

    Nodes that listen on localhost, or advertise one address, have one `worker_id`: their host is added, or else their
    id is used.
    """
    known = {node.id: node for node in nodes}
    addresses = Counter(node.worker_id for node in known.values())
    places = Counter((node.worker_id, node.host) for node in known.values())
    return {
        node_id: node.worker_id
        if addresses[node.worker_id] == 1
        else f"{node.worker_id} on {node.host}"
        if places[node.worker_id, node.host] == 1
        else node_id
        for node_id, node in known.items()
    }


def encode_node(node: Node) -> bytes:
    """Return the member metadata of *node*."""
    return json.dumps(node_members(node), ensure_ascii=False).encode()


def node_members(node: Node) -> dict[str, Any]:
    """Return a node as JSON values."""
    return {field.name: getattr(node, field.name) for field in attrs.fields(Node)}


def decode_node(raw: bytes) -> Node | None:
    """Parse the output of `encode_node`; None for anything else."""
    try:
        found = read_json(raw)
    except ValueError:
        return None
    return read_node(found)


def read_node(found: object) -> Node | None:
    """Parse the output of `node_members`; None for anything else."""
    if not isinstance(found, dict) or "host" not in found:
        return None
    return Node(
        host=_text(found.get("host")),
        pid=_number(found.get("pid")),
        machine=_text(found.get("machine")),
        begun=_text(found.get("begun")),
        rest=_text(found.get("rest")),
        started_ms=_number(found.get("started_ms"), _LATEST_MS),
        instance=_text(found.get("instance")),
    )


def _text(value: Any) -> str:
    return value[:_LONGEST] if isinstance(value, str) else ""


def _number(value: Any, most: int = 2**53 - 1) -> int:
    return value if isinstance(value, int) and 0 <= value <= most else 0
