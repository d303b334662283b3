"""The page's files: what they hold and must not, and how they are given."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import mm2py.rest
from mm2py.model.flow import Flow
from mm2py.telemetry.events import ClusterRecovered, ClusterUnreachable
from tests.support.rest_asking import Asking, asking


DOCS = Path(__file__).parents[4] / "docs"
STATIC = Path(mm2py.rest.__file__).parent / "static"
OURS = sorted(path for path in STATIC.rglob("*") if path.is_file() and "vendor" not in path.parts)
SCRIPTS = [path for path in OURS if path.suffix == ".js"]
#: Ways by which text could become part of the page, or code.
UNSAFE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc")
OUTSIDE = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]{2,}", re.IGNORECASE)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_text_never_becomes_part_of_the_page(path: Path) -> None:
    """Names and errors come from Kafka: they are set as text, by no other way."""
    assert UNSAFE.findall(path.read_text()) == []


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_nothing_comes_from_elsewhere(path: Path) -> None:
    """No file names another host, but for the name of SVG's elements."""
    text = path.read_text().replace("http://www.w3.org/2000/svg", "")

    assert OUTSIDE.findall(text) == []


def test_the_page_has_nothing_inline() -> None:
    """The policy forbids scripts and styles within the page; what it refers to is there."""
    text = (STATIC / "index.html").read_text()
    named = re.findall(r"(?:src|href)=\"static/([^\"]+)\"", text)

    assert re.findall(r"<script(?![^>]*src=)|<style|\sstyle=|\son\w+=", text) == []
    assert named
    assert [name for name in named if not (STATIC / name).is_file()] == []


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_what_a_module_imports_is_there(path: Path) -> None:
    """Nothing is bundled, so each import is a file; and each name that is imported is exported there."""
    for names, target in re.findall(r"import (.+?) from \"([^\"]+)\"", path.read_text()):
        other = (path.parent / target).resolve()

        assert other.is_file(), target
        for name in re.findall(r"[\w$]+(?= as|[,} ])", names) if "{" in names else ():
            if name not in {"as", "level", "called"}:
                assert re.search(rf"export .*\b{name}\b", other.read_text()), f"{name} of {target}"


def test_what_is_not_ours_has_its_licence() -> None:
    """Each library stands in a folder of its own with its licence beside it."""
    for folder in (STATIC / "vendor").iterdir():
        assert "Permission is hereby granted" in (folder / "LICENSE.txt").read_text()


async def test_a_file_that_a_browser_has_is_not_sent_again(ask: Asking) -> None:
    """It is asked each time, so that an update of the daemon is one of the page too."""
    first = await ask("GET", "/static/js/main.js")
    again = await ask("GET", "/static/js/main.js", If_None_Match=first.headers["ETag"])
    other = await ask("GET", "/static/js/main.js", If_None_Match='"another"')

    assert first.headers["Cache-Control"] == "no-cache"
    assert first.headers["Content-Type"] == "text/javascript; charset=utf-8"
    assert (again.status, again.text) == (304, "")
    assert (other.status, other.text) == (200, first.text)


async def test_the_page_s_own_policy(ask: Asking) -> None:
    """It may use its own files and addresses, and nothing else; no other page may hold it in a frame."""
    got = await ask("GET", "/", Accept="text/html")
    policy = dict(part.strip().split(" ", 1) for part in got.headers["Content-Security-Policy"].split(";"))

    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert {policy[name] for name in ("script-src", "style-src", "img-src", "connect-src")} == {"'self'"}
    assert got.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", ["nothing.js", "../page.py", "..%2fpage.py", "js/", "%2e%2e/%2e%2e/errors.py"])
async def test_only_the_page_s_files_are_given(ask: Asking, name: str) -> None:
    """What is asked for is looked up among the files that were read, never on disk."""
    got = await ask("GET", f"/static/{name}")

    assert got.status == 404


@pytest.mark.parametrize("name", ["runbooks.md", "events.md", "security.md"])
async def test_documents_come_with_the_page(ask: Asking, name: str) -> None:
    """The daemon serves the runbooks itself, the page that has each event, and all others: events link to them."""
    got = await ask("GET", f"/static/docs/{name}")

    assert (got.status, got.text) == (200, (DOCS / name).read_text())


async def test_the_stream_needs_credentials(tmp_path: Path) -> None:
    """As every address that shows numbers does."""
    ask = asking(tmp_path, "rest.auth.read.tokens = see")

    assert (await ask("GET", "/stream")).status == 401


async def test_who_asks_and_what_they_may_do(tmp_path: Path) -> None:
    """The page shows buttons to those who may use them, and tells others why there are none."""
    ask = asking(tmp_path, "rest.auth.read.tokens = see", "rest.auth.write.tokens = do")
    reader = (await ask("GET", "/whoami", Authorization="Bearer see")).json
    writer = (await ask("GET", "/whoami", Authorization="Bearer do")).json

    assert (reader["may_write"], "read permission only" in reader["why_not"]) == (False, True)
    assert (writer["may_write"], writer["why_not"]) == (True, "")


async def test_the_page_asks_by_itself(tmp_path: Path) -> None:
    """A browser that is asked for a password puts a dialogue over the page; others are told that they may."""
    users = tmp_path / "users"
    users.write_text("")
    ask = asking(tmp_path, "rest.auth.read.tokens = see", f"rest.auth.users.file = {users}")
    got = await ask("GET", "/whoami", X_Requested_With="mm2py")

    assert got.headers.getall("WWW-Authenticate") == ['Bearer realm="mm2py"']


async def test_events_of_what_is_not_there_are_refused(ask: Asking) -> None:
    """A level that there is not, or a flow, is told: nothing found would look like nothing happened."""
    level = await ask("GET", "/events?level=loud")
    flow = await ask("GET", "/events?flow=A-%3EC")
    stream = await ask("GET", "/stream?flow=nothing")

    assert (level.status, flow.status, stream.status) == (400, 404, 404)
    assert "debug, info, warn, error" in level.json["message"]
    assert "flow A->C" in flow.json["message"]
    assert "flow nothing" in stream.json["message"]


async def test_recent_events_are_chosen(ask: Asking) -> None:
    """By flow, by level, and those after one that is known."""
    ask.node.events.emit(ClusterUnreachable(Flow("A", "B"), "B", "gone", "start it"))
    ask.node.events.emit(ClusterRecovered(Flow("A", "B"), "B", 3.0, 2))
    ask.node.events.emit(ClusterRecovered(Flow("B", "A"), "B", 3.0, 2))
    everything = (await ask("GET", "/events")).json["events"]
    of_flow = (await ask("GET", "/events?flow=A-%3EB")).json["events"]
    warnings = (await ask("GET", "/events?level=warn")).json["events"]
    later = (await ask("GET", f"/events?after={everything[0]['mark']}")).json["events"]

    assert [one["name"] for one in everything] == ["cluster_unreachable", "cluster_recovered", "cluster_recovered"]
    assert len(of_flow) == 2
    assert [one["text"] for one in warnings] == ["cluster B, gone. What to try: start it"]
    assert later == everything[1:]
