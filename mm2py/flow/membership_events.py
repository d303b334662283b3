"""Events of a flow's group: who shares the flow, and who runs it instead of this node."""

from __future__ import annotations

from typing import Final

from mm2py.config.settings import FlowSettings
from mm2py.core.membership import Occupied
from mm2py.errors import BrokerAnsweredError
from mm2py.flow.group_members import STOP_ONE, with_grant
from mm2py.flow.reach import Reach
from mm2py.model.flow import Flow
from mm2py.model.share import Share, SharedFlow
from mm2py.telemetry.events import Event, FlowRunsElsewhere, FlowShared, FlowUnguarded, InstanceFenced
from mm2py.wire.error_codes import ErrorCode


_HINTS: Final[dict[int, str]] = {
    ErrorCode.INVALID_SESSION_TIMEOUT: "set session.timeout.ms to what the brokers allow (group.*.timeout.ms)"
}
_NAMESAKE_HINT: Final = "give each node a group.instance.id of its own; this one continues when the other has gone"


def newly_shared(flow: Flow, before: SharedFlow | None, shared: SharedFlow, ours: Share) -> FlowShared | None:
    """Report who shares the flow if that has changed, and several nodes do so or did."""
    shares, known = shared.shares, before.shares if before is not None else {}
    if shares == known or not (len(shares) > 1 or len(known) > 1):
        return None
    by_node = "; ".join(sorted(f"{node}: {shared.share_of(member)}" for member, node in shared.nodes.items()))
    return FlowShared(flow, len(shares), str(ours), str(shared.owner or "none"), by_node)


def who_runs(flow: Flow, shared: SharedFlow) -> str:
    """Return why a node without a share stands by."""
    others = [str(node) for member, node in shared.nodes.items() if not shared.share_of(member).is_empty]
    return f"{' and '.join(sorted(others)) or 'no node'} runs {flow}"


def why_elsewhere(settings: FlowSettings, taken: Occupied) -> tuple[str, str]:
    """Return why this node stands by, and a hint."""
    if taken.is_namesake:
        return f"{taken.by} has the same group.instance.id, {settings.membership.instance}", _NAMESAKE_HINT
    return f"{taken.by} runs {settings.flow}", STOP_ONE


def unguarded(settings: FlowSettings, reach: Reach, error: BrokerAnsweredError) -> FlowUnguarded:
    """Report that the flow's group cannot be joined, and what is missing."""
    error = with_grant(error, settings.group_id)
    hint = reach.hint_for(error) or _HINTS.get(error.code, "")
    return FlowUnguarded(settings.flow, settings.group_id, str(error), hint)


def runs_elsewhere(settings: FlowSettings, taken: Occupied, *, was_ours: bool) -> Event:
    """Report that another node has the flow's group, or our name in it."""
    then = "steps back and stands by" if was_ours else "stands by and copies nothing"
    if not settings.membership.refuses:
        then = "copies nevertheless: copy.on.second.node is warn"
    flow, group = settings.flow, settings.group_id
    if taken.is_namesake:
        return InstanceFenced(flow, group, settings.membership.instance, taken.by, then, _NAMESAKE_HINT)
    return FlowRunsElsewhere(flow, group, taken.by, taken.since, taken.rest, then, STOP_ONE)
