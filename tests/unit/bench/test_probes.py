"""The producer of the benchmark of many partitions sends each record once and in order, whatever brokers do."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping

from bench.batches import ProducerId
from bench.cluster import Place
from bench.latency import marks
from bench.scale.probes import MOST_RECORDS, Due, Outbox, seed


class Leaders:
    """Stands in for a cluster: who leads, and who takes what it is sent."""

    def __init__(self) -> None:
        self.leaders: dict[Place, int] = {("a", 0): 0, ("b", 0): 1}
        self.dead: set[int] = set()
        self.requests: list[tuple[int, list[Place]]] = []
        self.taken: defaultdict[Place, list[int]] = defaultdict(list)
        self.lost_answers = 0

    def leader(self, place: Place) -> int:
        return self.leaders[place]

    async def refresh(self, topics: set[str]) -> None:
        """Move what has no leader to broker 1."""
        for place in self.leaders:
            if place[0] in topics:
                self.leaders[place] = 1

    async def write(self, leader: int, batches: Mapping[Place, bytes]) -> list[Place]:
        await asyncio.sleep(0)
        self.requests.append((leader, sorted(batches)))
        if leader in self.dead:
            for place in batches:
                self.leaders[place] = -1
            return []
        for place, batch in batches.items():
            for number, _, _ in marks(batch):
                if number not in self.taken[place]:  # a broker knows a batch that was sent to it before
                    self.taken[place].append(number)
        if self.lost_answers:
            self.lost_answers -= 1
            return []
        return list(batches)


async def sent(leaders: Leaders, numbers: Mapping[Place, int]) -> None:
    async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
        outbox = Outbox(leaders, ProducerId(1, 0), tasks)  # type: ignore[arg-type]
        for place, count in numbers.items():
            for number in range(count):
                outbox.put(place, Due(number, 1_000_000, b"key", b"value"))
        outbox.close()
        await outbox.run()


async def test_what_waits_for_a_broker_goes_in_one_request() -> None:
    """A request a partition would wait for the one before it at the broker."""
    leaders = Leaders()
    leaders.leaders["b", 0] = 0
    await sent(leaders, {("a", 0): 3, ("b", 0): 2})

    assert leaders.requests == [(0, [("a", 0), ("b", 0)])]
    assert leaders.taken == {("a", 0): [0, 1, 2], ("b", 0): [0, 1]}


async def test_records_wait_for_a_new_leader_and_the_others_do_not() -> None:
    """One broker is dead: what it led goes to the next leader, the other's partition is written meanwhile."""
    leaders = Leaders()
    leaders.dead.add(0)
    await sent(leaders, {("a", 0): 3, ("b", 0): 1})

    assert sorted(leaders.requests[:2]) == [(0, [("a", 0)]), (1, [("b", 0)])]
    assert leaders.taken == {("a", 0): [0, 1, 2], ("b", 0): [0]}


async def test_an_answer_that_got_lost_makes_no_second_record() -> None:
    """The same batch is sent again, by which the broker knows it."""
    leaders = Leaders()
    leaders.lost_answers = 1
    await sent(leaders, {("a", 0): 2})

    assert leaders.taken == {("a", 0): [0, 1]}
    assert len(leaders.requests) == 2


async def test_a_long_wait_makes_more_than_one_batch() -> None:
    """A batch has an end; what does not fit follows in order."""
    leaders = Leaders()
    await sent(leaders, {("a", 0): MOST_RECORDS + 5})

    assert leaders.taken["a", 0] == list(range(MOST_RECORDS + 5))
    assert len(leaders.requests) == 2


def test_a_seed_is_none_of_the_counted_records() -> None:
    """Records that only show that a partition is copied have no number."""
    ((number, _, _),) = marks(seed())

    assert number < 0
