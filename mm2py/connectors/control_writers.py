"""
Who may write what a flow keeps on its target: a node that was replaced cannot put older values after newer ones.

A node opens two transactional ids before it reads what it will write. They are those of Java MirrorMaker's exactly-once
mode, which is kept out in the same way. The flow's owner writes checkpoints under that of the leader; if the flow
consists of a worker's connectors, under that of the checkpoint connector's first task. All else, above all positions,
is written under that of a task that the node has: `TaskWriter`.

Overrides are written by any node. Their revisions keep two writers apart (`OverrideStore`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import ClassVar, Final

import attrs

from mm2py.config.connector import MirrorSourceConfig
from mm2py.config.worker import WorkerConfig
from mm2py.connectors.reach import Reach
from mm2py.connectors.source.transactions import end_open_transactions
from mm2py.connectors.supervise import until_set
from mm2py.core.backoff import Backoff, Contention
from mm2py.errors import BrokerAnsweredError, Mm2Error, Verdict
from mm2py.model.flow import Flow, TopicPartition
from mm2py.telemetry.events import ControlWritesGuarded, ControlWritesUnguarded, FlowFenced
from mm2py.telemetry.journal import EventLog
from mm2py.wire.cluster import Cluster
from mm2py.wire.error_codes import ErrorCode
from mm2py.wire.fenced_writer import Append, FencedWriter, TakenOverError, fence, hint_of, is_hopeless
from mm2py.wire.security.access import NotAuthorizedError


_OWNER_THEN: Final = "writes no more checkpoints, and asks again who owns the flow"
_TASK_THEN: Final = "writes no more positions until its group has answered that its tasks are still its own"
_STEP: Final = "open transactional ids"
#: How long a write waits for its id to be opened, before it is tried again.
_READY_S: Final = 5.0
#: How long an id is left to the node that took it: nodes that contend for one would fence each other so often that none
#: of them gets a write done.
_YIELD: Final = Backoff(0.5, 4.0, spread=0.8)
_FENCES_FORGOTTEN_S: Final = 60.0
#: How often an id is tried again that could not be opened: the coordinator was away, or a grant was missing.
_REFUSED_S: Final = 60.0


@attrs.define(eq=False)
class NotOpenError(Mm2Error):
    """It is not certain yet that this node may write."""

    verdict: ClassVar[Verdict] = Verdict.STAND_BY

    cluster: str
    group: str

    def __str__(self) -> str:
        return f"group {self.group} at {self.cluster} has not confirmed yet that this node has its tasks"


class ControlWriters:
    """The writers of one flow on this node, for all lives of its groups."""

    def __init__(
        self,
        flow: Flow,
        worker: WorkerConfig,
        events: EventLog,
        reach: Reach,
        jitter: Callable[[], float] = lambda: 0.5,
    ) -> None:
        self._on_fenced: Callable[[], None] = lambda: None
        #: Whether the owner's id is opened. Nodes that copy side by side would take it from each other without end.
        self.is_guarding = worker.refuses
        self._is_certain: Callable[[], bool] = lambda: True
        self._flow = flow
        self._worker = worker
        self._events = events
        self._reach = reach
        #: What of each kind of ids was reported.
        self._unguarded: dict[str, int] = {}
        self.tasks = TaskWriter(flow, worker, reach, events, answered=self._answered, jitter=jitter)

    def follow(self, *, is_certain: Callable[[], bool], on_fenced: Callable[[], None]) -> None:
        """Have a membership say what *is_certain*: see there. It is told when another node has opened the owner's id,
        once until this node opens it again.
        """
        self._is_certain, self._on_fenced = is_certain, on_fenced

    def is_certain(self) -> bool:
        """Whether no other node can have this node's share of the flow yet. What brokers cannot fence depends on it."""
        return self._is_certain()

    async def for_owner(self, target: Cluster) -> FencedWriter:
        """Return a new writer for what only the owner writes, which keeps all former ones from writing."""
        transactional_id = self._worker.owner_id
        writer = FencedWriter(transactional_id, self._fenced)
        if not self.is_guarding:
            return writer
        try:
            await writer.open(target)
        except BrokerAnsweredError as error:
            if not is_hopeless(error):
                raise
            self._answered("owner", transactional_id, error)
        else:
            self._answered("owner", transactional_id)
        return writer

    async def fence_tasks(self, config: MirrorSourceConfig, target: Cluster, tasks: Collection[int]) -> None:
        """
        Have the brokers refuse whatever is still written under the ids of *tasks*, and abort what they left open.

        It is reported if they do not allow that. Raise their error if it may be tried again.
        """
        failed: list[BrokerAnsweredError] = []

        async def fence_one(task: int) -> None:
            try:
                await fence(target, self._worker.task_id(task))
            except BrokerAnsweredError as error:
                failed.append(error)

        async with asyncio.TaskGroup() as group:
            for task in tasks:
                group.create_task(fence_one(task), name=f"{self._flow}/fence task {task}")
        for error in failed:
            if not isinstance(error, NotAuthorizedError) and error.code != ErrorCode.UNSUPPORTED_VERSION:
                raise error
        if failed:
            self._answered("tasks", self._worker.task_id(min(tasks)), failed[0])
        # An open transaction of a record task hides positions from all others, and may still be committed.
        await end_open_transactions(config, target, tasks)

    def give_up_fencing(self, tasks: Collection[int], error: Mm2Error) -> None:
        """Report that a former node of *tasks* may still write."""
        self._events.emit(
            ControlWritesUnguarded(
                self._flow, self._worker.task_id(min(tasks)), str(error), self._reach.hint_for(error)
            )
        )

    def _fenced(self, transactional_id: str) -> None:
        self._events.emit(FlowFenced(self._flow, transactional_id, _OWNER_THEN))
        self._on_fenced()

    def _answered(self, kind: str, transactional_id: str, error: BrokerAnsweredError | None = None) -> None:
        """Note whether an id may be opened; report it once if not."""
        if error is None:
            if self._unguarded.pop(kind, None) is not None:
                self._events.emit(ControlWritesGuarded(self._flow, transactional_id))
        elif self._unguarded.get(kind) != error.code:
            self._unguarded[kind] = error.code
            if isinstance(error, NotAuthorizedError) and kind == "tasks":
                # Which of them a node writes under depends on the tasks that it has.
                prefix = self._worker.task_id(0).removesuffix("0")
                error = attrs.evolve(error, grant=f"WRITE on transactional ids that begin with {prefix}")
            hint = hint_of(error) or self._reach.hint_for(error)
            self._events.emit(ControlWritesUnguarded(self._flow, transactional_id, str(error), hint))


