"""The status page in a real browser, before a daemon that shows whatever a test wants it to show."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import attrs
import pytest
from playwright.async_api import Browser

from mm2py.core.herder.overrides import HEARTBEAT, SOURCE
from mm2py.devkit.ports import free_ports
from mm2py.errors import OverrideConflictError
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES
from mm2py.model.state import (
    ClusterView,
    FlowState,
    GroupOffsetsView,
    GroupOffsetView,
    GroupView,
    MirrorView,
    PartitionStage,
)
from mm2py.telemetry.events import ClusterUnreachable, PositionsRead, TopicCreated
from tests.support.browser import DESKTOP, PHONE, Looked, looking
from tests.support.eventually import eventually, scaled
from tests.support.rest_node import FLOW
from tests.support.served_page import Served, flow_between, partitions, serving


pytestmark = pytest.mark.asyncio(loop_scope="module")

HOSTILE = "<img src=x onerror=\"document.title='owned'\">&amp;<script>document.title='owned'</script>"


async def test_what_changes_is_shown_without_a_reload(browser: Browser, served: Served) -> None:
    """A number that changes at the daemon is on the page within seconds, and the page stays the same one."""
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees("A → B")
        await seen.evaluate("window.wasHere = true")
        served.show(records_per_s=12_345.0)
        await seen.sees("12.3 k/s", "table.flows")

        assert await seen.evaluate("window.wasHere") is True


async def test_a_flow_s_page_has_plots_at_once(browser: Browser, served: Served) -> None:
    """What the daemon kept of the last minutes is drawn, and the parts of the flow are there."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Topics 2")

        await eventually(lambda: _has(seen, ".plot canvas", 6), within_s=10, what="plots are drawn")
        await seen.keep_picture("flow")
        await seen.page.get_by_role("tab", name="Topics").click()
        await seen.sees("orders", "#panel-topics")
        assert await seen.rows("topics") == ["invoices\n→ A.invoices", "orders\n→ A.orders"]


