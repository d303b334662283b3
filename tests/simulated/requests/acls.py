"""
Access control entries, as AclControlManager and StandardAuthorizer keep them: which there are, and which filters find.

A cluster without an authorizer has none (`Cluster.acls`). No client is kept from anything by them: the mirror is a
superuser.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiokafka.protocol.admin import CreateAclsRequest_v1, DeleteAclsRequest_v1, DescribeAclsRequest_v1

from mm2py.wire.error_codes import ErrorCode
from tests.simulated.requests.kind import Kind


if TYPE_CHECKING:
    from tests.simulated.broker import Broker, Line


#: Kind and name of a resource, pattern type, principal, host, operation, permission.
Acl = tuple[int, str, int, str, str, int, int]

_ANY, _MATCH, _LITERAL, _PREFIXED = range(1, 5)
_ANY_NAME = "*"
_NO_AUTHORIZER = int(ErrorCode.SECURITY_DISABLED), "No Authorizer is configured"


def _describe(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    acls = broker.cluster.acls
    if acls is None:
        return it.RESPONSE_TYPE(0, *_NO_AUTHORIZER, [])
    wanted = tuple(getattr(it, name) for name in it.SCHEMA.names)
    rows: dict[tuple[int, str, int], list[Any]] = {}
    for acl in acls:
        if _finds(wanted, acl):
            kind, name, pattern, *entry = acl
            rows.setdefault((kind, name, pattern), []).append(tuple(entry))
    return it.RESPONSE_TYPE(0, 0, None, [(kind, name, pattern, of) for (kind, name, pattern), of in rows.items()])


def _finds(wanted: Any, acl: Acl) -> bool:
    """Whether a filter finds an entry (AclBindingFilter): a null and an ANY find all."""
    kind, name, pattern, principal, host, operation, permission = wanted
    is_of = pattern in (_ANY, acl[2]) and name in (None, acl[1])
    if pattern == _MATCH and name is not None:
        is_of = (acl[2] == _LITERAL and acl[1] in (name, _ANY_NAME)) or (
            acl[2] == _PREFIXED and name.startswith(acl[1])
        )
    others = ((principal, acl[3]), (host, acl[4]))
    return (
        (is_of or (pattern == _MATCH and name is None))
        and kind in (_ANY, acl[0])
        and all(it is None or it == own for it, own in others)
        and all(it in (_ANY, own) for it, own in ((operation, acl[5]), (permission, acl[6])))
    )


def _create(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    acls = broker.cluster.acls
    rows: list[tuple[int, str | None]] = []
    for acl in it.creations:
        if acls is None:
            rows.append(_NO_AUTHORIZER)
        else:
            acls[tuple(acl)] = None
            rows.append((0, None))
    return it.RESPONSE_TYPE(0, rows)


def _delete(broker: Broker, _line: Line, it: Any, _reply: Any) -> Any:
    acls = broker.cluster.acls
    rows: list[tuple[int, str | None, list[Any]]] = []
    for wanted in it.filters:
        if acls is None:
            rows.append((*_NO_AUTHORIZER, []))
            continue
        found = [acl for acl in acls if _finds(wanted, acl)]
        for acl in found:
            del acls[acl]
        rows.append((0, None, [(0, None, *acl) for acl in found]))
    return it.RESPONSE_TYPE(0, rows)


KINDS = (
    Kind(_describe, (DescribeAclsRequest_v1,)),
    Kind(_create, (CreateAclsRequest_v1,)),
    Kind(_delete, (DeleteAclsRequest_v1,)),
)
