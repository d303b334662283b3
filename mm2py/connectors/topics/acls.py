"""Synchronises the ACLs of remote topics with their sources'. `core.topics.acls` decides what is due; this loop reads,
records, sends and reports. A cluster without an authorizer is reported once and checked again at every interval.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.plugins import policy_of, remote_names_of, topic_filter_of
from mm2py.connectors.topics.ownership import SyncedMemory
from mm2py.connectors.topics.refusals import RefusalLog
from mm2py.core.topics.acls import AclPlan, mirrored_acls, plan_acls
from mm2py.errors import BrokerAnsweredError
from mm2py.model.acl import TopicAcl
from mm2py.model.synced import ForgottenAcl, SyncedAcl
from mm2py.policy.selection import judge_topic
from mm2py.telemetry.events import AclSyncIdle, TopicAclsChanged
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.topics.acls import create_topic_acls, delete_topic_acls, describe_topic_acls


_STEP = "synchronise topic ACLs"
#: Retry interval after a cluster was unreachable.
_RETRY_S = 10.0
#: How many ACLs are compared before others have a turn of the event loop.
_ACLS_A_TURN = 500


class AclSync(BackgroundLoop):
    """The ACLs of one flow's remote topics."""

    name = "topic-acls"
    is_for_owner = True

    def __init__(self, context: SourceContext, source: Cluster, target: Cluster, memory: SyncedMemory) -> None:
        config = context.config
        self._config = config
        self._pairs = context.pairs
        self._reach = context.reach
        self._clock = context.clock
        self._events = context.events
        self._source = source
        self._target = target
        self._memory = memory
        self._refusals = RefusalLog(context.flow, _STEP, context.events)
        self._idle: set[str] = set()
        self._policy = policy_of(config)
        self._name_remote = remote_names_of(config)
        self._filter = topic_filter_of(config)

    async def run(self) -> None:
        """Synchronise for as long as the flow lives; returns at once if the setting is off."""
        config = self._config
        if not config.topic_sync.acls_enabled:
            return
        interval_s = config.topic_sync.acls_interval_s
        # The target is asked only if the source has ACLs to show, so a success does not say that it responds.
        asked = [config.flow.source]
        while True:
            is_done = await self._reach.done(_STEP, asked, self._sync_once, within_ms=config.admin_timeout_ms)
            await self._clock.sleep(interval_s if is_done else min(interval_s, _RETRY_S))

    async def _sync_once(self) -> None:
        source = await self._describe(self._source)
        # Without an authorizer or permission at the target, nothing is sent either.
        target = None if source is None else await self._describe(self._target)
        if source is None or target is None:
            return
        await self._memory.load()
        plan = await self._plan(source, target)
        await self._memory.write([*map(SyncedAcl, plan.create), *map(ForgottenAcl, plan.forget)])
        uncreated = await create_topic_acls(self._target, plan.create)
        undeleted = await delete_topic_acls(self._target, plan.delete)
        deleted = [acl for acl in plan.delete if acl not in undeleted]
        await self._memory.write([ForgottenAcl(acl) for acl in (*uncreated, *deleted)])
        self._note(plan, {**uncreated, **undeleted})
        created = [acl for acl in plan.create if acl not in uncreated]
        if created or deleted:
            changes = (tuple(map(str, created)), tuple(map(str, deleted)))
            self._events.emit(TopicAclsChanged(self._config.flow, *changes))

    async def _describe(self, cluster: Cluster) -> frozenset[TopicAcl] | None:
        """Read a cluster's ACLs; None if there is no authorizer, or no permission, which is reported."""
        subject = f"ACLs of {cluster.alias}"
        try:
            acls = await describe_topic_acls(cluster)
        except BrokerAnsweredError as error:
            if error.code == ErrorCode.SECURITY_DISABLED:
                if cluster.alias not in self._idle:
                    self._events.emit(AclSyncIdle(self._config.flow, cluster.alias))
                self._idle.add(cluster.alias)
            else:
                self._refusals.note([subject], {subject: error})
            return None
        self._idle.discard(cluster.alias)
        self._refusals.note([subject], {})
        return acls

    async def _plan(self, source: Collection[TopicAcl], target: Collection[TopicAcl]) -> AclPlan:
        config = self._config
        name_remote = self._name_remote

        def is_mirrored(topic: str) -> bool:
            return judge_topic(
                topic,
                config.flow,
                self._policy,
                self._filter,
                heartbeats_replication_enabled=config.topics.heartbeats_enabled,
            ).is_replicated

        with_prefixed = config.topic_sync.acls_prefixed
        # The topic of what was set is one for all source connectors of the pair.
        others = [remote_names_of(one.config) for one in self._pairs.beside(config.flow)]
        left, wanted, upstream = iter(source), set[TopicAcl](), set[TopicAcl]()
        while some := list(itertools.islice(left, _ACLS_A_TURN)):
            wanted |= mirrored_acls(some, is_mirrored, name_remote, with_prefixed=with_prefixed)
            for name in (name_remote, *others):
                upstream |= mirrored_acls(some, lambda _: True, name, with_prefixed=True)
            await self._clock.sleep(0)
        return plan_acls(wanted, upstream, target, self._memory.acls, deletes=config.topic_sync.acls_delete)

    def _note(self, plan: AclPlan, refused: dict[TopicAcl, BrokerAnsweredError]) -> None:
        asked = {acl.topic for acl in (*plan.create, *plan.delete)}
        self._refusals.forget(asked)  # topics come and go
        self._refusals.note(asked, {acl.topic: error for acl, error in refused.items()})
