"""What a worker of Kafka Connect is configured with: its group, and the topics that it keeps things in."""

from __future__ import annotations

import attrs

from mm2py.config.connector import OWNER_ID, TASK_IDS
from mm2py.config.keys.row import trimmed
from mm2py.config.layers import Layers
from mm2py.config.resolve import FlowReader, running_flows
from mm2py.model.flow import Flow


@attrs.frozen
class MembershipSettings:
    """The group at the target whose members share a flow."""

    #: Empty: the source's alias and ``-mm2``.
    group: str = ""
    session_ms: int = 6_000
    heartbeat_ms: int = 2_000
    #: Whether a second node stands by.
    refuses: bool = True
    #: `group.instance.id`: this node's place waits for it while it restarts. Empty: it leaves the group.
    instance: str = ""
    #: What the transactional ids of copy tasks begin with, and the one for checkpoints, if the flow consists of a
    #: worker's connectors. Empty: they follow from the group.
    task_ids: str = ""
    owner_id: str = ""


@attrs.frozen
class StorageSettings:
    """A topic at the target where a flow keeps what it has to know; without a name it has the default one."""

    topic: str = ""
    replication_factor: int = 3
    partitions: int = 1


def flow_membership(of: FlowReader, flow: Flow) -> MembershipSettings:
    # One line applies to all flows into a cluster, but each needs its own group.
    group = of.text("group.id")
    others = (other for other in running_flows(of.layers) if other.target == flow.target and other != flow)
    is_shared = bool(group) and any(FlowReader(of.layers, other).flag("enabled") for other in others)
    # As connectors of a distributed worker have it.
    of_flow, task_ids, owner_id = (of.layers.get(f"{flow}.{key}") for key in ("group.id", TASK_IDS, OWNER_ID))
    if of_flow is not None:
        group, is_shared = trimmed(of_flow.text), False
    refuses = of.text("copy.on.second.node") == "refuse"
    return attrs.evolve(
        _of_group(of, f"{group}-{flow.source}" if is_shared else group),
        instance=of.text("group.instance.id") if refuses else "",
        task_ids="" if task_ids is None else task_ids.text,
        owner_id="" if owner_id is None else owner_id.text,
    )


def worker_membership(layers: Layers, target: str) -> MembershipSettings:
    """Read how a distributed worker is a member of its own group, at cluster *target*."""
    of = FlowReader(layers, Flow("", target))
    return _of_group(of, of.text("group.id"))


def _of_group(of: FlowReader, group: str) -> MembershipSettings:
    return MembershipSettings(
        group=group,
        session_ms=of.number("session.timeout.ms"),
        heartbeat_ms=of.number("heartbeat.interval.ms"),
        refuses=of.text("copy.on.second.node") == "refuse",
    )
