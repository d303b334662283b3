"""The ACLs that the target needs so that principals that may read a topic at the source may read its remote topic. The
rules are MirrorMaker 2's: ACLs for topics by their full names; no permission to write to a remote topic, because only
the mirror writes there, so ALLOW ALL becomes ALLOW READ; DENY is copied. Everything else is as at the source, including
principal and host.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import attrs

from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl


#: Instead of a topic's name: all topics. As a remote name it would mean a topic called ``A.*``.
_ALL_TOPICS = "*"
#: Stands for the rest of a name after a prefix.
_SOME_REST = "orders"

NameRemote = Callable[[str], str]


@attrs.frozen
class AclPlan:
    """The changes due: ACLs to create and to delete at the target, and those that the mirror no longer manages."""

    create: tuple[TopicAcl, ...] = ()
    delete: tuple[TopicAcl, ...] = ()
    forget: tuple[TopicAcl, ...] = ()


def mirrored_acls(
    source: Collection[TopicAcl], takes_topic: Callable[[str], bool], name_remote: NameRemote, *, with_prefixed: bool
) -> frozenset[TopicAcl]:
    """Return the target's ACLs for those of the *source*. Prefixed ones, which MirrorMaker 2 skips, are included
    *with_prefixed* if a remote name keeps the prefix.
    """
    remote: set[TopicAcl] = set()
    for acl in source:
        if acl.pattern is PatternType.PREFIXED:
            is_taken = with_prefixed and name_remote(acl.topic + _SOME_REST) == f"{name_remote(acl.topic)}{_SOME_REST}"
        else:
            is_taken = acl.topic != _ALL_TOPICS and takes_topic(acl.topic)
        if not is_taken or (acl.permission is Permission.ALLOW and acl.operation is Operation.WRITE):
            continue
        becomes_read = acl.permission is Permission.ALLOW and acl.operation is Operation.ALL
        operation = Operation.READ if becomes_read else acl.operation
        remote.add(attrs.evolve(acl, topic=name_remote(acl.topic), operation=operation))
    return frozenset(remote)


def plan_acls(
    wanted: Collection[TopicAcl],
    upstream: Collection[TopicAcl],
    target: Collection[TopicAcl],
    synced: Collection[TopicAcl],
    *,
    deletes: bool,
) -> AclPlan:
    """
    Compare what is *wanted* with what the *target* has.

    *upstream* are the results for all ACLs of the source, including topics that are not selected: an ACL is gone when
    the source no longer has it, not when its topic is no longer mirrored. *synced* are the ACLs that the mirror
    created. One that existed before may have been made by hand, so it is never deleted. One of the mirror's that was
    deleted at the target is created again while the source has it.
    """
    present = frozenset(target)
    gone = [acl for acl in synced if acl not in upstream]
    return AclPlan(
        create=_in_order(acl for acl in wanted if acl not in present),
        delete=_in_order(acl for acl in gone if acl in present) if deletes else (),
        forget=_in_order(acl for acl in gone if acl not in present),
    )


def _in_order(acls: Iterable[TopicAcl]) -> tuple[TopicAcl, ...]:
    """Sort *acls*, of which there may be ten thousand, in a tenth of the time that they take to compare themselves."""
    return tuple(sorted(acls, key=lambda acl: (acl.topic, str(acl))))
