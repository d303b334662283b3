"""``mm2py completion``: what a shell offers for a line that is being typed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli.completion import all_commands
from mm2py.cli.completion_values import values_of


_PROGRAM = Path(sys.executable).with_name("mm2py")
#: Asks bash for what may follow the words, the last of which is being typed.
_ASK = """\
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_mm2py
echo "${COMPREPLY[*]}"
"""


@pytest.fixture
def script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    assert command.main(["completion", "bash"]) == 0
    path = tmp_path / "mm2py.bash"
    path.write_text(capsys.readouterr().out)
    return path


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["st"], {"status", "standalone"}),
        (["flow", "A->B", "pa"], {"pause", "partitions"}),
        (["flow", "A->B", "config", "re"], {"revert"}),
        (["flow", "A->B", "config", "set", "--conn"], {"--connector"}),
        (["offsets", "describe", "--fo"], {"--format"}),
        (["completion", ""], {"bash", "fish", "zsh"}),
    ],
)
def test_what_may_follow(script: Path, words: list[str], offered: set[str], tmp_path: Path) -> None:
    """Commands, verbs, choices and options, whatever the flow is called."""
    answer = subprocess.run(
        ["bash", "-c", _ASK, "bash", str(script), "mm2py", *words],
        check=True, capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip

    assert offered <= set(answer.stdout.split())


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_the_script_is_one_that_its_shell_reads(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["completion", shell])
    script = capsys.readouterr().out
    if shutil.which(shell) is None:
        assert "flow" in script
        return
    (tmp_path / "script").write_text(script)
    done = subprocess.run(
        [shell, "-n", str(tmp_path / "script")], check=False, capture_output=True, text=True, cwd=tmp_path
    )

    assert (done.returncode, done.stderr) == (0, "")


#: What prints nothing to be read by programs but what already is for them: a show, documents, lines of a file, a
#: shell's script;
#: and words that only lead to others.
_WITHOUT_JSON = {("demo",), ("docs",), ("rest-user",), ("completion",), ("offsets",), ()}


def test_every_command_that_shows_something_shows_it_as_json() -> None:
    assert {one.path for one in all_commands() if "--json" not in one.words} == _WITHOUT_JSON


def _offered(script: Path, words: list[str], folder: Path, **environment: str) -> tuple[list[str], str]:
    """Return what bash offers for a line of *words*, and what got onto the terminal beside it."""
    line = ["bash", "-c", _ASK, "bash", str(script), str(_PROGRAM), *words]
    answer = subprocess.run(
        line, check=True, capture_output=True, text=True, cwd=folder, env={**os.environ, **environment}
    )
    return answer.stdout.split(), answer.stderr


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["offsets", "describe", "--format", ""], {"table", "csv", "json"}),
        (["flow", "A->B", "pause", "--connector", "c"], {"checkpoint"}),
        (["events", "--level", "="], {"debug", "info", "warn", "error"}),
        (["events", "--level", "=", "w"], {"warn"}),
        (["docs", "sec"], {"security"}),
        (["offsets", "describe", "mm2.properties", ""], {"A->B", "B->A"}),
        (["offsets", "describe", "mm2.properties", "'A"], {"A->B"}),
        (["mirror", "mm2.properties", "--clusters", ""], {"A", "B"}),
        (["verify", "mm2.properties", "A->B", "--topics", ""], {"orders"}),
        (["mirror", "mm2.properties", "--override", "refresh.topics.i"], {"refresh.topics.interval.seconds="}),
    ],
)
def test_values_of_options(script: Path, words: list[str], offered: set[str], tmp_path: Path) -> None:
    """Those that are fixed, and names of the file on the line; nothing else is offered instead of a value."""
    (tmp_path / "mm2.properties").write_text(
        "clusters = A, B\nA->B.enabled = true\nB->A.enabled = false\ntopics = orders, payments-.*\n"
    )
    found, error = _offered(script, words, tmp_path)

    assert {one for one in found if not one.startswith("-")} == offered | ({"--"} & set(found))
    assert error == ""


@pytest.mark.parametrize(
    "words", [["flow", ""], ["flow", "A->B", "pause", "--topic", ""], ["flow", "A->B", "groups", "x"]]
)
def test_a_node_that_does_not_answer_offers_nothing(script: Path, words: list[str], tmp_path: Path) -> None:
    """No error gets into the line that is typed."""
    found, error = _offered(script, words, tmp_path, MM2PY_URL="http://127.0.0.1:1")

    assert not {"A->B", "orders"} & set(found)
    assert error == ""


@pytest.mark.parametrize(
    ("kind", "words", "offered"),
    [
        ("flows", ["flow", ""], ["A->B", "B->A"]),
        ("clusters", ["topics", "dump", "--source", ""], ["A", "B"]),
        ("topics", ["flow", "A->B", "pause", "--topic", "or"], ["orders"]),
        ("groups", ["flow", "'A->B'", "groups", "--search", ""], ["shop", "till"]),
        ("settings", ["flow", "A->B", "config", "set", ""], ["tasks.max=", "topics="]),
        ("settings", ["flow", "A->B", "config", "unset", ""], ["topics"]),
        ("topics", ["flow", "pause", "--topic", ""], []),
    ],
)
def test_values_of_a_node(kind: str, words: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Flows, topics, groups and settings are those of the running node; without its flow, none."""
    answers = {
        "/status": {"flows": [{"flow": "A->B"}, {"flow": "B->A"}]},
        "/from:A/to:B/topics": {"topics": [{"topic": "orders"}, {"topic": "clicks"}]},
        "/from:A/to:B/groups": [{"group": "shop"}, {"group": "till"}],
        "/from:A/to:B/config": [
            {"key": "topics", "origin": "override", "why_not": ""},
            {"key": "tasks.max", "origin": "default", "why_not": ""},
            {"key": "spark.master", "origin": "default", "why_not": "change it in the file"},
        ],
    }
    with _node(answers) as url:
        monkeypatch.setenv("MM2PY_URL", url)

        assert values_of(kind, words) == offered


@contextmanager
def _node(answers: Mapping[str, object]) -> Iterator[str]:
    """Run an HTTP server that gives *answers*, and return its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(answers[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
