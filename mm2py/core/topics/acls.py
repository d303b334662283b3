"""
Which access control entries the target needs so that who may read a topic at the source may read its remote topic.

The rules are MirrorMaker 2's: entries for topics by their full names; nobody gets the right to write to a remote
topic, because only the mirror writes there, so ALLOW ALL becomes ALLOW READ; what is denied stays denied. Everything
else is as at the source, principal and host included.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

import attrs

from mm2py.model.acl import Operation, PatternType, Permission, TopicAcl


#: In place of a topic's name: all topics. Under a remote name it would mean a topic called ``A.*``.
_ALL_TOPICS = "*"
#: Stands for the rest of a name behind a prefix.
_SOME_REST = "orders"

NameRemote = Callable[[str], str]


@attrs.frozen
class AclPlan:
    """What is due: entries to create and to delete at the target, and those that the mirror answers for no longer."""

    create: tuple[TopicAcl, ...] = ()
    delete: tuple[TopicAcl, ...] = ()
    forget: tuple[TopicAcl, ...] = ()


def mirrored_acls(
    source: Collection[TopicAcl], takes_topic: Callable[[str], bool], name_remote: NameRemote, *, with_prefixed: bool
) -> frozenset[TopicAcl]:
    """
    Return what the entries of the *source* mean for the target.

    Prefixed entries, which MirrorMaker 2 leaves out, are taken *with_prefixed* where a remote name keeps the prefix.
    """
    remote: set[TopicAcl] = set()
    for acl in source:
        if acl.pattern is PatternType.PREFIXED:
            is_taken = with_prefixed and name_remote(acl.topic + _SOME_REST) == name_remote(acl.topic) + _SOME_REST
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

    *upstream* is what all entries of the source mean, those of topics that are not chosen too: an entry is gone when
    the source has it no longer, not when its topic is no longer mirrored. *synced* are the entries that the mirror
    created. One that was there before it came may have been made by hand, so it is never deleted. An entry of the
    mirror's that somebody deleted at the target is created again while the source has it.
    """
    present = frozenset(target)
    gone = [acl for acl in synced if acl not in upstream]
    return AclPlan(
        create=tuple(sorted(acl for acl in wanted if acl not in present)),
        delete=tuple(sorted(acl for acl in gone if acl in present)) if deletes else (),
        forget=tuple(sorted(acl for acl in gone if acl not in present)),
    )
