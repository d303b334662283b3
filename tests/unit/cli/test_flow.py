"""``mm2py status`` and ``mm2py flow``: what arguments mean, what they ask of a daemon, what is shown of its answers."""

from __future__ import annotations

import argparse
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mm2py.cli import flow as command
from mm2py.cli import flow_pages, sheets, status
from mm2py.cli.command import ArgumentsError, read_flow
from mm2py.cli.flow_requests import configuring, judge_steering, limiting, steering
from mm2py.cli.rest_client import ServerEvent
from mm2py.core.herder.overrides import CONNECTORS
from mm2py.errors import OverrideConflictError
from mm2py.model.flow import Flow
from tests.support.clocks import ManualClock
from tests.support.commands import unread_output
from tests.support.daemon_answers import Answers


DOCUMENTS = sorted((Path(__file__).parents[3] / "docs").glob("*.md"))
HANDBOOK = Path(__file__).parents[3] / "docs/cli.md"
AT = "/from:A/to:B"
SOURCE = "MirrorSourceConnector"

Asked = tuple[str, str, object]


def parsed(*words: str) -> argparse.Namespace:
    return command.make_parser().parse_args(["A->B", *words])


def asked(*words: str) -> list[Asked]:
    """Return the requests that a command which changes something makes, where the flow has all its connectors."""
    options = parsed(*words)
    if options.verb == "limit":
        limit = limiting(options)
        assert limit is not None
        requests = [limit]
    elif options.verb == "config":
        requests = configuring(options)
    else:
        judge_steering(options)
        requests = steering(options.verb, options, CONNECTORS)
    return [(request.method, request.path, request.body or dict(request.query) or None) for request in requests]


def shown(parts: list[sheets.Part]) -> str:
    return "\n".join(sheets.plain_lines(parts))


@pytest.mark.parametrize(
    ("text", "flow"),
    [
        ("A->B", Flow("A", "B")),
        (" us-west -> us-east ", Flow("us-west", "us-east")),
        ("from:A/to:B", Flow("A", "B")),
        ("/from:A%20x/to:B/", Flow("A x", "B")),
        ("A->B (clicks/1)", Flow("A", "B", "clicks/1")),
        ("A->B ( web clicks )", Flow("A", "B", " web clicks ")),
        ("from:A/to:B;connector=clicks%2F1", Flow("A", "B", "clicks/1")),
    ],
)
def test_a_flow_is_named_as_in_settings_or_as_in_urls(text: str, flow: Flow) -> None:
    """Both ways to write a flow mean the same; the second needs no quotes."""
    assert read_flow(text) == flow
    assert read_flow(flow.url_path()) == read_flow(str(flow)) == flow


@pytest.mark.parametrize(
    ("line", "method", "path", "body"),
    [
        ("pause", "PUT", "/pause", None),
        ("stop --connector heartbeat", "PUT", "/connectors/MirrorHeartbeatConnector/stop", None),
        ("pause --topic a.b", "PUT", "/topics/a.b/pause", None),
        ("pause --topic ../../x?y#z", "PUT", "/topics/..%2F..%2Fx%3Fy%23z/pause", None),
        ("resume --topic t --partition 3", "PUT", "/topics/t/partitions/3/resume", None),
        (
            "restart --connector source --only-failed",
            "POST",
            f"/connectors/{SOURCE}/restart",
            {"includeTasks": "true", "onlyFailed": "true"},
        ),
        ("restart --task 2", "POST", f"/connectors/{SOURCE}/tasks/2/restart", None),
        ("limit --bytes-per-s 10M", "PUT", "/limit", {"bytes_per_s": 10_000_000.0}),
        (
            "limit --topic t --records-per-s 5k --bytes-per-s none",
            "PUT",
            "/topics/t/limit",
            {"bytes_per_s": None, "records_per_s": 5000.0},
        ),
        ("refresh", "PUT", "/refresh", None),
        ("limit --none", "PUT", "/limit", {"bytes_per_s": None, "records_per_s": None}),
        (
            "config set topics=a,b 'tasks.max = 4' sasl.jaas.config=x=y",
            "PATCH",
            f"/connectors/{SOURCE}/config",
            {"topics": "a,b", "tasks.max": "4", "sasl.jaas.config": "x=y"},
        ),
        ("config unset topics", "PATCH", f"/connectors/{SOURCE}/config", {"topics": None}),
        ("config --connector checkpoint revert", "DELETE", "/connectors/MirrorCheckpointConnector/config", None),
        (
            "config set --connector checkpoint topics=a",
            "PATCH",
            "/connectors/MirrorCheckpointConnector/config",
            {"topics": "a"},
        ),
        (
            "config set sync.group.offsets.enabled=true",
            "PATCH",
            "/connectors/MirrorCheckpointConnector/config",
            {"sync.group.offsets.enabled": "true"},
        ),
        (
            "config unset emit.heartbeats.interval.seconds",
            "PATCH",
            "/connectors/MirrorHeartbeatConnector/config",
            {"emit.heartbeats.interval.seconds": None},
        ),
    ],
)
def test_what_a_command_asks_for(line: str, method: str, path: str, body: object) -> None:
    """Each verb is the request that REST has for it; a name cannot leave its place in the address."""
    assert asked(*shlex.split(line)) == [(method, f"{AT}{path}", body)]


