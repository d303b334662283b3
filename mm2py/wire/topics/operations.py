"""What the principal of a connection may do with a cluster and its topics, as the brokers see it (KIP-430)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import attrs

from mm2py.errors import BrokerAnsweredError
from mm2py.model.acl import Operation, operations_of
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.requests import OperationsRequest


_TOPICS_PER_REQUEST = 1_000


@attrs.frozen
class Operations:
    """The operations that are allowed; None where the brokers do not tell. A topic that may not be described has none:
    reading and writing include that.
    """

    cluster: frozenset[Operation] | None = None
    topics: Mapping[str, frozenset[Operation] | None] = attrs.field(factory=dict)


async def allowed_operations(cluster: Cluster, topics: Collection[str]) -> Operations:
    """Ask what we may do with *cluster* and *topics*, whether these exist or not."""
    names, of_cluster = list(topics), None
    found: dict[str, frozenset[Operation] | None] = dict.fromkeys(names)
    for at in range(0, max(1, len(names)), _TOPICS_PER_REQUEST):
        try:
            response = await cluster.send_to_any(OperationsRequest(names[at : at + _TOPICS_PER_REQUEST]))
        except BrokerAnsweredError:  # a broker before Kafka 2.4
            return Operations(None, found)
        for code, topic, _, _, bits, *_ in response.topics:
            found[topic] = frozenset() if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else operations_of(bits)
        of_cluster = operations_of(response.authorized_operations)
    return Operations(of_cluster, found)
