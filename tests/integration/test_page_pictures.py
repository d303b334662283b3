"""The status page healthy, broken and paused, as wide as a desktop, a small window and a phone: all of it fits."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import attrs
import pytest
from playwright.async_api import Browser

from mm2py.core.herder.overrides import SOURCE
from mm2py.model.epoch import PartitionFailure
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import Overrides, Pause, RateLimit, Wanted
from mm2py.model.state import (
    ClusterView,
    FlowState,
    GroupOffsetsView,
    GroupOffsetView,
    GroupView,
    PartitionStage,
    StepView,
    TimesView,
)
from mm2py.policy.selection import GroupSelection
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable
from tests.support.browser import Looked, looking
from tests.support.eventually import eventually
from tests.support.rest_node import FLOW, some_nodes
from tests.support.served_page import Served, flow_between, partitions


pytestmark = pytest.mark.asyncio(loop_scope="module")

WIDTHS = (1400, 1000, 400)
PLACES = ("#/", "#/flow/A-%3EB", *(f"#/flow/A-%3EB/{tab}" for tab in ("topics", "groups", "connectors", "nodes")))

#: What sticks out of the window, of its table or of its card, or lies on another one: buttons, links, texts of cards.
STICKS_OUT = """
(() => {
  const isSeen = (node) => node.checkVisibility() && node.getBoundingClientRect().width > 1;
  const name = (node) => `${node.tagName} ${node.className} ${node.textContent.slice(0, 40)}`;
  const found = [];
  const all = 'main button, main a.act, main .pill, header a, header button, .tile-value';
  for (const node of document.querySelectorAll(all)) {
    // Columns may be scrolled; those with buttons may not.
    if (!isSeen(node) || node.closest('.tabs, td:not([data-label=""]), th')) continue;
    const box = node.getBoundingClientRect();
    const around = (node.closest('.table-box') ?? document.documentElement).getBoundingClientRect();
    if (box.left < around.left - 1 || box.right > around.right + 1) found.push(`cut off: ${name(node)}`);
    if (!node.matches('a') && node.scrollWidth > node.clientWidth + 1) found.push(`too narrow: ${name(node)}`);
  }
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  for (const acts of document.querySelectorAll('main .acts')) {
    const boxes = [...acts.querySelectorAll('button, a')].filter(isSeen).map((node) => node.getBoundingClientRect());
    if (boxes.some((a, at) => boxes.slice(at + 1).some((b) => meet(a, b)))) found.push(`overlaps: ${name(acts)}`);
  }
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`the page is ${width} wide`);
  return found;
})()
"""


#: Texts with less contrast to what is behind them than WCAG's level AA asks for.
TOO_FAINT = """
(() => {
  const parts = (colour) => [...colour.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const over = (a, b) => [0, 1, 2].map((at) => a[at] * a[3] + b[at] * (1 - a[3]));
  const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b) + 0.05;
  const isText = (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim();
  const found = [];
  for (const node of document.querySelectorAll('body *:not(svg *, .unseen, .skip, button:disabled *)')) {
    if (!node.checkVisibility() || ![...node.childNodes].some(isText)) continue;
    let back = [255, 255, 255];
    const around = [];
    for (let one = node; one; one = one.parentElement) around.unshift(parts(getComputedStyle(one).backgroundColor));
    for (const colour of around) back = over(colour, back);
    const [most, least] = [light(over(parts(getComputedStyle(node).color), back)), light(back)].sort((a, b) => b - a);
    if (most / least < 4.5) found.push(`${(most / least).toFixed(2)}: ${node.textContent.slice(0, 40)}`);
  }
  return found;
})()
"""


def remember(served: Served) -> None:
    """Have the daemon know a busy quarter of an hour."""
    now_ms = int(time.time() * 1000)
    history, before = served.server.rest.page.history, served.node.shown
    for ago in range(300, 0, -1):
        swing = 1 + math.sin(ago / 20) / 3
        served.show(
            records_per_s=12_000 * swing, bytes_per_s=3.4e6 * swing, lag=int(900 * swing), lag_s=4 * swing,
            latency_p50_ms=40 * swing, latency_p99_ms=190 * swing, age_p50_ms=22 * swing,
        )  # fmt: skip
        history.note(attrs.evolve(served.node.shown, wall_ms=now_ms - ago * 3000))
    served.node.shown = before


def healthy(served: Served) -> None:
    """Two flows, many topics, several groups, of which one is Connect's; nothing is wrong."""
    times = TimesView(24.0, 3.0, 90.0, 22.0)
    copied = tuple(
        attrs.evolve(one, lag=3, lag_s=0.4, end_offset=one.position + 3, record_rate=410.0, bytes_per_s=120e3,
                     age=times, latency=times)
        for one in partitions(24, 3)
    )  # fmt: skip
    long = TopicPartition("payments.eu-central-1.settlements.daily-reconciliation.v2", 0)
    copied = (attrs.evolve(copied[0], source=long, remote_topic=f"A.{long.topic}"), *copied[1:])
    offset = GroupOffsetView(copied[3].source, TopicPartition("A.topic-0001", 0), 1000, 1000, 3, is_exact=True)
    groups = (
        *(GroupOffsetsView(name, (offset,), at_target="synced") for name in ("billing", "fraud-detection", "search")),
        GroupOffsetsView("A-mm2", why=GroupSelection.OTHER_PROTOCOL.value),
    )
    steps = ("refresh topics", "sync configs", "write checkpoints", "write positions")
    now_ms = int(time.time() * 1000)
    served.show(
        partitions=copied, topics=24, records_per_s=12_345.0, bytes_per_s=3.4e6, lag=216, lag_s=0.4, records=88_123_456,
        bytes=21_000_000_000, latency_p50_ms=41.0, latency_p99_ms=187.0, consumer_groups=groups,
        steps=tuple(StepView(step, now_ms - 107_000) for step in steps), seconds_until_level=0.0, tasks=(),
    )  # fmt: skip
    flows = (served.node.shown.flows[0], flow_between("B", "A"))
    served.node.shown = attrs.evolve(served.node.shown, wall_ms=now_ms, started_ms=now_ms - 7200_000, flows=flows)
    remember(served)


def broken(served: Served) -> None:
    """One cluster is away, partitions failed for several reasons, a step is refused, a node is silent."""
    healthy(served)
    whys = (
        PartitionFailure("a record of 5242880 bytes is larger than max.message.bytes", "raise max.message.bytes"),
        PartitionFailure("not authorized to write topic A.topic-0003", "grant WRITE on the topic to the principal"),
    )
    flow, other = served.node.shown.flows
    failed = tuple(
        attrs.evolve(one, stage=PartitionStage.STOPPED, failure=whys[at % 3 == 0], lag=12_000, lag_s=107.0)
        for at, one in enumerate(flow.partitions[3:11])
    )
    away = ClusterView("B", is_reachable=False, error="no broker of b:9092 answers", hint="check B.bootstrap.servers")
    nodes = (some_nodes()[0], attrs.evolve(some_nodes()[1], answers=False, heard_ms=107_000))
    served.show(
        partitions=(*flow.partitions[:3], *failed, *flow.partitions[11:]), clusters=(flow.clusters[0], away),
        groups=(flow.groups[0], attrs.evolve(flow.groups[1], state=FlowState.FAILED, last_error="no right to write"),
                flow.groups[2]),
        nodes=nodes, lag=96_000, lag_s=107.0, seconds_until_level=None,
    )  # fmt: skip
    served.node.shown = attrs.evolve(
        served.node.shown,
        flows=(served.node.shown.flows[0], attrs.evolve(other, clusters=(away, other.clusters[1]))),
    )
    for _ in range(3):
        served.node.events.emit(ClusterUnreachable(FLOW, "B", away.error, away.hint))
    served.node.events.emit(ClusterRecovered(FLOW, "B", 107.0, 12))


def paused(served: Served) -> None:
    """Operators paused copying, some topics as well, and limited what is left."""
    healthy(served)
    names = ("topic-0001", "topic-0002")
    flow = served.node.shown.flows[0]
    served.node.control.ordered = Overrides(
        groups={SOURCE: Wanted.PAUSED}, topics=frozenset(names), limit=RateLimit(2.5e6)
    )
    served.show(
        state=FlowState.PAUSED, groups=(GroupView(SOURCE, FlowState.PAUSED), *flow.groups[1:]), paused_topics=names,
        pauses={SOURCE: Pause("ann@example.com", 0)}, paused_s=3 * 3600.0,
        partitions=tuple(attrs.evolve(one, stage=PartitionStage.PAUSED) for one in flow.partitions),
        records_per_s=0.0, bytes_per_s=0.0,
    )  # fmt: skip


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", [healthy, broken, paused], ids=lambda state: state.__name__)
async def test_all_of_it_fits(browser: Browser, served: Served, state: Callable[[Served], None], scheme: str) -> None:
    """No button, number or state is cut off, too narrow for its text or on another one; no text is too faint."""
    state(served)
    found = {}
    async with looking(browser, served.url, size=(WIDTHS[0], 900), scheme=scheme) as seen:
        for place in PLACES:
            await seen.open(place)
            await seen.sees("Live", "header")
            await eventually(lambda: _is_drawn(seen), within_s=20, what="the page is drawn")
            if faint := await seen.evaluate(TOO_FAINT):
                found[place, 0] = faint
            for width in WIDTHS if scheme == "light" else WIDTHS[:1]:
                await seen.page.set_viewport_size({"width": width, "height": 900})
                await seen.page.wait_for_timeout(150)
                if wrong := await seen.evaluate(STICKS_OUT):
                    found[place, width] = wrong
                if scheme == "light" or place in PLACES[:2]:
                    name = place.rpartition("/")[2].replace("A-%3EB", "plots") or "overview"
                    await seen.keep_picture(f"{state.__name__}-{name}-{width}{'-dark' if scheme == 'dark' else ''}")

    assert found == {}


async def _is_drawn(seen: Looked) -> bool:
    return bool(await seen.evaluate("document.querySelector('main .page .tiles, main .page table') !== null"))
