"""The file of a distributed worker of Kafka Connect, and the connectors in its config topic."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.importers.lines import ParsedFile, read_files
from mm2py.config.layers import OVERRIDE, Layers, Value
from mm2py.config.properties import Entry
from mm2py.config.providers import Machine
from mm2py.config.references import PROVIDERS, resolve_references
from mm2py.config.worker import StorageSettings


#: What is used of the file before it becomes settings.
_USED_AT_ONCE: Final = ("bootstrap.servers", "group.id", "config.storage.topic", "config.storage.replication.factor")


def read_worker(path: Path, overrides: Mapping[str, str] | None = None) -> ParsedFile:
    """Read a worker's file, with *overrides* over its lines."""
    [worker] = read_files(path)
    ours = {key: Entry(key, value, 0, where=OVERRIDE) for key, value in (overrides or {}).items()}
    entries = {**worker.entries, **ours}
    port, host = (entries.get(key) for key in ("rest.port", "rest.host.name"))
    if "listeners" not in entries and (line := port or host) is not None:
        # Former keys of Connect; Mirus's start script sets a port.
        address = f"http://{host.value.strip() if host else '127.0.0.1'}:{port.value.strip() if port else '8083'}"
        entries["listeners"] = attrs.evolve(line, value=address)
    entries = {key: entry for key, entry in entries.items() if key not in {"rest.port", "rest.host.name"}}
    return attrs.evolve(worker, entries=entries | _resolved(entries))


def _resolved(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """Return those lines that are used at once with what their references stand for, as Connect has them. What cannot
    be resolved stays as it is, and is reported when the file becomes settings.
    """
    some = (it for key, it in entries.items() if key in _USED_AT_ONCE or key.startswith(PROVIDERS))
    layers = resolve_references(Layers((Value(it.value, it.where, it.key) for it in some), {}), Machine()).layers
    lines = {key: line for key in _USED_AT_ONCE if (line := layers.get(key)) is not None}
    return {key: attrs.evolve(entries[key], value=line.text) for key, line in lines.items()}


def config_storage(worker: ParsedFile) -> StorageSettings:
    """Return the topic with the connectors' configs, of a *worker* without problems."""
    factor = worker.entries.get("config.storage.replication.factor")
    topic = worker.entries["config.storage.topic"].value.strip()
    return StorageSettings(topic, int(factor.value) if factor is not None else StorageSettings().replication_factor)


def leader_id(worker: ParsedFile) -> str:
    """Return the transactional id under which the worker's nodes write connectors; Java's leader uses it."""
    return f"connect-cluster-{worker.entries['group.id'].value.strip()}"


def parsed(name: str, config: Mapping[str, str]) -> ParsedFile:
    """Return a stored connector like a parsed file."""
    entries = {key: Entry(key, value, 0, where=name) for key, value in {**config, "name": name}.items()}
    return ParsedFile(name, entries)
