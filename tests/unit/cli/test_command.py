"""What all commands share: the exit code if nothing reads their output."""

from __future__ import annotations

import sys

import pytest

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
