"""A node's settings of a flow, as the nodes of the flow compare them, and take those of its owner."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class NodeSettings:
    """
    The settings that are not the default, by key.

    *values* are plain: those of the flow's owner apply on all nodes. Of the others only digests are known: *fixed* must
    be the same on all nodes that share a flow, *own* may differ.
    """

    values: Mapping[str, str] = attrs.field(factory=dict)
    fixed: Mapping[str, str] = attrs.field(factory=dict)
    own: Mapping[str, str] = attrs.field(factory=dict)

    def differing(self, owner: NodeSettings) -> tuple[str, ...]:
        """Return the keys whose value is not the *owner*'s."""
        ours, theirs = ({**it.values, **it.fixed, **it.own} for it in (self, owner))
        return tuple(sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key)))

    def conflicting(self, owner: NodeSettings) -> tuple[str, ...]:
        """Return the keys because of which this node cannot share the flow: it cannot take the *owner*'s value."""
        return tuple(
            key
            for key in self.differing(owner)
            if key in owner.fixed or (key in self.fixed and key not in owner.values)
        )

    def to_take(self, owner: NodeSettings) -> dict[str, str | None]:
        """Return the *owner*'s values of what is different here, None for a default."""
        return {
            key: owner.values.get(key)
            for key in self.differing(owner)
            if key in owner.values or (key in self.values and key not in {*owner.fixed, *owner.own})
        }


def node_settings_members(settings: NodeSettings) -> dict[str, Any]:
    """Return settings as JSON values."""
    return {field.name: dict(sorted(getattr(settings, field.name).items())) for field in attrs.fields(NodeSettings)}


def read_node_settings(value: Mapping[str, Any]) -> NodeSettings:
    """Parse the output of `node_settings_members`. Raise TypeError or AttributeError for anything else."""
    return NodeSettings(*(_texts(value.get(field.name, {})) for field in attrs.fields(NodeSettings)))


def _texts(value: Mapping[str, Any]) -> dict[str, str]:
    return {str(key): str(text) for key, text in value.items()}
