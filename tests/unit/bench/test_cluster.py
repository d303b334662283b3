"""Requests reach the leaders of a cluster of several brokers, wherever these are and whenever they move."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.metadata import MetadataRequest
from aiokafka.protocol.produce import ProduceRequest

from bench import cluster as module
from bench.broker import BenchBrokerError
from bench.cluster import Cluster, Place
from bench.fetching import FetchSession


NOT_LEADER = 6
TOO_LARGE = 10


class World:
    """Two brokers with one topic; each takes writes and tells ends only of what it leads."""

    def __init__(self) -> None:
        self.leaders: dict[Place, int] = {("t", 0): 0, ("t", 1): 1}
        self.down: set[int] = set()
        self.written: list[tuple[int, Place]] = []
        self.refuses: Callable[[Place], int] = lambda _: 0

    async def connect(self, _host: str, port: int) -> Any:
        return _FakeBroker(self, port)


class _FakeBroker:
    is_connected = True

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._number = number

    def close(self) -> None:
        pass

    async def send(self, request: Any) -> Any:
        world = self._world
        if self._number in world.down:
            raise KafkaConnectionError
        if isinstance(request, MetadataRequest):
            living = [(number, "h", number, "") for number in (0, 1) if number not in world.down]
            partitions = [(0, number, leader, [], []) for (_, number), leader in world.leaders.items()]
            return SimpleNamespace(brokers=living, topics=[(0, "t", False, partitions)])
        assert isinstance(request, ProduceRequest)
        ((topic, batches),) = request._topics
        codes = []
        for number, _ in batches:
            code = NOT_LEADER if world.leaders[topic, number] != self._number else world.refuses((topic, number))
            if not code:
                world.written.append((self._number, (topic, number)))
            codes.append((number, code, 0))
        return SimpleNamespace(topics=[(topic, codes)])

    async def ends(self, wanted: dict[str, list[int]]) -> dict[Place, int]:
        if self._number in self._world.down:
            raise KafkaConnectionError
        every = [(topic, number) for topic, numbers in wanted.items() for number in numbers]
        return {place: 7 for place in every if self._world.leaders[place] == self._number}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(module, "connect", made.connect)
    monkeypatch.setattr(module, "RETRY_S", 0.0)
    return made


async def test_each_leader_gets_its_own(world: World) -> None:
    """A write to partitions of two brokers becomes a request to each."""
    await Cluster("h:0").produce({("t", 0): b"", ("t", 1): b""})

    assert sorted(world.written) == [(0, ("t", 0)), (1, ("t", 1))]


async def test_a_write_follows_a_leader_that_moved(world: World) -> None:
    """What is refused is sent to the new leader, and what was taken is not sent again."""
    cluster = Cluster("h:0")
    await cluster.refresh(["t"])
    world.leaders["t", 1] = 0
    await cluster.produce({("t", 0): b"", ("t", 1): b""})

    assert sorted(world.written) == [(0, ("t", 0)), (0, ("t", 1))]


async def test_a_dead_broker_stops_none_of_the_others(world: World) -> None:
    """Ends are those of the living; a write waits until the dead one's partitions have another leader."""
    cluster = Cluster("h:0,h:1")
    await cluster.refresh(["t"])
    world.down.add(0)

    assert await cluster.ends([("t", 0), ("t", 1)]) == {("t", 1): 7}
    assert await cluster.end_offsets("t", 2) is None

    world.leaders["t", 0] = 1
    await cluster.produce({("t", 0): b""})

    assert world.written == [(1, ("t", 0))]
    assert await cluster.end_offsets("t", 2) == [7, 7]


async def test_a_lasting_refusal_is_an_error(world: World) -> None:
    """A batch that no broker will ever take ends the benchmark instead of being sent for ever."""
    world.refuses = lambda _: TOO_LARGE

    with pytest.raises(BenchBrokerError, match="t-0 got error 10"):
        await Cluster("h:0").produce({("t", 0): b""})


def test_a_session_names_only_what_changed() -> None:
    """First all positions; then those that moved on, and those that went to another broker as forgotten."""
    session = FetchSession()
    first = session.request({("t", 0): 0, ("t", 1): 0}, 500)
    session.took(SimpleNamespace(error_code=0, session_id=9))
    second = session.request({("t", 0): 5}, 500)

    assert (first.session, first.epoch, len(first.changed)) == (0, 0, 2)
    assert (second.session, second.epoch) == (9, 1)
    assert (second.changed, second.forgotten) == ({("t", 0): 5}, [("t", 1)])


@pytest.mark.parametrize("answer", [SimpleNamespace(error_code=70), SimpleNamespace(error_code=0, session_id=0)])
def test_a_session_that_the_broker_does_not_keep_begins_again(answer: SimpleNamespace) -> None:
    """The next request is a first one, with all positions."""
    session = FetchSession()
    session.request({("t", 0): 3}, 500)
    session.took(answer)
    again = session.request({("t", 0): 3}, 500)

    assert (again.session, again.epoch, again.changed) == (0, 0, {("t", 0): 3})
