"""``mm2py rest-user NAME``: print a line for the file with REST's users, from a password, or with a new token."""

from __future__ import annotations

import argparse
import getpass
import sys
from collections.abc import Sequence

from mm2py.cli.command import printed
from mm2py.cli.exit_code import ExitCode
from mm2py.cli.parsers import Parser
from mm2py.rest.access.users import hash_password, hash_token, make_token


_LEAST_LETTERS = 8


def make_parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="mm2py rest-user",
        description="Print a line for the file that rest.auth.users.file names. The password is prompted for on a "
        "terminal, or read from standard input.",
    )
    parser.add_argument(
        "name", metavar="NAME", help="the user's name; for a certificate, its subject: CN=ops,O=example"
    )
    parser.add_argument("--right", choices=["read", "write"], default="read", help="the permission; default: read")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--token", action="store_true", help="create a bearer token; it is printed to standard error, and not stored"
    )
    kind.add_argument("--certificate", action="store_true", help="a user with a client certificate (mutual TLS)")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    options = make_parser().parse_args(arguments)
    return printed(lambda: _print_line(options))


def _print_line(options: argparse.Namespace) -> int:
    name = " ".join(options.name.split())
    if not name or name.startswith("#"):
        print(f"mm2py rest-user: {options.name!r} is not a valid name", file=sys.stderr)
        return ExitCode.BAD_ARGUMENTS
    if options.certificate:
        secret = "certificate"  # noqa: S105 - a word of the file
    elif options.token:
        token = make_token()
        print(f"the token of {name}: {token}", file=sys.stderr)
        secret = hash_token(token)
    else:
        password = _ask()
        if len(password) < _LEAST_LETTERS:
            print(f"mm2py rest-user: a password needs at least {_LEAST_LETTERS} letters", file=sys.stderr)
            return ExitCode.BAD_ARGUMENTS
        try:
            secret = hash_password(password)
        except UnicodeEncodeError:
            print("mm2py rest-user: the password is not UTF-8", file=sys.stderr)
            return ExitCode.BAD_ARGUMENTS
    print(f"{options.right} {name} {secret}")
    return ExitCode.OK


def _ask() -> str:
    if sys.stdin.isatty():
        return getpass.getpass("password: ")
    return sys.stdin.readline().rstrip("\r\n")


if __name__ == "__main__":
    sys.exit(main())
