"""
A run by its options: two clusters, some nodes, producers, and what befalls them; then all is mended and must be well.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import gc
import itertools
import math
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events import (
    RemoteTopicRewound,
    ResumedExactly,
    ResumeUnproven,
    SourceRecordsExpired,
    SourceRecordsPurged,
)
from tests.simulated import settings
from tests.simulated.checks import Checker
from tests.simulated.cluster import Cluster
from tests.simulated.costs import Costs
from tests.simulated.coverage import name_of
from tests.simulated.epochs import SENDS_UNTIL
from tests.simulated.escapes import Escapes
from tests.simulated.failback import Failback
from tests.simulated.faults import FAULTS, LOSING, UNGUARDED, grants
from tests.simulated.journal import Journal
from tests.simulated.log import Partition
from tests.simulated.loop import Host, LivelockError, SimClock, SimLoop
from tests.simulated.memory import Memory
from tests.simulated.network import Network
from tests.simulated.node import SimNode
from tests.simulated.operators import FLOW, Operators
from tests.simulated.options import Options
from tests.simulated.taming import tamed
from tests.simulated.views import Views
from tests.simulated.workload import Workload


#: Topics of the source, and their copies.
TOPICS = {name: f"A.{name}" for name in settings.TOPICS}
#: Those of the flow back, whose sources have the same names.
_BACK = {name: f"B.{name}" for name in settings.TOPICS}
_ENDS_S = 120.0
#: An id that could not be opened is tried again every minute.
_GUARDED_WITHIN_S = 90.0
#: What operators asked for is known everywhere by then.
_REMEMBERED_S = 75.0
#: What was sent is appended by then, however long a line was blocked or a broker hung.
_ARRIVES_S = 600.0
#: So long all has to be well, and nothing worth a warning to happen.
_QUIET_S = 60.0
#: How often brokers look for what they may remove.
_EXPIRES_EVERY_S = 10.0
#: Seconds between two looks at what nodes say, on average.
_ASKED_EVERY_S = 5.0


@attrs.frozen
class Result:
    """What a run came to."""

    violations: list[str]
    digest: str
    #: What befell the world; each line begins with the fault's number.
    faults: list[str]
    cpu_s: float
    virtual_s: float
    turns: int
    records: int
    requests: dict[str, int]
    events: dict[str, int]
    codes: dict[str, int]
    rss_mb: float
    timeline: list[str]


class World:
    """Everything in a run, until it is over."""

    def __init__(self, options: Options, *, keeps: bool) -> None:
        self.options = options
        self.topics = TOPICS
        self.loop = SimLoop(options.seed)
        self.clock = SimClock(self.loop)
        self.network = Network(self.loop, options.seed)
        self.network.usual.latency_s = options.latency_s
        self.journal = Journal(self.loop, keeps=keeps)
        self.source, self.target = self._cluster("A"), self._cluster("B")
        self.checker = Checker(self.source, self.target, TOPICS, settings.POSITIONS)
        self.checker.groups = settings.flow_groups(options)
        self.checker.is_by_syncs = options.checks_apart
        self.checker.transformed = settings.TRANSFORMED if options.transform else ""
        self.checker.may_repeat = options.transform == "again"
        self.checker.is_unclean = any(kind in options.faults for kind in LOSING)
        self.checkers = {"A": self.checker}
        if options.leads_back:
            self.checkers["B"] = back = Checker(self.target, self.source, _BACK, settings.POSITIONS_BACK)
            back.groups = ("B-mm2",)
        self.source.on_append = lambda partition, batch: self._appended(self.source, partition, batch)
        self.target.on_append = lambda partition, batch: self._appended(self.target, partition, batch)
        self.nodes = {name: self._node(name) for name in settings.node_names(options)}
        self.workload = Workload(self, self.source, options.seed)
        self.workloads = [self.workload]
        if options.both:
            self.workloads.append(Workload(self, self.target, f"back {options.seed}"))
        self.faults: list[str] = []
        self._plan, self._numbers = random.Random(f"plan {options.seed}"), itertools.count()
        #: Until when hardly anything happens.
        self.rests_until = 0.0
        #: What is broken, by number, and how it is mended.
        self._broken: dict[int, Callable[[], object]] = {}
        self._mends = itertools.count()
        self.outside = Host(self.loop, "operator")
        self.operators = Operators(self)
        self.views = Views(self)
        self.failback = Failback(self)
        mirrored = self.source.partitions_of
        self.memory = Memory(self.nodes, self.checker.fail, partitions=lambda: len(mirrored(TOPICS)))
        self.costs = Costs(
            self.network,
            (self.source, self.target),
            flows=len(self.checkers) + options.has_aside + options.checks_apart,
            records=lambda: sum(it.records for it in self.checkers.values()),
        )

    def _cluster(self, name: str) -> Cluster:
        cluster = Cluster(
            name, self.loop, self.network, self.options.seed, brokers=self.options.brokers, tell=self.journal.tell
        )
        cluster.min_isr = self.options.min_isr
        cluster.acls = {} if "acl" in self.options.faults else None
        cluster.wall_ms = self.clock.wall_ms
        cluster.trace = self.journal.trace
        return cluster

    def _appended(self, cluster: Cluster, partition: Partition, batch: Any) -> None:
        producer = f"{batch.producer_id}/{batch.producer_epoch}"
        self.journal.tell(cluster.name, "append", partition, batch.base, batch.last, batch.writer, producer)
        sender = cluster.sender if not batch.is_control else None
        sends_until = SENDS_UNTIL.get(sender, math.inf) if sender is not None else math.inf
        if sender is not None and sender.machine == batch.writer and self.loop.time() > sends_until + _ARRIVES_S:
            self.checker.fail(f"{sender} appended to {partition} long after its epoch's time")
        if cluster is self.source and "B" in self.checkers:
            self.checkers["B"].appended(partition, batch)
        if cluster is self.target:
            self.checker.appended(partition, batch)
            name = next((name for name, remote in TOPICS.items() if remote == partition.topic), "")
            if name and (why := self.operators.forbids(name, self.views.calm_since)):
                self.checker.fail(f"{batch.writer} appended to {partition}, and {why}")

    def _node(self, name: str) -> SimNode:
        # Written now: nothing may be written during a run.
        file = Path(f"{name}.properties")
        for suffix in (".first", ".changed"):
            is_changed, servers = suffix == ".changed", (self.source.servers, self.target.servers)
            file.with_suffix(suffix).write_text(settings.node_file(self.options, name, *servers, is_changed=is_changed))
        file.symlink_to(file.with_suffix(".first"))
        return SimNode(
            name,
            file,
            self.loop,
            self.clock,
            is_worker=self.options.is_worker,
            network=self.network,
            tell=self.journal.tell,
        )

    # The run.

    def run(self) -> list[str]:
        """Run to the end; return what was violated."""
        asyncio.set_event_loop(self.loop)
        living = self.outside.start(self._live(), "run")
        living.add_done_callback(lambda _: self.loop.stop())
        try:
            # No Runner: it would wait for the tasks of hosts that were killed.
            self.loop.run_forever()
        except LivelockError as error:
            self.checker.fail(f"livelock: {error}")
        if living.done():
            living.result()
        violations = [it for checker in self.checkers.values() for it in checker.violations]
        return [*violations, *(f"unhandled: {it}" for it in self.loop.unhandled)]

    async def _live(self) -> None:
        for name in TOPICS:
            self.source.create(name, self.options.partitions, settings.topic_configs(self.options))
        for node in self.nodes.values():
            node.start()
        self.operators.begin()
        if "B" in self.checkers:
            for name in TOPICS:
                self.target.create(name, self.options.partitions)
        watching = self.outside.start(self._watch(), "watch")
        self.outside.start(self._expire(), "retention")
        for _ in range(self.options.rounds):
            await self._go_through()
            self.memory.look()
        watching.cancel()
        await self._end()

    async def _go_through(self) -> None:
        """Have all be in motion and faults happen for the minutes of a round; then all must become well."""
        self.operators.is_peace = False
        work = [self.outside.start(it.produce(), "producers") for it in self.workloads]
        work.append(self.outside.start(self.workload.consume(), "consumers"))
        if "B" in self.checkers:
            work.append(self.outside.start(self.failback.live(), "movers"))
        if self.options.faults:
            work.append(self.outside.start(self._break(), "faults"))
        await asyncio.sleep(self.options.minutes * 60)
        if self.rests_until > self.loop.time():
            await asyncio.sleep(self.rests_until + 60 - self.loop.time())
        for task in work:
            if task.done():
                task.result()  # it goes on until it is cancelled, unless it has failed
            task.cancel()
        self.operators.is_peace = True
        self._mend_all()
        if "operator" in self.options.faults:
            await self._check_operators()
        self.operators.undo()
        await self._converge()

    async def _expire(self) -> None:
        """Have brokers remove what is older than its topic keeps it."""
        while True:
            await asyncio.sleep(_EXPIRES_EVERY_S)
            for cluster, partition in self._partitions():
                if keeps_ms := int(cluster.topics[partition.topic].configs.get("retention.ms", 0)):
                    offset = partition.expired(self.clock.wall_ms() - keeps_ms)
                    if offset > partition.start and cluster is self.source:
                        self.checker.deletes(partition, offset)
                    if offset > partition.start:
                        partition.delete_before(offset)
                        self.journal.tell(cluster.name, "expire", partition, offset)

    def _partitions(self) -> list[tuple[Cluster, Partition]]:
        """Return the partitions that are mirrored, and their copies."""
        copies = [it for it in TOPICS.values() if it in self.target.topics]
        return [
            *((self.source, it) for it in self.source.partitions_of(TOPICS)),
            *((self.target, it) for it in self.target.partitions_of(copies)),
        ]

    async def _watch(self) -> None:
        """Stop at the first violation; what is checked once a second is checked here."""
        draw = random.Random(f"watch {self.options.seed}")
        while not any(it.violations for it in self.checkers.values()):
            await asyncio.sleep(1 if self.rests_until < self.loop.time() else 60)
            for node in self.nodes.values():
                if node.has_ended:
                    self.checker.fail(f"{node.name} has ended by itself: {node.failure!r}")
                    node.is_wanted = False
                for clash in self._clashes(node):
                    self.checker.fail(f"{node.name} {clash}")
            self.checker.look_at_groups()
            for moved in (*self.workload.moved(), *self.failback.look()):
                self.checker.fail(moved)
            for much in self.costs.look():
                self.checker.fail(much)
            self.views.note()
            if draw.random() < 1 / _ASKED_EVERY_S or self.views.is_telling:
                self.views.look()
        self.loop.stop()

    def _clashes(self, node: SimNode) -> list[str]:
        """Return what a node has planned while another epoch may still write it: its own, or one of a node in touch."""
        epochs = node.epochs
        if epochs is None:
            return []
        clashes, epochs.clashes = epochs.clashes, []
        is_known = self.views.is_in_the_know(node)
        return [it for other, it in clashes if other is node.host or (is_known and self.views.is_in_touch(other))]

    def _check_what_was_told(self) -> None:
        """Records that are there twice, or not at all, are in an event."""
        again, unproven, removed = (collections.Counter[Any]() for _ in range(3))
        for _, _, event in self.journal.said:
            match event:
                case RemoteTopicRewound() if event.flow.pair == FLOW:
                    again[event.source] += event.repeated or 0
                case ResumeUnproven() if event.flow.pair == FLOW:
                    unproven[event.source] += event.repeated or 0
                case SourceRecordsExpired() | SourceRecordsPurged() if event.flow.pair == FLOW:
                    removed[event.source] += event.lost or 0
        self.checker.check_what_was_lost(again)
        self.checker.check_what_was_repeated(unproven)
        self.checker.check_what_was_deleted(removed)

    async def _converge(self) -> None:
        """All has to be well within minutes, and to stay so for one; nothing is worth a warning then."""
        begun, within_s = self.loop.time(), self.options.settle_minutes * 60
        while unwell := self._unwell():
            if self.loop.time() - begun > within_s:
                self.checker.fail(f"after {within_s:g} s of peace {unwell}")
                return
            for node in self.nodes.values():
                node.start()  # one that was still draining ends only now
            await asyncio.sleep(1)
        self.journal.tell("run", "converged", f"{self.loop.time() - begun:.0f}")
        self._check_what_was_told()
        self.checker.look_at_groups(is_peace=True)
        if self.options.on_recreated == "re-create" and (mixed := self.checker.mixed()):
            self.checker.fail(f"records of topics before are still in {mixed}")
        if any(kind in self.options.faults for kind in UNGUARDED):
            await self._check_guards()
        await self._be_quiet(begun + within_s)

    def _unwell(self) -> str:
        """Return what is not as it must be at peace."""
        for checker in self.checkers.values():
            if lag := checker.lag():
                return f"{sum(lag.values())} records are missing: {lag}"
            if late := checker.late_positions():
                return f"positions are behind: {late}"
            if late_syncs := checker.late_syncs():
                return f"offset syncs are behind: {', '.join(late_syncs)}"
        if not self.checker.is_unclean and (late_groups := self.checker.late_groups(self._compared_to())):
            return f"groups are behind: {', '.join(late_groups)}"
        return "; ".join([*grants.missing(self), *self.views.unwell()])

    def _compared_to(self) -> dict[TopicPartition, int]:
        """Return the position after a resume in what the source had removed before it was known to be copied."""
        unsure: set[TopicPartition] = set()
        found: dict[TopicPartition, int] = {}
        for _, _, event in self.journal.said:
            match event:
                case SourceRecordsExpired() | SourceRecordsPurged() if event.flow.pair == FLOW:
                    unsure |= {event.source} if "known to be copied" in event.message else set()
                case ResumeUnproven() if event.flow.pair == FLOW:
                    unsure.discard(event.source)
                case ResumedExactly() if event.flow.pair == FLOW and event.source in unsure:
                    unsure.discard(event.source)
                    found[event.source] = event.position
        return found

    async def _check_operators(self) -> None:
        """What operators asked for last is so, whatever befell nodes since."""
        await asyncio.sleep(_REMEMBERED_S)
        for node in self.nodes.values():
            node.start()
            for lost in self.operators.forgotten(node, node.view(), self.views.calm_since):
                self.checker.fail(f"at peace, at {node.name} {lost}")

    async def _be_quiet(self, until: float) -> None:
        """Wait for a minute without a warning, at the end of which all is well still."""
        begun = self.loop.time()
        while self.loop.time() < begun + _QUIET_S:
            await asyncio.sleep(5)
            if trouble := [*self.views.loud_since(begun), *filter(None, [self._unwell()])]:
                if self.loop.time() > until:
                    self.checker.fail(f"it is not quiet at peace: {'; '.join(trouble)}")
                    return
                begun = self.loop.time()
                self.journal.tell("run", "not quiet", "; ".join(trouble))
        self.journal.tell("run", "quiet")

    async def _check_guards(self) -> None:
        """Ids that could not be opened are tried again: after minutes of peace nothing is written without one."""
        await asyncio.sleep(_GUARDED_WITHIN_S)
        before = self.checker.plain_writes
        self.workload.append_to_all()
        await asyncio.sleep(_GUARDED_WITHIN_S)
        if plain := self.checker.plain_writes - before:
            self.checker.fail(f"{plain} times positions were written without a transactional id, in peace")

    async def _end(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.stop()
        await asyncio.sleep(_ENDS_S)
        for host in [host for node in self.nodes.values() for host in node.hosts if not host.is_dead]:
            if left := sorted(task.get_name() for task in host.tasks()):
                self.checker.fail(f"{host} was asked to end {_ENDS_S:g} s ago, and has tasks still: {', '.join(left)}")
            host.kill()
        for cluster in (self.source, self.target):
            cluster.host.kill()
            for broker in cluster.brokers.values():
                broker.host.kill()

    # Faults.

    async def _break(self) -> None:
        options, plan = self.options, self._plan
        await asyncio.sleep(options.starts_s)
        for number in self._numbers:
            await asyncio.sleep(plan.expovariate(1 / options.fault_every_s))
            if self.rests_until > self.loop.time():
                await asyncio.sleep(self.rests_until - self.loop.time())
            kind = plan.choice(options.faults)
            if number in options.skipped or 0 <= options.last_fault < number:
                continue
            self.views.note()  # a cluster may have answered since the last look, for less than a second
            what = FAULTS[kind](self, random.Random(f"fault {options.seed} {number}"))
            if what:
                self.befell(kind, what, number)

    def befell(self, kind: str, what: str, number: int | None = None) -> None:
        """Note a fault."""
        self.faults.append(f"{'' if number is None else f'#{number} '}{self.loop.time():.3f} {kind} {what}")
        self.journal.tell("fault", kind, what)

    def later(self, seconds: float, mend: Callable[[], object]) -> None:
        """Have something mended later, or when all is; nothing stays broken because something else breaks."""
        number = next(self._mends)
        self._broken[number] = mend
        self.outside.call_later(seconds, self._mend, number)

    def _mend(self, number: int) -> None:
        mend = self._broken.pop(number, None)
        if mend is not None:
            mend()

    def _mend_all(self) -> None:
        for number in list(self._broken):
            self._mend(number)
        self.network.heal()
        for node in self.nodes.values():
            node.turn_clock(0)
            node.thaw()
            node.start()
            if node.is_changed:
                node.reload()
        for cluster in (self.source, self.target):
            cluster.ambush = None
            cluster.refuses_ids_until = 0.0
            cluster.denied_until.clear()
            cluster.full_until.clear()
            for number, broker in cluster.brokers.items():
                broker.stale = None
                if broker.host.is_frozen:
                    cluster.thaw(number)
                elif broker.host.is_dead:
                    cluster.restart(number)
        self.journal.tell("run", "peace")

    def source_of(self, flow: Flow) -> Cluster:
        """Return where a flow reads."""
        return self.source if flow.source == self.source.name else self.target

    def forget(self, topic: str) -> None:
        """Note that a source topic is deleted."""
        self.workload.forget(topic)
        self.checker.forget(topic)
        self.failback.forget(topic)

    def a_node(self, draw: random.Random) -> SimNode | None:
        """Draw one of the nodes that run."""
        able = [node for node in self.nodes.values() if node.is_able]
        return draw.choice(able) if able else None

    def a_cluster(self, draw: random.Random) -> Cluster:
        """Draw a cluster, more often the target."""
        return draw.choice((self.source, self.target, self.target))


def execute(options: Options, *, keeps: bool = False) -> Result:
    """Run by *options* in this process, which can do nothing else any more: what was killed is not to be cleaned up."""
    gc.collect()
    gc.disable()
    begun = time.process_time()
    # Events name files, and are the same in each run.
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), tamed(options.seed):
        world = World(options, keeps=keeps)
        escapes = Escapes()
        with escapes.heard():
            violations = world.run()
    counts: collections.Counter[str] = world.source.counts + world.target.counts
    return Result(
        violations=[*violations, *escapes.found],
        digest=world.journal.digest,
        faults=world.faults,
        cpu_s=round(time.process_time() - begun, 2),
        virtual_s=round(world.loop.time()),
        turns=world.loop.turns,
        records=sum(it.records for it in world.checkers.values()),
        requests=dict(counts),
        events=dict(world.journal.events),
        codes={name_of(code): count for code, count in (world.source.codes + world.target.codes).items()},
        rss_mb=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        timeline=world.journal.timeline(),
    )
