"""How a flow is run: the configs of its connectors, and of the worker that runs them."""

from __future__ import annotations

import attrs

from mm2py.config.connector import (
    ConnectorConfig,
    MirrorCheckpointConfig,
    MirrorHeartbeatConfig,
    MirrorSourceConfig,
    checkpoint_config,
    error_settings,
    heartbeat_config,
    shared_config,
    source_config,
)
from mm2py.config.resolve import FlowReader, NamedAgain
from mm2py.config.transforms import read_transforms
from mm2py.config.worker import WorkerConfig, worker_config
from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.flow import Flow


@attrs.frozen
class FlowSettings:
    """How one flow is run."""

    flow: Flow
    source_connector: MirrorSourceConfig
    checkpoint_connector: MirrorCheckpointConfig
    heartbeat_connector: MirrorHeartbeatConfig
    worker: WorkerConfig
    named_again: tuple[NamedAgain, ...] = ()
    #: Other source connectors of its pair that keep positions under the same name, as those of a standalone worker do.
    beside: tuple[MirrorSourceConfig, ...] = attrs.field(default=(), eq=False, repr=False)

    @property
    def is_enabled(self) -> bool:
        """Whether its topics are mirrored."""
        return self.source_connector.is_enabled

    @property
    def reads_source(self) -> bool:
        """Whether its nodes share it: it does more than to emit heartbeats."""
        return self.is_enabled or self.checkpoint_connector.is_run

    @property
    def source(self) -> ClusterEndpoint:
        return self.source_connector.source

    @property
    def target(self) -> ClusterEndpoint:
        return self.source_connector.target

    def config_of(self, connector: str) -> ConnectorConfig:
        """Return the config of a *connector*, by the name of its class."""
        return {
            SOURCE: self.source_connector,
            CHECKPOINT: self.checkpoint_connector,
            HEARTBEAT: self.heartbeat_connector,
        }[connector]

    def as_flow(self, flow: Flow) -> FlowSettings:
        """Return the same as settings of *flow*, another one of its pair."""
        return attrs.evolve(
            self,
            flow=flow,
            source_connector=attrs.evolve(self.source_connector, flow=flow),
            checkpoint_connector=attrs.evolve(self.checkpoint_connector, flow=flow),
            heartbeat_connector=attrs.evolve(self.heartbeat_connector, flow=flow),
        )

    @property
    def group_id(self) -> str:
        """The group at the target that the flow's node joins."""
        return self.worker.group_id


def flow_settings(of: FlowReader, source: ClusterEndpoint, target: ClusterEndpoint) -> FlowSettings:
    """Read all settings of a flow."""
    shared = shared_config(of, source, target)
    transforms = read_transforms(of, error_settings(of))
    return FlowSettings(
        flow=of.flow,
        source_connector=source_config(of, shared, transforms),
        checkpoint_connector=checkpoint_config(of, shared, transforms),
        heartbeat_connector=heartbeat_config(of, shared),
        worker=worker_config(of),
    )