async def test_a_failed_partition_is_told_in_words(browser: Browser, served: Served) -> None:
    """The page shows the cause, a hint, and when the partition is tried again."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees("a record is too large")
        await seen.page.get_by_role("button", name="Details of invoices").click()
        shown = await seen.sees("It is retried in", "table.topics tr.under")

        assert "What to try: raise max.message.bytes" in shown


async def test_an_unreachable_cluster_is_told_in_words(browser: Browser, served: Served) -> None:
    """The picture, the table and a card above them say which cluster is away, why, and what to try."""
    away = ClusterView("A", is_reachable=False, error="no broker answers at a:1", hint="check A.bootstrap.servers")
    served.show(clusters=(away, ClusterView("B", is_reachable=True)))
    served.node.events.emit(ClusterUnreachable(FLOW, "A", away.error, away.hint))
    async with looking(browser, served.url) as seen:
        await seen.open()
        card = await seen.sees("Cluster A is unreachable", ".problems")
        await seen.sees("unreachable", "svg.diagram")

        assert "no broker answers at a:1" in card
        assert "What to try: check A.bootstrap.servers" in card
        assert (await seen.rows("flows", 2)) == ["unreachable"]
        assert "Cluster unreachable" in await seen.text(".events")
        await seen.keep_picture("unreachable")


async def test_what_copies_nothing_has_no_numbers(browser: Browser, served: Served) -> None:
    """A flow with heartbeats alone is shown as such; the lag of a source that never answered is unknown, not 0."""
    served.show(partitions=(), topics=0, lag=None, lag_s=None, groups=(GroupView(HEARTBEAT, FlowState.RUNNING),))
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees("1 direction", ".tiles")
        flows = await seen.text(".tiles")
        numbers = [await seen.rows("flows", column) for column in (3, 5, 6, 7, 8, 9)]
        await seen.keep_picture("heartbeats-alone")
        source = GroupView(SOURCE, FlowState.STARTING)
        served.show(groups=(source,), clusters=(ClusterView("A", is_reachable=False, error="refused"),))
        await seen.sees("1 unreachable", ".tiles")
        unknown = await seen.rows("flows", 6)
        of_all = await seen.text(".tile:has-text('Lag')")

    assert numbers == [["\N{EN DASH}"]] * 6
    assert "Flows\nnone" in flows
    assert unknown == ["\N{EN DASH}"]
    assert of_all == "Lag\n\N{EN DASH}"


async def test_a_row_of_the_topics_table_is_one_line(browser: Browser, served: Served) -> None:
    """On a desktop, buttons stand side by side, also beside a long name."""
    long = TopicPartition("a-very-long-topic-name.with-dots_and_underscores.eu-central-1.v2", 0)
    [first, *others] = served.node.shown.flows[0].partitions
    served.show(partitions=(attrs.evolve(first, source=long), *others))
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees(long.topic, "table.topics")
        boxes = [await seen.page.locator("table.topics .acts button:visible").nth(at).bounding_box() for at in (0, 1)]

        assert boxes[0] is not None
        assert boxes[1] is not None
        assert boxes[0]["y"] == boxes[1]["y"]
        assert await seen.width() <= DESKTOP[0]


async def test_a_topic_of_which_a_part_rests(browser: Browser, served: Served) -> None:
    """One paused partition does not make its topic look paused: the page shows how many of how many."""
    failed, first, second = served.node.shown.flows[0].partitions
    served.show(partitions=(failed, attrs.evolve(first, stage=PartitionStage.PAUSED), second))
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees("1 of 2 paused", "table.topics")

        assert await seen.rows("topics", 2) == ["failed", "1 of 2 paused"]


async def test_names_and_errors_are_text(browser: Browser, served: Served) -> None:
    """Names of groups and messages of brokers are shown as plain text, never parsed as HTML."""
    offset = GroupOffsetView(TopicPartition(HOSTILE, 0), TopicPartition(HOSTILE, 0), 1, None, None, False, HOSTILE)
    one = attrs.evolve(
        partitions(1, 1)[0],
        source=TopicPartition(HOSTILE, 0),
        stage=PartitionStage.STOPPED,
        failure=PartitionFailure(HOSTILE, HOSTILE),
    )
    served.show(
        last_error=HOSTILE,
        state=FlowState.RESTARTING,
        hint=HOSTILE,
        partitions=(one,),
        clusters=(ClusterView("A", is_reachable=False, error=HOSTILE, hint=HOSTILE),),
        groups=(GroupView("MirrorSourceConnector", FlowState.FAILED, HOSTILE, HOSTILE),),
        consumer_groups=(GroupOffsetsView(HOSTILE, (offset,), HOSTILE, HOSTILE, HOSTILE),),
    )
    served.node.events.emit(ClusterUnreachable(FLOW, HOSTILE, HOSTILE, HOSTILE))
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees(HOSTILE)
        for tab in ("topics", "groups", "connectors", "events"):
            await seen.open(f"#/flow/A-%3EB/{tab}")
            await seen.sees(HOSTILE, f"#panel-{tab}")
            for opener in await seen.page.locator(f"#panel-{tab} .opener:enabled").all():
                await opener.click()
        await seen.open("#/events")
        await seen.sees(HOSTILE)

        assert await seen.evaluate("document.querySelectorAll('img, script:not([src])').length") == 0
        assert "owned" not in await seen.page.title()


async def test_search_and_sort(browser: Browser, served: Served) -> None:
    """Two thousand partitions: found by a part of the topic's name, sorted by lag, opened; and it is quick."""
    served.show(partitions=partitions(1000, 2), topics=1000)
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees("Page 1 of 20")
        first = (await seen.rows("topics"))[0]
        await seen.page.locator("table.topics th").get_by_role("button", name="Lag").click()
        greatest = (await seen.rows("topics", 6))[0]
        await seen.page.locator("table.topics th").get_by_role("button", name="Lag").click()
        least = (await seen.rows("topics", 6))[0]
        await seen.page.fill("#panel-topics input[type=search]", "c-077")
        found = await seen.rows("topics")
        await seen.page.get_by_role("button", name="Details of topic-0770").click()
        opened = await seen.rows("partitions")
        took_ms = await seen.evaluate(
            "(async () => { const begun = performance.now(); const box = document.querySelector('input[type=search]');"
            "box.value = ''; box.dispatchEvent(new Event('input')); return performance.now() - begun; })()"
        )

        assert (first, greatest, least) == ("topic-0000\n→ A.topic-0000", "2 000", "2")
        assert [name.partition("\n")[0] for name in found] == [f"topic-{number:04}" for number in range(779, 769, -1)]
        assert opened == ["0", "1"]
        assert took_ms < scaled(500)


