"""
The spellings of a client's setting, the strongest first: MirrorMaker's own order.

MirrorMaker makes maps of settings layer by layer (MirrorMakerConfig.clusterProps; MirrorConnectorConfig's
sourceConsumerConfig and its siblings; Connect's Worker.baseProducerConfigs). Each such map is a list of prefixes here:
the first one with a line in the file applies. Connection settings (*client keys*) are inherited from the cluster and
from the top level; others are not.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable

import attrs

from mm2py.model.flow import Flow


class Client(enum.Enum):
    """A client that MirrorMaker creates for a flow, and whose settings count here; the value describes its purpose."""

    SOURCE_CONSUMER = "reads the source"
    DATA_PRODUCER = "writes copied records"
    SOURCE_ADMIN = "administers the source"
    TARGET_ADMIN = "administers the target"

    @property
    def role(self) -> str:
        """Its kind: consumer, producer or admin."""
        return self.name.rpartition("_")[2].lower()

    @property
    def side(self) -> str:
        """The cluster that it connects to: source or target."""
        return "source" if self.name.startswith("SOURCE_") else "target"


@attrs.frozen
class Way:
    """A prefix, and the settings that may be written after it."""

    prefix: str
    counts: Callable[[str], bool]


def is_client_key(name: str) -> bool:
    """Whether it is a connection setting (MirrorClientConfig.CLIENT_CONFIG_DEF)."""
    return name in {"bootstrap.servers", "security.protocol"} or name.startswith(("ssl.", "sasl."))


def _is_any(name: str) -> bool:
    return bool(name)


# It is asked for every key of every flow, each time that settings are read.
@functools.lru_cache(maxsize=256)
def ways_of_client(flow: Flow, client: Client) -> tuple[Way, ...]:
    """Return the spellings of a setting of *client*."""
    alias = flow.source if client.side == "source" else flow.target
    inherited = (Way(f"{alias}.", is_client_key), Way("", is_client_key))
    if client is Client.DATA_PRODUCER:
        # It is Connect's own: of a flow's lines it only sees the overrides.
        strongest = (Way(f"{flow}.producer.override.", _is_any), Way(f"{alias}.producer.", _is_any))
        return (*strongest, *inherited)
    return (
        Way(f"{flow}.{client.side}.{client.role}.", _is_any),
        Way(f"{alias}.{client.role}.", _is_any),
        *inherited,
        Way(f"{flow}.{client.role}.", _is_any),
        Way(f"{flow}.{client.side}.cluster.", is_client_key),
    )


def spelled(name: str, ways: tuple[Way, ...]) -> tuple[str, ...]:
    """Return all spellings of *name*, the strongest first."""
    return tuple(way.prefix + name for way in ways if way.counts(name))
