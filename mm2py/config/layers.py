"""Precedence of lines for a key: default < top level < cluster < flow, by MirrorMaker's rules. MirrorMaker has no
single order: a client's cluster line takes precedence over the flow's plain line, the top level over the cluster for
runtime keys. So each key has a list of spellings, the strongest first, and the first that the file has applies. Every
value keeps its origin.

MirrorMaker makes maps of a client's settings layer by layer (MirrorMakerConfig, MirrorConnectorConfig, Connect's
Worker). Here each such map is a list of prefixes: the first one with a line in the file applies. Overrides and hints
need these lists, too: an override is written with the strongest spelling.
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.keys.row import Key, LineLevel, Place
from mm2py.config.problem import Problem
from mm2py.config.properties import Document, Entry
from mm2py.model.flow import Flow


_CLUSTER = "cluster."
_CONNECTOR = "connector."
#: KIP-382's names of settings, and the current ones.
RENAMED = {
    "brokers.list": "bootstrap.servers",
    "emit.heartbeats": "emit.heartbeats.enabled",
    "emit.checkpoints": "emit.checkpoints.enabled",
    "refresh.topics": "refresh.topics.enabled",
    "refresh.groups": "refresh.groups.enabled",
    "sync.topic.configs": "sync.topic.configs.enabled",
    "sync.topic.acls": "sync.topic.acls.enabled",
}
OVERRIDE = "--override"
#: The origin of a line that an operator set while the flow runs.
LIVE = "live"
#: The origin of a line of another node, which owns the flow.
OWNERS = "the owner's file"
#: The origin of a value without a line.
DEFAULT = "default"


class Side(enum.Enum):
    """Which of a flow's clusters a client connects to."""

    SOURCE = "source"
    TARGET = "target"


@attrs.frozen
class Value:
    """A value's text and where it was written; `where` is empty for a default."""

    text: str = attrs.field(repr=False)
    where: str = ""
    #: The key as it is written there.
    key: str = ""
    #: The reference in the file, if the text came from a value provider: ``${file:…}``. The text is then a secret.
    stands_in: str = ""
    #: The key of an ``mm2.properties`` that it counts as: in a connector's file, say, flows need not be named.
    counts_as: str = attrs.field(default=attrs.Factory(lambda self: self.key, takes_self=True))
    #: How it is written, if it is a line of a file.
    entry: Entry | None = attrs.field(default=None, eq=False, repr=False)

    def reason(self, error: ValueError) -> str:
        """Return why the text is invalid, without showing it if it came from a provider."""
        return f"the value of {self.stands_in} is invalid here" if self.stands_in else str(error)

    @property
    def origin(self) -> str:
        """Where the value comes from, ``mm2.properties:12, A->B.topics``."""
        return f"{self.where}, {self.key}" if self.where else DEFAULT

    def spelt(self, key: str) -> str:
        """Return how another *key* of an ``mm2.properties`` is written in this line's file."""
        is_short = self.counts_as.endswith(self.key)
        return key.removeprefix(self.counts_as.removesuffix(self.key)) if is_short else key


def lines_of(document: Document) -> tuple[Value, ...]:
    """Return the effective lines of a *document*."""
    entries = document.latest().values()
    return tuple(Value(entry.value, document.where(entry), entry.key, entry=entry) for entry in entries)


