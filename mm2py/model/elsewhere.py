"""What a node knows of the partitions that other nodes of its flow copy."""

from __future__ import annotations

import attrs


@attrs.frozen
class Elsewhere:
    """A partition that another node copies. `node` is the `worker_id` of that one by the flow's assignment; empty if it
    is unknown, or if the partition is moving.
    """

    remote_topic: str
    node: str = ""
