"""
How remote topics are named, and how a topic's origin follows from its name.

The default and the identity policy follow Java's exactly, including quirks: names created by a Java MirrorMaker must
have the same meaning here. A custom policy is any class that satisfies `ReplicationPolicy`; see `mm2py.policy.plugins`.
"""

from __future__ import annotations

from typing import Protocol

import attrs


HEARTBEATS = "heartbeats"
DEFAULT_SEPARATOR = "."


class ReplicationPolicy(Protocol):
    """Naming of remote and internal topics of a flow."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        """Return the name on the target cluster of *topic* from cluster *source_alias*."""
        ...

    def topic_source(self, topic: str) -> str | None:
        """Return which cluster a remote topic was mirrored from, or None for a topic that is not remote."""
        ...

    def upstream_topic(self, topic: str) -> str | None:
        """Return a remote topic's name one hop back, or None for a topic that is not remote."""
        ...

    def original_topic(self, topic: str) -> str:
        """Return a topic's name at the cluster where it originated."""
        ...

    def is_heartbeats_topic(self, topic: str) -> bool:
        """Whether *topic* is a heartbeats topic, at any number of hops."""
        ...

    def is_checkpoints_topic(self, topic: str) -> bool:
        """Whether *topic* is a checkpoints topic."""
        ...

    def is_internal_topic(self, topic: str) -> bool:
        """Whether *topic* belongs to Kafka or to a mirror itself, and so is never mirrored."""
        ...

    def heartbeats_topic(self) -> str:
        """Return the topic that heartbeats are written to."""
        ...

    def checkpoints_topic(self, source_alias: str) -> str:
        """Return the topic on the target cluster for the checkpoints of *source_alias*'s groups."""
        ...

    def offset_syncs_topic(self, alias: str) -> str:
        """Return the offset syncs topic for cluster *alias*."""
        ...


@attrs.frozen
class DefaultReplicationPolicy:
    """Remote topics are prefixed with their source's alias, ``A.orders``; so loops are visible in the name."""

    separator: str = DEFAULT_SEPARATOR
    internal_separator_enabled: bool = True

    @property
    def internal_separator(self) -> str:
        """The separator inside the names of internal topics."""
        return self.separator if self.internal_separator_enabled else DEFAULT_SEPARATOR

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        if not self.separator:
            # Java's split at nothing gives single characters.
            return topic[:1] if len(topic) > 1 else None
        # Java's split drops empty pieces at the end: "foo." is one piece, so not remote; ".b" came from "".
        head, separator, rest = topic.partition(self.separator)
        if not separator or not rest.replace(self.separator, ""):
            return None
        return head

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        return _walk_back(self, topic)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == self.heartbeats_topic()

    def is_checkpoints_topic(self, topic: str) -> bool:
        between = self.internal_separator
        return topic.endswith(f"{between}checkpoints{between}internal")

    def is_internal_topic(self, topic: str) -> bool:
        is_mm2_internal = topic.startswith("mm2") and topic.endswith(f"{self.internal_separator}internal")
        return topic.startswith(("__", ".")) or is_mm2_internal or self.is_checkpoints_topic(topic)

    def heartbeats_topic(self) -> str:
        return HEARTBEATS

    def checkpoints_topic(self, source_alias: str) -> str:
        between = self.internal_separator
        return f"{source_alias}{between}checkpoints{between}internal"

    def offset_syncs_topic(self, alias: str) -> str:
        between = self.internal_separator
        return f"mm2-offset-syncs{between}{alias}{between}internal"


