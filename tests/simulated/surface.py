"""
What users of a mirror rely on, as one run shows it: answers of REST, names of metrics, events of the log, and what lies
in the internal topics, whose names, groups and transactional ids are Kafka Connect's.

`test_surface.py` compares it with the files in `surfaces/`; `python -m tests.simulated.surface` writes these
again. What differs then is a change that users notice. Numbers are all alike, or each changed timer would be
one.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import attrs

from mm2py.rest.app import ROUTES
from mm2py.telemetry import events
from mm2py.telemetry.events import Event
from tests.simulated import settings
from tests.simulated.cluster import Cluster
from tests.simulated.http import Answer, ask
from tests.simulated.options import Options
from tests.simulated.taming import tamed
from tests.simulated.verbs import AT_FLOW
from tests.simulated.world import World
from tests.support.contents import decode


FOLDER = Path(__file__).parent / "surfaces"
#: What is known without a run, and what runs show of nodes with a file, and of Connect workers.
WHICH = ("names", "dedicated", "worker")
_BEGINS_S, _AFTER_EACH_S = 60.0, 20.0
_WORDS = re.compile(rb"[A-Za-z][A-Za-z._-]{2,}")
_PART = re.compile(r"\{(\w+)(:[^}]*)?\}")
#: A node, and which worker of its Spark.
_NODE = re.compile(r"\bn[01]\b(?:(/w)[0-9.]+)?")
#: A number by itself: names and values of settings keep theirs.
_NUMBER = re.compile(r"(?<![\w.])\d+(\.\d+)*(?![A-Za-z])")
#: What is another one in each run: ids of nodes and topics, and what is packed.
_ID = re.compile(r"\b(?=[a-f]*\d)(?=\d*[a-f])[0-9a-f]{8,}\b|\bA{4,}[\w-]{10,}|\beJ[\w+/]{5,}=*")
_METRIC = re.compile(r"(\w+)(?:\{(.*)\})? \S+")
_LABEL = re.compile(r'(\w+)="([^"]*)"')
#: Values of a place that together are longer stand in lines of their own.
_LINE = 100
#: What never ends, what is the same for all, and what only says how long something has taken.
_NOT_ASKED = ("/stream", "/openapi.json", "/events", "/cluster/")


#: What stands for the parts of a route's path.
_PARTS = {
    "source": "A", "target": "B", "cluster": "A", "topic": "orders", "partition": "0", "task": "0", "group": "readers",
    "connector": "MirrorSourceConnector", "plugin": "MirrorSourceConnector", "logger": "root", "name": "index.html",
}  # fmt: skip


def _address(path: str) -> str:
    """Return the address of a route; connectors of a worker have names of their own."""
    parts = _PARTS if path.startswith("/from:") else {**_PARTS, "connector": settings.NAMES["source"]}
    return _PART.sub(lambda part: parts[part[1]], path)


def _changes(mode: str, config: dict[str, str]) -> list[tuple[str, str, object]]:
    """Return what operators ask for in turn: first what names one connector, then what the pair has."""
    at = _address("/connectors/{connector}" if mode == "worker" else AT_FLOW + "/connectors/{connector}")
    offset = {"partition": {"cluster": "A", "topic": "orders", "partition": 0}, "offset": {"offset": 3}}
    return [
        ("PUT", f"{at}/config", {**config, "refresh.topics.interval.seconds": "7"}),
        ("PATCH", f"{at}/config", {"offset.lag.max": "50"}),
        ("PUT", f"{at}/config", {**config, "tasks.max": "many"}),
        ("PUT", "/connector-plugins/MirrorSourceConnector/config/validate", {"tasks.max": "many"}),
        ("PATCH", f"{at}/offsets", {"offsets": [offset]}),
        ("PUT", f"{at}/pause", None),
        ("PUT", f"{at}/stop", None),
        ("PATCH", f"{at}/offsets", {"offsets": [offset]}),
        ("PUT", f"{at}/resume", None),
        ("POST", f"{at}/restart?includeTasks=true", None),
        ("POST", f"{at}/tasks/0/restart", None),
        ("PUT", f"{AT_FLOW}/topics/orders/pause", None),
        ("PUT", f"{AT_FLOW}/topics/orders/partitions/1/pause", None),
        ("PUT", f"{AT_FLOW}/limit", {"records_per_s": 5}),
        ("PUT", f"{AT_FLOW}/topics/events/limit", {"records_per_s": 5}),
        ("PUT", f"{AT_FLOW}/pause", None),
        ("GET", f"{AT_FLOW}/status", None),
        ("GET", f"{AT_FLOW}/overrides", None),
        ("PUT", f"{AT_FLOW}/resume", None),
        ("PUT", f"{AT_FLOW}/refresh", None),
        ("DELETE", f"{AT_FLOW}/overrides", None),
        ("PUT", "/node/drain", None),
        ("PUT", "/node/resume", None),
        ("PUT", "/admin/loggers/root", {"level": "DEBUG"}),
        ("GET", f"{AT_FLOW}/no/such/place", None),
        ("POST", f"{AT_FLOW}/status", None),
        ("DELETE", at, None),
        ("GET", f"{at}/status", None),
    ]


@attrs.define
class Surface:
    """The lines of a run, by what they are of."""

    mode: str
    #: The node that is asked: the flow's owner, which shows all that there is.
    asked: str = ""
    lines: list[str] = attrs.field(factory=list)
    said: set[str] = attrs.field(factory=set)

    def run(self) -> str:
        """Run two nodes for some minutes without a fault and return what was seen, in lines."""
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), tamed(1):
            world = World(Options(seed=1, nodes=2, partitions=2, rate=1.0, minutes=30.0, mode=self.mode), keeps=False)
            asyncio.set_event_loop(world.loop)
            living = world.outside.start(self._live(world), "surface")
            living.add_done_callback(lambda _: world.loop.stop())
            world.loop.run_forever()
            living.result()
            self.said.update(type(event).__name__ for _, _, event in world.journal.said)
        return "\n".join([*self.lines, "", "# events of such a run", *sorted(self.said), ""])

    async def _live(self, world: World) -> None:
        for name in world.topics:
            world.source.create(name, world.options.partitions)
        for node in world.nodes.values():
            node.start()
        world.operators.begin()
        work = [world.workload.produce(), world.workload.consume()]
        running = [world.outside.start(it, "workload") for it in work]
        await asyncio.sleep(_BEGINS_S)
        nodes = await ask(world.loop, "n0", "GET", f"{AT_FLOW}/nodes")
        assert nodes is not None
        [self.asked] = [it["host"] for it in nodes.body if it["is_owner"]]
        for path in dict.fromkeys(it.path for it in ROUTES if it.method == "GET" and it.tag != "page"):
            if not path.startswith(_NOT_ASKED):
                await self._ask(world, "GET", _address(path))
        await self._ask(world, "GET", f"{AT_FLOW}/connectors?expand=status&expand=info")
        self.lines += ["", "# internal topics, groups and transactional ids"]
        for cluster in (world.source, world.target):
            self.lines += _stored(cluster)
        self.lines += ["", "# changes, one after the other"]
        config = settings.connectors(world.options, world.source.servers)[settings.NAMES["source"]]
        sent = config if world.options.is_worker else {"topics": "orders,events", "tasks.max": "3"}
        for method, path, body in _changes(self.mode, sent):
            await self._ask(world, method, path, body)
            await asyncio.sleep(_AFTER_EACH_S)
        self.lines += ["", "# internal topics after them"]
        self.lines += _stored(world.target)
        for task in running:
            task.cancel()
        for node in world.nodes.values():
            node.stop()
        await asyncio.sleep(60)

    async def _ask(self, world: World, method: str, path: str, body: object = None) -> None:
        answer = await ask(world.loop, self.asked, method, path, body)
        assert answer is not None, path
        sent = "" if body is None else f" {json.dumps(body)}"
        self.lines += ["", f"{method} {path}{sent} -> {answer.status}", *_shown(answer)]


def _shown(answer: Answer) -> Iterator[str]:
    if isinstance(answer.body, str):
        yield from _metrics(answer.body)
    else:
        yield from _places(answer.body)


def _places(*values: Any) -> Iterator[str]:
    """Return each place in JSON, with all that is there in one of *values*."""
    found: dict[str, set[str]] = collections.defaultdict(set)
    for value in values:
        _flatten("", value, found)
    for place, there in sorted(found.items()):
        line = f"  {place}: {' | '.join(sorted(there))}"
        yield from [line] if len(line) <= _LINE else [f"  {place}:", *(f"    {it}" for it in sorted(there))]


def _metrics(text: str) -> Iterator[str]:
    """Return each metric with its labels, and with the values that each label has."""
    labels: dict[str, dict[str, set[str]]] = {}
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            yield f"  {line}"
        elif (found := _METRIC.fullmatch(line)) is not None:
            of = labels.setdefault(found[1], {})
            for label, value in _LABEL.findall(found[2] or ""):
                of.setdefault(label, set()).add(_masked(value))
    for name, of in sorted(labels.items()):
        yield " ".join([f"  {name}", *(f"{label}={'|'.join(sorted(it))}" for label, it in of.items())])


def _flatten(place: str, value: Any, found: dict[str, set[str]]) -> None:
    """Note each value by its place. What is in a list has one place; so have members by a partition's number."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            _flatten(f"{place}.{_masked(key)}".lstrip("."), inner, found)
    elif isinstance(value, list) and value:
        for inner in value:
            _flatten(f"{place}[]", inner, found)
    else:
        text = json.dumps(value)
        found[place].add(text if "config." in place else _masked(text))


