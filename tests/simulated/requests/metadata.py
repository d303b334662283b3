"""Metadata and coordinators: who leads and who coordinates, as a broker knows it, which may be old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.coordination import FindCoordinatorRequest_v1

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import FindCoordinatorRequest_v4
from mm2py.wire.requests import MetadataRequest_v7, MetadataRequest_v9, MetadataRequest_v11
from tests.simulated.requests.kind import Kind
from tests.simulated.requests.topics import is_name


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_HAS_IDS = 10
#: Since when many coordinators are looked up at once.
_MANY = 4
_UNKNOWN = -(2**31)
#: The bits of all operations that there are on a resource of the kind.
_ALL_OF_TOPIC, _ALL_OF_CLUSTER = 3576, 8096
_INTERNAL = ("__consumer_offsets", "__transaction_state", "__share_group_state")


def _metadata(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    view = broker.stale or cluster.image()
    alive, topics = view
    tags: tuple[Any, ...] = ({},) if it.FLEXIBLE_VERSION else ()
    wanted = it.topics if it.topics is None or not tags else [row[-2] for row in it.topics]

    def operations(all_of_them: int, kind: str) -> tuple[int, ...]:
        """Return what may be done, which is all as long as there is no authorizer."""
        is_asked = f"include_{kind}_authorized_operations" in it.SCHEMA.names
        return (
            ((all_of_them if getattr(it, f"include_{kind}_authorized_operations") else _UNKNOWN),) if is_asked else ()
        )

    rows = []
    for name in topics if wanted is None else wanted:
        is_denied = cluster.denies(name)
        if is_denied and wanted is None:
            continue
        found = None if is_denied else topics.get(name)
        ids = ((found[0] if found else None),) if it.API_VERSION >= _HAS_IDS else ()
        code = 0 if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = code if found or is_name(name) else ErrorCode.INVALID_TOPIC_EXCEPTION
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED if is_denied else code
        partitions = found[1] if found else []
        partitions = partitions if tags else [row[:-1] for row in partitions]
        rows.append((int(code), name, *ids, name in _INTERNAL, partitions, *operations(_ALL_OF_TOPIC, "topic"), *tags))
    whole = operations(_ALL_OF_CLUSTER, "cluster")
    controller = next(iter(alive), -1)
    brokers = [(node, *cluster.brokers[node].advertised, f"rack-{node}", *tags) for node in alive]
    return it.RESPONSE_TYPE(0, brokers, f"cluster-{cluster.name}", controller, rows, *whole, *tags)


def _coordinators(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    has_many = it.API_VERSION >= _MANY
    keys = it.coordinator_keys if has_many else [it.coordinator_key]
    log = "__transaction_state" if (it.key_type if has_many else it.coordinator_type) else "__consumer_offsets"
    if log not in cluster.topics:  # brokers make it at the first look-up; the product looks whether it is there
        cluster.create(log, len(cluster.slots))
    rows: list[Any] = []
    for name in keys:
        node = cluster.slots[cluster.slot(name)]
        gone = node in cluster.fenced
        code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if gone else 0
        rows.append((name, -1 if gone else node, *cluster.brokers[node].advertised, code, None, {}))
    if not has_many:
        _, node, host, port, code, *_ = rows[0]
        return it.RESPONSE_TYPE(0, code, "" if code else "NONE", node, host, port)
    return it.RESPONSE_TYPE(0, rows, {})


KINDS = (
    Kind(_metadata, (MetadataRequest_v7, MetadataRequest_v9, MetadataRequest_v11)),
    Kind(_coordinators, (FindCoordinatorRequest_v1, FindCoordinatorRequest_v4)),
)
