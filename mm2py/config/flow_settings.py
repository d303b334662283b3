"""How a flow is run: the configs of its connectors, and of the worker that runs them."""

from __future__ import annotations

import attrs

from mm2py.config.checkpoint import CheckpointSettings, checkpoint_settings
from mm2py.config.connector import NamedAgain, PolicySettings
from mm2py.config.heartbeat import HeartbeatSettings, heartbeat_settings
from mm2py.config.layers import Layers
from mm2py.config.resolve import FlowReader
from mm2py.config.source import (
    BrokenHistorySettings,
    CopySettings,
    OffsetSyncSettings,
    TopicSettings,
    TopicSyncSettings,
    broken_history_settings,
    copy_limits,
    copy_settings,
    error_settings,
    offset_sync_settings,
    topic_settings,
    topic_sync_settings,
)
from mm2py.config.transforms import read_transforms
from mm2py.config.worker import MembershipSettings, StorageSettings, flow_membership
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.epoch import CopyLimits
from mm2py.model.flow import Flow
from mm2py.model.transform import FlowTransforms


@attrs.frozen
class FlowSettings:
    """How one flow is run."""

    flow: Flow
    #: Are its topics mirrored?
    is_enabled: bool
    source: ClusterEndpoint
    target: ClusterEndpoint
    topics: TopicSettings
    policy: PolicySettings
    heartbeats: HeartbeatSettings
    #: Where positions are kept.
    offset_storage: StorageSettings
    copying: CopySettings
    limits: CopyLimits
    #: Time limit of one round of a periodic job at the clusters' topics, configs, ACLs or groups.
    admin_timeout_ms: int
    checkpoints: CheckpointSettings = attrs.field(factory=CheckpointSettings)
    topic_sync: TopicSyncSettings = attrs.field(factory=TopicSyncSettings)
    broken_history: BrokenHistorySettings = attrs.field(factory=BrokenHistorySettings)
    offset_syncs: OffsetSyncSettings = attrs.field(factory=OffsetSyncSettings)
    membership: MembershipSettings = attrs.field(factory=MembershipSettings)
    transforms: FlowTransforms = attrs.field(factory=FlowTransforms)
    #: Where overrides by operators are kept; by default `mm2-configs.<source>.internal`.
    config_storage: StorageSettings = attrs.field(factory=StorageSettings)
    #: Where nodes that share the flow report to each other; by default `mm2-status.<source>.internal`.
    status_storage: StorageSettings = attrs.field(factory=lambda: StorageSettings(partitions=5))
    named_again: tuple[NamedAgain, ...] = ()

    @property
    def group_id(self) -> str:
        """The group at the target that the flow's node joins."""
        return self.membership.group or f"{self.flow.source}-mm2"


def flow_settings(layers: Layers, flow: Flow, source: ClusterEndpoint, target: ClusterEndpoint) -> FlowSettings:
    """Read all settings of *flow*."""
    of = FlowReader(layers, flow)
    return FlowSettings(
        flow=flow,
        is_enabled=of.flag("enabled"),
        source=source,
        target=target,
        topics=topic_settings(of),
        policy=PolicySettings(
            class_name=of.text("replication.policy.class"),
            separator=of.text("replication.policy.separator"),
            internal_separator_enabled=of.flag("replication.policy.internal.topic.separator.enabled"),
            prefix=of.text("remote.topic.prefix"),
            suffix=of.text("remote.topic.suffix"),
        ),
        heartbeats=heartbeat_settings(of),
        offset_storage=StorageSettings(
            of.text("offsets.storage.topic")
            or of.text("offset.storage.topic")
            or f"mm2-offsets.{flow.source}.internal",
            of.number("offset.storage.replication.factor"),
            of.number("offset.storage.partitions"),
        ),
        copying=copy_settings(of),
        limits=copy_limits(of),
        admin_timeout_ms=of.number("admin.timeout.ms"),
        checkpoints=checkpoint_settings(of),
        topic_sync=topic_sync_settings(of),
        broken_history=broken_history_settings(of),
        offset_syncs=offset_sync_settings(of),
        membership=flow_membership(of, flow),
        transforms=read_transforms(layers, flow, error_settings(of)),
        config_storage=StorageSettings(of.text("config.storage.topic"), of.number("config.storage.replication.factor")),
        status_storage=StorageSettings(
            of.text("status.storage.topic"),
            of.number("status.storage.replication.factor"),
            of.number("status.storage.partitions"),
        ),
    )
