"""What keeps a flow out of a cluster."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class AuthenticationFailed(Event):
    """A cluster does not let a flow in, or the flow does not trust it; said once for each cause, tried again."""

    level = Level.ERROR

    flow: Flow
    cluster: str
    principal: str
    error: str
    hint: str
