"""Events of stored overrides, and of settings and offsets that operators change while a flow runs."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class OverridesLoaded(Event):
    """Existing overrides of a flow were read from the target, and apply."""

    flow: Flow
    revision: int
    by: str
    at_ms: int


@attrs.frozen
class OverridesStored(Event):
    """A change of a flow's overrides is stored on the target."""

    flow: Flow
    revision: int
    by: str


@attrs.frozen
class OverridesUnavailable(Event):
    """The target does not let the mirror read overrides: the flow runs with the file's settings, and accepts none."""

    level = Level.WARN

    flow: Flow
    error: str
    hint: str


@attrs.frozen
class LiveSettingsChanged(Event):
    """An operator overrode settings of a flow, or reverted them."""

    flow: Flow
    connector: str
    set: tuple[str, ...]
    reverted: tuple[str, ...]
    by: str


@attrs.frozen
class LiveSettingsRejected(Event):
    """Overridden settings no longer fit the file: the flow continues as it was, or does not start."""

    level = Level.ERROR

    flow: Flow
    problems: tuple[str, ...]
    is_running: bool
    hint: str = "revert these settings, or fix the file and reload it"


@attrs.frozen
class OffsetsAltered(Event):
    """An operator altered a connector's offsets; for the source connector, `repeated` offsets are copied again,
    `skipped` offsets are never copied; for `removed` positions the start is determined when the connector starts.
    """

    level = Level.WARN

    flow: Flow
    connector: str
    partitions: int
    removed: int
    repeated: int
    skipped: int
    by: str
