"""What the status page's address, title and tabs say, and what its dialogs take."""

from __future__ import annotations

import attrs
import pytest
from playwright.async_api import Browser

from mm2py.model.epoch import PartitionFailure
from mm2py.model.herder.overrides import NO_OVERRIDES
from mm2py.model.state import ClusterView, FlowState, GroupOffsetsView, GroupView, PartitionStage, StepView
from mm2py.policy.selection import GroupSelection
from tests.support.browser import PHONE, Looked, looking
from tests.support.eventually import eventually
from tests.support.served_page import Served, flow_between, partitions


pytestmark = pytest.mark.asyncio(loop_scope="module")

TOPICS = "#/flow/A-%3EB/topics"


async def test_an_address_shows_the_same(browser: Browser, served: Served) -> None:
    """Tab, search, choice, sort and page are in the address: another window shows the same; Back undoes each step."""
    served.show(partitions=partitions(200, 1), topics=200)
    async with looking(browser, served.url) as seen:
        await seen.open(TOPICS)
        await seen.sees("Page 1 of 4", "#panel-topics")
        await seen.page.get_by_role("searchbox").press_sequentially("topic-01")
        await seen.page.locator("table.topics th").get_by_role("button", name="Lag").click()
        await seen.page.get_by_label("State of topics").select_option("copying")
        await seen.click("Next", "#panel-topics")
        await seen.sees("Page 2 of 2", "#panel-topics")
        address, rows = await seen.evaluate("location.hash"), await seen.rows("topics")
        async with looking(browser, served.url) as other:
            await other.open(address)
            await other.sees("Page 2 of 2", "#panel-topics")
            same = await other.rows("topics")
            searched = await other.page.get_by_role("searchbox").input_value()
        # The tab keeps it while another one is shown.
        await seen.page.get_by_role("tab", name="Settings").click()
        await seen.sees("admin.timeout.ms", "#panel-settings")
        kept = await seen.page.get_by_role("tab", name="Topics").get_attribute("href")
        places = []
        for _ in range(5):
            await seen.page.go_back()
            places.append(str(await seen.evaluate("location.hash")).partition("?")[2])
        await seen.sees("200 rows", "#panel-topics")
        left = await seen.page.get_by_role("searchbox").input_value()

    found = "sort=-lag&q=topic-01&state=copying&page=2"
    assert address == kept == f"{TOPICS}?{found}"
    assert rows == same
    assert searched == "topic-01"
    assert places == [found, found.removesuffix("&page=2"), "sort=-lag&q=topic-01", "q=topic-01", ""]
    assert left == ""


async def test_all_flows_and_events_have_such_addresses(browser: Browser, served: Served) -> None:
    """The table of flows is searched and sorted, and events are chosen, by address as well."""
    flows = (*served.node.shown.flows, flow_between("B", "A"), flow_between("C", "A"))
    served.node.shown = attrs.evolve(served.node.shown, flows=flows)
    async with looking(browser, served.url) as seen:
        await seen.open("#/?sort=-records&q=-%3Ea")
        await seen.sees("2 of 3 rows")
        flows_found = await seen.rows("flows")
        await seen.open("#/events?level=error&flow=A-%3EB&q=none")
        await seen.sees("No event matches", ".events + p")
        chosen = [await seen.page.get_by_label(name, exact=True).input_value() for name in ("Level", "Flow")]
        searched = await seen.page.get_by_role("searchbox").input_value()

    assert flows_found == ["B → A", "C → A"]
    assert (chosen, searched) == (["error", "A->B"], "none")