def _masked(text: str) -> str:
    return _NUMBER.sub("#", _ID.sub("ID", _NODE.sub(r"NODE\1", text)))


def _stored(cluster: Cluster) -> Iterator[str]:
    for name, topic in sorted(cluster.topics.items()):
        if name in settings.TOPICS or name in {f"A.{it}" for it in settings.TOPICS}:
            continue
        policy = topic.configs.get("cleanup.policy", "delete")
        yield f"{cluster.name} {name}: {len(topic.partitions)} partitions, {policy}"
        records = (it for one in topic.partitions for batch in one.batches for it in decode(batch.raw))
        last = {record.key: record.value for record in records}
        values: dict[str, list[bytes | None]] = collections.defaultdict(list)
        for key, value in last.items():
            values[_text(key)].append(value)
        for text, those in sorted(values.items()):
            yield f" key {text}"
            yield from _values(those)
    yield from (f"{cluster.name} group {it}" for it in sorted(cluster.coordinator.groups))
    yield from (f"{cluster.name} transactional id {it}" for it in sorted(cluster.transactions))


def _text(data: bytes | None) -> str:
    """Return a key as a text, or what words are in it if it is none."""
    if data is None:
        return "null"
    with contextlib.suppress(UnicodeDecodeError):
        if (text := data.decode()).isprintable():
            return _masked(text)
    return f"in binary {b' '.join(_WORDS.findall(data)).decode()}".rstrip()


