"""Configs of topics, as LogConfig and ConfigurationControlManager know them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import DescribeConfigsRequest_v2

from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topics.configs import IncrementalAlterConfigsRequest_v0
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


_TOPIC = 2
_SET, _DELETE, _APPEND = range(3)
#: Where a config comes from.
_OF_TOPIC, _DEFAULT = 1, 5
_LONGEST = str(2**63 - 1)
_NUMBERS = {
    "compression.gzip.level": "-1", "compression.lz4.level": "9", "compression.zstd.level": "3",
    "delete.retention.ms": "86400000", "file.delete.delay.ms": "60000", "flush.messages": _LONGEST,
    "flush.ms": _LONGEST, "index.interval.bytes": "4096", "local.retention.bytes": "-2", "local.retention.ms": "-2",
    "max.compaction.lag.ms": _LONGEST, "max.message.bytes": "1048588", "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": _LONGEST, "min.cleanable.dirty.ratio": "0.5", "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1", "retention.bytes": "-1", "retention.ms": "604800000", "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760", "segment.jitter.ms": "0", "segment.ms": "604800000",
}  # fmt: skip
_CHOICES = {
    "cleanup.policy": ("delete", "compact"), "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "compression.type": ("producer", "uncompressed", "zstd", "lz4", "snappy", "gzip"),
}  # fmt: skip
_SWITCHES = (
    "preallocate", "remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable",
    "unclean.leader.election.enable",
)  # fmt: skip
_CHOICES |= dict.fromkeys(_SWITCHES, ("false", "true"))
_LISTS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas", "cleanup.policy")
DEFAULTS = _NUMBERS | {key: choices[0] for key, choices in _CHOICES.items()} | dict.fromkeys(_LISTS[:2], "")


def refusal(configs: dict[str, str | None]) -> str | None:
    """Return what is wrong with a topic's configs."""
    for key, value in configs.items():
        if key not in DEFAULTS:
            return f"Unknown topic config name: {key}"
        if value is None:
            return f"Null value not supported for topic configs: {key}"
        parts = value.split(",") if key in _LISTS else [value]
        is_number = value.lstrip("-").replace(".", "", 1).isdigit()
        if not (is_number if key in _NUMBERS else all(it in _CHOICES.get(key, parts) for it in parts)):
            return f"Invalid value {value} for configuration {key}"
    return None


def _describe_configs(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    cluster = broker.cluster
    rows: list[Any] = []
    for kind, name, keys in it.resources:
        topic = cluster.topics.get(name) if kind == _TOPIC else None
        if kind == _TOPIC and topic is None:
            rows.append((int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "", kind, name, []))
            continue
        own = topic.configs if topic else {}
        known = DEFAULTS | own if topic else {}
        entries: list[Any] = [
            (key, text, False, _OF_TOPIC if key in own else _DEFAULT, False, [])
            for key, text in known.items()
            if not keys or key in keys
        ]
        rows.append((0, "" if topic else None, kind, name, entries))
    return it.RESPONSE_TYPE(0, rows)


def _alter_configs(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    rows = [(*_altered(broker, *row, is_trial=it.validate_only), *row[:2]) for row in it.resources]
    return it.RESPONSE_TYPE(0, rows)


def _altered(broker: Broker, kind: int, name: str, changes: list[Any], *, is_trial: bool) -> tuple[int, str | None]:
    topic = broker.cluster.topics.get(name) if kind == _TOPIC else None
    keys = [key for key, *_ in changes]
    nulls = [key for key, operation, value in changes if value is None and operation != _DELETE]
    if len(set(keys)) < len(keys):
        return int(ErrorCode.INVALID_REQUEST), "Error due to duplicate config keys"
    if nulls:
        return int(ErrorCode.INVALID_REQUEST), f"Null value not supported for : {','.join(nulls)}"
    if topic is None:
        is_missing = kind == _TOPIC
        text = f"The topic '{name}' does not exist." if is_missing else None
        return int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if is_missing else 0, text
    wanted = _changed(topic.configs, changes)
    text = wanted if isinstance(wanted, str) else refusal(wanted)
    if isinstance(wanted, dict) and text is None and not is_trial:
        topic.configs = {key: str(value) for key, value in wanted.items()}
    return int(ErrorCode.INVALID_CONFIG) if text else 0, text


def _changed(configs: dict[str, str], changes: list[Any]) -> dict[str, str | None] | str:
    """Return what becomes of *configs*, or what is wrong with a change."""
    wanted: dict[str, str | None] = dict(configs)
    for key, operation, value in changes:
        if operation == _DELETE:
            wanted.pop(key, None)
        elif operation == _SET:
            wanted[key] = value
        elif key not in _LISTS:
            return f"Can't APPEND to key {key} because its type is not LIST."
        else:
            found = [part for part in (wanted.get(key) or DEFAULTS[key]).split(",") if part]
            parts = value.split(",")
            more = [*found, *(part for part in parts if part not in found)]
            less = [part for part in found if part not in parts]
            wanted[key] = ",".join(more if operation == _APPEND else less)
    return wanted


KINDS = (
    Kind(_describe_configs, (DescribeConfigsRequest_v2,)),
    Kind(_alter_configs, (IncrementalAlterConfigsRequest_v0,)),
)