async def test_the_node_has_a_name_and_a_verdict(browser: Browser, served: Served) -> None:
    """Its address and host are in the header, and how it fares: in words, and in the titles of the browser's tabs."""
    host = served.url.removeprefix("http://")
    healthy = tuple(attrs.evolve(one, stage=PartitionStage.COPYING, failure=None) for one in partitions(2, 1))
    away = (ClusterView("A", is_reachable=False, error="no broker answers"), ClusterView("B", is_reachable=True))
    async with looking(browser, served.url) as seen:
        await seen.open()
        await seen.sees("needs attention: 1 error", "#verdict")
        node = await seen.text("#node")
        titles = [await _titled(seen, "error")]
        await seen.open("#/flow/A-%3EB")
        titles.append(await _titled(seen, "failures"))
        served.show(partitions=healthy)
        await seen.sees("healthy", "#verdict")
        titles.append(await _titled(seen, "running"))
        paused = GroupView("MirrorSourceConnector", FlowState.PAUSED)
        served.show(state=FlowState.PAUSED, groups=(paused,))
        await seen.sees("1 of 1 flow paused", "#verdict")
        served.show(state=FlowState.RUNNING, clusters=away)
        titles.append(await _titled(seen, "unreachable"))

    assert node.startswith(host)
    assert titles == [
        f"✕ needs attention: 1 error · mm2py {host}",
        f"✕ A->B has failures · mm2py {host}",
        f"✓ A->B running · mm2py {host}",
        f"✕ A->B unreachable · mm2py {host}",
    ]


async def _titled(seen: Looked, word: str) -> str:
    async def titled() -> str:
        title = await seen.page.title()
        return title if word in title else ""

    return str(await eventually(titled, within_s=10, what=f"the title says {word}"))


async def test_a_kind_of_problem_is_one_card(browser: Browser, served: Served) -> None:
    """Errors come first; partitions are grouped by why they failed; each card has what can be done, and where."""
    whys = (PartitionFailure("a record is too large", "raise it"), PartitionFailure("not authorized", "grant it"))
    stopped = tuple(
        attrs.evolve(one, stage=PartitionStage.STOPPED, failure=whys[at % 2]) for at, one in enumerate(partitions(8, 1))
    )
    served.show(partitions=stopped, topics=8)
    other = attrs.evolve(flow_between("B", "A"), partitions=stopped[:1])
    served.node.shown = attrs.evolve(served.node.shown, flows=(*served.node.shown.flows, other))
    async with looking(browser, served.url) as seen:
        await seen.open()
        card = await seen.sees("Partitions stopped", ".problem")
        moods = [await one.get_attribute("data-mood") for one in await seen.page.locator(".problem").all()]
        await seen.page.locator(".problem").first.get_by_role("link", name="Topics").first.click()
        await seen.sees("8 rows", "#panel-topics")
        chosen = await seen.page.get_by_label("State of topics").input_value()
        of_flow = await seen.sees("Partitions stopped", ".problem")
        await seen.click("Restart", ".problem")
        await seen.answer("Restart")
        await eventually(lambda: served.node.control.restarts, within_s=10, what="copying is restarted")

    assert moods == sorted(moods, key=["bad", "warn", "note"].index)
    assert "A->B" in card
    assert "B->A" in card
    assert chosen == "stopped"
    first, second = of_flow.index("topic-0000-0, topic-0002-0, topic-0004-0"), of_flow.index("topic-0001-0, ")
    assert first < of_flow.index("a record is too large") < second < of_flow.index("not authorized")


async def test_a_button_stays_while_its_words_change(browser: Browser, served: Served) -> None:
    """A problem whose text changes each second keeps its button, and the focus that is on it."""
    failed = attrs.evolve(partitions(1, 1)[0], stage=PartitionStage.STOPPED, failure=PartitionFailure("for 1 s", ""))
    served.show(partitions=(failed,))
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("for 1 s", ".problem")
        await seen.page.locator(".problem").get_by_role("button", name="Restart").focus()
        served.show(partitions=(attrs.evolve(failed, failure=PartitionFailure("for 2 s", "")),))
        await seen.sees("for 2 s", ".problem")

        assert await seen.evaluate("document.activeElement.textContent") == "Restart"


