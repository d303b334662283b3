"""What is asked before positions are changed, and what becomes of a change whose output nothing reads."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import SimpleNamespace

import pytest

from mm2py.cli import position_changes
from mm2py.cli.command import NotConfirmedError
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.position_changes import confirm
from mm2py.cli.sheets import Note
from tests.support.commands import unread_output


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


class _Offsets:
    """Positions of a flow that no node runs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written = 0
        change = SimpleNamespace(
            settings=SimpleNamespace(flow="A->B"),
            asked=(),
            is_taken_over=False,
            rows=lambda: [None],
            page=lambda _rows: [Note("a change")],
            as_json=lambda _rows, **how: how,
        )

        async def nothing(*_: object) -> None:
            return None

        async def reset(options: object, clock: object) -> None:
            await position_changes._apply(change, options, None, clock)  # type: ignore[arg-type]

        @asynccontextmanager
        async def idle(*_: object) -> AsyncIterator[None]:
            yield

        for name, double in {
            "_reset": reset,
            "_runner": nothing,
            "answering_node": nothing,
            "kept_idle": idle,
            "offsets_of": lambda *_: self,
        }.items():
            monkeypatch.setattr(position_changes, name, double)

    async def alter(self, *_: object, **_named: object) -> None:
        self.written += 1


def _reset(*words: str) -> int:
    return position_changes.main("reset", ["mm2.properties", "A->B", "--all-topics", "--to-latest", *words])


def test_a_change_is_made_although_nothing_reads_the_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader of the table ends, as `head` does: the positions are written all the same, or not with --dry-run."""
    offsets = _Offsets(monkeypatch)
    found = []
    for option in ("--dry-run", "--yes"):
        with unread_output():
            found.append((_reset(option), offsets.written))

    assert found == [(ExitCode.OK, 0), (ExitCode.OK, 1)]


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_a_change_that_was_cut_short_is_no_success(error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, or a reader of stderr that ends, comes before anything is written."""
    offsets = _Offsets(monkeypatch)

    def interrupted(**_: object) -> None:
        raise error

    monkeypatch.setattr(position_changes, "confirm", interrupted)
    with unread_output():
        code = _reset()

    assert code == ExitCode.FAILED
    assert offsets.written == 0


def test_a_change_as_json_is_one_answer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is printed once what it says is so; a question that nobody sees is not asked."""
    offsets = _Offsets(monkeypatch)
    monkeypatch.setattr("mm2py.cli.command.has_terminal", lambda: True)

    codes = [_reset("--json", *words) for words in ((), ("--dry-run",), ("--yes",))]

    out, err = capsys.readouterr()
    assert codes == [ExitCode.BAD_ARGUMENTS, ExitCode.OK, ExitCode.OK]
    assert err == "mm2py: --json asks nothing: confirm with --yes, or look with --dry-run\n"
    assert out == _json_of(is_written=False, refusal=None) + _json_of(is_written=True, refusal=None)
    assert offsets.written == 1


def _json_of(**answer: object) -> str:
    return json.dumps(answer, indent=2) + "\n"
