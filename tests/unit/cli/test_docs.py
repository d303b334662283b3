"""``mm2py docs``: pages as they are installed, and that hints name what there is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mm2py
from mm2py.cli import main as command
from mm2py.cli.docs import section
from mm2py.cli.exit_code import ExitCode
from mm2py.rest.page.documents import documents


_CODE = Path(mm2py.__file__).parent
_IN_A_CHECKOUT = re.compile(r"(?<!static/)docs/[\w-]+\.md")
_PAGE = re.compile(r"mm2py docs ([\w-]+)(#[\w-]+)?")


def _texts() -> Iterator[tuple[str, str]]:
    """Yield each string of the code that is no docstring, with its file."""
    for path in sorted(_CODE.rglob("*.py")):
        text = path.read_text()
        if "docs" not in text:
            continue
        tree = ast.parse(text)
        words = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
                yield str(path.relative_to(_CODE)), node.value


def test_hints_name_pages_that_an_installed_host_has() -> None:
    """A path of the checkout is nothing there; ``mm2py docs PAGE`` is, if the page and the section exist."""
    texts = list(_texts())
    paths = [(file, text) for file, text in texts if _IN_A_CHECKOUT.search(text)]
    named = {found.groups(default="") for _, text in texts for found in _PAGE.finditer(text)}
    pages = {name.removesuffix(".md"): file.read_text() for name, file in documents().items()}

    assert paths == []
    assert ("transforms", "#one-topic-one-remote-topic") in named
    assert [(page, to) for page, to in sorted(named) if not section(pages[page], to.removeprefix("#")) and to] == []
    assert {page for page, _ in named} <= pages.keys()


@pytest.mark.parametrize("page", ["security", "security.md", "docs/security.md"])
def test_a_page_is_printed(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["docs", page]) == ExitCode.OK

    assert capsys.readouterr().out == documents()["security.md"].read_text()


def test_a_section_is_printed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["docs", "security#what-to-grant"]) == ExitCode.OK

    out = capsys.readouterr().out
    assert out.startswith("## What to grant\n")
    assert "\n## " not in out


def test_a_comment_in_an_example_is_no_heading() -> None:
    text = "# A page\n## One\n```sh\n# Two\n```\n### Inner\n## Two\nend\n"

    assert section(text, "one") == ["## One", "```sh", "# Two", "```", "### Inner"]
    assert section(text, "two") == ["## Two", "end"]
    assert section(text, "three") == []


def test_all_pages_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["docs"]) == ExitCode.OK

    out = capsys.readouterr().out
    assert all(name.removesuffix(".md") in out for name in documents())
    assert "Failing over" in out
    assert f"They are in {_CODE.parent / 'docs'}." in out


@pytest.mark.parametrize("page", ["nothing", "../README", "security#nothing"])
def test_what_there_is_not_is_a_mistake(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["docs", page]) == ExitCode.BAD_ARGUMENTS

    assert capsys.readouterr().err.startswith("mm2py docs: ")
