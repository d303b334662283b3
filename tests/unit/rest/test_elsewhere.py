"""Topics and partitions that another node copies, or none: any node of the flow shows them, and takes overrides."""

from __future__ import annotations

import attrs
import pytest

from mm2py.cli.flow_pages import topics_page
from mm2py.cli.sheets import Sheet
from mm2py.core.herder.overrides import pause_topic
from mm2py.errors import TopicsUnknownError
from mm2py.model.flow import TopicPartition
from mm2py.model.herder.overrides import NO_OVERRIDES
from mm2py.model.herder.share import Elsewhere
from mm2py.model.topic import MissingTopic
from mm2py.policy.plugins import CustomClassError
from mm2py.telemetry.events import RestFailed
from tests.support.rest_asking import Asking


FLOW = "/from:A/to:B"
SOURCE = FLOW + "/connectors/MirrorSourceConnector"


@pytest.fixture
async def ask(ask: Asking) -> Asking:
    """A node that copies `invoices` and two partitions of `orders`; another one has the rest."""
    there = "there:8083"
    ask.node.control.others = {
        TopicPartition("orders", 2): Elsewhere("A.orders", there),
        TopicPartition("stock", 0): Elsewhere("A.stock", there),
        TopicPartition("stock", 1): Elsewhere("A.stock"),
    }
    return ask


@pytest.fixture
async def standing_by(ask: Asking) -> Asking:
    """A node that copies nothing."""
    view = ask.node.shown
    ask.node.shown = attrs.evolve(view, flows=(attrs.evolve(view.flows[0], partitions=()),))
    return ask


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/topics/stock/pause", None, 202),
        ("PUT", "/topics/stock/resume", None, 202),
        ("PUT", "/topics/pause", {"topics": ["stock", "orders"]}, 202),
        ("PUT", "/topics/resume", {"topics": ["stock", "orders"]}, 202),
        ("PUT", "/topics/stock/limit", {"records_per_s": 10}, 200),
        ("GET", "/topics/stock/limit", None, 200),
        ("DELETE", "/topics/stock/limit", None, 204),
        ("PUT", "/topics/orders/partitions/2/pause", None, 202),
        ("PUT", "/topics/stock/partitions/1/resume", None, 202),
    ],
)
async def test_overrides_of_what_another_node_copies(
    standing_by: Asking, method: str, path: str, body: object, status: int
) -> None:
    """A node that stands by takes them, too."""
    assert (await standing_by(method, FLOW + path, body)).status == status


@pytest.mark.parametrize("path", ["/topics/stocks/pause", "/topics/stock/partitions/2/pause"])
async def test_what_no_node_copies_is_unknown(standing_by: Asking, path: str) -> None:
    """Similar names are those of all nodes."""
    got = await standing_by("PUT", FLOW + path)

    assert got.status == 404
    assert "stocks" not in path or "did you mean stock?" in got.json["message"]


async def test_topics_are_those_of_all_nodes(ask: Asking) -> None:
    """Figures are those of the partitions here; of a topic that is elsewhere as a whole they are unknown."""
    ask.node.control.ordered = pause_topic(NO_OVERRIDES, "stock")
    answer = (await ask("GET", FLOW + "/topics")).json
    by_rate = (await ask("GET", FLOW + "/topics?sort=record_rate")).json
    found = {one["topic"]: one for one in answer["topics"]}
    one = (await ask("GET", FLOW + "/topics/stock")).json

    assert (answer["total"], list(found)) == (3, ["invoices", "orders", "stock"])
    assert [it["topic"] for it in by_rate["topics"]][-1] == "stock"
    assert found["invoices"]["elsewhere"] == {}
    assert (found["orders"]["partitions"], found["orders"]["records"]) == (3, 200)
    assert found["orders"]["elsewhere"] == {"there:8083": 1}
    assert one == found["stock"]
    assert (one["remote_topic"], one["partitions"], one["stage"]) == ("A.stock", 2, "elsewhere")
    assert (one["elsewhere"], one["is_paused"]) == ({"there:8083": 1, "unknown": 1}, True)
    assert (one["lag"], one["records"], one["record_rate"]) == (None, None, None)


