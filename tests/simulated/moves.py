"""
What nodes say of a flow while its partitions move from one to another, a story each: `python -m tests.simulated.moves`
prints what they come to. `test_moves.py` says what is right.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from functools import partial
from typing import Any

from mm2py.model.behind import Behind
from mm2py.model.herder.all_nodes import flow_of_all_nodes
from mm2py.model.state import FlowView
from tests.simulated.network import Quality
from tests.simulated.stage import Stage, Story, play_apart


_TOPICS, _BATCHES, _EACH = 6, 20, 10
_ALL = _TOPICS * _BATCHES * _EACH
_LOOK_S = 0.1
#: A node that the target is far from for needs so long for each of its questions.
_FAR_S = 0.1
#: By then a share has been given.
_MOVES_S = 15.0


def _dedicated(stage: Stage) -> Mapping[str, str]:
    """Return the settings of a node that shares three tasks with others."""
    kinds = ("config", "offset", "status")
    return {
        "clusters": "A, B",
        **{f"{name}.bootstrap.servers": stage.servers(name) for name in "AB"},
        **{f"{kind}.storage.replication.factor": "1" for kind in kinds},
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "emit.heartbeats.enabled": "false",
        "A->B.enabled": "true",
        "A->B.topics": "t.*",
        "tasks.max": "3",
        "copy.epoch.ms": "1000",
    }


def _whole(stage: Stage, name: str, *, has_partitions: bool = True) -> FlowView | None:
    """Return the flow as a node shows it, with what all nodes do; without partitions, as the page remembers it."""
    node = stage.nodes[name]
    if node.node is None or node.host is None:
        return None
    view = node.host.context.copy().run(partial(node.node.view, has_partitions=has_partitions))
    return next(map(flow_of_all_nodes, view.flows), None)


def _known(flow: FlowView | None) -> int | None:
    """Return the lag that is shown as exact."""
    return None if flow is None or not Behind.of(flow).is_known else flow.lag


async def _watch(stage: Stage, lies: list[str]) -> None:
    """Note each exact lag that is less than what is left, or more than there ever was."""
    while True:
        left = _ALL - sum(stage.count("B", f"A.t{number}") or 0 for number in range(_TOPICS))
        for name, has_partitions in itertools.product(stage.nodes, (True, False)):
            lag = _known(_whole(stage, name, has_partitions=has_partitions))
            if lag is not None and not left <= lag <= _ALL:
                lies.append(f"{stage.loop.time():.1f} {name} says that {lag} are left, of {left}")
        await asyncio.sleep(_LOOK_S)


async def partitions_that_move(stage: Stage) -> Any:
    """
    Two nodes join one that has it all; little is copied all the while, so that each partition is behind. What the last
    one gets of a share reaches it long before it has read where its partitions are: the target is far from it.
    """
    for number in range(_TOPICS):
        for _ in range(_BATCHES):
            stage.produce(f"t{number}", _EACH)
    stage.network.qualities[("n2", "b0")] = stage.network.qualities[("b0", "n2")] = Quality(latency_s=_FAR_S)
    stage.node("n0", _dedicated(stage))
    await stage.ask("n0", "PUT", "/from:A/to:B/limit", {"records_per_s": 1})
    assert await stage.until(lambda: _known(_whole(stage, "n0")))
    lies, is_known = list[str](), list[bool]()
    watching = asyncio.create_task(_watch(stage, lies))
    for name in ("n1", "n2"):
        stage.node(name, _dedicated(stage))
        await asyncio.sleep(_MOVES_S)
        is_known.append(await stage.until(lambda: all(_known(_whole(stage, it)) for it in stage.nodes)))
    stage.nodes["n1"].stop()
    await asyncio.sleep(_MOVES_S)
    is_known.append(await stage.until(lambda: all(_known(_whole(stage, it)) for it in ("n0", "n2"))))
    watching.cancel()
    return {"lies": lies[:5], "is known again": is_known}


STORIES: dict[str, Story] = {story.__name__: story for story in (partitions_that_move,)}


if __name__ == "__main__":
    play_apart(STORIES)
