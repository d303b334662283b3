"""The config of a worker of Kafka Connect: its group, and the topics that it keeps things in."""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from mm2py.config.layers import Layers
from mm2py.config.resolve import FlowReader, running_flows
from mm2py.model.connector_offset import CHECKPOINT, SOURCE
from mm2py.model.flow import Flow
from mm2py.model.herder.node_status import status_topic
from mm2py.model.herder.stored_overrides import overrides_topic


@attrs.frozen
class StorageSettings:
    """A topic at the target where a worker keeps what it has to know."""

    topic: str = ""
    replication_factor: int = 3
    partitions: int = 1


@attrs.frozen
class WorkerConfig:
    """What the worker is configured with that runs a flow's connectors: its group at the target, and its topics."""

    group_id: str
    session_ms: int = 6_000
    heartbeat_ms: int = 2_000
    #: Whether a second node stands by.
    refuses: bool = True
    #: `group.instance.id`: this node's place waits for it while it restarts. Empty: it leaves the group.
    instance: str = ""
    #: What the transactional ids of copy tasks begin with.
    task_ids: str = attrs.field(default=attrs.Factory(lambda self: f"{self.group_id}-{SOURCE}", takes_self=True))
    #: The transactional id of what the flow's owner alone writes, as Java's leader has it.
    owner_id: str = attrs.field(default=attrs.Factory(lambda self: f"connect-cluster-{self.group_id}", takes_self=True))
    #: Where overrides by operators are kept.
    config_storage: StorageSettings = StorageSettings()
    #: Where nodes that share the flow report to each other.
    status_storage: StorageSettings = StorageSettings(partitions=5)

    def task_id(self, task: int) -> str:
        """Return the transactional id of a copy task, as Java's tasks have it."""
        return f"{self.task_ids}-{task}"


def worker_config(of: FlowReader) -> WorkerConfig:
    """Read the config of the worker that runs a flow."""
    # One line applies to all flows into a cluster, but each needs its own group.
    flow, group = of.flow, of.text("group.id")
    others = (other for other in running_flows(of.layers) if other.target == flow.target and other != flow)
    is_shared = bool(group) and any(FlowReader(of.layers, other).flag("enabled") for other in others)
    worker = _of_group(of, f"{group}-{flow.source}" if is_shared else group or f"{flow.source}-mm2")
    return attrs.evolve(
        worker,
        instance=of.text("group.instance.id") if worker.refuses else "",
        config_storage=StorageSettings(
            of.text("config.storage.topic") or overrides_topic(flow.source),
            of.number("config.storage.replication.factor"),
        ),
        status_storage=StorageSettings(
            of.text("status.storage.topic") or status_topic(flow.source),
            of.number("status.storage.replication.factor"),
            of.number("status.storage.partitions"),
        ),
    )


def of_connectors(config: WorkerConfig, group: str, flow: Flow, names: Mapping[str, str]) -> WorkerConfig:
    """
    Return the *config* of a worker of *group* for one of its flows, whose connectors have *names*, by their classes.

    Each flow has a group of its own, whatever other flows the worker has: they come and go. Its transactional ids are
    those of Java's tasks (KIP-618), which may have their permissions, and are kept out.
    """
    own = f"{group}-{flow.source}" + (f":{flow.connector}" if flow.connector else "")
    return attrs.evolve(
        config,
        group_id=own,
        task_ids=f"{group}-{names.get(SOURCE, SOURCE)}",
        owner_id=f"{group}-{names[CHECKPOINT]}-0" if CHECKPOINT in names else f"connect-cluster-{own}",
    )


def of_process(config: WorkerConfig, connector: str) -> WorkerConfig:
    """
    Return the *config* of a standalone worker for a *connector* that is not of its pair's own group.

    That is the group of the nodes that copy with the pair's first source connector. A further one, and a checkpoint
    connector by itself, whose pair another process copies, have a group and ids of their own.
    """
    own = f"{config.group_id}-{connector}"
    return attrs.evolve(config, group_id=own, task_ids=f"{own}-{SOURCE}", owner_id=f"connect-cluster-{own}")


def distributed_worker_config(layers: Layers, target: str) -> WorkerConfig:
    """Read how a distributed worker is a member of its own group, at cluster *target*."""
    of = FlowReader(layers, Flow("", target))
    return _of_group(of, of.text("group.id"))


def _of_group(of: FlowReader, group: str) -> WorkerConfig:
    return WorkerConfig(
        group,
        session_ms=of.number("session.timeout.ms"),
        heartbeat_ms=of.number("heartbeat.interval.ms"),
        refuses=of.text("copy.on.second.node") == "refuse",
    )