async def test_a_phone(browser: Browser, served: Served) -> None:
    """At 360 pixels nothing sticks out or is cut off: rows are cards, every page and table keeps its width."""
    served.show(partitions=partitions(20, 3), consumer_groups=(GroupOffsetsView("group-" + "x" * 200, why="none yet"),))
    long = flow_between("kafka-production-europe-west-1", "kafka-recovery-north-america-2")
    served.node.shown = attrs.evolve(served.node.shown, flows=(*served.node.shown.flows, long))
    cut_off = "[...document.querySelectorAll('.table-box')].filter((box) => box.scrollWidth > box.clientWidth).length"
    async with looking(browser, served.url, size=PHONE) as seen:
        tabs = (f"#/flow/A-%3EB/{tab}" for tab in ("topics", "tasks", "groups", "connectors"))
        for place in ("#/", "#/events", *tabs):
            await seen.open(place)
            await seen.sees("Live", "header")
            await eventually(lambda: seen.page.locator("main .page").count(), within_s=10, what="the page is drawn")

            assert await seen.width() <= PHONE[0], place
            assert await seen.evaluate(cut_off) == 0, place
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees("topic-0000")
        await seen.keep_picture("phone")


async def test_dark_and_light(browser: Browser, served: Served) -> None:
    """The page follows the system's colour scheme until the user chooses one; the choice is kept."""
    back = "getComputedStyle(document.body).backgroundColor"
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees("A → B")
        light = await seen.evaluate(back)
    async with looking(browser, served.url, scheme="dark") as seen:
        await seen.open()
        await seen.sees("A → B")
        dark = await seen.evaluate(back)
        await seen.keep_picture("dark")
        await seen.page.locator("#theme").click()
        chosen = await seen.evaluate(back)
        await seen.page.reload()
        await seen.sees("A → B")

        assert dark != light
        assert chosen == light
        assert await seen.evaluate(back) == light


async def test_overrides_by_clicking(browser: Browser, served: Served) -> None:
    """A flow, a topic and a limit are changed after a confirmation; the page shows what is in force."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        await seen.sees("Topics 2")
        await seen.click("Pause", ".flow-head")
        await seen.answer("Cancel")
        cancelled = served.node.control.ordered
        await seen.click("Pause", ".flow-head")
        await seen.answer("Pause")
        await seen.sees("copying paused; checkpoints paused; heartbeats paused", ".override-note")
        await seen.click("Resume", ".flow-head")
        await eventually(lambda: served.node.control.ordered == NO_OVERRIDES, within_s=10, what="the flow is resumed")
        await seen.click("Pause", "table.topics tr:nth-child(2)")
        await seen.answer("Pause")
        await seen.sees("1 topic paused (orders)", ".override-note")
        await seen.click("Rate limit", ".flow-head")
        await seen.page.fill("dialog[open] input[name=bytes]", "2.5")
        await seen.answer("Set")
        await seen.sees("copying is limited to 2.50 MB/s", ".override-note")

        assert cancelled == NO_OVERRIDES
        assert served.node.control.ordered.limit.bytes_per_s == 2_500_000
        assert served.node.control.ordered.topics == {"orders"}


async def test_a_refused_change_shows_its_error(browser: Browser, served: Served) -> None:
    """The daemon's error is shown until it is dismissed, and the page does not claim success."""
    served.node.control.failure = OverrideConflictError("the flow is draining", "try again")
    async with looking(browser, served.url, expects=("409",)) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Topics 2")
        await seen.click("Restart", ".flow-head")
        await seen.answer("Restart")
        told = await seen.sees("refused", ".toast")

        assert "the flow is draining" in told


