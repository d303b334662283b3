"""Partitions whose source or target no longer matches their position. Both clusters are checked, the finding is
reported once, and the flow's policies are applied, as `core.source.broken_history` decides, partition by partition. A
partition in question is not copied meanwhile; all others are. What was decided is stored before anything is copied by
it, so that a crash in between ends in the same decision.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import attrs

from mm2py.connectors.context import BackgroundLoop, SourceContext
from mm2py.connectors.source.group import SourceLife
from mm2py.connectors.supervise import until_set
from mm2py.core.lag import RETENTION_CONFIGS, Retention
from mm2py.core.source.broken_history import (
    Act,
    Finding,
    GoOn,
    HistoryBreak,
    Observation,
    RecreateRemote,
    Stop,
    decide,
    diagnose,
    policy_of,
    position_after,
    reset,
)
from mm2py.core.source.progress import PartitionState
from mm2py.errors import BrokerAnsweredError, BrokerConnectionError, ClusterUnreachableError, Mm2Error, Verdict
from mm2py.model.epoch import RECREATED, Ended, PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.positions import Position
from mm2py.model.topic import is_other_topic
from mm2py.pipeline.copy.metadata import too_short
from mm2py.telemetry.events import (
    RemoteTopicDeleted,
    RemoteTopicRecreated,
    RemoteTopicRewound,
    SourceRecordsExpired,
    SourceRecordsPurged,
    SourceTopicRecreated,
    SourceTruncated,
    StepFailed,
)
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.log_end import EpochEnd, epoch_ends, whole_ends
from mm2py.wire.requests import EARLIEST, LATEST
from mm2py.wire.topics.admin import Admin


#: Poll interval for open questions and for clusters that were unreachable.
_TICK_S = 1.0
#: How often partitions that are interrupted again and again are asked about.
_SUSPECTS_EVERY_S = 5.0
#: How long a leader is awaited of a partition that may have lost records: those in question wait as well.
_PATIENCE_S = 3.0
_EVENTS = {
    HistoryBreak.RECREATED: SourceTopicRecreated,
    HistoryBreak.EXPIRED: SourceRecordsExpired,
    HistoryBreak.PURGED: SourceRecordsPurged,
    HistoryBreak.TRUNCATED: SourceTruncated,
    HistoryBreak.REWOUND: RemoteTopicRewound,
    HistoryBreak.REMADE: RemoteTopicRecreated,
}


#: What was found of a partition, and at which topics, by their ids; of removed records, up to where: while that cannot
#: be stored the source may remove more.
About = tuple[HistoryBreak, str | None, str | None, int | None]
#: The ids of a partition's topics, at the source and at the target.
Ids = dict[TopicPartition, tuple[str | None, str | None]]


@attrs.frozen
class _Case:
    """A partition, what was seen of it, and what follows."""

    state: PartitionState
    look: Observation
    finding: Finding
    act: Act

    @property
    def about(self) -> About:
        is_removal = isinstance(self.act, GoOn) and self.finding.kind in (HistoryBreak.EXPIRED, HistoryBreak.PURGED)
        removed_to = self.look.log_start if is_removal else None
        return self.finding.kind, self.look.topic_id, self.look.remote_topic_id, removed_to


class BrokenHistory(BackgroundLoop):
    """Answers the questions that the copying of one flow raises; the next life answers those that are left."""

    name = "broken history"

    def __init__(
        self, context: SourceContext, life: SourceLife, undone: dict[TopicPartition, About] | None = None
    ) -> None:
        """
        Create one for a *life* of the source group.

        *undone*, one for all lives, holds the reported findings whose action could not be completed yet: a life that
        ends before a position is stored, for example because the target lost the flow's group too, is followed by one
        that finds the same.
        """
        self._config = context.config
        self._clock = context.clock
        self._events = context.events
        self._reach = context.reach
        self._life = life
        self._doubts = life.tasks.doubts
        self._undone = {} if undone is None else undone
        self._told: dict[TopicPartition, About] = dict(self._undone)
        #: What was reported last of a source topic that was created again, by what follows for its partitions.
        self._told_topics: dict[tuple[str, type[Act]], About] = {}
        self._remaking: set[str] = set()
        #: Partitions whose records were deleted on purpose.
        self._purged: set[TopicPartition] = set()
        #: The remote topics whose deletion the target refused, with what it said.
        self._undeleted: dict[str, str] = {}
        self._aliases = context.config.flow.aliases
        #: The leader epochs of remote partitions when they were known to hold what was copied, and as of which listing.
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._listing: object = None

    async def run(self) -> None:
        """Look whenever a partition is in question, and at remote topics whenever topics were listed."""
        suspected_at = self._clock.monotonic()
        while True:
            if self._listing is not (listing := self._life.topics.latest):
                self._listing = listing
                # Most of the time no cluster is asked anything, so a success says of none that it responds.
                await self._reach.done("look for lost records", (), self._look_for_losses)
            await until_set(self._doubts.has_questions, _TICK_S)
            self._doubts.has_questions.clear()
            if self._doubts.questions():
                await self._reach.done("look at what a position is about", self._aliases, self._answer)
            if self._clock.monotonic() - suspected_at >= _SUSPECTS_EVERY_S:
                suspected_at = self._clock.monotonic()
                if self._doubts.suspects():
                    await self._reach.done("look for missing topics", self._aliases, self._look_for_topics)

    async def _answer(self) -> None:
        cases, fine = [], []
        for state, look in await self._look(self._doubts.questions()):
            finding = diagnose(state, look)
            if finding is None:
                self._told.pop(state.source, None)
                self._undone.pop(state.source, None)
                fine.append(state)
                continue
            cases.append(_Case(state, look, finding, self._decide(finding, state, look)))
        cases = self._without_waiting(cases)
        self._note_remaking(cases)
        for state in fine:
            if state.source.topic in self._remaking:
                self._doubts.look_later(state.source, _TICK_S / 2)
            else:
                self._doubts.clear(state.source)
        for case in cases:
            self._tell(case)
        for case in cases:
            if isinstance(case.act, Stop):
                self._doubts.stop(case.state.source, case.act.failure)
        for topic in sorted({case.state.source.topic for case in cases if isinstance(case.act, RecreateRemote)}):
            await self._recreate(topic)
        if any(case.finding.kind is HistoryBreak.RECREATED for case in cases):
            self._life.topics.want_refresh()
        await self._go_on([case for case in cases if isinstance(case.act, GoOn)])

    def _decide(self, finding: Finding, state: PartitionState, look: Observation) -> Act:
        act = decide(finding, state, look, self._config.broken_history)
        return Stop(act.failure.of_flow(self._config.flow)) if isinstance(act, Stop) else act

    def _without_waiting(self, cases: list[_Case]) -> list[_Case]:
        """Leave out empty partitions of topics that are being compared: they go on, or stop, as the others do."""
        states = self._life.tasks.ledger.states.of_notable()
        comparing = {it.source.topic for it in states if it.is_compared}
        comparing |= {case.state.source.topic for case in cases if _is_compared(case.act)}
        left = []
        for case in cases:
            is_stopped = isinstance(case.act, Stop) and case.finding.kind is HistoryBreak.RECREATED
            if is_stopped and case.look.remote_end == 0 and case.state.source.topic in comparing:
                self._doubts.look_later(case.state.source, _TICK_S)
            else:
                left.append(case)
        return left

    def _note_remaking(self, cases: Iterable[_Case]) -> None:
        """Note which topics wait for their remote topic to be deleted; nothing is written to it meanwhile."""
        for case in cases:
            if isinstance(case.act, RecreateRemote):
                self._remaking.add(case.state.source.topic)
            else:
                self._remaking.discard(case.state.source.topic)

    # Looking.

    async def _look(self, states: Collection[PartitionState]) -> list[tuple[PartitionState, Observation]]:
        """Check both clusters; partitions that cannot be checked now stay in question."""
        source, target = self._life.source, self._life.target
        before = await self._topic_ids(states)
        present = [state for state in states if self._is_present(state)]
        tps = [state.source for state in present]
        starts = await source.list_offsets(tps, EARLIEST)
        ends = await source.list_offsets(tps, LATEST)
        begun = {it.source.topic for it in present if isinstance(at := starts[it.source], int) and it.position < at}
        kept = await self._without_retention(begun)
        histories = await epoch_ends(source, {it.source: it.leader.epoch for it in present if it.leader is not None})
        others = [it for it in present if is_other_topic(it.topic_id, before[it.source][0])]
        recreated = {it.source.topic: _partitions(target, it.remote_topic) for it in others}
        remote_ends = await whole_ends(target, set(map(_remote_of, present)).union(*recreated.values()))
        if recreated and not self._life.tasks.holders.is_alone:
            # What other nodes copy of it: before they do so they write of which topic it is.
            await self._life.keeper.follow()
        # Offsets are asked for by name: they count where that stood for the same topics all the while.
        after = await self._topic_ids(present)
        untouched = {topic for topic, remote in recreated.items() if self._is_untouched(topic, remote, remote_ends)}
        found: list[tuple[PartitionState, Observation]] = []
        for state in present:
            start, end, remote_end = starts[state.source], ends[state.source], remote_ends[_remote_of(state)]
            history, ids = histories.get(state.source), after[state.source]
            are_same = ids == before[state.source]
            if isinstance(start, int) and isinstance(end, int) and isinstance(remote_end, int) and are_same:
                topic = state.source.topic
                are_so = {"is_untouched": topic in untouched, "is_kept": topic in kept}
                look = Observation(ids[0], start, end, ids[1], remote_end, **are_so)
                if isinstance(history, EpochEnd):
                    look = attrs.evolve(look, history_end=history.end, history_epoch=history.epoch)
                found.append((state, look))
            else:
                self._doubts.look_later(state.source, _TICK_S)
        return found

    async def _without_retention(self, topics: Collection[str]) -> frozenset[str]:
        """Return which source *topics* have no retention; one whose configs may not be read counts as having some."""
        described = await Admin(self._life.source).topic_configs(list(topics), RETENTION_CONFIGS) if topics else {}
        found = set()
        for topic, configs in described.items():
            if not isinstance(configs, BrokerAnsweredError):
                retention = Retention.of({key: entry.value for key, entry in configs.items()})
                if retention is not None and retention.is_endless:
                    found.add(topic)
        return frozenset(found)

    def _is_untouched(
        self, topic: str, remote: Iterable[TopicPartition], ends: Mapping[TopicPartition, object]
    ) -> bool:
        """Whether all that *remote* partitions hold is of the present source topic, as far as their *ends* show."""
        topic_id, states = self._life.source.topic_id(topic), self._life.tasks.ledger.states

        def is_of_it(number: int) -> bool:
            source = TopicPartition(topic, number)
            at = states.get(source) or self._life.positions.known.get(source)
            return at is not None and at.topic_id == topic_id

        return all(ends[it] == 0 or is_of_it(it.partition) for it in remote)

    async def _topic_ids(self, states: Collection[PartitionState]) -> Ids:
        """Return which topics have the names now, at the source and at the target."""
        source, target = self._life.source, self._life.target
        await source.refresh_metadata({state.source.topic for state in states})
        await target.refresh_metadata({state.remote_topic for state in states})
        return {
            state.source: (source.topic_id(state.source.topic), target.topic_id(state.remote_topic)) for state in states
        }

    def _is_present(self, state: PartitionState) -> bool:
        """Whether both partitions have a leader; where one does not, the question stays."""
        source, target = self._life.source, self._life.target
        if source.leader(state.source) is not None and target.leader(_remote_of(state)) is not None:
            return True
        is_at_source = state.source.partition in source.partitions_of(state.source.topic)
        if not is_at_source or not target.partitions_of(state.remote_topic):
            self._life.topics.want_refresh()
        self._doubts.look_later(state.source, _TICK_S)
        return False

    async def _look_for_topics(self) -> None:
        """Request a refresh if topics of interrupted partitions are missing, and detect re-created ones."""
        suspects = self._doubts.suspects()
        source, target = self._life.source, self._life.target
        ids = await self._topic_ids(suspects)
        for state in suspects:
            if not source.partitions_of(state.source.topic) or not target.partitions_of(state.remote_topic):
                self._life.topics.want_refresh()
            else:
                self._doubts.compare(state, *ids[state.source])

    async def _look_for_losses(self) -> None:
        """
        Question partitions whose remote one has become shorter than what was copied, since another leader was elected.

        Where records are copied an answer shows it. What is quiet would count as complete until its next record.
        """
        target, states = self._life.target, self._life.tasks.ledger.states
        known, mirrored = self._leader_epochs, self._life.tasks.ledger.mirrored()
        epochs = {it.source: target.leader_epoch(_remote_of(it)) for it in mirrored}
        moved = [it for it in mirrored if known.get(it.source, epochs[it.source]) != epochs[it.source]]
        # What is unsure is compared before it is copied. Of the others these ends are newer than what is known here.
        sure = [it for it in moved if not (it.is_unsure or it.is_questioned or it.is_transformed)]
        ends = await whole_ends(target, set(map(_remote_of, sure)), patience_s=_PATIENCE_S) if sure else {}
        for state in sure:
            end, source = ends[_remote_of(state)], state.source
            if not isinstance(end, int):
                epochs[source] = known[source]  # it is asked again after the next listing
            elif state.downstream is not None and end <= state.downstream and source in states:
                failure = too_short(_remote_of(state), end, state.downstream)
                self._doubts.question(states[source], Ended.TARGET_REWOUND, failure)
        self._leader_epochs = epochs  # only now: if the cluster did not answer, they are asked for again

    # Acting.

    def _tell(self, case: _Case) -> None:
        """Report what is wrong and what follows, once: a look is repeated, and so is an act that was refused."""
        state, finding, act = case.state, case.finding, case.act
        if _is_compared(act):
            return  # what follows from it is reported
        is_search = isinstance(act, GoOn) and act.repair is not None and act.repair.attempt > 1
        goes_on_again = isinstance(act, GoOn) and not is_search and state.source not in self._undone
        if self._told.get(state.source) == case.about and not goes_on_again:
            return
        self._told[state.source] = case.about
        setting, policy = policy_of(finding.kind, self._config.broken_history)
        more: dict[str, int | None] = {}
        if finding.kind is HistoryBreak.PURGED:
            more = {"is_repeated": state.source in self._purged}
            self._purged.add(state.source)
        if finding.kind is HistoryBreak.RECREATED:
            place = state.source.topic, type(act)
            others = [
                it
                for it in self._life.tasks.ledger.of_topic(state.source.topic)
                if it.source != state.source and is_other_topic(it.topic_id, case.look.topic_id)
            ]
            more = {"others": None if self._told_topics.get(place) == case.about else len(others)}
            self._told_topics[place] = case.about
            for other in others:
                self._doubts.question(other, Ended.RECREATED, RECREATED)
        self._events.emit(
            _EVENTS[finding.kind](
                flow=self._config.flow,
                source=state.source,
                remote_topic=state.remote_topic,
                message=finding.message,
                records=finding.records,
                setting=setting,
                policy=policy,
                position=state.repair.position if state.repair is not None else state.position,
                goes_on_at=act.position if isinstance(act, GoOn) else None,
                lost=act.lost if isinstance(act, GoOn) else None,
                repeated=act.repeated if isinstance(act, GoOn) else None,
                **more,
            )
        )

    async def _go_on(self, cases: Iterable[_Case]) -> None:
        """Store positions, then copy from them; what is a guess is stored once it is proven."""
        decided: list[tuple[_Case, GoOn, Position]] = [
            (case, case.act, position_after(case.act, case.state, case.look))
            for case in cases
            if isinstance(case.act, GoOn)
        ]
        self._undone |= {case.state.source: case.about for case, _, _ in decided}
        final = [position for _, act, position in decided if act.repair is None]
        broken = [case.state.source for case, act, _ in decided if _breaks(case.finding, act)]
        cut = [position for case, act, position in decided if _keeps_what_was_before(case.finding, act)]
        try:
            await self._life.writer.start_over(final, broken, cut)
        except (ClusterUnreachableError, BrokerConnectionError):
            raise
        except Mm2Error as error:
            if error.verdict is Verdict.STAND_BY:
                raise  # the group is asked who has its share, and the partition is checked again then
            failure = PartitionFailure(f"its new position cannot be stored: {error}", error.hint, type(error).__name__)
            for position in final:
                self._doubts.stop(position.source, failure)
            raise
        for case, _, _ in decided:
            self._undone.pop(case.state.source, None)
        now = self._clock.monotonic()
        for case, act, position in decided:
            state = reset(case.state, act, case.look, now=now)
            if act.repair is None:
                state = attrs.evolve(state, written=position, unwritten_bytes=0)
            self._doubts.reset(state, breaks_history=_breaks(case.finding, act))

    async def _recreate(self, topic: str) -> None:
        """Delete the remote topic once none of its partitions is being written; a refresh creates it again."""
        tasks = self._life.tasks
        states = [
            it for it in tasks.ledger.of_topic(topic) if it.source.partition in self._life.source.partitions_of(topic)
        ]
        # Where several nodes copy the topic, the one that has its first partition recreates it.
        is_ours = tasks.holders.is_ours(TopicPartition(topic, 0))
        if not is_ours or any(tasks.holders.is_held(it.source) or not it.is_questioned for it in states):
            for state in states:
                # One that came with the new topic lies in the remote topic that is about to go.
                self._doubts.question(state, Ended.RECREATED, RECREATED)
                self._doubts.look_later(state.source, _TICK_S / 2)
            return
        remote = states[0].remote_topic
        error = (await Admin(self._life.target).delete_topics([remote]))[remote]
        if error is not None and error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            hint = "allow the deletion of topics at the target, or choose another copy.on.source.recreated"
            if self._undeleted.get(remote) != str(error):
                self._undeleted[remote] = str(error)
                self._events.emit(StepFailed(self._config.flow, f"delete {remote}", str(error), hint))
            for state in states:
                failure = PartitionFailure(f"{remote} cannot be deleted: {error}", hint, "TopicRecreated")
                self._doubts.stop(state.source, failure)
            return
        self._undeleted.pop(remote, None)
        if error is None:
            self._events.emit(RemoteTopicDeleted(self._config.flow, topic, remote))
        self._life.topics.want_refresh()


def _is_compared(act: Act) -> bool:
    """Whether a source topic that was created again is compared with the target first."""
    return isinstance(act, GoOn) and act.repair is not None and act.repair.is_rebuilt


def _keeps_what_was_before(finding: Finding, act: GoOn) -> bool:
    """Whether the source still has all that was copied before the new position."""
    return finding.kind is HistoryBreak.TRUNCATED and act.position == finding.diverges_at


def _breaks(finding: Finding, act: GoOn) -> bool:
    """Whether nothing that is known of where records went applies any more."""
    return finding.kind not in (HistoryBreak.EXPIRED, HistoryBreak.PURGED) and not _keeps_what_was_before(finding, act)


def _remote_of(state: PartitionState) -> TopicPartition:
    return TopicPartition(state.remote_topic, state.source.partition)


def _partitions(cluster: Cluster, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in cluster.partitions_of(topic)]
