"""Which of MirrorMaker's three connectors a flow's setting belongs to; Connect configures each separately."""

from __future__ import annotations

from typing import Final

from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE


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


def only_reader_of(name: str) -> str | None:
    """Return the connector that alone reads setting *name*; None if it is not a checkpoint or heartbeat setting."""
    return next((connector for connector, stems in _OWNED.items() if name.startswith(stems)), None)