@attrs.frozen
class IdentityReplicationPolicy(DefaultReplicationPolicy):
    """
    Remote topics keep their names. Loops are not visible, so no two flows may feed each other.

    Names that end in ``heartbeats`` are an exception and follow the default policy, as in Java.
    """

    source_alias: str | None = None
    separator: str = DEFAULT_SEPARATOR
    internal_separator_enabled: bool = True

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return super().format_remote_topic(source_alias, topic) if self._is_prefixed(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return super().topic_source(topic) if self._is_prefixed(topic) else self.source_alias or None

    def upstream_topic(self, topic: str) -> str | None:
        return super().upstream_topic(topic) if self._is_prefixed(topic) else topic

    def _is_prefixed(self, topic: str) -> bool:
        return topic.endswith(HEARTBEATS)


@attrs.frozen
class PlainReplicationPolicy(IdentityReplicationPolicy):
    """
    Names that end in ``heartbeats`` are kept as well, as by a policy of Amazon's that is older than Kafka's own. The
    topic of the heartbeats themselves is not, and its copy is known by its name: the target has one of its own.
    """

    def _is_prefixed(self, topic: str) -> bool:
        return topic in {HEARTBEATS, f"{self.source_alias or ''}{self.separator}{HEARTBEATS}"}


@attrs.frozen
class VerbatimReplicationPolicy(IdentityReplicationPolicy):
    """Every name is kept, as by mirrors that have no heartbeats: to them it is the name of a topic like any other."""

    def is_heartbeats_topic(self, topic: str) -> bool:  # noqa: ARG002
        return False

    def _is_prefixed(self, topic: str) -> bool:  # noqa: ARG002
        return False


@attrs.frozen
class AffixedReplicationPolicy:
    """
    Remote topics have a prefix and a suffix around the topic's name, and else the names of *inner*: with the identity
    policy ``dc1-orders``, with the default one ``A.dc1-orders``, so that every default policy still recognises the hop.

    Under a policy that keeps names a topic is remote if its name has both. Heartbeats topics keep the inner policy's
    names, which other clients look for; internal topics do as well.
    """

    inner: ReplicationPolicy
    prefix: str = ""
    suffix: str = ""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        named = topic if self.inner.is_heartbeats_topic(topic) else f"{self.prefix}{topic}{self.suffix}"
        return self.inner.format_remote_topic(source_alias, named)

    def topic_source(self, topic: str) -> str | None:
        return None if self.upstream_topic(topic) is None else self.inner.topic_source(topic)

    def upstream_topic(self, topic: str) -> str | None:
        upstream = self.inner.upstream_topic(topic)
        if upstream is None or self.inner.is_heartbeats_topic(topic):
            return upstream
        bare = upstream.removeprefix(self.prefix).removesuffix(self.suffix)
        if bare and f"{self.prefix}{bare}{self.suffix}" == upstream:
            return bare
        # The inner policy has removed an alias: another flow, without prefix and suffix, mirrored it.
        return upstream if upstream != topic else None

    def original_topic(self, topic: str) -> str:
        return _walk_back(self, topic)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.inner.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self.inner.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.inner.is_internal_topic(topic)

    def heartbeats_topic(self) -> str:
        return self.inner.heartbeats_topic()

    def checkpoints_topic(self, source_alias: str) -> str:
        return self.inner.checkpoints_topic(source_alias)

    def offset_syncs_topic(self, alias: str) -> str:
        return self.inner.offset_syncs_topic(alias)


_BUILT_IN = frozenset(
    {DefaultReplicationPolicy, IdentityReplicationPolicy, PlainReplicationPolicy, VerbatimReplicationPolicy}
)


def is_built_in(policy: ReplicationPolicy) -> bool:
    """Whether *policy* is one of this module, not a custom class."""
    if isinstance(policy, AffixedReplicationPolicy):
        return is_built_in(policy.inner)
    return type(policy) in _BUILT_IN


def keeps_names(policy: ReplicationPolicy, source_alias: str) -> bool:
    """Whether *policy* mirrors topics under their own names, so that a name does not show its path."""
    return policy.format_remote_topic(source_alias, "orders") == "orders"


def names_source(policy: ReplicationPolicy, aliases: tuple[str, str]) -> bool:
    """Whether the name of a remote topic shows from which of two clusters it was mirrored."""
    one, other = (policy.format_remote_topic(alias, "orders") for alias in aliases)
    return one != other


def _walk_back(policy: ReplicationPolicy, topic: str) -> str:
    while (upstream := policy.upstream_topic(topic)) is not None and upstream != topic:
        topic = upstream
    return topic
