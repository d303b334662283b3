"""Those who were turned away wait."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from mm2py.errors import BrokerConnectionError
from mm2py.model.endpoint import ClusterEndpoint, Security
from mm2py.wire.connection import BrokerConnection
from mm2py.wire.security.access import BrokerAccessError
from mm2py.wire.security.door import Door
from tests.support.clocks import ManualClock


class Gate:
    """Opens connections, or fails as the test decides, and counts attempts."""

    def __init__(self) -> None:
        self.asked = 0
        self.error: BrokerConnectionError | None = None
        self.takes_s = 0.0

    def refuse(self, *, may_lock: bool) -> None:
        self.error = BrokerAccessError("B", "b:1", "wrong password", "User:mm2", "mend it", may_lock)

    async def __call__(self, endpoint: ClusterEndpoint, host: str, _port: int) -> BrokerConnection:
        self.asked += 1
        await asyncio.sleep(self.takes_s)
        if self.error is not None:
            raise self.error
        return BrokerConnection(endpoint, host, {})


@pytest.fixture
def gate() -> Gate:
    return Gate()


def _endpoint(*keys: tuple[str, str]) -> ClusterEndpoint:
    return ClusterEndpoint("B", ("b:1",), security=Security("SASL_SSL", keys))


async def _try(door: Door, host: str = "b") -> str:
    try:
        await door.open(host, 1)
    except BrokerConnectionError as error:
        return type(error).__name__
    return "in"


async def test_wrong_credentials_are_tried_ever_less_often(clock: ManualClock, gate: Gate) -> None:
    """In an hour of asking every second, a broker is bothered a few times more than every five minutes."""
    door = Door(_endpoint(), clock, gate)
    gate.refuse(may_lock=True)
    answers = set()
    for _ in range(3600):
        answers.add(await _try(door))
        clock.advance(1)

    assert answers == {"BrokerAccessError"}
    assert 12 <= gate.asked <= 25


async def test_every_door_and_every_broker_waits(clock: ManualClock, gate: Gate) -> None:
    """What one connection was told counts for all of the account's, at all brokers; not for other credentials."""
    gate.refuse(may_lock=True)
    await _try(Door(_endpoint(), clock, gate))
    await _try(Door(_endpoint(), clock, gate), host="c")
    after_same = gate.asked
    await _try(Door(_endpoint(("sasl.jaas.config", "other")), clock, gate))

    assert (after_same, gate.asked) == (1, 2)


async def _try_nine(clock: ManualClock, gate: Gate) -> tuple[int, list[str]]:
    """Have three doors open connections to three brokers at once; return the number of logins and what came of them."""
    doors = [Door(_endpoint(), clock, gate) for _ in range(3)]
    before = gate.asked
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(_try(door, host)) for door in doors for host in "bcd"]
    return gate.asked - before, [task.result() for task in tasks]


async def test_logins_that_are_refused_together_are_one_failure(clock: ManualClock, gate: Gate) -> None:
    """
    A worker opens all its connections at once, and the password is wrong.

    All logins were under way when the first was refused, so the pause is that of one failure; after it one login alone
    finds out that the password is still wrong.
    """
    gate.refuse(may_lock=True)
    gate.takes_s = 0.001
    logins = []
    for pause_s in (2.5, 5, 10, 20):
        logins.append((await _try_nine(clock, gate))[0])
        clock.advance(pause_s)

    assert logins == [9, 1, 1, 1]


async def test_the_first_to_be_let_in_again_lets_in_the_others(clock: ManualClock, gate: Gate) -> None:
    """After the pause those who wait for another's login follow at once when it was accepted."""
    gate.refuse(may_lock=True)
    await _try(Door(_endpoint(), clock, gate))
    clock.advance(2.5)
    gate.error, gate.takes_s = None, 0.001
    logins, answers = await _try_nine(clock, gate)

    assert (logins, answers) == (9, ["in"] * 9)


async def _renew(connection: BrokerConnection, gate: Gate) -> str:
    async def log_in() -> None:
        await gate(_endpoint(), "b", 1)

    try:
        await connection.renewed(log_in)
    except BrokerConnectionError as error:
        return type(error).__name__
    return "in"


async def test_open_connections_try_refused_credentials_once_for_all(clock: ManualClock, gate: Gate) -> None:
    """
    The password is changed at the brokers, and each of twenty connections has to renew its login.

    The first is refused. The others do not send the same password once more; after the pause one of them tries.
    """
    connections = [await Door(_endpoint(), clock, gate).open(host, 1) for host in "bcdef" * 4]
    opened = gate.asked
    gate.refuse(may_lock=True)
    answers = [await _renew(connection, gate) for connection in connections]
    at_once = gate.asked - opened
    clock.advance(2.5)
    gate.takes_s = 0.001
    answers += await asyncio.gather(*(_renew(connection, gate) for connection in connections))
    later = gate.asked - opened - at_once

    assert set(answers) == {"BrokerAccessError"}
    assert (at_once, later) == (1, 1)