async def test_who_may_not_look_is_asked(browser: Browser, tmp_path: Path) -> None:
    """Wrong credentials get an error message; a reader sees everything and can change nothing; a writer can."""
    async with serving(tmp_path, "rest.auth.read.tokens = see", "rest.auth.write.tokens = do") as served:
        async with looking(browser, served.url, expects=("401",)) as seen:
            await seen.open("#/flow/A-%3EB")
            await seen.sees("Log in")
            before = await seen.text("main")
            await seen.log_in("wrong")
            refused = await seen.sees("unknown token", "dialog")
            await seen.log_in("see")
            await seen.sees("Topics 2")

            assert "Topics" not in before
            assert "token" in refused
            assert await seen.page.locator("[data-write]:visible").count() == 0
            assert "read permission only" in await seen.text(".readers")
            await seen.keep_picture("reader")
        async with looking(browser, served.url, expects=("401",)) as seen:
            await seen.open("#/flow/A-%3EB")
            await seen.sees("Log in")
            await seen.log_in("do")
            await seen.sees("Topics 2")

            assert await seen.page.locator("[data-write]:visible").count() > 3


async def test_a_lost_connection_is_told_and_made_again(browser: Browser, tmp_path: Path) -> None:
    """When the daemon ends, what is shown is marked as old; when it is back, the page goes on by itself."""
    (port,) = free_ports(1)  # one that the kernel chose might be another's before the daemon is back
    url = f"http://127.0.0.1:{port}"
    async with serving(tmp_path, listener=url) as served, looking(browser, url, expects=("ERR_",)) as seen:
        await seen.open()
        await seen.sees("Live", "header")
        served.serving.cancel()
        await seen.sees("Connection lost, retrying")
        is_stale = await seen.evaluate("document.body.hasAttribute('data-stale')")
        await seen.keep_picture("lost")
        async with serving(tmp_path, listener=served.url):
            await seen.sees("Live", "header", within_s=30)

            assert is_stale
            assert not await seen.evaluate("document.body.hasAttribute('data-stale')")


async def test_an_unknown_flow_is_no_lost_login(browser: Browser, served: Served) -> None:
    """An old link, or a typing error: the page says so and stays live, and shows the flow once there is one."""
    async with looking(browser, served.url, expects=("404",)) as seen:
        await seen.open("#/flow/A-%3EX/topics")
        await seen.sees("This node does not run A->X.", "main")
        await seen.sees("Live", "header")
        shown = await seen.text()
        changes = await seen.page.locator("[data-write]:visible").count()
        served.node.shown = attrs.evolve(served.node.shown, flows=(*served.node.shown.flows, flow_between("A", "X")))
        await seen.sees("No topic is mirrored yet", "#panel-topics")

    assert "All flows" in shown
    assert "Not logged in" not in shown
    assert changes == 0


