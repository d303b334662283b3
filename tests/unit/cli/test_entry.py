"""Where installed commands begin."""

from __future__ import annotations

import importlib
import io
import json
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from mm2py.cli import entry
from mm2py.cli.exit_code import ExitCode


_PROJECT = Path(__file__).parents[3] / "pyproject.toml"
_COMMANDS = tomllib.loads(_PROJECT.read_text())["project"]["scripts"]


@pytest.mark.parametrize("command", _COMMANDS)
def test_ctrl_c_while_a_command_loads_ends_it_quietly(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is pressed in the middle of an import: the exit code says so, and no traceback."""
    module, _, function = _COMMANDS[command].partition(":")
    begin = getattr(importlib.import_module(module), function)

    def interrupt(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupt)

    assert begin() == ExitCode.INTERRUPTED == 130
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("command", _COMMANDS)
def test_each_command_is_the_one_of_its_name(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its help names it."""
    module, _, function = _COMMANDS[command].partition(":")
    monkeypatch.setattr("sys.argv", [command, "--help"])

    with pytest.raises(SystemExit) as ended:
        getattr(importlib.import_module(module), function)()

    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: {command} ")


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [("utf-8", "grüße 日本 😀"), ("latin-1", r"grüße \u65e5\u672c \ud83d\ude00")],
    ids=["utf-8", "latin-1"],
)
def test_what_a_terminal_cannot_show_is_escaped(monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str) -> None:
    """A group's name in a locale of ISO 8859, for example: it ended the command with a traceback."""
    name, out = "grüße 日本 😀", io.BytesIO()
    command = SimpleNamespace(main=lambda: 0 * sys.stdout.write(json.dumps(name, ensure_ascii=False)))
    monkeypatch.setattr(importlib, "import_module", lambda _name: command)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding, write_through=True))
    code = entry.mm2py()
    printed = out.getvalue().decode(encoding)

    assert (code, printed, json.loads(printed)) == (0, f'"{shown}"', name)