def test_unset_says_what_applies() -> None:
    """The key may not have been overridden, so nothing need have changed."""
    (request,) = configuring(parsed("config", "unset", "topics"))

    assert request.done == f"{SOURCE} of A->B: topics as in the file"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["pause", "--partition", "1"], "name it with --topic"),
        (["stop", "--topic", "t"], "only whole connectors can be stopped"),
        (["pause", "--topic", "t", "--connector", "heartbeat"], "omit --connector"),
        (["limit", "--bytes-per-s", "fast"], "'fast' is not an amount"),
        (["limit", "--bytes-per-s", "0"], "must be more than 0"),
        (["limit", "--none", "--bytes-per-s", "1"], "omit the amounts"),
        (["config", "set"], "needs a KEY=VALUE"),
        (["config", "set", "topics"], "expected KEY=VALUE, found topics"),
        (["config", "unset", "a=b"], "unset takes keys only"),
        (["config", "revert", "topics"], "unset reverts single keys"),
    ],
)
def test_arguments_that_contradict_each_other(words: list[str], said: str) -> None:
    """What cannot be meant is refused before anything is asked."""
    with pytest.raises(ArgumentsError, match=said):
        asked(*words)


async def test_only_connectors_that_a_flow_has_are_restarted(capsys: pytest.CaptureFixture[str]) -> None:
    """If the file disables heartbeats, restarting a flow does not ask for them."""
    rest = Answers({f"{AT}/connectors": [SOURCE]})
    await command.serve(parsed("restart"), rest, ManualClock())

    assert rest.asked == [("GET", f"{AT}/connectors"), ("POST", f"{AT}/connectors/{SOURCE}/restart")]
    assert capsys.readouterr().out == f"{SOURCE} of A->B restarts\n"


async def test_what_works_is_not_said_to_restart(capsys: pytest.CaptureFixture[str]) -> None:
    """With --only-failed nothing may have had to be done; the daemon's answer does not tell."""
    rest = Answers({f"{AT}/connectors/{SOURCE}/restart": {"connector": {"state": "RUNNING"}}})
    await command.serve(parsed("restart", "--connector", "source", "--only-failed"), rest, ManualClock())

    assert capsys.readouterr().out == f"{SOURCE} of A->B restarts what has failed, if anything\n"


async def test_a_stopped_connector_is_not_said_to_restart(capsys: pytest.CaptureFixture[str]) -> None:
    """The daemon's answer is Connect's, with success; but nothing was done."""
    state = {"name": SOURCE, "connector": {"state": "STOPPED"}, "tasks": []}
    rest = Answers({f"{AT}/connectors/{SOURCE}/restart": state})
    with pytest.raises(OverrideConflictError, match=f"{SOURCE} of A->B is stopped: resume it instead"):
        await command.serve(parsed("restart", "--connector", "source"), rest, ManualClock())

    assert capsys.readouterr().out == ""


