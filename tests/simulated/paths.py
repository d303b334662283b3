"""
The files on the way of a start, of a change and of a group's offset: what a reader has to open to follow it.

On a way are the functions of mm2py that run on a node from its first step to its last, and that do not run while
nothing is asked of it. `wire`, `model`, `telemetry` and the key table are left out, which each way has; so are commands
and Spark, for which the simulation has code of its own.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import mm2py
from tests.simulated.loop import HOST
from tests.simulated.stage import Stage, Story, play_apart


ROOT: Final = Path(mm2py.__file__).parent
_LEFT_OUT: Final = ("wire/", "model/", "telemetry/", "config/keys/")
#: Where ways end, a function of a file: a plan is run, a connector starts again.
_FIRST_PLAN: Final = ("tests/simulated/epochs.py", "run")
_NEXT_LIFE: Final = ("connectors/source/group.py", "_live")
_NOWHERE: Final = ("", "")
#: Longer than topic configs and ACLs rest between two rounds, where several follow each other.
_RESTS_S: Final = 250.0
_SOURCE: Final = {
    "connector.class": "org.apache.kafka.connect.mirror.MirrorSourceConnector",
    "source.cluster.alias": "A",
    "target.cluster.alias": "B",
}
_ONE_BROKER: Final = {
    f"{topic}.replication.factor": "1"
    for topic in ("config.storage", "offset.storage", "status.storage", "checkpoints.topic", "offset-syncs.topic")
}


class Recorder:
    """Notes which functions of mm2py run on node n0."""

    def __init__(self) -> None:
        self._found: set[CodeType] = set()
        self._end = _NOWHERE

    def begin(self, end: tuple[str, str] = _NOWHERE) -> None:
        """Note them until that function is called, or until `taken`."""
        self._found, self._end = set(), end
        sys.setprofile(self._called)

    def taken(self) -> set[CodeType]:
        """Note no more, and return what was noted."""
        sys.setprofile(None)
        return self._found

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        code, host = frame.f_code, HOST.get()
        if event != "call" or host is None or host.name != "n0":
            return
        file, name = self._end
        if code.co_name == name and code.co_filename.endswith(file):
            sys.setprofile(None)
        elif code.co_filename.startswith(str(ROOT)):
            self._found.add(code)

    async def idle(self, stage: Stage) -> set[CodeType]:
        """Return what runs while records are copied, and nothing else is asked for."""
        await asyncio.sleep(_RESTS_S)
        self.begin()
        for _ in range(3):
            stage.produce("orders", 10)
            await asyncio.sleep(_RESTS_S)
        return self.taken()


def _files(functions: set[CodeType]) -> dict[str, list[str]]:
    """Return the files of *functions* that count, each with its functions in their order."""
    found: dict[str, list[str]] = {}
    for code in sorted(functions, key=lambda it: (it.co_filename, it.co_firstlineno)):
        name = Path(code.co_filename).relative_to(ROOT).as_posix()
        if not name.startswith(_LEFT_OUT) and code.co_name != "<module>":
            found.setdefault(name, []).append(code.co_qualname)
    return found


def _start(stage: Stage, **lines: str) -> None:
    servers = {f"{name}.bootstrap.servers": stage.servers(name) for name in "AB"}
    flow = {"A->B.enabled": "true", "A->B.topics": "orders", "refresh.topics.interval.seconds": "5"}
    beats = {"replication.factor": "1", "heartbeats.topic.replication.factor": "1"}
    stage.node("n0", {"clusters": "A, B", **servers, **_ONE_BROKER, **flow, **beats, **lines})


async def start(stage: Stage) -> Any:
    """A dedicated node starts, until its first plan."""
    stage.produce("orders", 100)
    recorder = Recorder()
    recorder.begin(_FIRST_PLAN)
    _start(stage)
    assert await stage.until(lambda: stage.count("B", "A.orders"))
    return _files(recorder.taken())


async def _changed(stage: Stage, change: Callable[[], Awaitable[object]]) -> Any:
    """Return what runs from a *change*, which adds a topic, until the source connector starts again."""
    stage.produce("orders", 100)
    stage.produce("clicks", 10)
    assert await stage.until(lambda: stage.count("B", "A.orders"))
    recorder = Recorder()
    idle = await recorder.idle(stage)
    recorder.begin(_NEXT_LIFE)
    await change()
    assert await stage.until(lambda: stage.count("B", "A.clicks"))
    return _files(recorder.taken() - idle)


async def put_at_a_pair(stage: Stage) -> Any:
    """A connector of a dedicated node gets another config."""
    _start(stage)
    path = "/from:A/to:B/connectors/MirrorSourceConnector/config"
    return await _changed(stage, lambda: stage.ask("n0", "PUT", path, {"topics": "orders,clicks"}))


async def put_at_a_worker(stage: Stage) -> Any:
    """A connector of a Connect worker gets another config."""
    more = {"replication.factor": "1", "offset-syncs.topic.replication.factor": "1"}
    config = {**_SOURCE, **more, "source.cluster.bootstrap.servers": stage.servers("A"), "topics": "orders"}
    stage.worker("n0", "B")
    await stage.put("n0", "mirror", config)
    return await _changed(stage, lambda: stage.put("n0", "mirror", {**config, "topics": "orders,clicks"}))


async def sighup(stage: Stage) -> Any:
    """A dedicated node's file has changed."""
    _start(stage)

    async def change() -> None:
        node, file = stage.nodes["n0"], Path("n0.properties")
        file.write_text(file.read_text().replace("topics = orders", "topics = orders,clicks"))  # noqa: ASYNC240
        assert node.host is not None
        assert node.node is not None
        node.host.call_later(0, node.node.request_reload)

    return await _changed(stage, change)


async def offset_of_a_group(stage: Stage) -> Any:
    """The first group commits an offset at the source, until it stands at the target."""
    every = {"emit.checkpoints.interval.seconds": "5", "sync.group.offsets.interval.seconds": "5"}
    _start(stage, **every, **{"sync.group.offsets.enabled": "true", "refresh.groups.interval.seconds": "5"})
    stage.produce("orders", 100)
    recorder = Recorder()
    idle = await recorder.idle(stage)
    recorder.begin()
    stage.commit("A", "readers", "orders", 60)
    assert await stage.until(lambda: stage.committed("B", "readers", "A.orders") == 60)
    return _files(recorder.taken() - idle)


WAYS: dict[str, Story] = {
    story.__name__: story for story in (start, put_at_a_pair, put_at_a_worker, sighup, offset_of_a_group)
}


def _shown(name: str, files: dict[str, list[str]]) -> str:
    lines = (f"  {file}: {', '.join(functions)}" for file, functions in files.items())
    return "\n".join([f"{name}: {len(files)} files", *lines])


if __name__ == "__main__":
    play_apart({name: WAYS[name] for name in sys.argv[1:] or WAYS}, _shown)
