"""Events of logins."""

from __future__ import annotations

import attrs

from mm2py.model.flow import Flow
from mm2py.telemetry.events.base import Event, Level


@attrs.frozen
class AuthenticationFailed(Event):
    """A cluster refuses a flow's login, or the flow does not trust it; reported once for each cause, and retried."""

    level = Level.ERROR

    flow: Flow
    cluster: str
    principal: str
    error: str
    hint: str
