"""Metadata and coordinators: who leads and who coordinates, as a broker knows it, which may be old."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.requests import FindCoordinatorRequest_v4
from mm2py.wire.requests import MetadataRequest_v9, MetadataRequest_v11
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_HAS_IDS, _LACKS_OPERATIONS = 10, 11
_UNKNOWN = -(2**31)


def _metadata(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    view = broker.stale or cluster.image()
    alive, topics = view
    names = list(topics) if it.topics is None else [row[-2] for row in it.topics]
    has_ids = it.API_VERSION >= _HAS_IDS
    rows = []
    for name in names:
        found = topics.get(name)
        ids = ((found[0] if found else None),) if has_ids else ()
        code = 0 if found else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        rows.append((code, name, *ids, name.startswith("__"), found[1] if found else [], _UNKNOWN, {}))
    operations = (_UNKNOWN,) if it.API_VERSION < _LACKS_OPERATIONS else ()
    controller = next(iter(alive), -1)
    brokers = [(node, cluster.brokers[node].address, 9092, None, {}) for node in alive]
    return it.RESPONSE_TYPE(0, brokers, f"cluster-{cluster.name}", controller, rows, *operations, {})


def _coordinators(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    log = "__transaction_state" if it.key_type else "__consumer_offsets"
    if log not in cluster.topics:  # brokers make it at the first look-up; the product looks whether it is there
        cluster.create(log, len(cluster.slots))
    rows = []
    for name in it.coordinator_keys:
        node = cluster.slots[cluster.slot(name)]
        gone = node in cluster.fenced
        code = int(ErrorCode.COORDINATOR_NOT_AVAILABLE) if gone else 0
        rows.append((name, -1 if gone else node, cluster.brokers[node].address, 9092, code, None, {}))
    return it.RESPONSE_TYPE(0, rows, {})


KINDS = (Kind(_metadata, (MetadataRequest_v9, MetadataRequest_v11)), Kind(_coordinators, (FindCoordinatorRequest_v4,)))
