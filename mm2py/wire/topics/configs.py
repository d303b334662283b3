"""
Changing the configs of topics, key by key (IncrementalAlterConfigs, KIP-339; Kafka 2.3 and newer).

What is not named stays as it is. A broker takes the changes of one topic together or not at all; where it refuses
them because of one key, the others are sent one by one, so that a key that only the source knows keeps none from being
set.
"""

# aiokafka carries no types, so its base classes are Any to mypy.
# mypy: disable-error-code="misc"

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiokafka.protocol.api import Request, RequestStruct
from aiokafka.protocol.types import Boolean, Int8, Int16, Schema, String

from mm2py.errors import BrokerAnsweredError, ClusterUnreachableError
from mm2py.wire.answers import by_asked
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode, error_of
from mm2py.wire.patience import Patience
from mm2py.wire.requests import THROTTLE, answer, rows


#: What to do to a topic: a value to set by key, None to delete the key.
Changes = Mapping[str, str | None]
#: What was refused, by topic and key.
Refusals = dict[str, dict[str, BrokerAnsweredError]]

_TOPIC = 2
_SET, _DELETE = 0, 1
_TOPICS_PER_REQUEST = 250
_REQUEST = "IncrementalAlterConfigs"
#: Refusals that may be about one of several keys.
_ABOUT_A_KEY = frozenset({ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST, ErrorCode.POLICY_VIOLATION})


_ANSWERS = rows(
    "responses",
    ("error_code", Int16),
    ("error_message", String()),
    ("resource_type", Int8),
    ("resource_name", String()),
)
_CONFIGS = rows("configs", ("name", String()), ("config_operation", Int8), ("value", String()))


class IncrementalAlterConfigsRequest_v0(RequestStruct):  # noqa: N801
    API_KEY = 44
    API_VERSION = 0
    RESPONSE_TYPE = answer(44, 0, Schema(THROTTLE, _ANSWERS))
    SCHEMA = Schema(
        rows("resources", ("resource_type", Int8), ("resource_name", String()), _CONFIGS), ("validate_only", Boolean)
    )


class IncrementalAlterConfigsRequest(Request[IncrementalAlterConfigsRequest_v0]):
    """Set and delete configs of topics."""

    API_KEY = 44

    def __init__(self, changes: Mapping[str, Changes]) -> None:
        self._changes = changes

    def build(self, request_struct_class: Any) -> Any:
        resources: list[Any] = []
        for topic, changes in self._changes.items():
            rows = [(key, _DELETE if value is None else _SET, value) for key, value in changes.items()]
            resources.append((_TOPIC, topic, rows))
        return request_struct_class(resources=resources, validate_only=False)


async def alter_topic_configs(cluster: Cluster, changes: Mapping[str, Changes]) -> Refusals:
    """
    Carry out *changes*, by topic, and say what was refused; empty where all is done.

    What may succeed later is repeated until the request timeout is over. Doing a change twice does no harm.
    """
    refused = await _alter(cluster, {topic: some for topic, some in changes.items() if some})
    results: Refusals = {}
    for topic, error in refused.items():
        keys = changes[topic]
        if len(keys) == 1 or error.code not in _ABOUT_A_KEY:
            results[topic] = dict.fromkeys(keys, error)
            continue
        for key, value in keys.items():
            for again in (await _alter(cluster, {topic: {key: value}})).values():
                results.setdefault(topic, {})[key] = again
    return results


async def _alter(cluster: Cluster, changes: Mapping[str, Changes]) -> dict[str, BrokerAnsweredError]:
    """Send the changes of each topic as a whole; give the errors of those that were not taken."""
    refused: dict[str, BrokerAnsweredError] = {}
    pending = list(changes)
    patience = Patience(cluster.clock, cluster.endpoint.request_timeout_ms / 1000)
    while pending:
        for at in range(0, len(pending), _TOPICS_PER_REQUEST):
            some = {topic: changes[topic] for topic in pending[at : at + _TOPICS_PER_REQUEST]}
            refused = {topic: error for topic, error in refused.items() if topic not in some}
            refused |= await _alter_once(cluster, some)
        pending = [topic for topic in pending if topic in refused and not patience.is_over_for(refused[topic].code)]
        if pending:
            await patience.pause()
    return refused


async def _alter_once(cluster: Cluster, changes: Mapping[str, Changes]) -> dict[str, BrokerAnsweredError]:
    try:
        response = await cluster.send_to_any(IncrementalAlterConfigsRequest(changes))
    except BrokerAnsweredError as error:
        return dict.fromkeys(changes, error)
    except ClusterUnreachableError as error:
        # Brokers pass it on to the controller: while there is none they answer all but this.
        await cluster.refresh_metadata(())  # raises if the cluster is unreachable
        lost = error_of(ErrorCode.NETWORK_EXCEPTION, cluster.alias, _REQUEST, f"is there a controller? {error.cause}")
        return dict.fromkeys(changes, lost)
    silent = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, cluster.alias, _REQUEST, "left out of the answer")
    rows = (
        (topic, error_of(code, cluster.alias, _REQUEST, f"{topic}: {message}" if message else topic) if code else None)
        for code, message, _kind, topic in response.responses
    )
    return {topic: error for topic, error in by_asked(changes, rows, silent).items() if error is not None}
