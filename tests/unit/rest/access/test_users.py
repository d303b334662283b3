"""Users of REST: how they are written down, and how what they show is checked."""

from __future__ import annotations

import pytest

from mm2py.config.rest import Right
from mm2py.rest.access.users import (
    User,
    hash_password,
    hash_token,
    is_password,
    make_token,
    read_users,
    users_of_tokens,
)


def test_a_password_is_kept_as_a_hash_that_knows_it() -> None:
    """The right password fits, another does not; two hashes of one password differ."""
    first, second = hash_password("pässword 1"), hash_password("pässword 1")

    assert is_password("pässword 1", first)
    assert is_password("pässword 1", second)
    assert not is_password("pässword 2", first)
    assert first != second
    assert "pässword" not in first


@pytest.mark.parametrize(
    "secret",
    ["", "plain", "scrypt$", "scrypt$3$8$1$AAAA$AAAA", "scrypt$16384$8$1$A$A", "scrypt$99999999$999$1$AAAA$AAAA"],
)
def test_what_is_no_hash_fits_nothing(secret: str) -> None:
    """A hash that was written by hand, or asks for more memory than is allowed, lets no user in."""
    assert not is_password("plain", secret)
    assert read_users(f"read ann {secret or 'x'}", name="users").users == ()


def test_users_are_read_line_by_line() -> None:
    """Comments and empty lines are passed over; names may hold blanks; lines that cannot be read are named."""
    secret, token = hash_password("one"), make_token()
    text = (
        f"# who may\n\nread ann {secret}\nWRITE  the night shift  {hash_token(token)}\n"
        "write CN=ops,O=mm2py certificate\nadmin bob x\nread\n"
    )

    users = read_users(text, name="users")

    assert [(user.name, user.right) for user in users.users] == [
        ("ann", Right.READ),
        ("the night shift", Right.WRITE),
        ("CN=ops,O=mm2py", Right.WRITE),
    ]
    assert [problem.split(": ")[0] for problem in users.problems] == ["users:6", "users:7"]
    assert secret not in repr(users)


def test_a_hash_is_no_token() -> None:
    """Who has read the file knows no token: a hash that is shown is not what it was made of; nothing is none either."""
    users = users_of_tokens(["see"], ["do"])

    assert [user.right for user in users] == [Right.READ, Right.WRITE]
    assert read_users(f"read x {users[0].secret}", name="f").of_token(users[0].secret) is None
    assert read_users(f"write ops {hash_token('t')}", name="f").of_token("") is None


@pytest.mark.parametrize("subject", ["CN=ops,O=mm2py", "cn=ops, o=mm2py"])
def test_whose_certificate_it_is(subject: str) -> None:
    """Subjects are compared part by part; the strongest of several rights counts."""
    users = read_users("read CN=ops,O=mm2py certificate\nwrite CN=ops, O=mm2py certificate", name="users")

    assert users.of_subject(subject) == User("CN=ops, O=mm2py", Right.WRITE, "certificate")
    assert users.of_subject("CN=ops") is None
    assert users.of_name("CN=ops,O=mm2py") is None
