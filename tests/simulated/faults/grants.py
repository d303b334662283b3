"""What administrators do to access control entries of topics: at the source, and by hand at the target."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from mm2py.model.acl import Operation, PatternType, Permission
from tests.simulated import settings
from tests.simulated.faults.kind import Fault


if TYPE_CHECKING:
    from tests.simulated.requests.acls import Acl
    from tests.simulated.world import World


_TOPIC, _ALL_HOSTS = 2, "*"
_BY_SOURCE, _BY_HAND = ("User:alice", "User:bob"), "User:hand"
_OPERATIONS = (Operation.READ, Operation.WRITE, Operation.ALL, Operation.DESCRIBE)


def mirrored(acl: Acl) -> Acl | None:
    """Return what MirrorMaker makes of an entry of the source at the target; None if nothing."""
    kind, name, pattern, principal, host, operation, permission = acl
    is_allowed = permission == Permission.ALLOW
    if name not in settings.TOPICS or (is_allowed and operation == Operation.WRITE):
        return None
    operation = Operation.READ if is_allowed and operation == Operation.ALL else operation
    return kind, f"A.{name}", pattern, principal, host, int(operation), permission


def missing(world: World) -> list[str]:
    """Return which entries of the target are not as those of the source and of those who act by hand say."""
    source, target = world.source.acls, world.target.acls
    if source is None or target is None:
        return []
    wanted = {made for acl in source if (made := mirrored(acl)) is not None}
    there = {acl for acl in target if acl[3] != _BY_HAND}
    return [*(f"{it} is missing" for it in sorted(wanted - there)), *(f"{it} is left" for it in sorted(there - wanted))]


def _acl(world: World, draw: random.Random) -> str:
    """An entry is created or deleted at the source; or at the target one of the mirror's is deleted by hand."""
    source, target = world.source.acls, world.target.acls
    if source is None or target is None:
        return ""
    permission = Permission.DENY if draw.random() < 0.2 else Permission.ALLOW
    rest = _ALL_HOSTS, int(draw.choice(_OPERATIONS)), int(permission)
    place = _TOPIC, draw.choice((*settings.TOPICS, "others")), int(PatternType.LITERAL)
    name = draw.choice(_BY_SOURCE)
    by_hand = draw.random() < 0.3 and [acl for acl in target if acl[3] != _BY_HAND]
    if by_hand:
        lost = draw.choice(by_hand)
        del target[lost]
        target[*lost[:3], _BY_HAND, *lost[4:]] = None
        return f"{lost} is another one's by hand"
    if source and draw.random() < 0.5:
        gone = draw.choice(list(source))
        del source[gone]
        return f"{gone} is deleted at {world.source.name}"
    source[*place, name, *rest] = None
    return f"{(*place, name, *rest)} is created at {world.source.name}"


FAULTS: dict[str, Fault] = {"acl": _acl}
