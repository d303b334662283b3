"""What is asked before positions are changed."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from mm2py.cli.position_changes import NotConfirmedError, confirm


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
