"""ACLs for topics as in Kafka; the numbers are the protocol's."""

from __future__ import annotations

import enum

import attrs


class Operation(enum.IntEnum):
    """The operation of an ACL (Kafka's AclOperation)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


#: Brokers that do not say what one may do answer with the least number that the field has.
_UNSAID = -(2**31)


def operations_of(bits: int) -> frozenset[Operation] | None:
    """Return the operations in the *bits* of a broker's answer (KIP-430); None if it does not tell."""
    return None if bits == _UNSAID else frozenset(operation for operation in Operation if bits >> operation & 1)


class Permission(enum.IntEnum):
    """Whether an ACL allows or denies (Kafka's AclPermissionType)."""

    DENY = 2
    ALLOW = 3


class PatternType(enum.IntEnum):
    """How an ACL's resource name matches (Kafka's PatternType)."""

    LITERAL = 3
    PREFIXED = 4


@attrs.frozen(order=True)
class TopicAcl:
    """One ACL for a topic, or for all topics with a prefix."""

    topic: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        pattern = "" if self.pattern is PatternType.LITERAL else f" {self.pattern.name}"
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission.name} {self.operation.name} {self.principal}{host} on{pattern} {self.topic}"
