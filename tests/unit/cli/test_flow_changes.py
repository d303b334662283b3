"""Commands that change or follow a flow: what is asked first, what is told afterwards, and what stays as it is."""

from __future__ import annotations

import argparse

import pytest

from mm2py.cli import events, flow_pages, sheets, status
from mm2py.cli import flow as command
from mm2py.cli.exit_code import ExitCode
from mm2py.devkit.ports import free_ports
from tests.support.clocks import ManualClock
from tests.support.daemon_answers import Answers


AT = "/from:A/to:B"
SOURCE = "MirrorSourceConnector"


def parsed(*words: str) -> argparse.Namespace:
    return command.make_parser().parse_args(["A->B", *words])


def shown(parts: list[sheets.Part]) -> str:
    return "\n".join(sheets.plain_lines(parts))


async def test_only_events_that_are_severe_enough(capsys: pytest.CaptureFixture[str]) -> None:
    """Of a flow, or of the whole node; numbers with narrow spaces in them are shown with plain ones."""
    texts = {"debug": "a", "info": "b", "warn": "12\N{NARROW NO-BREAK SPACE}345 records\nmore", "error": "d"}
    rows = [{"wall_ms": 0, "level": level, "mark": "m", "name": "it", "text": text} for level, text in texts.items()]
    options = events.make_parser().parse_args(["--level", "warn"])
    await events.show_events(options, Answers({"/events": {"events": rows}}), ManualClock())

    assert capsys.readouterr().out.splitlines() == [
        "1970-01-01 00:00:00Z  warn   it  12 345 records more",
        "1970-01-01 00:00:00Z  error  it  d",
    ]


async def test_what_stays_paused_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """A topic that was paused by itself is not resumed with the flow."""
    overrides = {
        "connectors": {"MirrorHeartbeatConnector": "STOPPED"},
        "topics": ["orders"],
        "partitions": [{"topic": "clicks", "partition": 3}],
    }
    await command.serve(parsed("resume"), Answers({f"{AT}/overrides": overrides}), ManualClock())

    assert capsys.readouterr().out.splitlines() == [
        "A->B resumed",
        (
            "still paused: MirrorHeartbeatConnector (stopped), topic orders, clicks-3; resume each by its name, or "
            "mm2py flow 'A->B' revert reverts all overrides"
        ),
    ]


async def test_keys_of_several_connectors_are_set_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Each key is sent to the connector that uses it."""
    rest = Answers({})
    words = ["topics=a", "sync.group.offsets.enabled=true", "tasks.max=2"]
    await command.serve(parsed("config", "set", *words), rest, ManualClock())

    assert [path for _, path in rest.asked] == [
        f"{AT}/connectors/{SOURCE}/config",
        f"{AT}/connectors/MirrorCheckpointConnector/config",
    ]
    assert capsys.readouterr().out.splitlines()[0] == f"{SOURCE} of A->B: topics, tasks.max changed"


@pytest.mark.parametrize(
    ("words", "asked_first"),
    [
        (["restart"], "Restart A->B?"),
        (["restart", "--connector", "source"], "Restart the source connector of A->B?"),
        (["restart", "--task", "0"], ""),
        (["restart", "--yes"], ""),
        (
            ["config", "set", "tasks.max=2"],
            "Change tasks.max of A->B? Copying drains and restarts; no record is lost or repeated.",
        ),
        (
            ["config", "set", "groups=g"],
            "Change groups of A->B? MirrorCheckpointConnector will restart; copying continues.",
        ),
        (["config", "get"], ""),
        (["revert"], "Revert all overrides of A->B? What they changed restarts."),
        (["pause"], ""),
    ],
)
def test_what_restarts_asks_first_on_a_terminal(
    words: list[str], asked_first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is sent unless the answer is yes."""
    questions: list[str] = []

    def decline(question: str) -> str:
        questions.append(question)
        return ""

    monkeypatch.setattr(command, "has_terminal", lambda: True)
    monkeypatch.setattr("builtins.input", decline)
    sent: list[argparse.Namespace] = []

    async def send(options: argparse.Namespace, _clock: object) -> None:
        sent.append(options)

    monkeypatch.setattr(command, "_run", send)
    code = command.main(["A->B", *words])

    assert questions == ([f"{asked_first} [y/N] "] if asked_first else [])
    assert (code, bool(sent)) == ((ExitCode.FAILED, False) if asked_first else (ExitCode.OK, True))


def test_partitions_of_a_topic() -> None:
    """Each with its position, and what blocks it; one that another node copies has no figures."""
    empty = dict.fromkeys(("position", "end_offset", "lag", "lag_s", "record_rate", "byte_rate", "task", "failure"))
    here = {
        "position": 42,
        "end_offset": 50,
        "lag": 8,
        "task": 1,
        "failure": {"message": "too large", "hint": "raise it"},
    }
    rows = [
        {**empty, "partition": 0, "is_paused": False, "stage": "stopped", "node": "", **here},
        {**empty, "partition": 1, "is_paused": True, "stage": "elsewhere", "node": "mirror-2:8083"},
    ]
    lines = shown(flow_pages.partitions_page(rows)).splitlines()

    assert [line.split() for line in lines[1:]] == [
        ["0", "stopped", "42", "50", "8", "-", "-", "-", "1", "this", "one", "too", "large;", "raise", "it"],
        ["1", "paused", "-", "-", "-", "-", "-", "-", "-", "mirror-2:8083"],
    ]


def test_what_to_do_next_can_be_pasted() -> None:
    """The flow that needs attention, and a page that this node serves, wherever it is installed."""
    flows = [{"flow": "A->B", "issues": []}, {"flow": "C->D", "issues": [{}]}]
    error = status.unhealthy({"worker_id": "n:1", "flows": flows}, "http://n:1/")

    assert error.hint == "mm2py flow 'C->D' has details, http://n:1/static/docs/runbooks.md what to do"


def test_a_check_tells_attention_from_silence(capsys: pytest.CaptureFixture[str]) -> None:
    """A daemon that does not answer is no daemon that is ill."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"

    assert status.main(["--url", url, "--check"]) == ExitCode.UNREACHABLE
    assert status.main(["--url", url]) == ExitCode.FAILED
    assert "no daemon answers" in capsys.readouterr().err
