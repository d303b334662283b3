"""Connection settings of a cluster."""

from __future__ import annotations

from collections.abc import Iterable

import attrs


@attrs.frozen
class Security:
    """
    How connections to a cluster are protected.

    `protocol` is one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL. The remaining client keys (``ssl.*``, ``sasl.*``)
    stay as text until `wire` reads them. They contain secrets: they are excluded from ``repr``, and a plan with them is
    sent to Spark's workers sealed (`mm2py.pipeline.spark.sealing`).
    """

    protocol: str = "PLAINTEXT"
    client_keys: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)

    @property
    def uses_tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def uses_sasl(self) -> bool:
        return self.protocol.startswith("SASL")


@attrs.frozen
class ClusterEndpoint:
    """One cluster as a client sees it. It travels to Spark's Python workers inside an epoch's plan."""

    alias: str
    bootstrap_servers: tuple[str, ...]
    client_id: str = "mm2py"
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1_000
    security: Security = Security()
    #: Time limit for connecting to a broker, excluding the login.
    connection_setup_ms: int = 10_000
    #: Sizes of the sockets' buffers; -1 leaves them to the operating system.
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1


def one_name_each(ends: Iterable[ClusterEndpoint]) -> dict[str, str]:
    """Return each alias with the first alias of its cluster: aliases that share a bootstrap server name one cluster."""
    clusters: list[tuple[list[str], set[str]]] = []
    for end in ends:
        servers = set(end.bootstrap_servers)
        same = [known for known in clusters if end.alias in known[0] or servers & known[1]]
        aliases = [*(alias for known in same for alias in known[0]), end.alias]
        clusters = [known for known in clusters if known not in same]
        clusters.append((aliases, servers.union(*(known[1] for known in same))))
    return {alias: aliases[0] for aliases, _ in clusters for alias in aliases}
