"""
Takes orders for the flows of a node: reads what is kept of them, judges and writes changes, and has them obeyed.

Changes of one flow come one after the other. Each is judged, then written to the target, and only then obeyed: what a
daemon does is what the next one would do. Settings that operators give count over the file's, for all flows together,
because flows that feed each other must be refused here as in a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from mm2py.clock import Clock
from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings
from mm2py.core.live_config import lines_of, read_config, refused
from mm2py.errors import Mm2Error, OrderConflictError, OrderRefusedError, OrdersNotKeptError, UnknownFlowError
from mm2py.flow.internal_topics import recreated
from mm2py.flow.loops import judged
from mm2py.flow.order_book import OrderBook, OrdersOutOfReachError, conflict
from mm2py.flow.runner import FlowRunner
from mm2py.model.flow import Flow
from mm2py.model.kept_orders import NOTHING_KEPT, KeptOrders
from mm2py.model.orders import Orders
from mm2py.telemetry.events import (
    LiveSettingsChanged,
    LiveSettingsRefused,
    OrdersKept,
    OrdersOutOfReach,
    OrdersRead,
)
from mm2py.telemetry.journal import EventLog


T = TypeVar("T")

Lines = Mapping[str, str]
#: `put_config` or `patch_config`: orders, flow, connector, body and the file.
SettingsVerb = Callable[[Orders, Flow, str, Mapping[str, object], MirrorSettings], Orders]


class OrderDesk:
    """
    What is ordered of the flows of one node.

    `file` is what the files say, `live` the same with the settings that operators gave. *act* is called when a flow is
    to do otherwise than before.
    """

    def __init__(
        self, settings: MirrorSettings, act: Callable[[Flow], None], *, clock: Clock, events: EventLog
    ) -> None:
        self.file = settings
        self.live = settings
        self._act = act
        self._clock = clock
        self._events = events
        self._known: dict[Flow, KeptOrders] = {}
        #: Which topic holds them, as it was seen last.
        self._topic_ids: dict[Flow, str | None] = {}
        self._lines: dict[Flow, Lines] = {}
        #: What flows run with whose settings no longer fit the file.
        self._left_alone: dict[Flow, FlowSettings] = {}
        self._locks: dict[Flow, asyncio.Lock] = {}
        self._judging = asyncio.Lock()
        self._news = asyncio.Event()

    # Asking.

    def kept(self, flow: Flow) -> KeptOrders:
        """Give the orders of *flow* as far as they are known; `NOTHING_KEPT` until they were read."""
        return self._known.get(flow, NOTHING_KEPT)

    def settings_of(self, flow: Flow) -> FlowSettings:
        """Give what *flow* is to run with. Raise UnknownFlowError where this node does not run it."""
        if (left_alone := self._left_alone.get(flow)) is not None:
            return left_alone
        return _of_flow(self.live, flow)

    @property
    def flows(self) -> tuple[FlowSettings, ...]:
        """Give what all flows are to run with."""
        return tuple(self.settings_of(settings.flow) for settings in self.file.flows)

    # Beginning.

    async def prepare(self, runner: FlowRunner) -> FlowSettings:
        """
        Find out what was ordered of a flow before it starts, and give the settings that it is to start with.

        It is tried until it is known: a flow that was paused must not run because nobody could look.
        """
        flow = runner.flow
        if flow not in self._known:
            kept = await runner.reach.insist("read orders", [flow.target], lambda: self._read(runner))
            self._known[flow] = kept
            if kept.revision:
                self._events.emit(OrdersRead(flow, kept.revision, kept.by, kept.at_ms))
        while True:
            self._news.clear()
            try:
                await self._adopt(flow)
            except OrderRefusedError as error:
                self._events.emit(LiveSettingsRefused(flow, error.problems, is_running=False))
                runner.hold(error)
                await self._news.wait()
            else:
                runner.hold(None)
                kept = self.kept(flow)
                runner.obey(kept.orders, by=kept.by)
                return self.settings_of(flow)

    async def _read(self, runner: FlowRunner) -> KeptOrders:
        """Read what is kept; what keeps it from being read is shown in the flow's picture."""
        try:
            kept = await OrderBook(runner.settings, self._clock).read()
        except OrdersOutOfReachError as error:
            # Nobody without these rights can have ordered anything.
            self._events.emit(OrdersOutOfReach(runner.flow, str(error), error.hint))
            return NOTHING_KEPT
        except Mm2Error as error:
            runner.hold(error)
            raise
        runner.hold(None)
        return kept

    async def catch_up(self, flow: Flow) -> None:
        """Go by what was ordered of *flow* at another node, which ran it until now. Raise why that cannot be read."""
        async with self.lock(flow):
            known = self._known.get(flow)
            try:
                kept = await OrderBook(_of_flow(self.file, flow), self._clock).read()
            except OrdersOutOfReachError:
                return  # as where a flow starts
            if known is not None and not kept.is_same_as(known):
                await self._take(flow, kept)

    # Ordering.

    async def order(self, flow: Flow, change: Callable[[Orders], Orders], *, by: str = "") -> Orders:
        """
        Change what is ordered of *flow* and have it obeyed; give the orders as they are then.

        Raise UnknownFlowError, OrderRefusedError, OrderConflictError where they were changed elsewhere, and
        OrdersNotKeptError where the target does not take them. What *change* raises is raised.
        """
        settings = _of_flow(self.file, flow)
        async with self.lock(flow):
            known = await self.current(flow)
            orders = change(known.orders)
            if orders == known.orders:
                return orders
            if orders.config != known.orders.config:
                await self._judge(flow, orders)
            book = OrderBook(settings, self._clock)
            kept = await self._asked(flow, book.write(orders, before=known, by=by))
            self._events.emit(OrdersKept(flow, kept.revision, kept.by))
            self._tell_settings(flow, known.orders, kept)
            await self._take(flow, kept)
            return orders

    def changing_settings(
        self, flow: Flow, connector: str, body: Mapping[str, object], verb: SettingsVerb
    ) -> Callable[[Orders], Orders]:
        """Give the change that *verb* makes of *body*; it raises OrderRefusedError with all problems that there are."""

        def change(orders: Orders) -> Orders:
            try:
                return verb(orders, flow, connector, body, self.file)
            except OrderRefusedError as error:
                others = self._further_problems(flow, connector, body, verb, orders)
                raise OrderRefusedError((*error.problems, *others)) from error

        return change

    def _further_problems(
        self, flow: Flow, connector: str, body: Mapping[str, object], verb: SettingsVerb, orders: Orders
    ) -> tuple[str, ...]:
        """Say what would be wrong with the rest of *body* once its own problems are mended."""
        asked = read_config(flow, connector, body, self.file)
        rest = {key: value for key, value in asked.values.items() if value is not None}
        try:
            lines = {**self._lines, flow: lines_of(flow, verb(orders, flow, connector, rest, self.file))}
            self.amount_to(flow, lines, self.file)
        except OrderRefusedError as error:
            return error.problems
        return ()

    def lock(self, flow: Flow) -> asyncio.Lock:
        """Give what keeps changes of *flow* in order."""
        return self._locks.setdefault(flow, asyncio.Lock())

    async def current(self, flow: Flow) -> KeptOrders:
        """Make sure that nobody else changed the orders of *flow*, and give them; its lock must be held."""
        known = self._known.get(flow)
        if known is None:
            raise OrdersNotKeptError(str(flow), flow.target, "what is kept there has not been read yet")
        await self._refill(flow)
        kept = await self._asked(flow, OrderBook(_of_flow(self.file, flow), self._clock).read())
        if not kept.is_same_as(known):
            await self._take(flow, kept)
            raise conflict(flow, kept)
        return kept

    async def look(self, flow: Flow) -> bool:
        """Write the orders of *flow* once more where their topic has vanished; raise what keeps us from that."""
        async with self.lock(flow):
            await self._refill(flow)
        return True

    async def _refill(self, flow: Flow) -> None:
        kept = self.kept(flow)
        if not kept.revision:
            return
        book = OrderBook(_of_flow(self.file, flow), self._clock)
        topic_id, refilled = await self._asked(flow, book.refill(kept, self._topic_ids.get(flow)))
        self._topic_ids[flow] = topic_id
        if refilled is not None:
            self._events.emit(recreated(flow, refilled))

    async def _asked(self, flow: Flow, asking: Awaitable[T]) -> T:
        try:
            return await asking
        except OrderConflictError:
            kept = await self._asked(flow, OrderBook(_of_flow(self.file, flow), self._clock).read())
            await self._take(flow, kept)
            raise
        except Mm2Error as error:
            cause = f"{error} ({error.hint})" if error.hint else str(error)
            raise OrdersNotKeptError(str(flow), flow.target, cause) from error

    async def _take(self, flow: Flow, kept: KeptOrders) -> None:
        """Go by *kept* from now on."""
        self._known[flow] = kept
        try:
            await self._adopt(flow)
        except OrderRefusedError as error:
            # Another flow's settings, or another daemon's, do not go with these.
            self._events.emit(LiveSettingsRefused(flow, error.problems, is_running=True))
        self._news.set()
        self._act(flow)

    def _tell_settings(self, flow: Flow, before: Orders, kept: KeptOrders) -> None:
        for connector in sorted({*before.config, *kept.orders.config}):
            old, new = before.config.get(connector, {}), kept.orders.config.get(connector, {})
            changed = tuple(f"{key} = {value}" for key, value in new.items() if old.get(key) != value)
            gone = tuple(key for key in old if key not in new)
            if changed or gone:
                self._events.emit(LiveSettingsChanged(flow, connector, changed, gone, kept.by))

    # Settings.

    async def _judge(self, flow: Flow, orders: Orders) -> None:
        async with self._judging:
            await self._candidate(flow, {**self._lines, flow: lines_of(flow, orders)})

    async def _adopt(self, flow: Flow) -> None:
        """Have the settings that are ordered of *flow* count. Raise OrderRefusedError where they cannot."""
        async with self._judging:
            wanted = lines_of(flow, self.kept(flow).orders)
            if wanted != self._lines.get(flow, {}) or flow in self._left_alone:
                lines = {**self._lines, flow: wanted}
                self.live = await self._candidate(flow, lines)
                self._lines = lines
                self._left_alone.pop(flow, None)

    async def _candidate(self, flow: Flow, lines: Mapping[Flow, Lines]) -> MirrorSettings:
        """Read the file with further *lines* over it. Raise OrderRefusedError, in the words of *flow*'s operator."""
        return await asyncio.to_thread(self.amount_to, flow, lines, self.file)

    @staticmethod
    def amount_to(flow: Flow, lines: Mapping[Flow, Lines], file: MirrorSettings) -> MirrorSettings:
        """Give what *file* and further *lines* amount to. Raise OrderRefusedError, in the words of *flow*."""
        together = {key: value for some in lines.values() for key, value in some.items()}
        if not together:
            return file
        if file.with_live is None:
            raise OrderRefusedError(("these settings are not of a file, and cannot be changed while they count",))
        try:
            return judged(file.with_live(together))
        except ConfigError as error:
            raise refused(flow, error) from error

    async def rebase(self, file: MirrorSettings) -> None:
        """
        Take over what the files say now.

        Settings that operators gave stay on top. Where they no longer fit, that is told, and the flow stays as it is.
        """
        async with self._judging:
            running = {settings.flow: settings for settings in self.flows}
            before, self.file = {settings.flow: settings for settings in self.file.flows}, file
            for settings in file.flows:
                old = before.get(settings.flow)
                if old is not None and _place_of(old) != _place_of(settings):
                    self._known.pop(settings.flow, None)  # they are kept elsewhere now
                    self._topic_ids.pop(settings.flow, None)
            there = {settings.flow for settings in file.flows}
            self._known = {flow: kept for flow, kept in self._known.items() if flow in there}
            await self._rebase(running, self._known)
        self._news.set()

    async def _rebase(self, running: Mapping[Flow, FlowSettings], known: Mapping[Flow, KeptOrders]) -> None:
        was_in_force = self._lines
        self.live, self._lines, self._left_alone = self.file, {}, {}
        for flow, kept in known.items():
            if not kept.orders.config:
                continue
            try:
                lines = {**self._lines, flow: lines_of(flow, kept.orders)}
                self.live = await self._candidate(flow, lines)
            except OrderRefusedError as error:
                is_running = flow in was_in_force
                self._events.emit(LiveSettingsRefused(flow, error.problems, is_running))
                self._left_alone[flow] = running[flow]
            else:
                self._lines = lines


def _of_flow(settings: MirrorSettings, flow: Flow) -> FlowSettings:
    for one in settings.flows:
        if one.flow == flow:
            return one
    raise UnknownFlowError(str(flow))


def _place_of(settings: FlowSettings) -> tuple[object, ...]:
    """Say where a flow's orders are kept."""
    return settings.target, settings.config_storage_topic
