"""What the status page shows of one flow, and changes there, in a real browser."""

from __future__ import annotations

import asyncio
import functools
import time

import attrs
import pytest
from playwright.async_api import Browser, Route

from mm2py.core.herder.overrides import SOURCE
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES, Overrides, RateLimit, Wanted
from mm2py.model.herder.share import Elsewhere
from mm2py.model.state import FlowState, GroupView, StepView
from mm2py.telemetry.events import ClusterUnreachable
from tests.support.browser import PHONE, Looked, looking
from tests.support.eventually import eventually
from tests.support.rest_node import some_nodes
from tests.support.served_page import Served, partitions


pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPICS, GROUPS, SETTINGS, OFFSETS, NODES = (
    f"#/flow/A-%3EB/{tab}" for tab in ("topics", "groups", "settings", "offsets", "nodes")
)

#: The column of the topics' table that counts partitions, as it is numbered there.
PARTITIONS = 10


async def test_topics_are_found_by_remote_name_and_state(browser: Browser, served: Served) -> None:
    """Each has its name at the target; the search and the choice of a state narrow the list together; "/" searches."""
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("Topics 2")
        named = await seen.rows("topics")
        await seen.page.keyboard.press("/")
        await seen.page.keyboard.type("a.ord")
        await seen.sees("1 of 2 rows", ".table-whole")
        by_remote = await seen.rows("topics")
        await seen.page.get_by_label("State of topics").select_option("failed")
        await seen.sees("Nothing matches", ".table-whole")
        await seen.page.get_by_role("searchbox").fill("")
        await seen.sees("1 of 2 rows", ".table-whole")
        failed = await seen.rows("topics")
        await seen.keep_picture("topics-filtered")

    assert [name.splitlines() for name in named] == [["invoices", "\u2192 A.invoices"], ["orders", "\u2192 A.orders"]]
    assert [name.split()[0] for name in (*by_remote, *failed)] == ["orders", "invoices"]


async def test_new_topics_and_groups_are_looked_for_at_once(browser: Browser, served: Served) -> None:
    """Both tabs show when the source's were listed last; a button there has them listed now."""
    served.show(
        steps=(
            StepView("refresh topics", served.node.shown.wall_ms - 64_000, 0),
            StepView("list consumer groups", served.node.shown.wall_ms - 5_000, 0),
        )
    )
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("The source's topics were listed 1 min 4 s ago.")
        await seen.page.get_by_role("button", name="Look now").click()
        await seen.sees("Looking for new topics and groups of A->B: done.", ".toast")
        await seen.open(GROUPS)
        await seen.sees("The source's groups were listed")
        await seen.keep_picture("groups-listed")

    assert served.node.control.restarts == [("A->B", "refresh")]


async def test_a_topic_s_rate_has_a_line(browser: Browser, served: Served) -> None:
    """Each topic's rate is drawn over the last two minutes, as far as the page has seen them."""
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        line = seen.page.locator("table.topics .spark polyline").nth(1)

        async def has_points() -> bool:
            return len((await line.get_attribute("points") or "").split()) >= 3  # a line with a bend

        await eventually(has_points, within_s=15, what="the line has three points")


async def test_what_matches_is_paused_and_resumed_together(browser: Browser, served: Served) -> None:
    """The search chooses the topics; a question names the first ones; it is one change at the daemon."""
    served.show(partitions=partitions(30, 1), topics=30)
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("Topics 30")
        await seen.page.get_by_role("searchbox").fill("topic-001")
        await seen.sees("10 of 30 rows", ".table-whole")
        await seen.sees("Pause 10", ".bulk")
        await seen.click("Pause 10 topics that match")
        asked = await seen.sees("and 2 more", "dialog")
        await seen.keep_picture("topics-pause")
        await seen.answer("Pause")
        await seen.sees("10 topics paused", ".override-note")
        paused = served.node.control.ordered.topics
        await seen.sees("Resume 10", ".bulk")
        await seen.click("Resume 10 topics that match")
        await seen.answer("Resume")
        await eventually(lambda: served.node.control.ordered == NO_OVERRIDES, within_s=10, what="they are resumed")

    assert "topic-0010" in asked
    assert paused == {f"topic-00{number}" for number in range(10, 20)}
    assert len(served.node.control.said_by) == 2  # a pause and a resume


