"""
The candidates take turns on two brokers.

They take turns within each shape, and who begins changes from shape to shape and run to run, so that what else the
machine does hits all of them alike.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import attrs
from rich.console import Console

from bench.broker import Broker, connected
from bench.candidates import Candidate, FlowSettings, Goal
from bench.compacting import compact
from bench.copying import copy
from bench.latency import Load, Span, measure, measure_alone
from bench.load import LoadedTopic, load
from bench.mirror import MirrorFailedError
from bench.report import Failure, Machine, Results
from bench.shapes import SHAPES_BY_NAME, Codec, Shape


_WARM_UP_RECORDS = 200_000


@attrs.frozen
class Order:
    """What the command line asks for."""

    shapes: tuple[Shape, ...]
    candidates: tuple[Candidate, ...]
    records: int
    #: Numbers of records for some shapes by name, which the others' do not depend on.
    records_of: Mapping[str, int]
    runs: int
    latency_span: Span
    latency_load: Load
    tasks_max: int
    tuned_tasks_max: int
    ours: tuple[tuple[str, str], ...] = ()

    def records_for(self, shape: Shape) -> int:
        """Return how many records are loaded for *shape*."""
        return self.records_of.get(shape.name, shape.records(self.records))

    @property
    def disk_bytes(self) -> int:
        """Room for the largest shape at the source and at the target, and for what is being deleted meanwhile."""
        return 3 * max((shape.value_bytes * self.records_for(shape) for shape in self.shapes), default=0)

    def turn(self, number: int) -> tuple[Candidate, ...]:
        """The candidates, the first of them another one each turn."""
        start = number % len(self.candidates)
        return self.candidates[start:] + self.candidates[:start]


class Turns:
    """Two brokers, by their ``host:port``, and what was measured on them so far."""

    def __init__(self, order: Order, *, source: str, target: str, directory: Path) -> None:
        self._order = order
        self._source_at = source
        self._target_at = target
        self._directory = directory
        self._flows = 0
        self._turns = 0
        self._console = Console(stderr=True, highlight=False)
        self.results = Results(Machine.look(), latency_load=order.latency_load)

    async def run(self) -> None:
        """Everything that was ordered."""
        async with connected(self._source_at) as source, connected(self._target_at) as target:
            for shape in self._order.shapes:
                loaded = await load(source, shape, self._order.records_for(shape))
                if shape.is_compacted:
                    loaded = await compact(source, loaded)
                self.results.loaded.append(loaded)
                self._say(f"{shape.name}: {loaded.records:,} records loaded in {loaded.seconds:.1f} s")
                # The first candidate would otherwise pay for the target's compiling of what the shape needs.
                await load(target, shape, self._order.records_for(shape))
                await _clean(target)
                for _ in range(self._order.runs):
                    await self._copy_in_turn(loaded, target)
                await source.delete_topics([loaded.topic])
            if self._order.latency_span.seconds:
                if not self._order.shapes:
                    await _warm_up(source, target)
                for number in range(self._order.runs):
                    await self._measure_alone(f"bench-alone-{number}", source)
                    await self._measure_in_turn(source, target)

    async def _copy_in_turn(self, loaded: LoadedTopic, target: Broker) -> None:
        for candidate in self._next_turn():
            shape = loaded.shape
            keys = shape.statement if candidate.is_ours and shape.statement else shape.transforms
            flow = self._flow(candidate, loaded.topic, shape.codec, Goal.THROUGHPUT, keys)
            try:
                run = await copy(candidate, flow, loaded, target, self._directory / flow.source_alias)
            except MirrorFailedError as error:
                self._failed(candidate, loaded.shape.name, error)
            else:
                self.results.copies.append(run)
                self._say(f"{loaded.shape.name}, {candidate.value}: {run.records_per_s:,.0f} records/s")
            await _clean(target)

    async def _measure_alone(self, topic: str, source: Broker) -> None:
        order, directory = self._order, self._directory / topic
        found = await measure_alone(
            self._source_at, topic, source, directory, sent=order.latency_load, span=order.latency_span
        )
        self.results.alone.append(found)
        self._say(f"latency, no mirror: p50 {found.p50_ms:.2f} ms, p99 {found.p99_ms:.2f} ms")
        await source.delete_topics([topic])

    async def _measure_in_turn(self, source: Broker, target: Broker) -> None:
        for candidate in self._next_turn():
            flow = self._flow(candidate, f"bench-latency-{self._flows + 1}", Codec.NONE, Goal.LATENCY)
            directory = self._directory / flow.source_alias
            try:
                run = await measure(
                    candidate, flow, source, directory, sent=self._order.latency_load, span=self._order.latency_span
                )
            except MirrorFailedError as error:
                self._failed(candidate, "latency", error)
            else:
                self.results.latencies.append(run)
                figures = run.latencies
                self._say(f"latency, {candidate.value}: p50 {figures.p50_ms:.2f} ms, p99 {figures.p99_ms:.2f} ms")
            await source.delete_topics([flow.topic])
            await _clean(target)

    def _next_turn(self) -> tuple[Candidate, ...]:
        self._turns += 1
        return self._order.turn(self._turns - 1)

    def _flow(
        self,
        candidate: Candidate,
        topic: str,
        codec: Codec,
        goal: Goal,
        transforms: tuple[tuple[str, str], ...] = (),
    ) -> FlowSettings:
        """Return a flow with unused aliases: no position, no group and no remote topic to continue from."""
        self._flows += 1
        is_tuned = candidate is Candidate.JAVA_TUNED
        return FlowSettings(
            source_alias=f"a{self._flows}",
            target_alias=f"b{self._flows}",
            source=self._source_at,
            target=self._target_at,
            topic=topic,
            codec=codec,
            tasks_max=self._order.tuned_tasks_max if is_tuned else self._order.tasks_max,
            goal=goal,
            transforms=transforms,
            ours=self._order.ours,
        )

    def _failed(self, candidate: Candidate, what: str, error: MirrorFailedError) -> None:
        self.results.failures.append(Failure(candidate, what, error.detail, error.log_tail))
        self._say(f"{what}, {candidate.value}: failed, {error.detail}")

    def _say(self, text: str) -> None:
        self._console.print(f"{time.strftime('%H:%M:%S')} {text}", markup=False)


async def _warm_up(*brokers: Broker) -> None:
    """Have brokers compile what they need: where nothing was copied yet, the first to be measured would pay for it."""
    shape = SHAPES_BY_NAME["single"]
    for broker in brokers:
        loaded = await load(broker, shape, _WARM_UP_RECORDS)
        await broker.delete_topics([loaded.topic])


async def _clean(target: Broker) -> None:
    """Delete what a candidate left at the target: remote topics and its internal ones."""
    await target.delete_topics([topic for topic in await target.topics() if not topic.startswith("__")])
