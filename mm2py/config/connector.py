"""What each connector of a flow has in its config, whatever its class, and which of them reads a setting."""

from __future__ import annotations

from typing import Final

import attrs

from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.endpoint import ClusterEndpoint


#: Stems of settings that only one connector reads; all others are the source connector's, or shared.
_OWNED: Final = {
    CHECKPOINT: (
        "groups",
        "group.filter.class",
        "refresh.groups",
        "emit.checkpoints",
        "sync.group.offsets",
        "checkpoints.topic",
    ),
    HEARTBEAT: ("emit.heartbeats", "heartbeats.topic"),
}

#: A flow's lines that only a distributed worker's connectors have: what the transactional ids of copy tasks begin with,
#: and the one for checkpoints.
TASK_IDS: Final = f"{SOURCE}.transactional.id"
OWNER_ID: Final = f"{CHECKPOINT}.transactional.id"
#: What a flow's lines begin with that say how a connector names a cluster which the flow reaches by other addresses.
NAMED_AGAIN: Final = "named.again"


@attrs.frozen
class PolicySettings:
    """How remote topics are named."""

    class_name: str
    separator: str
    internal_separator_enabled: bool
    prefix: str = ""
    suffix: str = ""


@attrs.frozen
class NamedAgain:
    """How a connector names one of the flow's clusters, by other addresses than those that are used: the flow runs if
    that is the same cluster.
    """

    key: str
    #: The connector, or its file.
    where: str
    endpoint: ClusterEndpoint


def only_reader_of(name: str) -> str | None:
    """Return the connector that alone reads setting *name*; None if it is not a checkpoint or heartbeat setting."""
    return next((connector for connector, stems in _OWNED.items() if name.startswith(stems)), None)
