"""Where installed commands begin."""

from __future__ import annotations

import importlib
import tomllib
from pathlib import Path

import pytest

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
