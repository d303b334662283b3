"""The config of a MirrorCheckpointConnector."""

from __future__ import annotations

import attrs

from mm2py.config.connector import ConnectorConfig, TopicFilterSettings, topic_filter_settings
from mm2py.config.resolve import FlowReader, look_interval_s, periodic
from mm2py.model.transform import FlowTransforms


@attrs.frozen
class MirrorCheckpointConfig(ConnectorConfig):
    """Which consumer groups are translated, and how their offsets are synchronised. The defaults are MirrorMaker's."""

    topics: TopicFilterSettings
    #: Whose routers name remote topics.
    transforms: FlowTransforms
    groups: tuple[str, ...] = (".*",)
    groups_exclude: tuple[str, ...] = ("console-consumer-.*", "connect-.*", "__.*")
    group_filter_class: str = "org.apache.kafka.connect.mirror.DefaultGroupFilter"
    refresh_enabled: bool = True
    refresh_interval_s: float = 30.0
    is_emitted: bool = True
    emit_interval_s: float = 60.0
    is_synced: bool = False
    sync_interval_s: float = 60.0
    #: Whether a group's offsets at the target may be set back.
    sync_rewinds: bool = False
    topic_replication_factor: int = 3
    #: The cluster that stores the offset syncs, if the source connector runs elsewhere: source or target.
    syncs_location: str = "source"

    @property
    def syncs_at(self) -> tuple[str, str]:
        """The cluster that stores the offset syncs, source or target, and the other one's alias, which names them."""
        is_at_source = self.syncs_location == "source"
        return self.syncs_location, self.flow.target if is_at_source else self.flow.source

    @property
    def is_run(self) -> bool:
        """Whether there is anything to do."""
        return self.is_enabled and self.is_emitted


def checkpoint_config(of: FlowReader, shared: ConnectorConfig, transforms: FlowTransforms) -> MirrorCheckpointConfig:
    refresh_enabled, _ = periodic(of, "refresh.groups")
    is_synced, sync_interval_s = periodic(of, "sync.group.offsets")
    emit_interval_s = of.number("emit.checkpoints.interval.seconds")
    return MirrorCheckpointConfig(
        **attrs.asdict(shared, recurse=False),
        topics=topic_filter_settings(of),
        transforms=transforms,
        groups=of.texts("groups"),
        groups_exclude=of.texts("groups.exclude"),
        group_filter_class=of.text("group.filter.class"),
        refresh_enabled=refresh_enabled,
        refresh_interval_s=look_interval_s(of, "refresh.groups.interval.seconds"),
        is_emitted=of.flag("emit.checkpoints.enabled") and emit_interval_s >= 0,
        emit_interval_s=float(max(0, emit_interval_s)),
        is_synced=is_synced,
        sync_interval_s=sync_interval_s,
        sync_rewinds=of.flag("sync.group.offsets.rewind.enabled"),
        topic_replication_factor=of.number("checkpoints.topic.replication.factor"),
        syncs_location=of.text("offset-syncs.topic.location"),
    )