def _values(those: list[bytes | None]) -> Iterable[str]:
    """Return the places of JSON values, or what words are in them."""
    with contextlib.suppress(ValueError, TypeError):
        return list(_places(*(None if it is None else json.loads(it) for it in those)))
    return sorted({f"  {_text(it)}" for it in those})


def known_names() -> str:
    """Return what is there without a run: addresses, and events with their fields."""
    lines = ["# addresses", *sorted(f"{it.method} {it.path} {it.right.name.lower()}" for it in ROUTES), "", "# events"]
    kinds = {it for it in vars(events).values() if isinstance(it, type) and issubclass(it, Event) and it is not Event}
    for kind in sorted(kinds, key=lambda it: it.__name__):
        fields = ", ".join(f"{field.name}: {field.type}" for field in attrs.fields(kind))
        lines.append(f"{kind.level.name.lower()} {kind.__name__}({fields})")
    return "\n".join([*lines, ""])


def shown(which: str) -> str:
    """Return what "names" are known, or what a run in a mode has shown."""
    return known_names() if which == "names" else Surface(which).run()


def shown_apart(which: str) -> str:
    """Return what a process of its own has shown, in which sets have the same order each time."""
    command = [sys.executable, "-m", "tests.simulated.surface", which]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    root = Path(__file__).parents[2]
    return subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout


def main() -> None:
    """Print one of them, or write them all."""
    for which in sys.argv[1:]:
        sys.stdout.write(shown(which))
        sys.stdout.flush()
        os._exit(0)  # nodes that were stopped are not to be cleaned up
    FOLDER.mkdir(exist_ok=True)
    for which in WHICH:
        (FOLDER / f"{which}.txt").write_text(shown_apart(which))


if __name__ == "__main__":
    main()
