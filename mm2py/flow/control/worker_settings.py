"""The flows of a distributed worker, for commands that run none: from its file, and the connectors that it stored."""

from __future__ import annotations

from pathlib import Path

from mm2py.clock import Clock
from mm2py.config.importers.distributed import config_storage, read_worker
from mm2py.flow.control.connect_worker import Composition, compose
from mm2py.model.connector_configs import ConnectorsTopic
from mm2py.wire.cluster import Cluster
from mm2py.wire.topic_log import TopicLog


def worker_group(path: Path) -> str | None:
    """Return the group of a distributed worker's file; None if *path* is another kind of file."""
    entries = read_worker(path).entries
    if "clusters" in entries or not {"config.storage.topic", "group.id"} <= entries.keys():
        return None
    return entries["group.id"].value.strip()


async def read_worker_settings(path: Path, clock: Clock) -> Composition:
    """Read the worker's file and its connectors. Raise ConfigError if the file is invalid."""
    worker = read_worker(path)
    [endpoint] = compose(path, worker, {}).settings.clusters.values()
    topic, stored = config_storage(worker).topic, ConnectorsTopic()
    async with Cluster(endpoint, clock) as cluster:
        await cluster.refresh_metadata({topic})
        if cluster.partitions_of(topic):
            for record in await TopicLog(cluster, topic).read_all():
                stored.take(record.key, record.value)
    return compose(path, worker, {name: one.config for name, one in stored.connectors.items()})
