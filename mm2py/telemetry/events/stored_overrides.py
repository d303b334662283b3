"""What becomes of orders on the target, and of settings and offsets that operators change while a flow runs."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class OverridesLoaded(Event):
    """What operators ordered of a flow before was read from the target, and holds."""

    flow: Flow
    revision: int
    by: str
    at_ms: int


@attrs.frozen
class OverridesStored(Event):
    """A change of a flow's orders is safe on the target."""

    flow: Flow
    revision: int
    by: str


@attrs.frozen
class OverridesUnavailable(Event):
    """The target does not let the mirror look for orders: the flow runs as its file says, and takes no orders."""

    level = Level.WARN

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class LiveSettingsChanged(Event):
    """Settings of a flow count from now on that an operator gave beside its file, or took back."""

    flow: Flow
    connector: str
    set: tuple[str, ...]
    reverted: tuple[str, ...]
    by: str


@attrs.frozen
class LiveSettingsRejected(Event):
    """Settings that an operator gave do not fit the file any more: the flow goes on as it was, or does not start."""

    level = Level.ERROR

    flow: Flow
    problems: tuple[str, ...]
    is_running: bool
    hint: str = "take these settings back, or mend the file and have it read again"


@attrs.frozen
class OffsetsAltered(Event):
    """
    An operator altered where a connector goes on; of the source connector, `repeated` offsets are copied again.

    `skipped` offsets are never copied; of `removed` positions it is found out at the next start.
    """

    level = Level.WARN

    flow: Flow
    connector: str
    partitions: int
    removed: int
    repeated: int
    skipped: int
    by: str
