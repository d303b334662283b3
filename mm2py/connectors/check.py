"""What a flow finds at its clusters: topics and groups that match, rights, and whether missing topics could be
created.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from mm2py.clock import Clock
from mm2py.config.layers import Side
from mm2py.config.settings import FlowSettings, MirrorSettings
from mm2py.connectors.plugins import group_filter_of, policy_of, selected_topics
from mm2py.connectors.reached import Reached, finding_of, hurried_cluster, limited, reach
from mm2py.core.findings import CheckedFlow, Finding, Level
from mm2py.core.needs import (
    Allowed,
    Need,
    OwnTopic,
    Resource,
    lacking,
    named,
    needs,
    needs_of_syncs,
    own_topics,
)
from mm2py.errors import BrokerAnsweredError, Mm2Error
from mm2py.model.acl import Operation
from mm2py.model.endpoint import ClusterEndpoint
from mm2py.model.topic import NewTopic
from mm2py.policy.selection import GroupSelection, judge_group
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.groups.consumer_groups import Groups
from mm2py.wire.topics.admin import Admin, allowed_operations


#: A member of `topics` that can be but one name.
_LITERAL: Final = re.compile(r"[A-Za-z0-9_\-.]+")
_REMOTE: Final = "replication.factor"
_MAY_NOT: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
#: Operations on the cluster of one who may do everything there; of transactional ids brokers do not say it.
_SUPER_USERS: Final = frozenset({Operation.CLUSTER_ACTION, Operation.ALTER, Operation.CREATE, Operation.ALTER_CONFIGS})


@attrs.frozen
class _Wanted:
    """A topic that is to be created, and the setting that its replication factor comes from."""

    new: NewTopic
    setting: str
    purpose: str
    is_vital: bool
    is_of_nodes: bool = False


async def check_flows(settings: MirrorSettings, clock: Clock) -> tuple[tuple[Reached, ...], tuple[CheckedFlow, ...]]:
    """Ask each cluster of *settings* once as each of its clients, then each flow's clusters for what the flow needs."""
    ends: dict[ClusterEndpoint, ClusterEndpoint] = {}
    for flow in settings.flows:
        ends |= {_entered(end): end for end in (flow.source, flow.target)}
    clusters = {key: hurried_cluster(end, clock) for key, end in ends.items()}
    try:
        async with asyncio.TaskGroup() as tasks:
            asked = {
                key: tasks.create_task(reach(clusters[key], end), name=f"check {end.alias}")
                for key, end in ends.items()
            }
        found = {key: task.result() for key, task in asked.items()}
        async with asyncio.TaskGroup() as tasks:
            checks = [
                tasks.create_task(
                    FlowCheck(flow, found[_entered(flow.source)], found[_entered(flow.target)]).run(),
                    name=f"check {flow.flow}",
                )
                for flow in settings.flows
            ]
    finally:
        for cluster in clusters.values():
            await cluster.close()
    return tuple(found.values()), tuple(check.result() for check in checks)


def _entered(end: ClusterEndpoint) -> ClusterEndpoint:
    """Return what decides how a cluster is entered; clients that differ in nothing else need one connection."""
    return ClusterEndpoint(end.alias, end.bootstrap_servers, security=end.security)