async def test_the_last_topic_to_catch_up_comes_first(ask: Asking) -> None:
    """A topic is level when its last partition is; those of which that is unknown come last."""
    view = ask.node.shown
    times = {TopicPartition("orders", 0): 5.0, TopicPartition("orders", 1): 90.0, TopicPartition("invoices", 0): 7.0}
    partitions = [attrs.evolve(one, seconds_until_level=times[one.source]) for one in view.flows[0].partitions]
    ask.node.shown = attrs.evolve(view, flows=(attrs.evolve(view.flows[0], partitions=tuple(partitions)),))

    found = (await ask("GET", FLOW + "/topics?sort=seconds_until_level")).json["topics"]

    assert [(one["topic"], one["seconds_until_level"]) for one in found] == [
        ("orders", 90.0),
        ("invoices", 7.0),
        ("stock", None),
    ]


async def test_partitions_are_those_of_all_nodes(ask: Asking) -> None:
    """Of one that another node copies, that node is named."""
    shown = (await ask("GET", FLOW + "/topics/orders/partitions")).json
    one = (await ask("GET", FLOW + "/topics/orders/partitions/2")).json

    assert [(it["partition"], it["stage"], it["node"]) for it in shown] == [
        (0, "copying", ""),
        (1, "copying", ""),
        (2, "elsewhere", "there:8083"),
    ]
    assert one == shown[2]
    assert (one["remote_topic"], one["lag"], one["is_paused"]) == ("A.orders", None, False)


async def test_a_connector_s_topics_are_those_of_all_nodes(ask: Asking) -> None:
    """Below the flow, and at a worker's own address."""
    of_flow, of_worker = await ask("GET", SOURCE + "/topics"), await ask("GET", SOURCE.removeprefix(FLOW) + "/topics")

    assert (
        of_flow.json == of_worker.json == {"MirrorSourceConnector": {"topics": ["A.invoices", "A.orders", "A.stock"]}}
    )


async def test_a_node_that_cannot_look_says_so(standing_by: Asking) -> None:
    """It stands by, and a cluster does not answer: it does not claim that there is no such topic."""
    standing_by.node.control.unreachable = TopicsUnknownError("A->B", "no answer")
    answers = [
        await standing_by("PUT", FLOW + "/topics/stock/pause"),
        await standing_by("GET", FLOW + "/topics"),
        await standing_by("GET", FLOW + "/topics/orders/partitions"),
    ]

    assert [answer.status for answer in answers] == [503, 503, 503]


async def test_a_custom_class_that_fails_is_named(standing_by: Asking) -> None:
    """It was called a bug of mm2py's, with its cause in the log alone."""
    error = CustomClassError("shop.naming.Policy", "topic_source('stock')", "KeyError('stock')")
    standing_by.node.control.unreachable = error
    answer = await standing_by("GET", FLOW + "/topics")

    assert (answer.status, answer.json["message"]) == (500, f"{error}; {error.hint}")
    assert not standing_by.node.events.of(RestFailed)


async def test_the_command_line_names_the_nodes(ask: Asking) -> None:
    """`mm2py flow A->B topics` lists all topics, and which nodes have what this one has not."""
    (sheet, *_) = topics_page((await ask("GET", FLOW + "/topics")).json)
    assert isinstance(sheet, Sheet)
    rows = {str(row[0]): row for row in sheet.rows}

    assert rows["orders"][-1] == "1 on there:8083"
    assert rows["stock"][3] == "elsewhere"
    assert rows["stock"][-1] == "1 on there:8083, 1 on unknown"


async def test_a_topic_that_the_target_lacks_is_paused_like_others(ask: Asking) -> None:
    """It is mirrored, though nothing of it is copied yet."""
    lacking = MissingTopic("new", "A.new", 0, 2)
    flows = tuple(attrs.evolve(flow, missing_topics=(lacking,)) for flow in ask.node.shown.flows)
    ask.node.shown = attrs.evolve(ask.node.shown, flows=flows)
    topic = await ask("PUT", FLOW + "/topics/new/pause")
    partition = await ask("PUT", FLOW + "/topics/new/partitions/1/pause")
    shown = await ask("GET", FLOW + "/topics/new")

    assert (topic.status, partition.status) == (202, 202)
    assert ask.node.control.ordered.topics == {"new"}
    assert (shown.json["stage"], shown.json["is_paused"]) == ("missing", True)