async def test_all_overrides_are_reverted_at_once(browser: Browser, served: Served) -> None:
    """One button, which says first what will be reverted; while the daemon works on it, the page shows that."""
    served.node.control.ordered = Overrides(
        groups={SOURCE: Wanted.PAUSED}, topics=frozenset({"orders"}), limit=RateLimit(1e6)
    )
    served.node.control.may_end = asyncio.Event()
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("copying paused; 1 topic paused (orders); copying is limited", ".override-note")
        await seen.click("Revert all")
        asked = await seen.sees("Revert all overrides of A->B?", "dialog")
        await seen.answer("Revert all")
        await seen.sees("Reverting all overrides of A->B\u2026", ".toast")
        turns = await seen.page.locator(".spinner").evaluate("(node) => getComputedStyle(node).animationName")
        await seen.keep_picture("under-way")
        served.node.control.may_end.set()
        await seen.sees("Reverting all overrides of A->B: done.", ".toast")
        await eventually(lambda: seen.page.locator(".override-note").is_hidden(), within_s=10, what="the note is gone")

    assert "1 topic paused (orders)" in asked
    # The tests' browser asks for no motion.
    assert turns == "none"
    assert served.node.control.ordered == NO_OVERRIDES


async def test_a_refusal_is_told_and_tried_again(browser: Browser, served: Served) -> None:
    """A daemon with no room for the page and no answer yet to who looks at it: once it answers, changes are offered."""
    refusals = {"**/stream?*": '{"message": "64 pages are already open; close some"}', "**/whoami": "{}"}
    async with looking(browser, served.url, expects=("503",)) as seen:
        for path, answer in refusals.items():
            await seen.page.route(path, functools.partial(_refuse, answer))
        await seen.open(TOPICS)
        await seen.sees("There is nothing to show: 64 pages are already open; close some. Retrying.", "#notices")
        await seen.page.unroute_all()
        await seen.sees("Topics 2")
        await eventually(
            lambda: seen.page.get_by_role("button", name="Stop").is_enabled(), within_s=10, what="may stop"
        )


async def _refuse(answer: str, route: Route) -> None:
    await route.fulfill(status=503, body=answer)


@pytest.mark.parametrize("size", [(1024, 800), (1280, 800)], ids=str)
async def test_large_numbers_break_nothing(browser: Browser, served: Served, size: tuple[int, int]) -> None:
    """A number in two lines would be read as a smaller one, and a name of a letter in a line not at all."""
    [first, *others] = served.node.shown.flows[0].partitions
    name = TopicPartition("orders.eu-west-1.payments.settled.v2", 0)
    behind = attrs.evolve(first, source=name, lag=3_703_703_670, lag_s=277_200.0, bytes_per_s=123e6, record_rate=12e3)
    served.show(partitions=(behind, *others), lag=3_703_703_670, records_per_s=123_456.0, bytes_per_s=123e6)
    async with looking(browser, served.url, size=size) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("3.70 G", ".tiles")
        lag = await seen.page.locator(".tile-value").nth(2).bounding_box()
        await seen.open(TOPICS)
        await seen.sees(name.topic, "table.topics")
        row = await seen.page.locator("table.topics > tbody > tr").nth(1).bounding_box()

    assert lag is not None
    assert row is not None
    assert lag["height"] < 30
    assert row["height"] < 150


async def test_short_retention_alone_is_no_danger(browser: Browser, served: Served) -> None:
    """Of a topic that is kept for ten minutes a new record may be deleted in ten minutes. With all copied that is none
    that could be lost, and no time is shown.
    """
    waits = ((0, 0.0, 600.0), (1, 30.0, 570.0), (1, 400.0, 200.0))
    shown = tuple(
        attrs.evolve(one, lag=lag, lag_s=waited_s, seconds_until_loss=loss_s)
        for one, (lag, waited_s, loss_s) in zip(partitions(1, 3), waits, strict=True)
    )
    served.show(partitions=shown, topics=1)
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("topic-0000", "table.topics")
        await seen.page.locator("table.topics .opener").first.click()
        await seen.sees("3 min 20 s", "table.partitions")
        cells = await seen.page.locator("table.partitions td[data-label='Until loss']").all()

        assert [await cell.get_attribute("data-mood") for cell in cells] == [None, None, "bad"]
        times = [(await cell.inner_text()).replace("\N{NARROW NO-BREAK SPACE}", " ") for cell in cells]
        assert times == ["\N{EN DASH}", "9 min 30 s", "3 min 20 s"]


