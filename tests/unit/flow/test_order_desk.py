"""What is ordered of a node's flows together: settings over the file, a changed file beneath them, who is told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.core.live_config import put_config
from mm2py.core.orders import SOURCE
from mm2py.errors import OrderRefusedError, OrdersNotKeptError, UnknownFlowError
from mm2py.flow import order_desk
from mm2py.flow.loops import judged
from mm2py.flow.order_book import conflict
from mm2py.flow.order_desk import OrderDesk
from mm2py.model.flow import Flow
from mm2py.model.kept_orders import NOTHING_KEPT, KeptOrders
from mm2py.model.orders import Orders
from mm2py.telemetry.events import LiveSettingsChanged, LiveSettingsRefused, OrdersKept
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock


AB, BA = Flow("A", "B"), Flow("B", "A")
_TEXT = """
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
replication.policy.class = identity
A->B.enabled = true
A->B.topics = east
B->A.enabled = true
B->A.topics = west
"""


@attrs.define
class Shelf:
    """The topics that keep orders, of all flows, in memory."""

    kept: dict[Flow, KeptOrders] = attrs.field(factory=dict)

    def book(self, settings: object, _clock: object) -> Book:
        return Book(self, settings.flow)  # type: ignore[attr-defined]


@attrs.define
class Book:
    """An order book on the shelf; see `mm2py.flow.order_book.OrderBook`."""

    shelf: Shelf
    flow: Flow

    async def read(self) -> KeptOrders:
        return self.shelf.kept.get(self.flow, NOTHING_KEPT)

    async def refill(self, _kept: KeptOrders, _topic_id: str | None) -> tuple[None, None]:
        return None, None

    async def write(self, orders: Orders, *, before: KeptOrders, by: str) -> KeptOrders:
        now = await self.read()
        if now.revision > before.revision:
            raise conflict(self.flow, now)
        kept = self.shelf.kept[self.flow] = KeptOrders(orders, before.revision + 1, "mark", by, 1)
        return kept


@attrs.define
class Rig:
    """A desk, the shelf of its books, its file, and which flows it had act."""

    desk: OrderDesk
    shelf: Shelf
    events: EventLog
    read: Callable[[str], MirrorSettings]
    acted: list[Flow]

    async def put(self, flow: Flow, **settings: object) -> Orders:
        body = {key.replace("_", "."): value for key, value in settings.items()}
        return await self.desk.order(
            flow, lambda orders: put_config(orders, flow, SOURCE, body, self.desk.file), by="alice"
        )


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rig:
    path, shelf, acted = tmp_path / "mm2.properties", Shelf(), list[Flow]()

    def read(text: str) -> MirrorSettings:
        path.write_text(text)
        return judged(load_settings(path))

    monkeypatch.setattr(order_desk, "OrderBook", shelf.book)
    clock = LoopClock()
    events = EventLog(clock)
    desk = OrderDesk(read(_TEXT), acted.append, clock=clock, events=events)
    desk._known |= {AB: NOTHING_KEPT, BA: NOTHING_KEPT}
    return Rig(desk, shelf, events, read, acted)


async def test_an_order_is_kept_then_obeyed(rig: Rig) -> None:
    """The flow is to run with other settings, the other flow with the file's; each step is told."""
    orders = await rig.put(AB, topics="other", tasks_max=2)

    assert rig.shelf.kept[AB].orders == orders
    assert (rig.desk.settings_of(AB).topics, rig.desk.settings_of(AB).tasks_max) == (("other",), 2)
    assert rig.desk.settings_of(BA) == rig.desk.file.flows[1]
    assert rig.acted == [AB]
    assert [event.by for event in rig.events.of(OrdersKept)] == ["alice"]
    (changed,) = rig.events.of(LiveSettingsChanged)
    assert changed.set == ("topics = other", "tasks.max = 2")


async def test_what_changes_nothing_is_not_written(rig: Rig) -> None:
    """An order that was given already, or that says what the file says, leaves no record."""
    await rig.put(AB, topics="east")

    assert rig.shelf.kept == {}
    assert rig.acted == []


async def test_flows_that_would_feed_each_other_are_refused(rig: Rig) -> None:
    """Settings are judged with what was put for the other flows, too; nothing of a refused order is kept."""
    await rig.put(AB, topics="shared")

    with pytest.raises(OrderRefusedError, match="shared"):
        await rig.put(BA, topics="shared")
    assert rig.desk.settings_of(BA).topics == ("west",)
    assert BA not in rig.shelf.kept


async def test_nothing_can_be_ordered_unseen(rig: Rig) -> None:
    """Of a flow that nobody runs here, or whose orders were not read yet."""
    del rig.desk._known[BA]

    with pytest.raises(OrdersNotKeptError):
        await rig.put(BA, topics="x")
    with pytest.raises(UnknownFlowError):
        await rig.put(Flow("A", "C"), topics="x")


async def test_settings_stay_on_top_of_another_file(rig: Rig) -> None:
    """What was put counts over what the file says now, for the flows that it still has."""
    await rig.put(AB, topics="other")

    await rig.desk.rebase(rig.read(_TEXT + "A->B.tasks.max = 3\nB->A.enabled = false\n"))

    assert (rig.desk.settings_of(AB).topics, rig.desk.settings_of(AB).tasks_max) == (("other",), 3)
    assert not rig.events.of(LiveSettingsRefused)


async def test_a_file_that_settings_do_not_fit_leaves_their_flow_as_it_was(rig: Rig) -> None:
    """It is told, the other flows take the file, and once the settings are taken back this one does as well."""
    await rig.put(AB, topics="other")
    before = rig.desk.settings_of(AB)

    await rig.desk.rebase(rig.read(_TEXT.replace("topics = west", "topics = other") + "A->B.tasks.max = 3\n"))
    during = rig.desk.settings_of(AB)
    await rig.desk.order(AB, lambda _: Orders())

    (refused,) = rig.events.of(LiveSettingsRefused)
    assert refused.is_running
    assert during == before
    assert rig.desk.settings_of(BA).topics == ("other",)
    assert (rig.desk.settings_of(AB).topics, rig.desk.settings_of(AB).tasks_max) == (("east",), 3)


async def test_orders_of_another_cluster_are_read_anew(rig: Rig) -> None:
    """A file that names another target says where to look: what was known is not."""
    await rig.put(AB, topics="other")

    await rig.desk.rebase(rig.read(_TEXT.replace("b:9092", "c:9092")))

    assert rig.desk.kept(AB) == NOTHING_KEPT
    assert rig.desk.settings_of(AB).topics == ("east",)
    with pytest.raises(OrdersNotKeptError, match="not been read"):
        await rig.put(AB, topics="x")
