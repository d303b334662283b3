"""What the node itself does, beside its flows."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import pytest

from mm2py.config.settings import MirrorSettings, load_settings
from mm2py.connectors.measures import FlowMeasures
from mm2py.daemon import FreezesWhatStays, MirrorMaker, collect_forever
from mm2py.model.flow import Flow
from mm2py.telemetry.journal import EventLog
from tests.support.clocks import LoopClock, ManualClock
from tests.support.mm2_file import mm2_properties


class CollectorRig:
    """A garbage collector by numbers of objects: those that are alive, garbage, and which of both are frozen."""

    def __init__(self) -> None:
        self.clock = ManualClock(now_s=1.0)
        self.keeper = FreezesWhatStays(self.clock, self)
        self.living = self.seen = 1_000
        self.frozen = 0

    def restart(self) -> None:
        """Let go of all that is alive, and begin as much again."""
        self.seen += self.living

    def collect(self, generation: int, took_s: float) -> None:
        info = {"generation": generation, "collected": 0, "uncollectable": 0}
        self.keeper("start", info)
        self.clock.advance(took_s)
        self.seen = min(self.seen, self.living)
        self.keeper("stop", info)

    def freeze(self) -> None:
        self.frozen += self.seen
        self.seen = 0

    def unfreeze(self) -> None:
        self.seen += self.frozen
        self.frozen = 0

    def get_freeze_count(self) -> int:
        return self.frozen


@pytest.mark.parametrize(
    ("generation", "took_s", "frozen"),
    [(2, 0.2, 1_000), (2, 0.01, 0), (1, 0.2, 0)],
    ids=["a long full collection", "a short one", "one of young objects"],
)
def test_what_a_long_collection_leaves_is_not_collected_again(generation: int, took_s: float, frozen: int) -> None:
    """A full collection that held everything up is not repeated over the same objects."""
    rig = CollectorRig()
    rig.collect(generation, took_s)

    assert rig.frozen == frozen


def test_what_stays_no_more_is_collected() -> None:
    """
    A flow with tens of thousands of partitions restarts each hour, for weeks.

    Each of its lives was frozen. It is let go of, in circles that only the collector breaks, and would stay for good.
    """
    rig = CollectorRig()
    frozen = []
    for _ in range(50):
        rig.collect(2, 0.2)
        frozen.append(rig.frozen)
        rig.restart()

    assert max(frozen) <= 3 * rig.living
    assert rig.living in frozen[-2:]


async def test_old_garbage_is_collected_hourly() -> None:
    """Not at once: what the start left is frozen, or young."""
    clock, collected = LoopClock(), list[float]()
    began = clock.monotonic()
    with suppress(TimeoutError):
        async with asyncio.timeout(3 * 3600 + 1):
            await collect_forever(clock, lambda: collected.append(clock.monotonic() - began))

    assert collected == [3600, 7200, 10800]


def _settings(folder: Path, alias: str, *, tasks_max: int = 1) -> MirrorSettings:
    file = folder / "mm2.properties"
    file.write_text(mm2_properties("a:1", "b:1", aliases=(alias, "B"), **{"tasks.max": tasks_max}))
    return load_settings(file)


def test_what_was_measured_of_a_flow_that_is_gone_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Connectors come and go under ever new names, for weeks, and of each of its partitions a flow knows a kilobyte.

    The counters of one that is merely restarted continue.
    """
    monkeypatch.setattr(MirrorMaker, "_start_spark", lambda *_: None)
    clock = ManualClock()
    node = MirrorMaker(_settings(tmp_path, "A"), clock=clock, events=EventLog(clock), jitter=lambda: 0.5)
    flow, seen = Flow("A", "B"), list[dict[Flow, FlowMeasures]]()
    for alias, tasks_max in (("A", 2), ("C", 2), ("A", 2)):
        settings = _settings(tmp_path, alias, tasks_max=tasks_max)
        seen.append(dict(node._measures))
        node._change(settings, cast("Any", None))
        node._fleet.add(settings.flows)
    seen.append(dict(node._measures))
    node._spark._scratch.remove()

    assert seen[1][flow] is seen[0][flow]
    assert [list(measures) for measures in seen] == [[flow], [flow], [Flow("C", "B")], [flow]]