@attrs.frozen
class Imported:
    """The lines of files, with problems and notes about the files themselves."""

    #: The files by the names that lines have for them, in the user's order.
    named: Mapping[str, Path]
    lines: tuple[Value, ...]
    problems: tuple[Problem, ...] = ()
    notes: tuple[Problem, ...] = ()
    #: Where lines are that no file has.
    inventor: str | None = None
    #: Whether they may make no flow at all.
    may_be_idle: bool = False

    @property
    def path(self) -> Path:
        """The first file."""
        return next(iter(self.named.values()))

    def of_user(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """Return those of *problems*, or notes, that are about what the user wrote, in a file or as an option."""
        return tuple(it for it in problems if it.where != self.inventor or it.key.startswith("--"))


class Layers:
    """The effective lines, by the key that each counts as."""

    def __init__(
        self,
        lines: Iterable[Value],
        overrides: Mapping[str, str],
        live: Mapping[str, str] | None = None,
        owners: Mapping[str, str] | None = None,
    ) -> None:
        """Combine the *lines* of files, those of the command line over them, then those of the *owners* of flows, and
        *live* ones over all.
        """
        self._lines = {line.counts_as: line for line in lines}
        self._lines.update({key: Value(text, OVERRIDE, key) for key, text in overrides.items()})
        self._lines.update({key: Value(text, OWNERS, key) for key, text in (owners or {}).items()})
        self._lines.update({key: Value(text, LIVE, key) for key, text in (live or {}).items()})

    def replaced(self, values: Iterable[Value]) -> Layers:
        """Return the same lines with some of them replaced."""
        fresh = copy.copy(self)
        fresh._lines = {**self._lines, **{line.counts_as: line for line in values}}  # noqa: SLF001 - it is one of ours
        return fresh

    def renamed(self, values: Mapping[str, Value]) -> Layers:
        """Return the same lines, those in *values* under their new names unless such a line exists."""
        fresh = copy.copy(self)
        kept = {key: line for key, line in self._lines.items() if key not in values}
        fresh._lines = {**{line.counts_as: line for line in values.values()}, **kept}  # noqa: SLF001 - it is one of ours
        return fresh

    def lines(self) -> Iterable[Value]:
        """Return every effective line."""
        return self._lines.values()

    def get(self, key: str) -> Value | None:
        """Return the line that counts as exactly this *key*."""
        return self._lines.get(key)

    def first(self, spellings: Iterable[str]) -> Value | None:
        """Return the strongest line among *spellings*, which has the strongest first."""
        return next((line for spelling in spellings if (line := self._lines.get(spelling)) is not None), None)


def spellings(key: Key, flow: Flow, side: Side = Side.SOURCE) -> tuple[str, ...]:
    """Return all spellings of *key* for *flow*, the strongest first; former names come last."""
    names = (key.name, *key.aliases)
    return tuple(spelling for name in names for spelling in _spell(key.place, name, flow, side))


def _spell(place: Place, name: str, flow: Flow, side: Side) -> tuple[str, ...]:
    if place is Place.TOP:
        return (name,)
    if place is Place.CLUSTER:
        return _of_cluster(name, flow, side)
    return _OF_FLOW[place](name, flow)


def is_client_key(name: str) -> bool:
    """Whether it is a connection setting (MirrorClientConfig.CLIENT_CONFIG_DEF)."""
    return name in {"bootstrap.servers", "security.protocol"} or name.startswith(("ssl.", "sasl."))


def _inherited(name: str, alias: str) -> tuple[str, ...]:
    """Clients inherit connection settings from the cluster and from the top level, others not (clusterProps)."""
    return (f"{alias}.{name}", name) if is_client_key(name) else ()


def of_client(name: str, flow: Flow, side: Side, role: str) -> tuple[str, ...]:
    """Return the spellings for a client that MirrorMaker makes for a flow (sourceConsumerConfig and its siblings)."""
    alias = flow.source if side is Side.SOURCE else flow.target
    return (
        f"{flow}.{side.value}.{role}.{name}",
        f"{alias}.{role}.{name}",
        *_inherited(name, alias),
        f"{flow}.{role}.{name}",
        *((f"{flow}.{side.value}.cluster.{name}",) if is_client_key(name) else ()),
    )


def _of_consumer(name: str, flow: Flow) -> tuple[str, ...]:
    return of_client(name, flow, Side.SOURCE, "consumer")


def of_producer(name: str, flow: Flow) -> tuple[str, ...]:
    # It is Connect's own (Worker.baseProducerConfigs): of a flow's lines it only sees the overrides. The last two are
    # read by Java for offset syncs only. If nothing else is set, they do what is expected.
    strongest = (f"{flow}.producer.override.{name}", f"{flow.target}.producer.{name}")
    beyond_java = (f"{flow}.target.producer.{name}", f"{flow}.producer.{name}")
    return (*strongest, *_inherited(name, flow.target), *beyond_java)


def _of_admin(name: str, flow: Flow) -> tuple[str, ...]:
    return tuple(dict.fromkeys(way for side in Side for way in of_client(name, flow, side, "admin")))


def _of_cluster(name: str, flow: Flow, side: Side) -> tuple[str, ...]:
    if side is Side.SOURCE:
        return _of_consumer(name, flow)
    return (*of_producer(name, flow), f"{flow}.target.cluster.{name}")


_OF_FLOW: Final[Mapping[Place, Callable[[str, Flow], tuple[str, ...]]]] = {
    Place.FLOW: lambda name, flow: (f"{flow}.{name}", name),
    Place.FLOW_ONLY: lambda name, flow: (f"{flow}.{name}",),
    Place.WORKER: lambda name, flow: (f"{flow.target}.{name}",),
    Place.WORKER_TOP: lambda name, flow: (name, f"{flow.target}.{name}"),
    Place.CONSUMER: _of_consumer,
    Place.PRODUCER: of_producer,
    Place.ADMIN: _of_admin,
}


def level_of(written: str, aliases: Iterable[str]) -> tuple[LineLevel, str, str]:
    """Split a written key: its level, the alias or flow, and the rest. A key of an unknown cluster or flow is returned
    whole, as top level.
    """
    known = sorted(aliases, key=len, reverse=True)
    if "->" in written:
        for source in (alias for alias in known if written.startswith(f"{alias}->")):
            for target in known:
                owner = f"{source}->{target}"
                if source != target and written.startswith(f"{owner}."):
                    return LineLevel.FLOW, owner, written[len(owner) + 1 :]
        return LineLevel.TOP, "", written
    for alias in known:
        if written.startswith(f"{alias}."):
            return LineLevel.CLUSTER, alias, written[len(alias) + 1 :]
    return LineLevel.TOP, "", written


# KIP-382's draft had ``cluster.A.brokers.list`` and ``connector.A->B.topics``.


@attrs.frozen
class Modern:
    """The lines in MirrorMaker 2's spelling, and a note for each that was spelt differently."""

    layers: Layers
    notes: tuple[Problem, ...]


def modernise(layers: Layers, aliases: Sequence[str]) -> Modern:
    """Return the lines with KIP-382's spellings replaced by the current names."""
    renamed: dict[str, Value] = {}
    notes: list[Problem] = []
    for line in layers.lines():
        now = _modern_name(line.counts_as, aliases)
        if now is None:
            continue
        if (winner := layers.get(now)) is not None:
            notes.append(Problem(line.where, line.key, f"overruled by {now} ({winner.where})", "remove the old line"))
        else:
            notes.append(Problem(line.where, line.key, "KIP-382's draft spelling", f"write {now}"))
        renamed[line.counts_as] = attrs.evolve(line, counts_as=now)
    return Modern(layers.renamed(renamed), tuple(notes))


def _modern_name(written: str, aliases: Sequence[str]) -> str | None:
    for stem, level in ((_CLUSTER, LineLevel.CLUSTER), (_CONNECTOR, LineLevel.FLOW)):
        if written.startswith(stem) and stem[:-1] not in aliases:
            found, owner, name = level_of(written.removeprefix(stem), aliases)
            if found is level:
                return f"{owner}.{RENAMED.get(name, name)}"
    return None
