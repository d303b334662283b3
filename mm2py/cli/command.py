"""Shared by all commands: reading a flow's name, rejecting arguments and reporting errors."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import re
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, Final, TextIO
from urllib.parse import unquote

import attrs

from mm2py.cli.exit_code import ExitCode
from mm2py.config.problem import ConfigError, Problem
from mm2py.errors import Mm2Error
from mm2py.model.flow import Flow


#: Why a disk takes no more.
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_URL_FORM: Final = re.compile(r"/?from:([^/]+)/to:([^/]+)/?")


@attrs.define(eq=False)
class ArgumentsError(Mm2Error):
    """The arguments of a command contradict each other."""

    problem: str

    def __str__(self) -> str:
        return self.problem


@attrs.define(eq=False)
class NotConfirmedError(Mm2Error):
    """The user declined a change."""

    def __str__(self) -> str:
        return "not confirmed; nothing was changed"


def has_terminal() -> bool:
    """Whether there is a user who can be asked."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def confirm(question: str) -> None:
    """Ask on the terminal. Raise `NotConfirmedError` unless the answer is yes."""
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in {"y", "yes"}:
        raise NotConfirmedError


def read_flow(text: str) -> Flow:
    """Parse ``A->B`` or ``from:A/to:B``. Raise ArgumentTypeError if it is neither."""
    if (found := _URL_FORM.fullmatch(text.strip())) is not None:
        return Flow.of_url(unquote(found[1]), unquote(found[2]))
    if (flow := Flow.parse(text)) is not None and flow.source and flow.target:
        return flow
    if text.endswith("-"):
        # An unquoted A->B: the shell redirected our output to a file called B.
        raise argparse.ArgumentTypeError(f"{text} is half a flow: quote it, '{text}>…', or as from:A/to:B")
    raise argparse.ArgumentTypeError(f"{text} is not a flow; write 'A->B', in quotes, or from:A/to:B")


def filled(text: str) -> str:
    """Return an argument's *text*. Raise ArgumentTypeError if it is empty, as a script's variable may be: an option
    that names one topic would then be about all of them.
    """
    if not text.strip():
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def whole_number(least: int, most: int = 2**31 - 1) -> Callable[[str], int]:
    """Return what parses a number from *least* to *most*, and raises ArgumentTypeError otherwise."""

    def parse(text: str) -> int:
        digits = text.isascii() and text.isdigit() and len(text) <= len(str(most))
        if not digits or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"expected a whole number from {least} to {most}, found {text}")
        return int(text)

    return parse


def run(
    question: Callable[[], Coroutine[Any, Any, None]],
    *,
    cut_short: int = ExitCode.OK,
    code_of: Callable[[Mm2Error], int] = lambda _error: ExitCode.FAILED,
) -> int:
    """Run the request and return the exit code; an error is a line on stderr, with a hint, and *code_of* returns its
    code. *cut_short* is the code if Ctrl-C ends the request, or the reader of what it prints.
    """
    return printed(lambda: _run(question, cut_short, code_of), cut_short=cut_short)


def _run(question: Callable[[], Coroutine[Any, Any, None]], cut_short: int, code_of: Callable[[Mm2Error], int]) -> int:
    try:
        asyncio.run(question())
    except ConfigError as error:
        print_refused(error.problems, error.notes)
        return ExitCode.FAILED
    except Mm2Error as error:
        print(error_line(error), file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS if isinstance(error, ArgumentsError) else code_of(error)
    except KeyboardInterrupt:
        return cut_short
    return ExitCode.OK


def print_refused(problems: Iterable[Problem], notes: Iterable[Problem]) -> None:
    """Print the problems of settings, and the notes on them, to stderr."""
    for problem in problems:
        print(problem, file=sys.stderr)
    for note in notes:
        print(f"note: {note}", file=sys.stderr)


def error_line(error: BaseException) -> str:
    """Return what stderr shows of an *error*."""
    return f"mm2py: {with_hint(error)}"


def with_hint(error: BaseException) -> str:
    """Return what an *error* says, with its hint."""
    hint = error.hint if isinstance(error, Mm2Error) else ""
    return f"{error}; {hint}" if hint else str(error)


def printed(output: Callable[[], int], *, cut_short: int = ExitCode.OK) -> int:
    """Return what *output* returns, an exit code; *cut_short* if the reader of what it prints ends it by closing the
    pipe, as `head` does. A full disk is a line on stderr.
    """
    code = cut_short
    try:
        code = output()
        sys.stdout.flush()
    except (BrokenPipeError, SystemExit) as error:
        # rich ends the process once the pipe is closed. Whatever else does, as a module of the user's may, means it.
        if isinstance(error, SystemExit) and not isinstance(error.__context__, BrokenPipeError):
            raise
        _discard(sys.stdout)
        drop_unwritten(sys.stderr)
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _discard(sys.stdout)
        print(f"mm2py: the output cannot be written: {error.strerror}", file=sys.stderr)
        return ExitCode.FAILED
    return code


@contextlib.contextmanager
def even_if_unread() -> Iterator[None]:
    """Print what the block prints. If the reader closed the pipe, that and all later output is dropped, and the command
    goes on with what it is to change.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        _discard(sys.stdout)


def drop_unwritten(stream: TextIO | None) -> None:
    """Drop what *stream* still holds if it cannot be written."""
    if stream is None:
        return
    try:
        stream.flush()
    except OSError:
        _discard(stream)


def _discard(stream: TextIO) -> None:
    """Have *stream* write nowhere: what cannot be flushed at exit would make Python complain, and end with code 120."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
