"""Configs of topics, and ACLs, of which there are none: no authorizer is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import DescribeAclsRequest_v1, DescribeConfigsRequest_v2

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topics.configs import IncrementalAlterConfigsRequest_v0
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_TOPIC = 2
_SET = 0


def _describe_configs(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows = []
    for kind, name, keys in it.resources:
        topic = cluster.topics.get(name) if kind == _TOPIC else None
        found = topic.configs if topic else {}
        entries = [(key, text, False, 1, False, []) for key, text in found.items() if keys is None or key in keys]
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if kind == _TOPIC and topic is None else 0
        rows.append((code, None, kind, name, entries))
    return it.RESPONSE_TYPE(0, rows)


def _alter_configs(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    for _, name, changes in it.resources:
        for key, operation, value in changes:
            if name in cluster.topics and operation == _SET:
                cluster.topics[name].configs[key] = value
            elif name in cluster.topics:
                cluster.topics[name].configs.pop(key, None)
    return it.RESPONSE_TYPE(0, [(0, None, kind, name) for kind, name, _ in it.resources])


def _describe_acls(_broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    return it.RESPONSE_TYPE(0, int(ErrorCode.SECURITY_DISABLED), "No Authorizer is configured", [])


KINDS = (
    Kind(_describe_configs, (DescribeConfigsRequest_v2,)),
    Kind(_alter_configs, (IncrementalAlterConfigsRequest_v0,)),
    Kind(_describe_acls, (DescribeAclsRequest_v1,)),
)
