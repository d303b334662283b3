"""The door: who is let in, who waits, and what is told of it."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from mm2py.clock import Clock
from mm2py.config.rest import RestSettings, Right
from mm2py.rest.access.gate import Gate
from mm2py.rest.access.rules import Guest, Shown
from mm2py.rest.access.users import hash_password, hash_token, is_password
from mm2py.rest.errors import RestError
from mm2py.telemetry.events import RestLoginRefused, RestUsersRefused
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock, ManualClock
from tests.support.rest_asking import basic


HERE = "10.0.0.7"
#: What is really used takes long on purpose.
cheap = partial(hash_password, cost=2)


class _Door:
    """A gate with one user, `ann`, who may write and whose password is `right`."""

    def __init__(self, folder: Path, text: str | None = None, *, clock: Clock | None = None) -> None:
        self.clock = ManualClock()
        used = clock or self.clock
        self.events = EventLog(used)
        self.file = folder / "users"
        self.file.write_text(f"write ann {cheap('right')}\n" if text is None else text)
        self.settings = RestSettings(users_file=str(self.file), read_tokens=("see",))
        self.gate = Gate(used, self.events)

    async def who(self, authorization: str = "", *, subject: str = "", anonymous: Right = Right.NONE) -> Guest:
        shown = Shown("GET", authorization=authorization, subject=subject)
        return await self.gate.who(shown, HERE, self.settings, anonymous)

    async def refused(self, authorization: str) -> RestError:
        with pytest.raises(RestError) as raised:
            await self.who(authorization)
        return raised.value


async def test_who_is_let_in(tmp_path: Path) -> None:
    """A password, a token and a certificate each have their right; who shows nothing has what the listener says."""
    door = _Door(tmp_path, f"write ann {cheap('right')}\nread bob {hash_token('t')}\nread CN=x certificate\n")

    assert await door.who(basic("ann", "right")) == Guest("ann", Right.WRITE)
    assert await door.who("Bearer t") == Guest("bob", Right.READ)
    assert (await door.who("Bearer see")).right is Right.READ
    assert await door.who(subject="CN=x") == Guest("CN=x", Right.READ)
    assert await door.who(subject="CN=y") == Guest("", Right.NONE)
    assert await door.who(anonymous=Right.READ) == Guest("", Right.READ)


@pytest.mark.parametrize(
    "shown", [basic("ann", "wrong"), basic("nobody", "right"), "Bearer no", "Basic !!", "Digest x"]
)
async def test_wrong_credentials_are_never_taken_for_none(tmp_path: Path, shown: str) -> None:
    """Wrong credentials are refused, even if a client without any would be let in."""
    door = _Door(tmp_path)

    with pytest.raises(RestError) as raised:
        await door.who(shown, anonymous=Right.WRITE)

    assert raised.value.status == 401


async def test_without_access_control_credentials_do_no_harm(tmp_path: Path) -> None:
    """Without users and tokens, a client that sends credentials all the same is an anonymous one."""
    door = _Door(tmp_path)
    door.settings = RestSettings()

    assert await door.who("Bearer any", anonymous=Right.READ) == Guest("", Right.READ)
    assert await door.who(basic("a", "b"), anonymous=Right.WRITE) == Guest("", Right.WRITE)


async def test_who_guesses_waits_and_is_told_of_once(tmp_path: Path) -> None:
    """Each wrong password takes longer, up to five seconds; one event tells of all, another after a quiet while."""
    door = _Door(tmp_path)
    pauses = []
    for _ in range(7):
        before = door.clock.now_s
        await door.refused(basic("ann", "wrong"))
        pauses.append(door.clock.now_s - before)
    told = len(door.events.of(RestLoginRefused))
    door.clock.advance(600)
    await door.refused("Bearer no")

    assert pauses == [0.25, 0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    assert told == 1
    assert [(event.address, event.user) for event in door.events.of(RestLoginRefused)] == [(HERE, "ann"), (HERE, "")]


async def test_a_right_password_is_remembered_until_its_line_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow hash is asked once in a while, not for each scrape; a new password counts within seconds."""
    door, checks = _Door(tmp_path), []
    real = asyncio.to_thread

    async def counted(function: Callable[..., object], *arguments: object, **named: object) -> object:
        if function is is_password:
            checks.append(arguments[0])
        return await real(function, *arguments, **named)

    monkeypatch.setattr(asyncio, "to_thread", counted)
    for _ in range(3):
        await door.who(basic("ann", "right"))
    once = len(checks)
    door.file.write_text(f"write ann {cheap('other')}\n")
    door.clock.advance(3)
    refused = await door.refused(basic("ann", "right"))
    again = await door.who(basic("ann", "other"))

    assert once == 1
    assert refused.status == 401
    assert again.right is Right.WRITE


async def test_a_users_file_that_is_gone_lets_no_user_in(tmp_path: Path) -> None:
    """Its users are not known any more, tokens of the settings still are, and one event reports why."""
    door = _Door(tmp_path)
    await door.who(basic("ann", "right"))
    door.file.unlink()
    door.clock.advance(3)

    refused = await door.refused(basic("ann", "right"))

    assert refused.status == 401
    assert (await door.who("Bearer see")).right is Right.READ
    assert len(door.events.of(RestUsersRefused)) == 1


async def test_a_users_file_that_could_not_be_read_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The daemon may not read the file; one event reports it. Then its permissions are corrected, which leaves size and
    time as they are: its users are admitted within seconds, and another failure is reported again.
    """
    door = _Door(tmp_path)

    def refuse(_path: Path, **_named: str) -> str:
        raise PermissionError(errno.EACCES, "Permission denied")

    async def is_admitted() -> bool:
        door.clock.advance(3)
        try:
            return bool((await door.who(basic("ann", "right"))).name)
        except RestError:
            return False

    admitted = []
    for is_readable in (False, False, True, False, True):
        with monkeypatch.context() as patched:
            if not is_readable:
                patched.setattr(Path, "read_text", refuse)
                door.file.touch()
            admitted.append(await is_admitted())

    assert admitted == [False, False, True, False, True]
    assert [event.problems for event in door.events.of(RestUsersRefused)] == [("Permission denied",)] * 2


async def test_lines_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """The good lines count; the others are named."""
    door = _Door(tmp_path, f"read bob {hash_token('t')}\nbroken\n")

    assert (await door.who("Bearer t")).name == "bob"
    assert door.events.of(RestUsersRefused)[0].problems[0].startswith("users:2: ")


async def test_a_crowd_of_guesses_is_sent_away(tmp_path: Path) -> None:
    """More logins at one address than are checked one after the other are answered at once, with 429."""
    door = _Door(tmp_path, clock=LoopClock())

    async def attempt() -> int:
        return (await door.refused(basic("ann", "wrong"))).status

    async with asyncio.TaskGroup() as tasks:
        attempts = [tasks.create_task(attempt()) for _ in range(20)]

    statuses = [one.result() for one in attempts]
    assert statuses.count(429) >= 10
    assert statuses.count(401) >= 1