async def test_topics_that_other_nodes_copy_are_listed(browser: Browser, served: Served) -> None:
    """Each with the nodes that copy it and no figures; it can be paused here; it goes when they copy it no more."""
    others = {TopicPartition("orders", 2): "there:8083", TopicPartition("stock", 0): "there:8083"}
    served.node.control.others = {it: Elsewhere(f"A.{it.topic}", node) for it, node in others.items()}
    served.show(nodes=some_nodes())
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("on other nodes", "table.topics")
        counts = await seen.rows("topics", PARTITIONS)
        await seen.page.get_by_label("State of topics").select_option("elsewhere")
        await seen.sees("1 of 3 rows", ".table-whole")
        await seen.page.locator("table.topics .opener").first.click()
        await seen.sees("This node copies none of it: 1 partition on there:8083.", "table.topics")
        await seen.keep_picture("topics-elsewhere")
        await seen.page.locator("table.topics").get_by_role("button", name="Pause").click()
        await seen.answer("Pause")
        await eventually(lambda: served.node.control.ordered.topics, within_s=10, what="it is paused")
        served.node.control.others = {}
        await seen.sees("2 rows", ".table-whole")

    assert served.node.control.ordered.topics == {"stock"}
    assert counts == ["1", "2 of 3", "1"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_nodes_have_a_tab_where_there_are_several(browser: Browser, served: Served, scheme: str) -> None:
    """Each with what it does; figures are those of all; a drain is asked for, and fits a phone."""
    gone = attrs.evolve(some_nodes()[1], id="x", worker_id="gone-with-a-long-name.example.com:8083", answers=False)
    async with looking(browser, served.url, scheme=scheme, size=(390, 844)) as seen:
        await seen.open(TOPICS)
        await seen.sees("Topics 2")
        alone = await seen.page.locator("#tab-nodes").is_visible()
        differing = attrs.evolve(some_nodes()[1], differs=("topics", "tasks.max"))
        served.show(nodes=(some_nodes()[0], differing, gone))
        await seen.sees("This node copies 3 of 7 partitions")
        await seen.open(NODES)
        await seen.sees("Nodes 3")
        await seen.sees("does not answer", "table.nodes")
        small = await seen.width()
        await seen.keep_picture(f"nodes-phone-{scheme}")
        await seen.page.set_viewport_size({"width": 1280, "height": 900})
        rows = await seen.rows("nodes")
        await seen.keep_picture(f"nodes-{scheme}")
        await seen.page.get_by_role("button", name="Drain").click()
        await seen.page.get_by_role("dialog").get_by_role("button", name="Drain").click()
        await eventually(lambda: served.node.control.drained, within_s=10, what="the node is drained")

    assert not alone
    assert small <= 390
    assert [row.split()[0] for row in rows] == ["gone-with-a-long-name.example.com:8083", "here:8083", "there:8083"]


async def test_settings_have_an_origin_and_are_changed(browser: Browser, served: Served) -> None:
    """What counts and where it comes from: a default, a line of the file, or an override, which can be reverted."""
    async with looking(browser, served.url, expects=("400",)) as seen:
        await seen.open(SETTINGS)
        await seen.sees("topics", "#panel-settings")
        await seen.page.get_by_label("Origin of settings").select_option("file")
        in_file = dict(zip(await seen.rows("settings"), await seen.rows("settings", 3), strict=True))
        await seen.page.get_by_label("Origin of settings").select_option("")
        await seen.page.get_by_role("searchbox").fill("tasks.max")
        row = seen.page.locator("table.settings > tbody > tr").first
        fixed = await row.inner_text()
        await row.get_by_role("button", name="Change").click()
        await seen.page.fill("dialog[open] input[name=value]", "many")
        await seen.answer("Set")
        await seen.sees("refused", "dialog")
        await seen.page.fill("dialog[open] input[name=value]", "5")
        await seen.answer("Set")
        await seen.sees("instead of 1", "table.settings")
        changed = served.node.control.ordered.config
        await seen.page.get_by_role("searchbox").fill("")
        await seen.keep_picture("settings")
        await row.get_by_role("button", name="Revert").click()
        await seen.answer("Revert")
        await eventually(lambda: served.node.control.ordered == NO_OVERRIDES, within_s=10, what="it is reverted")

    assert "A->B.topics" in in_file["topics"]
    assert "default" in fixed
    assert changed == {SOURCE: {"tasks.max": "5"}}


async def test_what_cannot_change_says_why(browser: Browser, served: Served) -> None:
    """A setting that only the file can change has no button, and its details have the reason."""
    async with looking(browser, served.url) as seen:
        await seen.open(SETTINGS)
        await seen.page.get_by_role("searchbox").fill("replication.policy.class")
        await seen.page.get_by_role("button", name="Details of replication.policy.class").click()
        why = await seen.sees("cannot be changed here", "table.settings tr.under")
        many = await seen.page.locator("table.settings").get_by_role("button", name="Change").count()

    assert "copying would continue in other topics" in why
    assert many == 0


async def test_offsets_are_changed_while_copying_is_stopped(browser: Browser, served: Served) -> None:
    """They are listed; there is nothing to click on until copying is stopped; then one is set, or all are reset."""
    async with looking(browser, served.url) as seen:
        await seen.open(OFFSETS)
        await seen.sees("To change them, stop copying first.", "#panel-offsets")
        shown = [await seen.rows("offsets", column) for column in (1, 2, 3)]
        buttons = await seen.page.locator("table.offsets").get_by_role("button", name="Change").count()
        served.show(groups=(GroupView(SOURCE, FlowState.STOPPED),), state=FlowState.STOPPED)
        await seen.sees("they can be changed", "#panel-offsets")
        await seen.click("Change", "table.offsets")
        await seen.keep_picture("offset-dialog")
        await seen.page.fill("dialog[open] input[name=offset]", "40")
        await seen.answer("Set")
        await seen.sees("Changing the offset of orders-0: done.", "#toasts")
        await seen.click("Reset all", "#panel-offsets")
        await seen.answer("Reset all")
        await seen.sees("Resetting all offsets of A->B: done.", "#toasts")

    assert shown == [["orders"], ["0"], ["99"]]
    assert buttons == 0
    assert served.node.control.altered == [
        [{"partition": {"cluster": "A", "partition": 0, "topic": "orders"}, "offset": {"offset": 40}}],
        None,
    ]


async def test_plots_have_three_ranges(browser: Browser, served: Served) -> None:
    """A longer range is asked of the daemon, is in the address, and the browser's Back returns to the one before."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Behind", ".plots")
        await seen.click("3 hours", ".ranges")
        await seen.sees("The first point comes 36 s after the daemon's start.", ".ranges")
        await seen.page.reload()
        await seen.sees("The first point comes", ".ranges")
        shown = [await seen.evaluate("location.hash"), await _pressed(seen)]
        await seen.page.go_back()
        await eventually(lambda: _is_pressed(seen, "15 minutes"), within_s=10, what="the usual range is back")

    assert shown == ["#/flow/A-%3EB/plots?range=3h", ["3 hours"]]


async def _pressed(seen: Looked) -> list[str]:
    return await seen.page.locator('.ranges button[aria-pressed="true"]').all_inner_texts()


async def _is_pressed(seen: Looked, name: str) -> bool:
    return await _pressed(seen) == [name]


async def test_events_are_marks_in_one_row(browser: Browser, served: Served) -> None:
    """Warnings and errors of the range, near ones as one with their number; the pointer and the focus name them."""
    served.node.shown = attrs.evolve(served.node.shown, wall_ms=int(time.time() * 1000))
    for _ in range(3):
        served.node.events.emit(ClusterUnreachable(Flow("A", "B"), "B", "no broker answers", "start it"))
    served.node.events.emit(ClusterUnreachable(Flow("B", "A"), "B", "no broker answers", "start it"))
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Behind", ".plots")
        await seen.sees("3", ".marks-line .mark")
        many = await seen.page.locator(".marks-line .mark").count()
        await seen.page.locator(".marks-line .mark").hover()
        said = await seen.sees("Cluster unreachable (3 events)", ".marks-said")
        await seen.keep_picture("marks")
        await seen.page.mouse.move(0, 0)
        await eventually(lambda: _is_silent(seen), within_s=10, what="no mark is named")
        await seen.page.locator(".marks-line .mark").focus()
        await seen.sees("Cluster unreachable (3 events)", ".marks-said")
        await seen.page.keyboard.press("Enter")
        await seen.sees("3 times", "#panel-events")

        assert await seen.evaluate("location.hash") == "#/flow/A-%3EB/events?level=warn"
    assert many == 1
    assert said.count(":") == 2  # the time of the last one


async def _is_silent(seen: Looked) -> bool:
    return not (await seen.text(".marks-said")).strip()


@pytest.mark.parametrize("size", [PHONE, (1440, 900)], ids=["phone", "desktop"])
async def test_stop_is_apart_from_restart(browser: Browser, served: Served, size: tuple[int, int]) -> None:
    """A click that misses Restart does not stop the flow."""
    async with looking(browser, served.url, size=size) as seen:
        await seen.open(TOPICS)
        await seen.sees("Topics 2")
        boxes = [
            await seen.page.locator(".flow-head").get_by_role("button", name=name, exact=True).bounding_box()
            for name in ("Restart", "Stop")
        ]

    restart, stop = boxes
    assert restart is not None
    assert stop is not None
    is_below = stop["y"] >= restart["y"] + restart["height"]
    assert is_below or stop["x"] - (restart["x"] + restart["width"]) > 16  # pixels
