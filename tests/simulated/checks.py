"""
What must be true after each step: the records of a remote partition are those of its source, in order, none missing and
none twice; a position never goes back, and never beyond what the target has for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from mm2py.model.checkpoint import decode_checkpoint
from mm2py.model.flow import TopicPartition
from mm2py.model.offset_sync import OffsetSync, decode_offset_sync
from mm2py.model.positions import Position
from mm2py.model.positions_topic import decode_any
from mm2py.model.run_chunk import KeptChunk
from mm2py.wire.topic_log import LogRecord
from tests.simulated.cluster import Cluster
from tests.simulated.copied import Content, Copied
from tests.simulated.log import Batch, Partition, commits
from tests.simulated.record_jobs import made_of
from tests.simulated.translated import Translated
from tests.support.contents import RecordContent, decode


class Checker:
    """Watches a flow from *source* to *target*."""

    def __init__(self, source: Cluster, target: Cluster, topics: dict[str, str], positions_topic: str) -> None:
        self.violations: list[str] = []
        self.records = 0
        self.positions_seen = 0
        self._source, self._target = source, target
        self._topics = {remote: name for name, remote in topics.items()}
        self._positions_topic = positions_topic
        self._checkpoints_topic = f"{source.name}.checkpoints.internal"
        self._copied: dict[tuple[str, int], Copied] = {}
        #: Positions that are committed, by source partition; and of which topics each is.
        self._positions: dict[TopicPartition, int] = {}
        self._about: dict[TopicPartition, tuple[str | None, str | None]] = {}
        #: What is said in transactions that have not ended, by producer id.
        self._pending: dict[int, list[Callable[[], None]]] = {}
        self.translated = Translated(self)
        #: The furthest that a group has committed at the source: its offset, by group and remote partition.
        self.committed: dict[tuple[str, str, int], int] = {}
        self.groups_seen = 0
        #: Where a group stood at the target when it was last looked at.
        self._stood: dict[tuple[str, str, int], int] = {}
        #: The flow's group at the target.
        self.groups: tuple[str, ...] = ("A-mm2",)
        self.plain_writes = 0
        #: The topic whose records are changed on their way, and whether what is made of them may come again.
        self.transformed, self.may_repeat = "", False
        #: Whether offsets are translated by offset syncs alone.
        self.is_by_syncs = False
        #: Whether acknowledged records may be lost, and of which partitions they were.
        self.is_unclean = False
        self._rewound: dict[TopicPartition, None] = {}
        #: Where operators have had partitions begin: of what is before, runs that were not stored then are not known.
        self._altered_to: dict[TopicPartition, int] = {}
        #: Where operators have asked partitions to begin; it is so once a position says it.
        self._awaited: dict[TopicPartition, int] = {}
        #: Where partitions begin whose remote topic was not there when that was altered.
        self._altered: dict[TopicPartition, int] = {}
        target.on_append = self.appended
        target.on_loss = self.lost

    def copied(self, remote: Partition) -> Copied:
        """Return how far a remote partition is."""
        key, source = (remote.topic, remote.number), self._source_of(remote)
        known = self._copied.get(key)
        if known is None or known.remote is not remote or known.source is not source:
            former = known if known is not None and known.remote is remote else None
            if former is not None:
                self.read_source(former)
            begun = self._copied[key] = Copied(source, remote, former=former, is_young=known is not None)
            if source.topic == self.transformed:
                begun.made, begun.may_repeat = _made, self.may_repeat
            self.read_source(begun)
            # Of the topic before, whose offsets are gone with it.
            self._stood = {stood: at for stood, at in self._stood.items() if stood[1:] != key}
            begun.deleted = begun.before(source.start)
            if known is not None and known.source is source and not known.marks and not known.remote.end:
                # Nothing was copied yet from where an operator has it begin. A topic that held records, of a former
                # source even, is copied again from the start.
                begun.next_at = known.next_at
            if (at := self._altered.pop(TopicPartition(source.topic, source.number), None)) is not None:
                begun.next_at = begun.before(at)
        return self._copied[key]

    def _source_of(self, remote: Partition) -> Partition:
        """Return the source of a remote partition, even if it is deleted."""
        topics = self._source.topics, self._source.deleted
        found = [it[name] for it in topics if (name := self._topics[remote.topic]) in it]
        return next(it.partitions[remote.number] for it in found if remote.number < len(it.partitions))

    def is_younger(self, remote: Partition, ago_s: float) -> bool:
        """Whether the topic of a remote partition, or its source's, was not there yet so long ago."""
        topics = self._target.topics[remote.topic], self._source.topics[self._topics[remote.topic]]
        return max(it.created_at for it in topics) > self._target.loop.time() - ago_s

    def is_about_now(self, source: TopicPartition) -> bool:
        """Whether the position of a partition is of the topics that there are."""
        return self._about.get(source) == self.ids(source)

    def ids(self, source: TopicPartition) -> tuple[str | None, str | None]:
        """Return the ids of a partition's topics."""
        name = next(remote for remote, name in self._topics.items() if name == source.topic)
        topics = self._source.topics.get(source.topic), self._target.topics.get(name)
        here, there = (None if it is None else it.topic_id for it in topics)
        return here, there

    def remote(self, topic: str, number: int) -> Partition | None:
        """Return a partition of a remote topic, if it is there."""
        return self._target.partition(topic, number) if topic in self._topics else None

    def remote_of(self, source: TopicPartition) -> Partition | None:
        """Return the remote partition of a source's, if it is there."""
        remote = next((remote for remote, name in self._topics.items() if name == source.topic), "")
        return self.remote(remote, source.partition)

    def appended(self, partition: Partition, batch: Batch) -> None:
        """Check a batch that the target has just appended."""
        if partition.topic in self._topics:
            if batch.is_transactional or batch.is_control:
                self._settle_or_wait(batch, [partial(self._records, self.copied(partition), batch)])
            else:
                self._records(self.copied(partition), batch)
        elif partition.topic == self._positions_topic:
            self._owned(batch)
            self._control(partition, batch)
        elif partition.topic == self._checkpoints_topic:
            self._control(partition, batch)

    def _records(self, copied: Copied, batch: Batch) -> None:
        self.read_source(copied)
        records = [(it, (it.timestamp, it.key, it.value, it.headers)) for it in decode(batch.raw)]
        while copied.former is not None and not copied.marks and not copied.has(records[0][1]):
            copied = copied.former
            self.read_source(copied)
        at = copied.count
        for record, content in records:
            if at < len(copied.known) and copied.known[at][1] == content:
                at += 1
                self.records += 1
                continue
            found = self._again(copied, content, batch)
            if found is not None:
                copied.repeated += max(0, at - found)
            else:
                found = self._after_deleted(copied, at, content)
                copied.missing += 0 if found is None else found - at
            if found is None:
                self._explain(copied, at, record, batch)
                return
            at = found + 1
            self.records += 1
        copied.take(batch.base, batch.last, at)

    # What operators alter.

    def may_be_altered(self, partition: TopicPartition, position: int) -> None:
        """Note that an operator asks for another position."""
        self._awaited[partition] = position

    def is_not_altered(self, partition: TopicPartition) -> None:
        """Note that this was refused."""
        self._awaited.pop(partition, None)

    def is_awaited(self, partition: TopicPartition) -> bool:
        """Whether no position says yet what an operator asked for."""
        return partition in self._awaited and not self._is_asked_for(partition, self._positions.get(partition, -1))

    def _is_asked_for(self, partition: TopicPartition, position: int) -> bool:
        """Whether that is what an operator asked for: what the source has removed by then begins with its start."""
        asked, source = self._awaited.get(partition), self._source.partition(partition.topic, partition.partition)
        return asked is not None and source is not None and asked <= position <= max(asked, source.start)

    def _again(self, copied: Copied, content: Content, batch: Batch) -> int | None:
        """
        Return which record of the source this is, if it may come again: the target has lost acknowledged ones, or has
        removed all, so that nothing is left by which a node could tell what it had copied; or what a transform made was
        written without transactions.
        """
        is_rewound = TopicPartition(copied.source.topic, copied.source.number) in self._rewound
        may_be_any = is_rewound or copied.remote.start >= batch.base
        able = copied.known if may_be_any else copied.known[: copied.furthest] if copied.may_repeat else ()
        return next((at for at, (_, known) in enumerate(able) if known == content), None)

    @staticmethod
    def _after_deleted(copied: Copied, at: int, content: Content) -> int | None:
        """Return which record this is, if those before it were deleted at the source before they were read."""
        able = range(at, min(copied.deleted + 1, len(copied.known)))
        return next((it for it in able if copied.known[it][1] == content), None)

    def deletes(self, source: Partition, offset: int) -> None:
        """Note that records of the source up to *offset* are about to be deleted there."""
        remote = self.remote_of(TopicPartition(source.topic, source.number))
        if remote is not None:
            copied = self.copied(remote)
            self.read_source(copied)
            copied.deleted = max(copied.deleted, copied.before(offset))

    def check_what_was_deleted(self, told: dict[TopicPartition, int]) -> None:
        """No more records are missing, because they were deleted too early, than events have *told*."""
        for copied in self._copied.values():
            partition = TopicPartition(copied.source.topic, copied.source.number)
            passed = max(copied.upto(copied.remote.high_watermark), copied.next_at or 0)  # an operator may skip some
            missing = copied.missing + max(0, copied.deleted - passed)
            missing -= copied.deleted_first
            if missing > told.get(partition, 0):
                what = f"{copied.remote} lacks {missing} records that were deleted at the source"
                self.fail(f"{what}; events have told of {told.get(partition, 0)}")

    def check_what_was_repeated(self, told: dict[TopicPartition, int]) -> None:
        """No more records came again, because the target had removed what proves them, than events have *told*."""
        for copied in self._copied.values():
            partition = TopicPartition(copied.source.topic, copied.source.number)
            may_repeat = copied.may_repeat or partition in self._rewound
            if not may_repeat and copied.repeated > told.get(partition, 0):
                what = f"{copied.remote} has {copied.repeated} records twice that could not be compared"
                self.fail(f"{what}; events have told of {told.get(partition, 0)}")

    def _explain(self, copied: Copied, at: int, record: RecordContent, batch: Batch) -> None:
        what = f"{copied.remote} has {record.value!r} at {record.offset}"
        if at >= len(copied.known):
            self.fail(f"{what}, and the source ends before it ({batch.writer})")
            return
        producer = f"producer {batch.producer_id}/{batch.producer_epoch} from {batch.first_sequence}"
        self.fail(f"{what}, not {copied.known[at][1][2]!r} ({batch.writer}, {producer})")

    def check_what_was_lost(self, repeated: dict[TopicPartition, int]) -> None:
        """
        Check partitions of which the target had lost acknowledged records: all are there, and no more of them twice
        than events have reported (*repeated*).
        """
        for partition in self._rewound:
            copied = next(it for it in self._copied.values() if str(it.source) == str(partition))
            self.read_source(copied)
            values = [it.value for batch in copied.remote.batches if not batch.is_control for it in decode(batch.raw)]
            missing = [known[2] for _, known in copied.known if known[2] not in set(values)]
            twice, reported = len(values) - len(set(values)), repeated.get(partition, 0)
            if missing:
                self.fail(f"{copied.remote} lacks {len(missing)} records for good, {missing[0]!r} first")
            if twice > reported:
                self.fail(f"{copied.remote} has {twice} records twice; events have reported {reported}")

    def read_source(self, copied: Copied) -> None:
        """Take what the source has by now."""
        source = copied.source
        if copied.read_to >= source.stable:
            return
        aborted: dict[int, list[tuple[int, int]]] = {}
        for producer, first, last in source.aborted:
            if last >= copied.read_to:
                aborted.setdefault(producer, []).append((first, last))
        for batch in source.since_offset(copied.read_to):
            if batch.last >= source.stable:  # whether what follows is aborted is not known yet
                break
            copied.read_to = batch.last + 1
            if batch.is_control or any(
                first <= batch.base <= last for first, last in aborted.get(batch.producer_id, ())
            ):
                continue
            made = ((it.offset, copied.made((it.timestamp, it.key, it.value, it.headers))) for it in decode(batch.raw))
            copied.known += [(offset, content) for offset, content in made if content is not None]

    def lost(self, partition: Partition, batches: list[Batch]) -> None:
        """Note what an election at the target has lost."""
        copied = self._copied.get((partition.topic, partition.number))
        if copied is not None and batches:
            first = batches[0].base
            if self.is_unclean:
                # Acknowledged ones, too: positions may go back now, and are beyond the target's end until then.
                self._positions.pop(TopicPartition(copied.source.topic, copied.source.number), None)
                self._rewound[TopicPartition(copied.source.topic, copied.source.number)] = None
            copied.lose(first)

    def _owned(self, batch: Batch) -> None:
        """What is written without a transaction, which nothing can refuse, is written by a member of the group."""
        found = [self._target.coordinator.writers(group) for group in self.groups]
        members = None if None in found else set[str]().union(*filter(None, found))
        # The node that an operator asked writes altered offsets, once all tasks' ids are taken.
        if batch.is_transactional or batch.is_control or members is None or self._awaited:
            return
        self.plain_writes += 1
        if batch.writer not in members:
            self.fail(f"{batch.writer} wrote positions, and the group has {sorted(members)}")

    def _control(self, partition: Partition, batch: Batch) -> None:
        if batch.is_transactional or batch.is_control:
            self._settle_or_wait(batch, [] if batch.is_control else self._said(partition, batch))
            return
        for judge in self._said(partition, batch):
            judge()

    def _settle_or_wait(self, batch: Batch, said: Iterable[Callable[[], None]]) -> None:
        """Have what is in a transaction judged once it is committed, which its first marker tells."""
        if not batch.is_control:
            self._pending.setdefault(batch.producer_id, []).extend(said)
            return
        found = self._pending.pop(batch.producer_id, [])
        for judge in found if commits(batch.raw) else ():
            judge()

    def _said(self, partition: Partition, batch: Batch) -> Iterator[Callable[[], None]]:
        for record in decode(batch.raw):
            if partition.topic == self._checkpoints_topic:
                yield partial(self.translated.checkpoint, decode_checkpoint(record.key, record.value), batch)
                continue
            kept = LogRecord(record.key, record.value, record.headers, 0, record.offset, record.timestamp)
            match decode_any(kept):
                case (_, Position() as position):
                    yield partial(self._position, position)
                case (_, KeptChunk() as chunk):
                    yield partial(self.translated.runs, chunk)

    def _position(self, position: Position) -> None:
        self.positions_seen += 1
        if position.source.topic not in self._topics.values():
            return
        about = position.topic_id, position.remote_topic_id
        if about != self._about.setdefault(position.source, about):
            self._about[position.source] = about
            self._positions.pop(position.source, None)
        before = self._positions.get(position.source, 0)
        if position.source in self._rewound:
            self._positions[position.source] = position.next_upstream
            return
        remote = self.remote_of(position.source)
        copied = self.copied(remote) if remote is not None else None
        if self._is_asked_for(position.source, position.next_upstream):
            del self._awaited[position.source]
            self._altered_to[position.source] = max(position.next_upstream, self._altered_to.get(position.source, 0))
            self._positions[position.source] = position.next_upstream
            if copied is None:
                self._altered[position.source] = position.next_upstream
            else:
                self.read_source(copied)
                copied.next_at = copied.before(position.next_upstream)
            return
        if position.next_upstream < before and about == self.ids(position.source):
            self.fail(f"the position of {position.source} went back from {before} to {position.next_upstream}")
        is_first = position.source not in self._positions
        self._positions[position.source] = position.next_upstream
        if remote is None or copied is None or about != self.ids(position.source):
            return
        self.read_source(copied)
        if is_first:
            copied.deleted_first = min(copied.deleted, copied.before(position.next_upstream))
        proven = copied.proven(remote.high_watermark)
        wanted = copied.before(position.next_upstream)
        if wanted > proven:
            what = f"the position of {position.source} is {position.next_upstream}, {wanted} records"
            self.fail(f"{what}; the target has {proven} for good")

    def forget(self, topic: str) -> None:
        """Note that a source topic is deleted, and with it what groups have committed."""
        remote = next(remote for remote, name in self._topics.items() if name == topic)
        self.committed = {key: at for key, at in self.committed.items() if key[1] != remote}

    def renew(self, topic: str) -> None:
        """Note that a source topic, or its copy, was created again."""
        for remote, name in self._topics.items():
            if name == topic and (there := self._target.topics.get(remote)) is not None:
                for partition in there.partitions:
                    self.copied(partition)

    def commits(self, group: str, source: Partition, offset: int) -> None:
        """Note what a group of the source commits."""
        remote = next(remote for remote, name in self._topics.items() if name == source.topic)
        key = group, remote, source.number
        self.committed[key] = max(offset, self.committed.get(key, 0))

    def look_at_groups(self, *, is_peace: bool = False) -> None:
        """
        No group may stand at the target behind a record that it has not read at the source, nor beyond the end. By
        default it is not set back there, even if it goes back at the source.
        """
        for (group, topic, number), committed in self.committed.items():
            known = self._target.coordinator.groups.get(group)
            at = known.offsets.get((topic, number)) if known is not None else None
            remote = self._target.partition(topic, number)
            if at is None or remote is None or self.is_unclean:
                continue
            if self.copied(remote).is_young and not is_peace:
                self._stood.pop((group, topic, number), None)
                continue
            self.groups_seen += 1
            before, self._stood[group, topic, number] = self._stood.get((group, topic, number), 0), at[0]
            copied = self.copied(remote)
            read = max(copied.before(committed), copied.upto(remote.start))  # what is removed there cannot be read
            skipped = copied.upto(at[0])
            if at[0] < before:
                self.fail(f"group {group} went back from {before} to {at[0]} of {remote}")
            if at[0] > remote.high_watermark:
                self.fail(f"group {group} stands at {at[0]} of {remote}, which ends at {remote.high_watermark}")
            elif skipped > read:
                self.fail(f"group {group} skips {skipped - read} records of {remote}: it stands at {at[0]}")

    def late_groups(self, compared_to: Mapping[TopicPartition, int]) -> list[str]:
        """
        Return which groups are not as far at the target as they are at the source.

        Where records were deleted before they were known to be copied, a resume compares only the target's last ones
        with the source: before *compared_to* what it found is translated by less than that, though never ahead.
        """
        late = []
        for group, topic, number in self.committed:
            source, remote = self._source.partition(self._topics[topic], number), self._target.partition(topic, number)
            if source is None or remote is None:
                continue
            key, copied = (topic, number), self.copied(remote)
            offset, _ = self._source.coordinator.groups[group].offsets[source.topic, number]
            known = self._target.coordinator.groups.get(group)
            at = known.offsets.get(key, (0, ""))[0] if known is not None else 0
            # What is deleted behind a group need not be translated exactly.
            place = TopicPartition(source.topic, number)
            if offset < max(source.start, compared_to.get(place, 0), self._altered_to.get(place, 0)):
                continue
            if self.is_by_syncs:
                least = self.translated.by_syncs(place, offset) if place not in self._altered_to else None
                late += [f"{group} at {at} of {remote}, and by syncs {least}"] if at < (least or 0) else []
                continue
            if source.topic == self.transformed and offset < source.stable:
                continue  # of a micro-batch whose end was not heard of only is known where it ended
            if (missing := copied.before(offset) - copied.next_from(at)) > 0:
                late.append(f"{group} at {at} of {remote}, {missing} records behind")
        return late

    def fail(self, what: str) -> None:
        """Note that an invariant does not hold."""
        self.violations.append(f"{self._target.loop.time():.4f} s: {what}")

    def lag(self) -> dict[str, int]:
        """Return which partitions lack how many records."""
        found = {}
        for remote, name in self._topics.items():
            topic = self._source.topics.get(name)
            for source in topic.partitions if topic else ():
                there = self._target.partition(remote, source.number)
                if there is None:
                    found[str(source)] = source.high_watermark
                    continue
                copied = self.copied(there)
                self.read_source(copied)
                if missing := len(copied.known) - copied.proven(there.high_watermark):
                    found[str(source)] = missing
        return found

    def syncs(self) -> list[OffsetSync]:
        """Return the offset syncs of the flow, in their order."""
        topic = self._source.topics.get(f"mm2-offset-syncs.{self._target.name}.internal")
        batches = [it for it in topic.partitions[0].batches if not it.is_control] if topic is not None else []
        return [decode_offset_sync(record.key, record.value) for it in batches for record in decode(it.raw)]

    def late_syncs(self) -> list[str]:
        """Return which partitions have no offset sync of their last record, altered or not."""
        found = []
        for copied in self._copied.values():
            source = TopicPartition(copied.source.topic, copied.source.number)
            is_there = self._source.partition(*source) is copied.source and not self.is_unclean
            if is_there and copied.marks and (missing := self.translated.late_syncs(source, copied)):
                found.append(f"{copied.source} by {missing} records")
        return found

    def mixed(self) -> list[str]:
        """Return which remote partitions hold records of several topics of their source's name."""
        found = []
        for copied in self._copied.values():
            former = copied.former
            while former is not None and not former.marks:
                former = former.former
            if former is not None:
                found.append(str(copied.remote))
        return found

    def late_positions(self) -> dict[str, int]:
        """Return by how much positions are behind."""
        found = {}
        for name in self._topics.values():
            topic = self._source.topics.get(name)
            for source in topic.partitions if topic else ():
                partition = TopicPartition(name, source.number)
                at = self._positions.get(partition, -1) if self.is_about_now(partition) else -1
                if at < source.stable:
                    found[str(source)] = source.stable - at
        return found


def _made(content: Content) -> Content | None:
    timestamp, key, value, headers = content
    made = made_of(value)
    return None if made is None else (timestamp, key, made, headers)
