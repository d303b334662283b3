"""``mm2py offsets``: what the arguments mean."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from mm2py.cli import main as command
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.position_changes import NotConfirmedError, confirm
from tests.support.mm2_file import mm2_properties


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mm2.properties"
    path.write_text(mm2_properties("127.0.0.1:1", "127.0.0.1:1"))
    return path


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["translate", "{file}", "A", "group"], "A is not a flow; write A->B", id="no flow"),
        pytest.param(["translate", "{file}", "A->C", "group"], "flow C: unknown cluster", id="unknown cluster"),
        pytest.param(["translate", "{file}", "A->B"], "required: GROUP|TOPIC:PARTITION:OFFSET", id="nothing to do"),
        pytest.param(["remove", "{file}", "A->B", "group"], "invalid choice: 'remove'", id="no such action"),
        pytest.param(["describe", "{file}", "A"], "A is not a flow; write 'A->B'", id="no flow to describe"),
        pytest.param(["describe", "{file}", "A->C"], "has no flow A->C; its flows: A->B", id="unknown flow"),
        pytest.param(["export", "{file}", "--topics", "("], "--topics: ", id="invalid expression"),
        pytest.param(["import", "{file}", "A->B"], "name one file with offsets", id="nothing to import"),
        pytest.param(
            ["import", "{file}", "x.csv", "--from-mirus", "t"], "name one file with offsets", id="two things to import"
        ),
        pytest.param(["import", "{file}", "nowhere.csv"], "nowhere.csv cannot be read: No such file", id="no file"),
        pytest.param(["reset", "{file}", "--all-topics"], "one of the arguments --to-earliest", id="reset to nothing"),
        pytest.param(["reset", "{file}", "--to-latest"], "name topics with --topics, or take", id="reset of nothing"),
        pytest.param(
            ["reset", "{file}", "--topics", "t", "--to-datetime", "2026-11-01"], "has no time zone", id="no time zone"
        ),
    ],
)
def test_arguments_that_make_no_sense(
    arguments: list[str], said: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Arguments that cannot be meant end with one line and Java's exit code."""
    try:
        code: object = command.main(["offsets", *(argument.format(file=file) for argument in arguments)])
    except SystemExit as ended:
        code = ended.code

    assert code == ExitCode.BAD_ARGUMENTS
    assert said in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("answer", "is_yes"), [("y", True), (" YES ", True), ("", False), ("n", False), ("yesterday", False)]
)
def test_a_reset_is_confirmed_on_a_terminal(answer: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a clear yes is one; anything else changes nothing."""
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("builtins.input", lambda _question: answer)

    with nullcontext() if is_yes else pytest.raises(NotConfirmedError):
        confirm()
