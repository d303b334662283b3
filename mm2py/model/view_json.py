"""Views as plain JSON values."""

from __future__ import annotations

import enum
from typing import Any

import attrs

from mm2py.model.flow import Flow, TopicPartition


def to_json(view: Any) -> dict[str, Any]:
    """Return a view as plain JSON values: flows as ``A->B``, states by name, topic-partitions by their parts."""
    plain: dict[str, Any] = attrs.asdict(view, value_serializer=_plain)
    return plain


def _plain(_owner: object, _field: object, value: object) -> object:
    if isinstance(value, Flow):
        return str(value)
    if isinstance(value, TopicPartition):
        return value._asdict()
    if isinstance(value, tuple):
        return tuple(_plain(None, None, it) for it in value)
    return value.name.lower() if isinstance(value, enum.Enum) else value
