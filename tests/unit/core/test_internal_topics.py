"""What the topics are created with that a flow keeps for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from mm2py.connectors.plugins import policy_of
from mm2py.core import internal_topics
from mm2py.core.internal_topics import InternalTopic
from tests.support.config_files import ConfigFile


#: Each with a replication factor of its own, so that none is taken for another one.
LINES = [
    "offset.storage.replication.factor = 1", "offset.storage.partitions = 25",
    "config.storage.replication.factor = 2", "status.storage.replication.factor = 3",
    "checkpoints.topic.replication.factor = 4", "heartbeats.topic.replication.factor = 5",
    "offset-syncs.topic.replication.factor = 6",
]  # fmt: skip


def _topic(name: str, of: str, factor: int, partitions: int = 1, segment_mib: int | None = None) -> InternalTopic:
    configs = {} if segment_mib is None else {"segment.bytes": str(segment_mib * 1024 * 1024)}
    return InternalTopic(name, f"{of}.replication.factor", factor, partitions, configs)


@pytest.mark.parametrize(("location", "other"), [("source", "B"), ("target", "A")])
def test_what_internal_topics_are_created_with(tmp_path: Path, location: str, other: str) -> None:
    """
    Their segments are small where they are written all the time and read as a whole: brokers compact no segment that
    they still write.
    """
    settings = ConfigFile(tmp_path / "mm2.properties").flow(*LINES, f"offset-syncs.topic.location = {location}")
    source, checkpoint, heartbeat = (
        settings.source_connector, settings.checkpoint_connector, settings.heartbeat_connector,
    )  # fmt: skip
    policy, worker = policy_of(source), settings.worker

    assert [
        internal_topics.positions(source), internal_topics.synced(source), internal_topics.offset_syncs(source, policy),
        internal_topics.checkpoints(checkpoint, policy), internal_topics.heartbeats(heartbeat, policy),
        internal_topics.overrides(worker.config_storage), internal_topics.connectors(worker.config_storage),
        internal_topics.statuses(worker.status_storage),
    ] == [
        _topic("mm2-offsets.A.internal", "offset.storage", 1, 25, 1),
        _topic("mm2-synced.A.internal", "offset.storage", 1),
        _topic(f"mm2-offset-syncs.{other}.internal", "offset-syncs.topic", 6, 1, 16),
        _topic("A.checkpoints.internal", "checkpoints.topic", 4, 1, 16),
        _topic("heartbeats", "heartbeats.topic", 5),
        _topic("mm2-configs.A.internal", "config.storage", 2, 1, 1),
        _topic("mm2-configs.A.internal", "config.storage", 2),
        _topic("mm2-status.A.internal", "status.storage", 3, 5, 8),
    ]  # fmt: skip