async def test_a_change_is_told_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    """What the daemon answers, or what was done where it answers nothing."""
    rest = Answers({f"{AT}/connectors": [SOURCE], f"{AT}/limit": {"bytes_per_s": None}})
    await command.serve(parsed("pause", "--json"), rest, ManualClock())
    await command.serve(parsed("limit", "--none", "--json"), rest, ManualClock())

    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"done": "A->B paused"},
        {"bytes_per_s": None},
    ]


async def test_every_change_is_requested_although_nothing_reads_the_answers() -> None:
    """The reader of the output ends, as `head` does, after the first of several requests."""
    rest = Answers({f"{AT}/connectors": list(CONNECTORS)})
    with unread_output():
        await command.serve(parsed("restart"), rest, ManualClock())

    assert [path for method, path in rest.asked if method == "POST"] == [
        f"{AT}/connectors/{name}/restart" for name in CONNECTORS
    ]


async def test_events_are_followed(capsys: pytest.CaptureFixture[str]) -> None:
    """Recent events are shown first, then those after the last one's mark."""
    basic = {"wall_ms": 0, "level": "info", "flow": "A->B", "text": "topics: 1"}
    first = {**basic, "id": 1, "mark": "life.1", "name": "flow_started"}
    second = {**first, "id": 2, "mark": "life.2", "wall_ms": 1000, "name": "topic_created"}
    stream = [ServerEvent("overview", "{}"), ServerEvent("event", json.dumps(second), "life.2")]
    rest = Answers({"/events": {"events": [first]}}, stream)
    with pytest.raises(KeyboardInterrupt):
        await command.serve(parsed("events", "--follow"), rest, ManualClock())

    assert capsys.readouterr().out.splitlines() == [
        "1970-01-01 00:00:00Z  info   flow_started  topics: 1",
        "1970-01-01 00:00:01Z  info   topic_created  topics: 1",
    ]
    assert rest.queries[-1]["after"] == "life.1"


def summary(**facts: object) -> dict[str, Any]:
    """Return a flow's summary as the daemon answers it."""
    healthy: dict[str, Any] = {
        "flow": "A->B",
        "source": "A",
        "target": "B",
        "state": "running",
        "topics": 3,
        "partitions": 1200,
        "nodes": 1,
        "records_per_s": 1234.5,
        "bytes_per_s": 2_500_000.0,
        "lag": 17,
        "lag_is_least": False,
        "lag_s_is_least": False,
        "lag_s": 61.0,
        "seconds_until_level": 150.0,
        "latency_p50_ms": 1.25,
        "latency_p99_ms": None,
        "last_error": "",
        "hint": "",
        "connectors": {SOURCE: "running"},
        "issues": [],
    }
    return {**healthy, **facts}


def node(*flows: dict[str, Any], is_ready: bool = True) -> dict[str, Any]:
    spark = {"slots": 2, "used": 1, "waiting": 0, "is_up": True}
    facts = {"version": "1", "worker_id": "h:8083", "wall_ms": 90_000, "started_ms": 0, "is_ready": is_ready}
    is_healthy = is_ready and not any(flow["issues"] for flow in flows)
    return {**facts, "spark": spark, "is_healthy": is_healthy, "issues": [], "flows": list(flows)}


def test_a_node_is_shown_in_plain_text() -> None:
    """Columns stand below their heads, numbers to the right, what is not known as a dash."""
    lines = shown(flow_pages.status_page(node(summary()))).splitlines()

    assert lines[:5] == [
        "node     h:8083",
        "version  1",
        "state    ready",
        "up for   1 min 30 s",
        "spark    up, 2 slots, 1 in use",
    ]
    assert lines[6].startswith("FLOW  STATE    TOPICS  PARTITIONS  RECORDS/S")
    assert lines[7].split("  ")[0] == "A->B"
    assert [cell.strip() for cell in lines[7].split("  ") if cell][1:] == [
        "running", "3", "1,200", "1,234", "2.5 MB", "17", "1 min 1 s", "2 min 30 s", "1.2", "-",
    ]  # fmt: skip


def test_flows_of_several_nodes_have_their_number() -> None:
    """The column is there once a flow has more than one."""
    one, two = (shown(flow_pages.status_page(node(summary(nodes=number)))).splitlines()[6:] for number in (1, 2))

    assert "NODES" not in one[0]
    assert two[0].split()[:4] == ["FLOW", "STATE", "NODES", "TOPICS"]
    assert two[1].split()[:4] == ["A->B", "running", "2", "3"]


