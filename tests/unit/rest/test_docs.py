"""docs/rest.md: every address is there, and its examples do what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import attrs
import pytest

from mm2py.model.health import IssueCode
from mm2py.rest.app import ROUTES
from tests.support.rest_asking import asking


_PAGE = (Path(__file__).parents[3] / "docs/rest.md").read_text()
_FLOW = "/from:{source}/to:{target}"


def _examples() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("curl ")]


def test_every_address_is_explained() -> None:
    """The page names each method of each path, and none that there is not."""
    named = set()
    for method, path in re.findall(r"`(GET|PUT|POST|PATCH|DELETE) ([^` ]+)`", _PAGE):
        whole = path.replace("…", _FLOW).replace("/from:A/to:B", _FLOW)
        named.add((method, whole))
    # These are told of in one sentence.
    named |= {(method, f"{_FLOW}/topics/{{topic}}/limit") for method in ("GET", "PUT", "DELETE")}

    there = {(route.method, re.sub(r":\.\+\}", "}", route.path)) for route in ROUTES}

    assert there - named == set()
    assert named - there == set()


def test_every_issue_is_explained() -> None:
    """The table has each code once, below the severity that it has."""
    rows = re.findall(r"^\| (error|warning|note) \| (.*) \|$", _PAGE, re.MULTILINE)
    named = [code for _, codes in rows for code in re.findall(r"`(\w+)`", codes)]

    assert sorted(named) == sorted(code.name.lower() for code in IssueCode)


@pytest.mark.parametrize("line", _examples())
async def test_examples_are_answered(tmp_path: Path, line: str) -> None:
    """Each curl of the page gets an answer that is no error."""
    ask = asking(tmp_path)
    words = shlex.split(line)[1:]
    method, headers, body, url = "GET", {}, None, ""
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-H":
            name, _, value = words.pop(0).partition(": ")
            headers[name.replace("-", "_")] = value
        elif word == "-d":
            body = json.loads(words.pop(0))
        else:
            url = word
    if headers.get("Authorization") == "Bearer TOKEN":
        ask = asking(tmp_path, "rest.auth.read.tokens = TOKEN")

    if "/health/ready" in url:
        ask.node.shown = attrs.evolve(ask.node.shown, flows=(attrs.evolve(ask.node.shown.flows[0], partitions=()),))

    got = await ask(method, url.removeprefix("localhost:8083") or "/", body, **headers)

    assert got.status in {200, 202, 204}, got.text