async def test_states_without_numbers(browser: Browser, served: Served) -> None:
    """A daemon that starts or stops, a flow without topics, a node without flows: each has a text, none is blank."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/topics")
        served.show(state=FlowState.STARTING, partitions=(), topics=0, consumer_groups=())
        served.node.shown = attrs.evolve(served.node.shown, is_ready=False)
        await seen.sees("The daemon is starting")
        await seen.sees("No topic is mirrored yet", "#panel-topics")
        served.show(state=FlowState.DRAINING)
        await seen.sees("The daemon is stopping")
        served.node.shown = MirrorView(0, is_ready=True)
        await seen.sees("does not run A->B")
        await seen.open("#/")
        await seen.sees("This node runs no flow")


async def test_heartbeats_alone_are_no_flows(browser: Browser, served: Served) -> None:
    """A direction that copies nothing is thin and grey, has no number, and is counted apart."""
    alone = flow_between("B", "A", copies=False)
    served.node.shown = attrs.evolve(served.node.shown, flows=(flow_between("A", "B"), alone))
    stroke = "(node) => { const style = getComputedStyle(node); return [style.strokeWidth, style.stroke]; }"
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees("1 direction", ".tiles")
        tiles = await seen.text(".tiles")
        lines = [await line.evaluate(stroke) for line in await seen.page.locator(".edge-line").all()]
        legend = await seen.text(".legend")
        states = await seen.rows("flows", 2)
        away = attrs.evolve(alone, clusters=(ClusterView("B", is_reachable=False, error="refused"), alone.clusters[1]))
        served.node.shown = attrs.evolve(served.node.shown, flows=(flow_between("A", "B"), away))
        await seen.sees("1 direction: 1 unreachable", ".tiles")

    assert "Flows\n1 running" in tiles
    assert [width for width, _ in lines] == ["2px", "1px"]
    assert lines[0][1] != lines[1][1]
    assert legend == "heartbeats only: nothing is copied in this direction"
    assert states == ["running", "heartbeats only"]


@pytest.mark.parametrize("size", [(390, 844), (1440, 900)], ids=["phone", "desktop"])
async def test_labels_are_apart_and_arrows_touch(browser: Browser, served: Served, size: tuple[int, int]) -> None:
    """No label covers another one or a cluster, and both ends of each line lie on its clusters' borders."""
    ring = [("A", "B"), ("B", "A"), ("B", "C"), ("C", "B"), ("A", "C"), ("C", "A")]
    star = [pair for number in range(6) for pair in ((f"edge-{number}", "hub"), ("hub", f"edge-{number}"))]
    pictures = [ring[:1], ring[:2], [("A", "C"), ("B", "C")], ring, star]
    async with looking(browser, served.url, size=size) as seen:
        await seen.open()
        await seen.sees("Live", "header")
        for pairs in pictures:
            flows = tuple(flow_between(*pair, copies=at % 3 < 2) for at, pair in enumerate(pairs))
            served.node.shown = attrs.evolve(served.node.shown, flows=flows)
            is_drawn = functools.partial(_has, seen, ".edge-line", len(pairs))
            await eventually(is_drawn, within_s=10, what="the picture is drawn")
            drawn = await seen.evaluate(_DRAWN)

            assert drawn["covered"] == [], pairs
            assert max(drawn["gaps"]) < 1.5, pairs


async def _has(seen: Looked, selector: str, many: int) -> bool:
    return await seen.page.locator(selector).count() == many


#: Which labels and boxes overlap, and how far each end of a line is from the nearest border of a box.
_DRAWN = """
(() => {
  const svg = document.querySelector('svg.diagram');
  const boxes = [...svg.querySelectorAll('.node-box')].map((node) => node.getBoundingClientRect());
  const labels = [...svg.querySelectorAll('.edge-label')].map((node) => node.getBoundingClientRect());
  const all = [...labels, ...boxes];
  const covered = [];
  const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
  labels.forEach((a, at) => all.slice(at + 1).forEach((b, other) => {
    if (meet(a, b)) covered.push([at, at + 1 + other]);
  }));
  const from = svg.getBoundingClientRect();
  const gaps = [...svg.querySelectorAll('.edge-line')].flatMap((line) => [0, line.getTotalLength()].map((at) => {
    const point = line.getPointAtLength(at);
    const [x, y] = [point.x + from.left, point.y + from.top];
    return Math.min(...boxes.map((box) => {
      const [dx, dy] = [Math.max(box.left - x, x - box.right), Math.max(box.top - y, y - box.bottom)];
      return dx <= 0 && dy <= 0 ? Math.min(-dx, -dy) : Math.hypot(Math.max(dx, 0), Math.max(dy, 0));
    }));
  }));
  return { covered, gaps };
})()
"""


