"""
How long no record of a partition arrives when its node is lost, or restarted, with default settings.

Both are read from the ends of the remote topic, 20 times a second; the target has three brokers. What is required is
not stretched on a slow machine: run scripts/soak -n 0 -k "machines_are_lost or restarted_one" on one that is quiet.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from tests.support.brokers import MakeCluster
from tests.support.node_runs import (
    NAMES,
    OTHER_MACHINE,
    PARTITIONS,
    EndsWatch,
    Scene,
    all_move_on,
    ends_watch,
    running_nodes,
)
from tests.support.soaking import rounds


pytestmark = pytest.mark.soak(only="four brokers and three daemons")

_KILLS = rounds(0, soak=50)
_ROUNDS = rounds(0, soak=4)
#: What is required: of the partitions of all lost nodes at the 99th percentile, and of each one in each restart.
_LOST_S = 10.0
_RESTARTED_S = 3.0
_DEFAULTS = {"B.offset.flush.interval.ms": 60_000}

#: How long each partition stood still, of each time.
Pauses = list[dict[int, float]]


def _scene(make_cluster: MakeCluster, topic: str) -> Scene:
    source = make_cluster("source")
    target = make_cluster("target", brokers=3, properties={"min.insync.replicas": "2"})
    return Scene(source.bootstrap_servers, target.bootstrap_servers, topic, replication=3)


async def test_machines_are_lost(make_cluster: MakeCluster, prefix: str, tmp_path: Path) -> None:
    """All partitions of a node whose machine is lost move on once its session is over."""
    scene = _scene(make_cluster, prefix)
    settings = dict.fromkeys(NAMES, scene.properties(**_DEFAULTS))
    found: Pauses = []
    async with (
        running_nodes(scene, tmp_path, settings, module=OTHER_MACHINE) as (nodes, _stream),
        ends_watch(scene) as watch,
    ):
        for turn in range(_KILLS):
            name = NAMES[turn % 3]
            await asyncio.sleep(random.uniform(2.0, 5.0))  # the kill falls anywhere between two heartbeats
            lost, killed_at = nodes.copied(name), time.monotonic()
            nodes.lose(name)
            await all_move_on(scene)
            await nodes.sharing(without=name)
            pauses = {it: watch.pause(it, killed_at, time.monotonic()) for it in lost}
            found.append({it: end - killed_at for it, (_, end) in pauses.items()})
            _note(f"{name} lost", found[-1:])
            await nodes.start(name)
            await nodes.sharing()
        _note(f"{len(found)} machines lost", found)
    assert _p99(it for pauses in found for it in pauses.values()) <= _LOST_S


async def test_nodes_are_restarted_one_after_the_other(make_cluster: MakeCluster, prefix: str, tmp_path: Path) -> None:
    """No partition stands still for long, neither when its node leaves nor when that comes back."""
    scene = _scene(make_cluster, prefix)
    settings = dict.fromkeys(NAMES, scene.properties(**_DEFAULTS))
    quiet: Pauses = []
    leaving: Pauses = []
    coming: Pauses = []
    async with (
        running_nodes(scene, tmp_path, settings) as (nodes, _stream),
        ends_watch(scene) as watch,
    ):
        for name in NAMES * _ROUNDS:
            quiet.append(_longest(watch, time.monotonic(), await _settled()))
            stopped_at = time.monotonic()
            assert await nodes.running[name].sigterm() == 0
            await all_move_on(scene)
            await nodes.sharing(without=name)
            leaving.append(_longest(watch, stopped_at, started_at := time.monotonic()))
            await nodes.start(name)
            await nodes.sharing()
            await all_move_on(scene)
            coming.append(_longest(watch, started_at, time.monotonic()))
            _note(f"{name} left", leaving[-1:])
            _note(f"{name} came back", coming[-1:])
        for what, some in (("nothing happened", quiet), ("a node left", leaving), ("a node came", coming)):
            _note(f"{len(some)} times {what}", some)
    assert max(map(_slowest, [*leaving, *coming])) <= _RESTARTED_S


async def _settled() -> float:
    """Let all nodes copy for a while; return the time then."""
    await asyncio.sleep(3.0)
    return time.monotonic()


def _longest(watch: EndsWatch, since: float, until: float) -> dict[int, float]:
    """Return the longest pause of each partition in that time."""
    pauses = {it: watch.pause(it, since, until) for it in range(PARTITIONS)}
    return {it: end - begun for it, (begun, end) in pauses.items()}


def _slowest(pauses: dict[int, float]) -> float:
    return max(pauses.values())


def _p99(seconds: Iterable[float]) -> float:
    """Return what all but one in a hundred are at most."""
    ordered = sorted(seconds)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def _note(what: str, found: Sequence[dict[int, float]]) -> None:
    """Log the slowest partition of each time, and all partitions, with the machine's load."""
    slowest = sorted(map(_slowest, found))
    every = sorted(it for pauses in found for it in pauses.values())
    logging.getLogger(__name__).info(
        "%s: slowest partition p50 %.2f s, p99 %.2f s, max %.2f s; %d partitions p50 %.2f s, p99 %.2f s; load %.1f",
        what,
        statistics.median(slowest),
        _p99(slowest),
        slowest[-1],
        len(every),
        statistics.median(every),
        _p99(every),
        os.getloadavg()[0],
    )
