"""
One copy run: a candidate mirrors one loaded source topic from its first record to its last.

The target's end offsets are polled: ten times a second until the first record, then four times, and more often only
when the last record is near. The rate is taken from the first look that found records to the look that found all.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import attrs

from bench.broker import Broker
from bench.candidates import Candidate, FlowSettings
from bench.load import LoadedTopic
from bench.mirror import Mirror, running
from bench.tree import Strangers


START_POLL_S = 0.1
COPY_POLL_S = 0.25
LAST_POLL_S = 0.02
MEMORY_EVERY_S = 0.5
START_LIMIT_S = 90.0
STALL_LIMIT_S = 60.0


@attrs.frozen
class CopyRun:
    """What one candidate did with one shape. CPU and rates are of the copying alone, without the start."""

    candidate: Candidate
    shape: str
    records: int
    start_to_first_s: float
    copy_s: float
    records_per_s: float
    source_mb_per_s: float
    cpu_s_per_gb: float
    workers_cpu_s_per_gb: float
    start_cpu_s: float
    peak_pss_bytes: int
    strangers_cores: float


@attrs.frozen
class Look:
    """The target at one moment."""

    at: float
    records: int


async def copy(
    candidate: Candidate, flow: FlowSettings, source: LoadedTopic, target: Broker, directory: Path
) -> CopyRun:
    """Run *candidate* until it has copied *source*; `MirrorFailedError` when it does not."""
    async with running(candidate, flow, directory) as mirror:
        watch = _Watch(mirror, target, flow.remote_topic, source)
        first = await watch.until_first_record()
        start = mirror.tree.cpu()
        strangers = Strangers()
        last = await watch.until_all_records(first)
        used = mirror.tree.cpu().since(start)
        strangers_cores = strangers.cores()
        mirror.tree.sample_memory()
    if last.records == first.records:
        raise mirror.failed("all records came between two looks: give it more of them")
    seconds = last.at - first.at
    records = last.records - first.records
    copied_gb = source.stored_bytes * records / source.records / 1e9
    return CopyRun(
        candidate=candidate,
        shape=source.shape.name,
        records=source.records,
        start_to_first_s=first.at - mirror.started,
        copy_s=seconds,
        records_per_s=records / seconds,
        source_mb_per_s=copied_gb * 1000 / seconds,
        cpu_s_per_gb=used.tree_s / copied_gb,
        workers_cpu_s_per_gb=used.workers_s / copied_gb,
        start_cpu_s=start.tree_s,
        peak_pss_bytes=mirror.tree.peak_pss_bytes,
        strangers_cores=strangers_cores,
    )


class _Watch:
    """Looks at the remote topic and, now and then, at the mirror's processes."""

    def __init__(self, mirror: Mirror, target: Broker, remote_topic: str, source: LoadedTopic) -> None:
        self._mirror = mirror
        self._target = target
        self._remote_topic = remote_topic
        self._source = source
        self._next_memory = 0.0

    async def until_first_record(self) -> Look:
        while True:
            look = await self._look()
            if look.records:
                return look
            if look.at - self._mirror.started > START_LIMIT_S:
                raise self._mirror.failed(f"no record at the target within {START_LIMIT_S:g} s")
            self._sample()
            await asyncio.sleep(START_POLL_S)

    async def until_all_records(self, first: Look) -> Look:
        look = first
        progress = first
        while look.records < self._source.records:
            self._sample()
            await asyncio.sleep(self._pause(first, look))
            look = await self._look()
            if look.records > progress.records:
                progress = look
            elif look.at - progress.at > STALL_LIMIT_S:
                detail = f"stands still at {look.records} of {self._source.records} records"
                raise self._mirror.failed(detail)
        if look.records > self._source.records:
            raise self._mirror.failed(f"wrote {look.records} records for {self._source.records}")
        return look

    def _pause(self, first: Look, look: Look) -> float:
        """Half of the time that is left at the rate so far, within the limits."""
        if look.records == first.records:
            return LAST_POLL_S
        rate = (look.records - first.records) / (look.at - first.at)
        left_s = (self._source.records - look.records) / rate
        return min(COPY_POLL_S, max(LAST_POLL_S, left_s / 2))

    async def _look(self) -> Look:
        self._mirror.check()
        offsets = await self._target.end_offsets(self._remote_topic, self._source.shape.partitions)
        return Look(time.monotonic(), sum(offsets or ()))

    def _sample(self) -> None:
        now = time.monotonic()
        if now >= self._next_memory:
            self._next_memory = now + MEMORY_EVERY_S
            self._mirror.tree.sample_memory()