class TaskWriter:
    """
    Writes what this node's tasks write on the target, under the transactional id of the first of them.

    a. Before tasks of a node that vanished are given to others, the group's leader has the brokers refuse their ids.
    b. An id is opened between two answers of the group that we are its member. A node that thaws in between takes the
    id from its new owner, but learns that before it writes; the new owner is refused once, and opens it again.
    c. A node that loses the id again and again leaves it to the other one for longer and longer.
    d. Where others may have written meanwhile, `term` changes: what was read in another term is to be compared first.
    e. Until `guard` it writes without transactions, as anyone; so it does while its id cannot be opened, which is tried
    again every minute.
    """

    def __init__(
        self,
        flow: Flow,
        worker: WorkerConfig,
        reach: Reach,
        events: EventLog,
        *,
        answered: Callable[[str, str, BrokerAnsweredError | None], None],
        jitter: Callable[[], float],
    ) -> None:
        self.term = 0
        self._flow = flow
        self._worker = worker
        self._reach = reach
        self._events = events
        self._answered = answered
        self._jitter = jitter
        #: What was taken once was taken by a node that has thawed.
        self._contention = Contention(_YIELD, _FENCES_FORGOTTEN_S, free=1)
        self._is_guarding, self._is_plain, self._is_used = False, True, False
        self._tasks: frozenset[int] = frozenset()
        #: The task whose id is open, or for which that is not possible.
        self._task: int | None = None
        self._writer: FencedWriter | None = None
        #: Counts what makes an attempt to open an id void.
        self._version = 0
        self._has_news = asyncio.Event()
        self._is_ready = asyncio.Event()
        self._is_ready.set()
        self._has_moved = asyncio.Event()
        self._ask: Callable[[], None] = lambda: None
        #: Who waits for an answer of the group: to what it will be asked, and to what it is being asked.
        self._waiting: list[asyncio.Future[None]] = []
        self._asking: list[asyncio.Future[None]] = []

    # What the flow's membership knows.

    def guard(self, ask: Callable[[], None]) -> None:
        """Write nothing until tasks are held; *ask* has the group asked whether we are its member still."""
        self._is_guarding, self._is_plain, self._ask = True, False, ask
        self.lose()

    def begin_asking(self) -> None:
        """Note that what the group answers from now on answers all who wait."""
        self._asking += self._waiting
        self._waiting.clear()

    def confirm(self) -> None:
        """Note that the group has answered that we are its member."""
        for answered in self._asking:
            if not answered.done():
                answered.set_result(None)
        self._asking.clear()

    def unguard(self) -> None:
        """Write without transactions: it is unknown who else is a member."""
        self.lose()
        self._is_plain = True
        self._is_ready.set()

    def hold(self, tasks: Collection[int]) -> None:
        """Write as one of *tasks*, which the group knows to be this node's; if there are none, write nothing."""
        if not tasks:
            self.lose()
            return
        self._tasks = frozenset(tasks if self._is_guarding else ())
        if self._is_due:
            self._has_moved.clear()
        elif self._is_plain:
            self._task = None  # try again
        self._has_news.set()

    def lose(self) -> None:
        """Write nothing until tasks are held again, which others may have had meanwhile."""
        self._tasks = frozenset()
        self._doubt()

    def restart(self) -> None:
        """Begin another term after a write: it is unknown how the last one ended, and who wrote since."""
        if self._is_used:
            self._doubt()

    async def until_moved(self) -> None:
        """Wait until nothing is written under the id of a task that is not held any more."""
        await until_set(self._has_moved, _READY_S if self._is_due else 0)

    @property
    def _is_due(self) -> bool:
        return bool(self._tasks) and self._task != min(self._tasks)

    @property
    def _is_refused(self) -> bool:
        """Whether it writes without transactions because its id could not be opened."""
        return self._is_plain and bool(self._tasks) and self._task is not None

    def _doubt(self) -> None:
        self._version += 1
        self._has_news.set()
        if not self._is_plain:
            self.term += 1
            self._writer, self._task, self._is_used = None, None, False
            self._is_ready.clear()

    # Opening ids.

    async def run(self, cluster: Cluster) -> None:
        """Open what is due until cancelled."""
        while True:
            await until_set(self._has_news, _REFUSED_S if self._is_refused else None)
            if self._is_refused and not self._has_news.is_set():
                self._task = None
            self._has_news.clear()
            await cluster.clock.sleep(self._contention.left_s(cluster.clock.monotonic()))
            if self._is_due:
                await self._reach.insist(_STEP, [cluster.alias], lambda: self._open(cluster))

    async def _confirmed(self) -> None:
        """Wait until the group has answered something that it is asked from now on."""
        answered = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._ask()
        await answered

    async def _open(self, cluster: Cluster) -> None:
        await self._confirmed()
        if not self._is_due:
            return
        version, task = self._version, min(self._tasks)
        writer = FencedWriter(self._worker.task_id(task), self._fenced)
        if (error := await writer.try_open(cluster)) is not None:
            self._answered("tasks", writer.transactional_id, error)
            if version == self._version:
                self._go_plain(task)
            return
        await self._confirmed()
        if version != self._version or task not in self._tasks:
            self._has_news.set()
            return
        self._answered("tasks", writer.transactional_id, None)
        before, self._writer, self._task = self._writer, writer, task
        if self._is_plain:
            self._is_plain, self.term = False, self.term + 1
        self._is_ready.set()
        if before is not None:
            with suppress(Mm2Error):
                await before.settle(cluster)
        self._has_moved.set()

    def _go_plain(self, task: int) -> None:
        self._is_plain, self._writer, self._task = True, None, task
        self._is_ready.set()
        self._has_moved.set()

    # Writing.

    async def ready(self) -> int:
        """Wait until this node may write, and return the term. Raise `NotOpenError` if that takes long."""
        try:
            async with asyncio.timeout(_READY_S):
                await self._is_ready.wait()
        except TimeoutError:
            raise NotOpenError(self._flow.target, self._worker.group_id) from None
        return self.term

    async def write(self, cluster: Cluster, places: Collection[TopicPartition], append: Append) -> None:
        """Have *append* write to *places*. Raise `TakenOverError` if the brokers refuse it, `NotOpenError` before."""
        if self._is_plain:
            await append(None)
            return
        writer = self._writer
        if writer is None:
            raise NotOpenError(cluster.alias, self._worker.group_id)
        self._is_used = True
        try:
            await writer.write(cluster, places, append)
        except TakenOverError:
            if writer is self._writer:
                self._contention.lose(cluster.clock.monotonic(), self._jitter())
                self._doubt()
            raise

    def _fenced(self, transactional_id: str) -> None:
        if self._writer is not None and self._writer.is_fenced:
            self._events.emit(FlowFenced(self._flow, transactional_id, _TASK_THEN))