class FlowCheck:
    """The check of one flow. A side that does not answer leaves unknown what it alone knows."""

    def __init__(self, settings: FlowSettings, source: Reached, target: Reached) -> None:
        self._settings = settings
        self._sides: Mapping[Side, Reached] = {Side.SOURCE: source, Side.TARGET: target}
        self._ends: Mapping[Side, ClusterEndpoint] = {Side.SOURCE: settings.source, Side.TARGET: settings.target}
        self._findings: list[Finding] = []

    async def run(self) -> CheckedFlow:
        """Ask both sides; whatever goes wrong is a finding of this flow."""
        settings = self._settings
        source, target = self._sides[Side.SOURCE], self._sides[Side.TARGET]
        used = (source, target) if settings.reads_source else (target,)
        away = tuple(it.checked.alias for it in used if it.cluster is None)
        checked = CheckedFlow(settings.flow, settings.reads_source, away)
        try:
            checked = await self._checked(checked)
        except Mm2Error as error:
            self._add(Level.ERROR, str(error), error.hint)
        return attrs.evolve(checked, findings=tuple(self._findings))

    def _add(self, level: Level, text: str, hint: str = "") -> None:
        self._findings.append(Finding(level, str(self._settings.flow), text, hint))

    async def _checked(self, checked: CheckedFlow) -> CheckedFlow:
        settings, policy = self._settings, policy_of(self._settings.source_connector)
        source, target = self._sides[Side.SOURCE], self._sides[Side.TARGET]
        remote_of: Mapping[str, str] = {}
        groups: Sequence[str] = ()
        if settings.is_enabled and source.cluster is not None:
            remote_of = self._selected(source)
            checked = attrs.evolve(
                checked, topics=len(remote_of), partitions=sum(source.partitions[topic] for topic in remote_of)
            )
            if target.cluster is not None:
                there = sum(remote in target.partitions for remote in remote_of.values())
                checked = attrs.evolve(checked, remote_topics=there)
        if settings.checkpoint_connector.is_run and source.cluster is not None:
            found = await self._groups(source)
            groups, checked = found or (), attrs.evolve(checked, groups=None if found is None else len(found))
        self._note_same_cluster(source, target)
        own = list(own_topics(settings, policy))
        for side in Side:
            await self._at(side, remote_of, own, groups)
        return checked

    def _selected(self, source: Reached) -> Mapping[str, str]:
        """Return remote topics by topic, and note what a user would not expect."""
        selected = selected_topics(self._settings.source_connector, source.partitions)
        alias, chosen = source.checked.alias, self._settings.source_connector.topics.names
        literal = [name for name in chosen if _LITERAL.fullmatch(name) and name not in source.partitions]
        if literal:
            text = f"{alias} has no {named(Resource.TOPIC, literal)}, or does not let {source.checked.principal} see it"
            self._add(Level.WARNING, text, "check the names, and DESCRIBE on the topics")
        elif not selected.remote_of and not selected.refused:
            self._add(
                Level.WARNING, f"no topic of {alias} matches topics = {','.join(chosen)}", "check topics.exclude too"
            )
        for topic, refused in selected.refused.items():
            if refused.failure is not None:
                self._add(
                    Level.ERROR, f"{topic} would not be mirrored: {refused.failure.message}", refused.failure.hint
                )
        return selected.remote_of

    async def _groups(self, source: Reached) -> Sequence[str] | None:
        """Return the consumer groups that match; None if the source does not list them."""
        assert source.cluster is not None  # noqa: S101 - what is asked is reached
        chosen = group_filter_of(self._settings.checkpoint_connector)
        try:
            async with limited(self._settings.source):
                listed = await Groups(source.cluster).list_groups()
        except Mm2Error as error:
            self._findings.append(finding_of(error, self._settings.source))
            return None
        judged = {group: judge_group(listing, chosen) for group, listing in listed.groups.items()}
        return sorted(group for group, selection in judged.items() if selection is GroupSelection.TRANSLATED)

    def _note_same_cluster(self, source: Reached, target: Reached) -> None:
        cluster_id = source.checked.cluster_id
        if self._settings.reads_source and cluster_id is not None and cluster_id == target.checked.cluster_id:
            flow = self._settings.flow
            self._add(Level.WARNING, f"{flow.source} and {flow.target} are one cluster, with the id {cluster_id}")

    # One side.

    async def _at(
        self, side: Side, remote_of: Mapping[str, str], own: Sequence[OwnTopic], groups: Sequence[str]
    ) -> None:
        """Check rights and missing topics at one side."""
        there = self._sides[side]
        if there.cluster is None:
            return
        wanted = list(self._missing(side, there, remote_of, own))
        asked = (
            *needs(self._settings, own, list(remote_of), list(remote_of.values()), groups),
            *needs_of_syncs(self._settings, policy_of(self._settings.checkpoint_connector)),
        )
        here = [need for need in asked if need.side is side and need.names]
        try:
            async with limited(self._ends[side]):
                for finding in self._uncreatable(there, wanted, await self._tried(there, wanted)):
                    self._findings.append(finding)
                allowed = await _allowed(there, here)
        except Mm2Error as error:
            self._findings.append(finding_of(error, self._ends[side]))
            return
        for need in here:
            self._findings += lacking(need, allowed, there.checked.alias, there.checked.principal)

    def _missing(
        self, side: Side, there: Reached, remote_of: Mapping[str, str], own: Sequence[OwnTopic]
    ) -> Iterator[_Wanted]:
        """Return the topics that the flow would create."""
        for it in own:
            if it.side is side and it.topic.name not in there.partitions:
                new = NewTopic(it.topic.name, it.topic.partitions, it.topic.replication_factor)
                yield _Wanted(new, it.topic.setting, it.purpose, it.is_vital, it.is_of_nodes)
        if side is Side.SOURCE:
            return
        source = self._sides[Side.SOURCE].topics.topics
        for topic, remote in sorted(remote_of.items()):
            factor = self._settings.source_connector.topics.replication_factor
            if factor is None:
                factor = max(1, min(source[topic].replication_factor, there.brokers))
            if remote not in there.partitions:
                new = NewTopic(remote, len(source[topic].partitions), factor)
                yield _Wanted(new, _REMOTE, "records", is_vital=True)

    async def _tried(self, there: Reached, wanted: Sequence[_Wanted]) -> Mapping[str, BrokerAnsweredError | None]:
        assert there.cluster is not None  # noqa: S101 - what is asked is reached
        return await Admin(there.cluster).create_topics([it.new for it in wanted], is_trial=True)

    def _uncreatable(
        self, there: Reached, wanted: Sequence[_Wanted], tried: Mapping[str, BrokerAnsweredError | None]
    ) -> Iterator[Finding]:
        """Return why topics cannot be created, once for all that share the reason."""
        alike: dict[tuple[str, int, tuple[str, bool] | None], list[tuple[_Wanted, BrokerAnsweredError]]] = {}
        for it in wanted:
            error = tried.get(it.new.name)
            if error is not None and error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                right = (it.purpose, it.is_vital) if error.code in _MAY_NOT else None
                alike.setdefault((it.setting, error.code, right), []).append((it, error))
        for (setting, code, _), refused in alike.items():
            it, error = refused[0]
            topics = named(Resource.TOPIC, [refusal.new.name for refusal, _ in refused])
            alias, factor, level = there.checked.alias, it.new.replication_factor, Level.ERROR
            if code in _MAY_NOT:
                text = (
                    f"{there.checked.principal} lacks {Operation.CREATE.name} on {topics} of {alias}, for {it.purpose}"
                )
                hint, level = "grant it, or create the topics", Level.ERROR if it.is_vital else Level.WARNING
            elif code == ErrorCode.INVALID_REPLICATION_FACTOR:
                text = f"{topics} cannot be created: {_too_few(setting, factor, there)}"
                hint = f"lower {setting}, or add brokers"
            elif code == ErrorCode.UNSUPPORTED_VERSION:
                text, hint, level = f"whether {topics} can be created on {alias}: {error}", "", Level.UNKNOWN
            else:
                text, hint = f"{topics} cannot be created: {error}", error.hint
            if all(refusal.is_of_nodes for refusal, _ in refused):
                text, level = f"{text}; only several nodes of the flow need it", Level.WARNING
            yield Finding(level, str(self._settings.flow), text, hint)
        factor, is_told = (
            self._settings.source_connector.topics.replication_factor or 0,
            any(key[0] == _REMOTE for key in alike),
        )
        if self._settings.is_enabled and there is self._sides[Side.TARGET] and factor > there.brokers and not is_told:
            text = f"new remote topics could not be created: {_too_few(_REMOTE, factor, there)}"
            yield Finding(Level.ERROR, str(self._settings.flow), text, f"lower {_REMOTE}, or add brokers")


