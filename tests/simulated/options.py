"""What a run is like; a swarm draws it from the seed, a bug base has it in JSON."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

import attrs

from tests.simulated.faults import FAULTS, SELDOM, SURVIVED


#: How many of the runs have a fault of those that come beside the others; how many have clusters of one broker, a
#: flow that leads back, and faults while flows start.
_SELDOM, _ONE_BROKER, _BOTH, _FROM_THE_START = 0.08, 0.06, 0.06, 0.2
#: How many of those with one node have two rounds; how many are Connect workers; of how many topics expire; how many of
#: those with files have a statement.
_ROUNDS, _WORKERS, _EXPIRE, _TRANSFORMED = 0.15, 0.15, 0.12, 0.08


def _names(some: Iterable[str]) -> tuple[str, ...]:
    return tuple(some)


def _numbers(some: Iterable[int]) -> tuple[int, ...]:
    return tuple(some)


@attrs.frozen
class Options:
    """All that a run depends on, beside the code."""

    seed: int = 0
    nodes: int = 1
    minutes: float = 10.0
    #: How often faults begin again once all is well; what nodes keep then must not be more than the time before.
    rounds: int = 1
    partitions: int = 6
    #: Batches a second and partition.
    rate: float = 2.0
    faults: tuple[str, ...] = attrs.field(default=(), converter=_names)
    #: Seconds between two faults, on average.
    fault_every_s: float = 20.0
    #: When they begin: by default once the flow runs.
    starts_s: float = 20.0
    #: Whether the source has transactions, and the flow reads what is committed.
    transactions: bool = False
    settle_minutes: float = 10.0
    latency_s: float = 0.0005
    #: Whether nodes are static members, by a name of their own.
    static: bool = False
    epoch_ms: int = 5_000
    min_isr: int = 1
    #: Of each cluster.
    brokers: int = 3
    #: Whether nodes run a file's flow ("dedicated"), or connectors that are created by REST ("worker").
    mode: str = "dedicated"
    #: How many source connectors a worker has for the pair; two have a topic each.
    sources: int = 1
    #: How many nodes have the checkpoint connector in a worker of their own; 0: it is beside the source connectors.
    checkers: int = 0
    #: Whether a flow leads back as well, from topics of the same names at B; not where nodes are workers.
    both: bool = False
    #: What the flow does with a source topic that was created again: `copy.on.source.recreated`.
    on_recreated: str = "fail"
    #: How long the source's topics keep records, and so their copies; 0 is for good. Not with flows both ways, nor with
    #: faults that lose acknowledged records: what is missing then must be there.
    retention_s: float = 0.0
    #: How records of the topic are written that a statement changes: "" is no statement, "once" is in transactions,
    #: "again" is without: what was on its way as something was lost may come again. Not where nodes are workers.
    transform: str = ""
    #: By which protocol groups are: "classic" or "consumer" (KIP-848).
    groups: str = "classic"
    #: Which of the faults, by their numbers, do not happen: that is how a failure is made smaller.
    skipped: tuple[int, ...] = attrs.field(default=(), converter=_numbers)
    #: The number of the last fault that happens; -1 is no end.
    last_fault: int = -1

    @property
    def is_worker(self) -> bool:
        """Whether nodes are Connect workers."""
        return self.mode == "worker"

    @property
    def has_aside(self) -> bool:
        """Whether there is a second source connector."""
        return self.is_worker and self.sources > 1

    @property
    def checks_apart(self) -> bool:
        """Whether the checkpoint connector has no source connector in its worker."""
        return self.is_worker and self.checkers > 0

    @property
    def leads_back(self) -> bool:
        """Whether there are flows both ways."""
        return self.both and not self.is_worker

    def to_json(self) -> str:
        """Return what is not as by default, in JSON."""
        usual = attrs.asdict(Options())
        return json.dumps({key: value for key, value in attrs.asdict(self).items() if value != usual[key]})

    @classmethod
    def from_json(cls, options: dict[str, Any]) -> Options:
        """Return options as they were written by `to_json`."""
        unknown = set(options.get("faults", ())) - set(FAULTS)
        assert not unknown, f"no such fault: {sorted(unknown)}"
        return cls(**options)


def swarm(seed: int) -> Options:
    """Draw what a run is like."""
    draw, seldom, keeps = (random.Random(f"{what} {seed}") for what in ("swarm", "seldom", "keeps"))
    brokers = 1 if seldom.random() < _ONE_BROKER else 3
    count = draw.choice((1, 2, 3, 5, len(SURVIVED)))
    beside = [it for it in SELDOM if seldom.random() < _SELDOM]
    nodes = draw.choice((1, 2, 2, 3))
    drawn = Options(
        seed=seed,
        nodes=nodes,
        minutes=draw.choice((3.0, 5.0, 8.0)),
        partitions=draw.choice((1, 2, 4)),
        rate=draw.choice((0.2, 0.5, 1.5)),
        faults=dict.fromkeys([*(["ambush"] if draw.random() < 0.5 else []), *draw.sample(SURVIVED, count), *beside]),
        fault_every_s=draw.choice((2.0, 6.0, 20.0)),
        transactions=draw.random() < 0.3,
        latency_s=draw.choice((0.0005, 0.0005, 0.02, 0.1)),
        static=draw.random() < 0.25,
        epoch_ms=draw.choice((1_000, 5_000, 10_000)),
        min_isr=min(brokers, draw.choice((1, 1, 2))),
        brokers=brokers,
        starts_s=2.0 if seldom.random() < _FROM_THE_START else 20.0,
        on_recreated=seldom.choice(("earliest", "re-create")),
        rounds=2 if nodes == 1 and seldom.random() < _ROUNDS else 1,
    )
    # How much a node with flows both ways keeps grows with the groups that its other flow finds.
    drawn = attrs.evolve(drawn, both=drawn.rounds == 1 and seldom.random() < _BOTH)
    if not drawn.both and keeps.random() < _EXPIRE:
        drawn = attrs.evolve(drawn, retention_s=keeps.choice((30.0, 120.0)))
    more = random.Random(f"more {seed}")
    drawn = attrs.evolve(drawn, groups=more.choice(("classic", "classic", "consumer")))
    if seldom.random() < _WORKERS and not drawn.both:
        return attrs.evolve(drawn, mode="worker", sources=seldom.choice((1, 2)), checkers=more.choice((0, 0, 1, 2)))
    is_transformed = not drawn.both and more.random() < _TRANSFORMED
    return attrs.evolve(drawn, transform="once") if is_transformed else drawn
