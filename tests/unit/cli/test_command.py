"""What all commands share: the exit code if nothing reads their output."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from rich.console import Console

from mm2py.cli.command import printed
from mm2py.cli.exit_code import ExitCode
from tests.support.commands import unread_output


@pytest.mark.parametrize("code", [ExitCode.OK, ExitCode.FAILED])
def test_a_failure_stays_one_if_nothing_reads_the_output(code: ExitCode) -> None:
    """The reader ends, as `head` does, before the last of a short output is written."""

    def output() -> int:
        sys.stdout.write("a line\n")
        return code

    with unread_output():
        found = printed(output)

    assert found == code


def test_a_reader_that_has_seen_enough_is_no_failure() -> None:
    """The reader ends in the middle of a long output."""

    def output() -> int:
        for _ in range(100_000):
            sys.stdout.write("a line\n")
        return ExitCode.FAILED

    with unread_output():
        found = printed(output)

    assert found == ExitCode.OK


def test_what_is_not_read_of_a_comparison_changes_no_verdict() -> None:
    """`mm2py verify … | head -1`: what draws the rest would end with a code of its own, that of a difference."""

    def output() -> int:
        Console(highlight=False, soft_wrap=True).print("both sides are equal")
        return ExitCode.OK

    with unread_output():
        found = printed(output)

    assert found == ExitCode.OK


def test_what_ends_the_process_for_another_reason_ends_it() -> None:
    """A policy's module that calls sys.exit, as a script does: without a word and with code 0, all would seem well."""

    def output() -> int:
        raise SystemExit("usage: shop")

    with pytest.raises(SystemExit, match="usage: shop"):
        printed(output)


@pytest.mark.parametrize("lines", [1, 100_000], ids=["at its end", "in the middle"])
def test_a_full_disk_is_a_line(capsys: pytest.CaptureFixture[str], lines: int) -> None:
    """What cannot be written is a failure of the command, without a traceback."""

    def output() -> int:
        for _ in range(lines):
            sys.stdout.write("a line\n")
        return ExitCode.OK

    with Path("/dev/full").open("w", encoding="utf-8") as full, redirect_stdout(full):
        code = printed(output)

    assert code == ExitCode.FAILED
    assert capsys.readouterr().err == "mm2py: the output cannot be written: No space left on device\n"