def _too_few(setting: str, factor: int, there: Reached) -> str:
    brokers = f"{there.brokers} broker{'' if there.brokers == 1 else 's'}"
    return f"{setting} is {factor}, {there.checked.alias} has {brokers}"


async def _allowed(there: Reached, here: Sequence[Need]) -> Allowed:
    """Return what is allowed of all that the needs name."""
    assert there.cluster is not None  # noqa: S101 - what is asked is reached
    names: dict[Resource, dict[str, None]] = {resource: {} for resource in Resource}
    for need in here:
        names[need.resource] |= dict.fromkeys(need.names)
    operations = await allowed_operations(there.cluster, names[Resource.TOPIC])
    allowed: dict[tuple[Resource, str], frozenset[Operation] | None] = {
        (Resource.TOPIC, topic): found for topic, found in operations.topics.items()
    }
    allowed[Resource.CLUSTER, ""] = operations.cluster
    if operations.cluster is not None and operations.cluster >= _SUPER_USERS:
        allowed |= {
            (Resource.TRANSACTIONAL_ID, name): frozenset(Operation) for name in names[Resource.TRANSACTIONAL_ID]
        }
    for group, found in (await Groups(there.cluster).operations(names[Resource.GROUP])).items():
        if isinstance(found, BrokerAnsweredError):
            found = frozenset() if found.code == ErrorCode.GROUP_AUTHORIZATION_FAILED else None  # noqa: PLW2901
        allowed[Resource.GROUP, group] = found
    return allowed
