"""Lines for the file with REST's users."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from mm2py.cli import rest_user
from mm2py.cli.exit_code import ExitCode
from mm2py.config.rest import Right
from mm2py.rest.access.users import is_password, read_users


def test_a_password_becomes_a_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What it prints is a line that knows the password, which itself is printed nowhere."""
    monkeypatch.setattr("sys.stdin", io.StringIO("correct horse\n"))

    code = rest_user.main(["ann", "--right", "write"])

    printed = capsys.readouterr()
    [user] = read_users(printed.out, name="users").users
    assert code == ExitCode.OK
    assert (user.name, user.right) == ("ann", Right.WRITE)
    assert is_password("correct horse", user.secret)
    assert "correct horse" not in printed.out + printed.err


def test_a_token_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    """The token goes to standard error, its hash into the line."""
    code = rest_user.main(["grafana", "--token"])

    printed = capsys.readouterr()
    token = printed.err.rpartition(": ")[2].strip()
    user = read_users(printed.out, name="users").of_token(token)
    assert code == ExitCode.OK
    assert user is not None
    assert user.right is Right.READ


def test_a_certificate_s_subject(capsys: pytest.CaptureFixture[str]) -> None:
    """Who shows a certificate needs no secret in the file."""
    rest_user.main(["CN=ops, O=mm2py", "--certificate"])

    user = read_users(capsys.readouterr().out, name="users").of_subject("CN=ops,O=mm2py")
    assert user is not None


def test_a_short_password_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be guessed is not written down."""
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))

    assert rest_user.main(["ann"]) == ExitCode.BAD_ARGUMENTS
    assert capsys.readouterr().out == ""


def test_a_password_that_is_no_text_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python reads bytes that are not UTF-8 as halves of characters, which cannot be typed at a login."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe horse\n"), "utf-8", "surrogateescape"))

    assert rest_user.main(["ann"]) == ExitCode.BAD_ARGUMENTS
    assert capsys.readouterr().err == "mm2py rest-user: the password is not UTF-8\n"


def test_a_line_that_cannot_be_written_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    """It is usually appended to a file."""
    with Path("/dev/full").open("w", encoding="utf-8") as full, redirect_stdout(full):
        code = rest_user.main(["ann", "--certificate"])

    assert code == ExitCode.FAILED
    assert capsys.readouterr().err == "mm2py: the output cannot be written: No space left on device\n"