async def test_pictures_of_many_clusters(browser: Browser, served: Served) -> None:
    """From two to twenty clusters, in stars and both ways round, none lies outside the picture or on another one."""
    stars = [[(f"edge-{number}", "hub") for number in range(many)] for many in (1, 2, 3, 7, 12, 19)]
    rings = [[(f"c{one}", f"c{(one + 1) % many}") for one in range(many)] for many in (3, 5, 8, 12, 20)]
    async with looking(browser, served.url) as seen:
        await seen.open()
        for pairs in (*stars, *rings, *([*ring, *((b, a) for a, b in ring)] for ring in rings)):
            for width in (300, 700, 1200):
                drawn = await seen.page.evaluate(_LAYOUT, [[list(pair) for pair in pairs], width])
                places = list(drawn["places"].values())

                assert len(places) == len({name for pair in pairs for name in pair})
                for at, place in enumerate(places):
                    assert place["width"] / 2 <= place["x"] <= width - place["width"] / 2, (pairs, width)
                    assert place["height"] / 2 <= place["y"] <= drawn["height"] - place["height"] / 2, (pairs, width)
                    assert all(_apart(place, other) for other in places[at + 1 :]), (pairs, width)


_LAYOUT = """
async ([pairs, width]) => {
  const { layout } = await import('./static/js/diagram.js');
  const flows = pairs.map(([source, target]) => ({ source, target }));
  return layout([...new Set(pairs.flat())], flows, width);
}
"""


def _apart(a: dict[str, float], b: dict[str, float]) -> bool:
    is_beside = abs(a["x"] - b["x"]) >= (a["width"] + b["width"]) / 2
    return is_beside or abs(a["y"] - b["y"]) >= (a["height"] + b["height"]) / 2


async def test_events_are_folded_and_in_words(browser: Browser, served: Served) -> None:
    """Each line has a clock time, what the event means, its facts in words and its runbook; a flood is one line."""
    served.node.events.emit(PositionsRead(FLOW, 0, 1))
    for number in range(1500):
        served.node.events.emit(TopicCreated(FLOW, f"t{number}", f"A.t{number}", 2, "it is new"))
    served.node.events.emit(ClusterUnreachable(FLOW, "B", "no broker answers", "start it"))
    async with looking(browser, served.url) as seen:
        await seen.open("#/events")
        shown = await seen.sees("1 500 times", ".events")
        lines = seen.page.locator(".events > li")
        heads = [await line.inner_text() for line in await lines.all()]
        await lines.nth(1).locator("summary").click()
        older = await lines.nth(1).locator(".older li").count()
        await seen.keep_picture("events")
        await lines.nth(0).get_by_role("link", name="Runbook of cluster unreachable").click()
        told = await seen.sees("Mm2pyClusterUnreachable", "main")

    assert [head.splitlines()[3] for head in heads[:3]] == ["Cluster unreachable", "Topic created", "Positions read"]
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d", head.splitlines()[0]) for head in heads)
    assert "The positions of a flow were read from its target cluster." in shown
    assert "0 partitions with a position, 1 partition without one" in shown
    assert "cluster B, no broker answers. What to try: start it" in shown
    assert older == 19
    assert all(text in told for text in ("What happened. A cluster stopped responding.", "Over."))


async def test_numbers_as_people_read_them(browser: Browser, served: Served) -> None:
    """Units follow the size; times have at most two of them; what is not known is a dash."""
    async with looking(browser, served.url) as seen:
        await seen.open()
        told = await seen.evaluate(
            "import('./static/js/format.js').then((f) => [f.short(0), f.short(999), f.short(1234567), f.bytes(1e9),"
            "f.count(12345678), f.ms(0.93), f.ms(12.4), f.ms(61000), f.duration(0), f.duration(90061),"
            "f.recordsPerS(12.34), f.duration(null)].map((text) => text.replaceAll('\\u202f', ' ')))"
        )

        assert told[:6] == ["0", "999", "1.23 M", "1.00 GB", "12 345 678", "0.9 ms"]
        assert told[6:] == ["12 ms", "1 min 1 s", "0 s", "1 d 1 h", "12.3/s", "\N{EN DASH}"]