async def test_tabs_by_keyboard(browser: Browser, served: Served) -> None:
    """Arrows, Home and End go from tab to tab, past those that are not there; only one is in the order of Tab."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Topics 2")
        await seen.page.get_by_role("tab", name="Plots").focus()
        visited = []
        for key in ("ArrowRight", "End", "ArrowRight", "ArrowLeft", "Home"):
            await seen.page.keyboard.press(key)
            visited.append(str(await seen.evaluate("document.activeElement.id")))
            shown = visited[-1].replace("tab-", "#panel-")
            await eventually(seen.page.locator(shown).is_visible, within_s=10, what=f"{shown} is shown")
        selected = await seen.page.locator('[role="tab"][aria-selected="true"]').count()
        in_order = await seen.page.locator('[role="tab"][tabindex="0"]').count()

    assert visited == ["tab-topics", "tab-events", "tab-plots", "tab-events", "tab-plots"]
    assert (selected, in_order) == (1, 1)


async def test_the_chosen_tab_is_in_sight(browser: Browser, served: Served) -> None:
    """On a phone, where the row of tabs is scrolled, an address shows its tab as well."""
    async with looking(browser, served.url, size=PHONE) as seen:
        await seen.open("#/flow/A-%3EB/events")
        await seen.sees("Topics 2")
        box = await seen.page.locator("#tab-events").bounding_box()

    assert box is not None
    assert 0 <= box["x"] <= PHONE[0] - box["width"]


async def test_a_dialog_says_what_is_wrong(browser: Browser, served: Served) -> None:
    """No text that is no number becomes "no limit"; the dialog stays open, with what was entered, until it is right."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB")
        await seen.sees("Topics 2")
        await seen.click("Rate limit", ".flow-head")
        bytes_field = seen.page.locator("dialog[open] input[name=bytes]")
        said = {}
        for text in ("-1", "0", "1e"):
            await bytes_field.press("Control+a")
            await bytes_field.press_sequentially(text)
            await seen.answer("Set")
            said[text] = await seen.text("dialog [role=alert]")
        marked = await bytes_field.get_attribute("aria-invalid")
        await seen.keep_picture("dialog-wrong")
        untouched = served.node.control.ordered
        await bytes_field.fill("2.5")
        await eventually(seen.page.locator("dialog [role=alert]").is_hidden, within_s=5, what="the complaint is gone")
        await seen.answer("Set")
        await seen.sees("copying is limited to 2.50 MB/s", ".override-note")
        closed = await seen.page.locator("dialog").count()

    assert "at least 0" in said["-1"]
    assert "copy nothing" in said["0"]
    assert "not a number" in said["1e"]
    assert (marked, closed) == ("true", 0)
    assert untouched == NO_OVERRIDES


async def test_inner_groups_and_steps_are_folded_away(browser: Browser, served: Served) -> None:
    """Groups of workers and the steps of task groups are there for who looks for them; a refused step is named."""
    inner = GroupOffsetsView("A-mm2", why=GroupSelection.OTHER_PROTOCOL.value)
    steps = (StepView("refresh topics", 1), StepView("sync configs", 1, 2, "no right to alter", "grant it"))
    groups = served.node.shown.flows[0].consumer_groups
    served.show(consumer_groups=(inner, *groups), steps=steps)
    async with looking(browser, served.url) as seen:
        await seen.open("#/flow/A-%3EB/groups")
        await seen.sees("Consumer groups 1", '[role="tablist"]')
        listed = await seen.rows("groups")
        folded = await seen.sees("1 group of workers: not a consumer group", "#panel-groups")
        await seen.page.locator("#panel-groups summary").click()
        await seen.sees("A-mm2", "#panel-groups details")
        await seen.open("#/flow/A-%3EB/connectors")
        await seen.sees("2 inner steps, refused now: sync configs", "#panel-connectors")
        away = await seen.page.locator("table.steps").is_visible()
        await seen.page.locator("#panel-connectors summary").click()
        await seen.sees("no right to alter. What to try: grant it", "table.steps")

    assert listed == ["billing"]
    assert "A-mm2" not in folded
    assert not away


async def test_documents_are_read_on_the_page(browser: Browser, served: Served) -> None:
    """What a runbook leads to is there too, with its steps as a numbered list and its links between pages."""
    async with looking(browser, served.url) as seen:
        await seen.open("#/docs/failing-over")
        await seen.sees("A planned move", "main")
        steps = await seen.page.locator("main ol").first.locator("li").all_inner_texts()
        await seen.page.get_by_role("link", name="a primary that was rebuilt").click()
        told = await seen.sees("Whatever the setting is", "main")

    assert steps[0] == "Stop the consumers at A."
    assert len(steps) == 3
    assert "When history breaks" in told
