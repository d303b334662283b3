"""Until when epochs may still write that were lost."""

from __future__ import annotations

from mm2py.clock import Clock
from mm2py.model.flow import Flow


class LostEpochs:
    """
    Epochs of which no outcome came, flow by flow: a worker that is out of reach may go on to the end of its time.

    It outlives what planned them: a connector that restarts, or a flow that begins again with other settings, plans the
    same partitions.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._quiet_at: dict[Flow, float] = {}

    def note(self, flow: Flow, quiet_at: float) -> None:
        """Note that an epoch was lost which may write until *quiet_at*."""
        self._quiet_at[flow] = max(quiet_at, self._quiet_at.get(flow, quiet_at))

    async def until_quiet(self, flow: Flow) -> None:
        """Wait until none of a flow's lost epochs can write any more."""
        left_s = self._quiet_at.get(flow, 0.0) - self._clock.monotonic()
        if left_s > 0:
            await self._clock.sleep(left_s)