def test_issues_are_shown_below_the_flows() -> None:
    """What the daemon judged is shown word for word, with what to try."""
    issue = {"message": "t-3 is stopped", "cause": "it was created again", "hint": "see the runbook"}
    page = shown(flow_pages.status_page(node(summary(issues=[issue]))))

    assert "running, but something needs attention" in page
    assert "A->B: t-3 is stopped: it was created again; see the runbook" in page


@pytest.mark.parametrize("width", [30, 60, 80, 100, 200])
def test_tables_fit_a_terminal(width: int) -> None:
    """However narrow a terminal is, no column vanishes and no number is broken; at last each row is a block."""
    parts = flow_pages.status_page(node(summary(flow="us-west->us-east", lag=123_456_789)))
    console = Console(width=width, force_terminal=True, color_system=None, file=io.StringIO())
    console.print(sheets.draw(parts))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    text = "".join(line.strip() for line in lines)

    assert max(map(len, lines)) <= width
    assert "123,456,789" in "".join(lines)
    for word in ("us-west->", "running", "records/s", "p99 ms"):
        assert word in text


def topics_shown(**facts: object) -> str:
    """Return the page of one topic as text."""
    topic = {
        "topic": "orders", "remote_topic": "A.orders", "partitions": 3, "stage": "paused", "is_paused": False,
        "stages": {"paused": 3}, "elsewhere": {}, "lag": 0, "lag_is_least": False, "lag_s": 0.0,
        "lag_s_is_least": False,
        "record_rate": 0.0, "byte_rate": 0.0,
        "age_ms": None, "limit": None, "seconds_until_loss": None, "seconds_until_level": None, "retry_in_s": None,
        "last_error": "", "hint": "",
    }  # fmt: skip
    return shown(flow_pages.topics_page({"total": 1, "topics": [{**topic, **facts}]}))


def test_a_partition_that_rests_does_not_make_its_topic_a_paused_one() -> None:
    """Partitions are counted by state if they are not all in the same one."""
    assert "2 copying, 1 paused" in topics_shown(stages={"copying": 2, "paused": 1})
    assert "  paused  " in topics_shown(stages={"paused": 3})


@pytest.mark.parametrize(("seconds", "text"), [(90.0, "1 min 30 s"), (0.2, "now"), (None, "-")])
def test_a_topic_says_when_it_will_have_caught_up(seconds: float | None, text: str) -> None:
    """Beside how far behind it is."""
    head, line = topics_shown(seconds_until_level=seconds).splitlines()
    end = head.index("LEVEL IN") + len("LEVEL IN")

    assert line[:end].endswith(f" {text}")


def whole_flow(**facts: Any) -> dict[str, Any]:
    """Return a flow's status and overrides, as REST shows them."""
    numbers = dict.fromkeys(("missing_partitions", "records", "bytes", "throttled_ms"), 0)
    lists: dict[str, Any] = {name: [] for name in ("clusters", "groups", "tasks", "nodes")}
    limit = {"bytes_per_s": None, "records_per_s": None}
    overrides = {"flow": "A->B", "limit": limit, "topics": [], "partitions": []}
    overrides |= {key: {} for key in ("connectors", "topic_limits", "config", "pauses")}
    status = {"stages": {}, "age_p50_ms": None, "steps": [], "wall_ms": 1_000_000, "overrides": overrides}
    return summary(**numbers, **lists, **status) | facts


def test_a_flow_says_when_its_source_was_listed() -> None:
    """By the daemon's clock; one without a checkpoint connector lists no groups."""
    steps = [
        {"step": "refresh topics", "succeeded_ms": 996_000},
        {"step": "list consumer groups", "succeeded_ms": None},
    ]
    lines = shown(flow_pages.flow_page(whole_flow(steps=steps, seconds_until_loss=None))).splitlines()

    assert [line.split(maxsplit=1)[1] for line in lines if line.startswith("looked")] == ["topics 4.0 s ago"]


