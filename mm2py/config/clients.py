"""
What each client, worker and connector of a flow gets to see of a file: MirrorMaker's maps, each value with its origin.

`mm2py.config.ways` has the order. These are the settings as text, as MirrorMaker hands them on; what mm2py makes of
them is in `mm2py.config.resolve`.
"""

from __future__ import annotations

from collections.abc import Mapping

from mm2py.config.keys.row import Level, Place
from mm2py.config.keys.table import find_key
from mm2py.config.layers import Layers, Value
from mm2py.config.ways import (
    Client,
    Way,
    is_client_key,
    name_behind,
    spelled,
    ways_of_client,
    ways_of_connector,
    ways_of_worker,
)
from mm2py.model.flow import Flow


_CLIENTS = ("consumer.", "producer.", "admin.")
_SIDES = ("source.", "target.")


def client_settings(layers: Layers, flow: Flow, client: Client) -> Mapping[str, Value]:
    """Return all that *client* is configured with, by name."""
    return _collect(layers, ways_of_client(flow, client))


def worker_settings(layers: Layers, flow: Flow) -> Mapping[str, Value]:
    """Return the settings of the worker that runs *flow*, without those of its clients."""
    found = _collect(layers, ways_of_worker(flow))
    return {name: value for name, value in found.items() if not name.startswith(_CLIENTS)}


def connector_settings(layers: Layers, flow: Flow) -> Mapping[str, Value]:
    """Return the settings of the connectors of *flow*, without those of their clients."""
    found = _collect(layers, ways_of_connector(flow, _is_of_connector))
    return {name: value for name, value in found.items() if not name.startswith((*_CLIENTS, *_SIDES))}


def _is_of_connector(name: str) -> bool:
    row = find_key(Level.TOP, name)
    is_flow_s = row is not None and row.place is Place.FLOW
    is_inherited = is_client_key(name) and name != "bootstrap.servers"
    return is_flow_s or is_inherited or name.startswith(("config.providers", "replication.policy"))


def _collect(layers: Layers, ways: tuple[Way, ...]) -> dict[str, Value]:
    names = {name for line in layers.lines() for way in ways if (name := name_behind(line.key, way)) is not None}
    lines = {name: layers.first(spelled(name, ways)) for name in sorted(names)}
    return {name: line for name, line in lines.items() if line is not None}
