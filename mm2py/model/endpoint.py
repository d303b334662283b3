"""Connection settings of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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


def one_name_each(ends: Iterable[ClusterEndpoint], ids: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return each alias with the first alias of its cluster. By their *ids* clusters are one or two; as long as one of
    them has none, they are one if they share a bootstrap server.
    """
    clusters: list[_OneCluster] = []
    for end in ends:
        found = (ids or {}).get(end.alias)
        new = _OneCluster([end.alias], set() if found is None else {found}, set(end.bootstrap_servers))
        same = [known for known in clusters if known.is_same(new)]
        clusters = [known for known in clusters if known not in same]
        for known in same:
            new = _OneCluster([*known.aliases, *new.aliases], known.ids | new.ids, known.servers | new.servers)
        clusters.append(new)
    return {alias: one.aliases[0] for one in clusters for alias in one.aliases}


@attrs.frozen(eq=False)
class _OneCluster:
    aliases: list[str]
    ids: set[str]
    servers: set[str]

    def is_same(self, other: _OneCluster) -> bool:
        if other.aliases[0] in self.aliases:
            return True
        return bool(self.ids & other.ids if self.ids and other.ids else self.servers & other.servers)
