"""Commands that query a cluster: how they find it. A cluster is named by its alias in an mm2.properties, or by its
bootstrap servers.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import attrs

from mm2py.cli.command import ArgumentsError
from mm2py.client.config import MirrorClientConfig
from mm2py.config.problem import ConfigError, Problem
from mm2py.config.properties import parse_bytes
from mm2py.config.settings import FlowSettings, MirrorSettings, load_settings
from mm2py.connectors.plugins import policy_of
from mm2py.model.flow import Flow
from mm2py.policy.replication import DefaultReplicationPolicy, ReplicationPolicy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments that reach a cluster without a properties file of MirrorMaker's."""
    parser.add_argument(
        "--bootstrap-servers", metavar="HOST:PORT,…", help="the cluster's brokers, instead of a properties file"
    )
    parser.add_argument(
        "--command-config", type=Path, metavar="FILE",
        help="client settings for --bootstrap-servers: security.*, ssl.*, sasl.*, replication.policy.*",
    )  # fmt: skip


@attrs.frozen
class MirrorFile:
    """The clusters of an mm2.properties, for commands that run no flow."""

    settings: MirrorSettings

    @classmethod
    def read(cls, path: str) -> MirrorFile:
        """Read the file. Raise `ConfigError` with all its problems."""
        return cls(load_settings(path))

    def known(self, alias: str, option: str) -> str:
        """Return *alias* if the file has this cluster."""
        known = ", ".join(self.settings.clusters)
        if alias not in self.settings.clusters:
            raise ArgumentsError(f"{option} {alias}: unknown cluster; {self.settings.path.name} names {known}")
        return alias

    def client_config(self, alias: str, *, source: str | None = None) -> MirrorClientConfig:
        """Return how to reach cluster *alias*, naming topics like the flow from *source*, or any flow there."""
        endpoint = self.settings.clusters[alias]
        return MirrorClientConfig(
            endpoint.bootstrap_servers,
            policy=self._policy(alias, source),
            security=endpoint.security,
            name=alias,
            request_timeout_ms=endpoint.request_timeout_ms,
        )

    def flow(self, flow: Flow) -> FlowSettings | None:
        """Return the settings of *flow*, None if the file has no such flow."""
        return next((settings for settings in self.settings.flows if settings.flow == flow), None)

    def chosen(self, flow: Flow) -> FlowSettings:
        """Return the settings of *flow*. Raise `ArgumentsError` if the file has no such flow."""
        if (settings := self.flow(flow)) is None:
            known = ", ".join(str(other.flow) for other in self.settings.flows) or "none"
            raise ArgumentsError(f"{self.settings.path.name} has no flow {flow}; its flows: {known}")
        return settings

    def positions_topics(self, target: str) -> frozenset[str]:
        """Return the positions topics of all flows into *target*."""
        into = (flow.source_connector for flow in self.settings.flows if flow.flow.target == target)
        return frozenset(config.offset_storage.topic for config in into)

    def only_target(self) -> str:
        """Return the cluster that need not be named, because it is the target of all flows."""
        targets = {settings.flow.target for settings in self.settings.flows if settings.reads_source}
        if len(targets) != 1:
            raise ArgumentsError(f"name the cluster with --cluster; the file has {', '.join(self.settings.clusters)}")
        return targets.pop()

    def _policy(self, alias: str, source: str | None) -> ReplicationPolicy:
        def promise(settings: FlowSettings) -> tuple[bool, bool, bool]:
            flow = settings.flow
            return (
                flow == Flow(source or "", alias),
                flow.target == alias and settings.is_enabled,
                settings.is_enabled,
            )

        concerned = [
            settings for settings in self.settings.flows if alias in (settings.flow.source, settings.flow.target)
        ]
        if not concerned:
            return DefaultReplicationPolicy()
        return policy_of(max(concerned, key=promise).source_connector)


def config_from_servers(servers: str, command_config: Path | None) -> MirrorClientConfig:
    """Return how to reach the cluster at *servers*. Raise `ConfigError` with every problem."""
    values: dict[str, object] = {}
    if command_config is not None:
        try:
            document = parse_bytes(command_config.read_bytes(), name=command_config.name)
        except OSError as error:
            problem = Problem(str(command_config), "", f"cannot be read: {error.strerror or error}")
            raise ConfigError((problem,)) from error
        values = {key: entry.value for key, entry in document.latest().items()}
    return MirrorClientConfig.from_mapping({**values, "bootstrap.servers": servers})
