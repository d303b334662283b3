"""The kinds of requests that the model answers, a file for each group of them: see `kind.Kind`."""

from __future__ import annotations

from typing import Any

from tests.simulated.requests import (
    acls,
    configs,
    fetch,
    groups,
    metadata,
    offsets,
    produce,
    sessions,
    topics,
    transactions,
)
from tests.simulated.requests.kind import Handler, Kind


KINDS: tuple[Kind, ...] = (
    *produce.KINDS,
    *fetch.KINDS,
    *offsets.KINDS,
    *metadata.KINDS,
    *groups.KINDS,
    *sessions.KINDS,
    *topics.KINDS,
    *configs.KINDS,
    *acls.KINDS,
    *transactions.KINDS,
)
HANDLERS: dict[int, Handler] = {kind.key: kind.handler for kind in KINDS}
#: By key and version: the struct, and whether tags lie between header and body.
STRUCTS: dict[tuple[int, int], tuple[Any, bool]] = {
    (struct.API_KEY, struct.API_VERSION): (struct, struct.FLEXIBLE_VERSION and struct not in kind.with_header)
    for kind in KINDS
    for struct in kind.structs
}
#: Their handlers count error codes themselves; of metadata, which is large, they are not counted.
HOT = (0, 1, 3)
#: Whose clients exceed a quota of bytes: Produce and Fetch.
THROTTLED = (0, 1)
NAMES: dict[int, str] = {kind.key: kind.structs[0].__name__.partition("Request")[0] for kind in KINDS}
sessions.spoken.update(
    {key: (min(v for k, v in STRUCTS if k == key), max(v for k, v in STRUCTS if k == key)) for key in NAMES}
)