def test_a_pause_has_its_author_and_age() -> None:
    """Of what a worker pauses for itself, Connect does not store them."""
    flow = whole_flow(seconds_until_loss=None)
    flow["overrides"] |= {"connectors": {SOURCE: "stopped"}, "topics": ["t"]}
    flow["overrides"]["pauses"] = {"topic t": {"by": "ann", "at_ms": 940_000}}
    text = shown(flow_pages.flow_page(flow))

    assert re.search(r"topic t +paused 1 min 0 s ago by ann", text)
    assert re.search(rf"{SOURCE} +stopped$", text, re.MULTILINE)


@pytest.mark.parametrize(("lag", "is_said"), [(1, True), (0, False)])
def test_only_records_that_wait_can_be_lost(lag: int, is_said: bool) -> None:
    """At lag 0 the daemon answers with what the source's retention leaves the next record."""
    facts: dict[str, Any] = {"lag": lag, "seconds_until_loss": 604_800.0}
    flow = whole_flow(**facts)

    assert ("the source may delete records" in shown(flow_pages.flow_page(flow))) is is_said
    assert ("loss in 7 d" in topics_shown(**facts)) is is_said


def test_names_cannot_steer_a_terminal() -> None:
    """Control characters in what comes from a cluster are not printed."""
    texts = dict.fromkeys(("why", "at_target", "at_target_why"), "")
    group = {"group": "evil\x1b[2J\ngroup", "offsets": [], "move": None, **texts}

    lines = shown(flow_pages.groups_page([group])).splitlines()
    assert len(lines) == 2
    assert "\x1b" not in lines[1]


def test_offsets_in_the_shape_of_each_connector() -> None:
    """KIP-875 leaves the fields to the connector: each becomes a column. A source's are positions, as everywhere, the
    next offset to read; KIP-875 has that of the last record.
    """

    def columns(partition: dict[str, object]) -> list[list[str]]:
        entry = {"partition": partition, "offset": {"offset": 41}}
        lines = shown(flow_pages.offsets_page({"offsets": [entry, {**entry, "offset": None}]})).splitlines()
        return [line.split() for line in lines]

    assert columns({"cluster": "A", "partition": 0, "topic": "t"}) == [
        ["CLUSTER", "PARTITION", "TOPIC", "POSITION"],
        ["A", "0", "t", "42"],
        ["A", "0", "t", "-"],
    ]
    assert columns({"group": "g", "partition": 0, "topic": "t"})[:2] == [
        ["GROUP", "PARTITION", "TOPIC", "OFFSET"],
        ["g", "0", "t", "41"],
    ]


def test_settings_that_count_instead_of_the_file_s() -> None:
    """What was set while it runs comes first, beside what the file says."""
    changed = [{"connector": SOURCE, "key": "topics", "value": "a", "file_value": "b"}]
    lines = shown(flow_pages.config_page({"topics": "a", "tasks.max": "1"}, changed, [])).splitlines()

    assert [line.split() for line in lines if line] == [
        ["Set", "while", "it", "runs"],
        ["KEY", "VALUE", "IN", "THE", "FILE"],
        ["topics", "a", "b"],
        ["KEY", "VALUE"],
        ["tasks.max", "1"],
        ["topics", "a"],
    ]


def _documented() -> set[str]:
    """Return the commands that the handbook explains, and those that runbooks and others tell to type."""
    texts = {document: re.sub(r"\s+", " ", document.read_text()) for document in DOCUMENTS}
    typed = re.findall(r"`(mm2py (?:status|flow '[^']*')[^`…]*)`", " ".join(texts.values()))
    return {*typed, *re.findall(r"`(mm2py (?:status|flow) [^`]*)`", texts[HANDBOOK])}


@pytest.mark.parametrize("line", sorted(_documented()))
def test_documented_commands_exist(line: str) -> None:
    """Each command of a document is one that the program takes, and that makes sense."""
    _, name, *words = shlex.split(line.removesuffix(" --help"))
    if name == "flow" and not words:
        return
    if name == "status":
        status.make_parser().parse_args(words)
        return
    options = command.make_parser().parse_args(words)
    if options.verb in {"pause", "resume", "stop", "restart", "config"} and getattr(options, "action", "") != "get":
        assert asked(*words[1:])