@pytest.mark.parametrize(
    ("end", "tries"),
    [
        pytest.param(BrokerConnection.eof_received, 1, id="closed by the broker"),
        pytest.param(BrokerConnection.close, 9, id="closed by us"),
    ],
)
async def test_a_renewal_that_ends_with_its_connection(
    clock: ManualClock, gate: Gate, end: Callable[[BrokerConnection], object], tries: int
) -> None:
    """
    Brokers refuse it by closing the connection, without a word. What is opened next finds out alone.

    That we end it says nothing of our password: a broker that is frozen is given up, and others do not wait for it.
    """
    connection = await Door(_endpoint(), clock, gate).open("b", 1)
    gate.takes_s = 0.001
    renewal = asyncio.create_task(_renew(connection, gate))
    await asyncio.sleep(0)
    end(connection)
    renewal.cancel()
    await asyncio.wait([renewal])
    gate.refuse(may_lock=True)

    assert (await _try_nine(clock, gate))[0] == tries


async def test_a_renewal_counts_for_what_is_opened(clock: ManualClock, gate: Gate) -> None:
    """One that is refused pauses new connections; one that is accepted lets them in."""
    connection = await Door(_endpoint(), clock, gate).open("b", 1)
    gate.refuse(may_lock=True)
    await _renew(connection, gate)
    paused = await _try(Door(_endpoint(), clock, gate), "c")
    clock.advance(2.5)
    gate.error = None
    renewed = await _renew(connection, gate)
    gate.takes_s = 0.001

    assert (paused, renewed) == ("BrokerAccessError", "in")
    assert await _try_nine(clock, gate) == (9, ["in"] * 9)


async def test_a_connection_that_was_closed_keeps_no_memory(clock: ManualClock, gate: Gate) -> None:
    """Answers have large buffers, and old garbage is collected once an hour: there must be no cycle."""
    connection = await Door(_endpoint(), clock, gate).open("b", 1)
    kept = weakref.ref(connection)
    connection.close()
    del connection

    assert kept() is None


async def test_what_is_open_is_renewed_at_a_broker_that_is_not_trusted_any_more(clock: ManualClock, gate: Gate) -> None:
    """Its certificate has expired: that keeps new connections out, and says nothing of our password."""
    door = Door(_endpoint(), clock, gate)
    connection = await door.open("b", 1)
    gate.refuse(may_lock=False)
    await _try(door)
    gate.error = None

    assert await _renew(connection, gate) == "in"


async def test_a_turn_is_awaited_for_as_long_as_a_connection(clock: ManualClock, gate: Gate) -> None:
    """While the login in turn gets no answer, a connection that waits for it fails in time, too."""
    endpoint = attrs.evolve(_endpoint(), connection_setup_ms=20)
    gate.refuse(may_lock=True)
    await _try(door := Door(endpoint, clock, gate))
    clock.advance(2.5)
    gate.takes_s = 60
    answers = await asyncio.gather(_try(door), _try(door, "c"))

    assert set(answers) == {"BrokerConnectionError"}


async def test_a_broker_s_bad_certificate_is_its_own(clock: ManualClock, gate: Gate) -> None:
    """A broker that is not trusted does not pause logins at the others, and is asked again within half a minute."""
    door = Door(_endpoint(), clock, gate)
    gate.refuse(may_lock=False)
    await _try(door)
    await _try(door, host="c")
    asked_both = gate.asked
    for _ in range(600):
        await _try(door)
        clock.advance(1)

    assert asked_both == 2
    assert gate.asked >= 2 + 600 / 36


async def test_a_success_forgets(clock: ManualClock, gate: Gate) -> None:
    """Once let in, the next refusal is the first one again."""
    door = Door(_endpoint(), clock, gate)
    gate.refuse(may_lock=True)
    for _ in range(5):
        await _try(door)
        clock.advance(400)
    gate.error = None
    let_in = await _try(door)
    gate.refuse(may_lock=True)
    await _try(door)
    clock.advance(2.5)
    asked = gate.asked
    await _try(door)

    assert let_in == "in"
    assert gate.asked == asked + 1


async def test_changed_files_are_tried_at_once(clock: ManualClock, gate: Gate, tmp_path: Path) -> None:
    """A store that was mended ends the pause."""
    store = tmp_path / "own.p12"
    door = Door(_endpoint(("ssl.keystore.location", str(store))), clock, gate)
    gate.refuse(may_lock=True)
    for _ in range(4):
        await _try(door)
        clock.advance(400)
    await _try(door)
    asked = gate.asked
    waiting = await _try(door)
    store.write_bytes(b"mended")
    gate.error = None
    mended = await _try(door)

    assert (waiting, mended) == ("BrokerAccessError", "in")
    assert gate.asked == asked + 1


async def test_an_unreachable_broker_is_tried_without_a_pause(clock: ManualClock, gate: Gate) -> None:
    """If a broker refuses connections, no attempt is held back."""
    door = Door(_endpoint(), clock, gate)
    gate.error = BrokerConnectionError("B", "b:1", "refused")
    for _ in range(3):
        await _try(door)

    assert gate.asked == 3
