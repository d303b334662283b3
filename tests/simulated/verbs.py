"""What an operator may ask for, as requests of REST: at a flow's addresses, or at those of a worker's connectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import attrs

from mm2py.core.herder.overrides import CHECKPOINT, SOURCE
from mm2py.model.flow import Flow
from mm2py.model.herder.overrides import Overrides, Wanted
from tests.simulated import settings


if TYPE_CHECKING:
    from tests.simulated.options import Options


AT_FLOW = "/from:A/to:B"
_SOURCE, _CHECKPOINTS = "source", "checkpoints"
_REFRESH = "refresh.topics.interval.seconds"
#: What an operator changes of a flow, and how a node shows it.
SHOWN: dict[str, Callable[[Overrides], object]] = {
    "source": lambda it: it.wanted(SOURCE),
    "checkpoints": lambda it: it.wanted(CHECKPOINT),
    "topics": lambda it: sorted(it.topics),
    "limit": lambda it: it.limit.records_per_s,
    "config": lambda it: dict(it.config.get(SOURCE, {})),
}
#: How all of it is at first, but for which connectors run.
AS_STORED: dict[str, object] = {"topics": [], "limit": None, "config": {}}
USUAL = {"source": Wanted.RUNNING, "checkpoints": Wanted.RUNNING, **AS_STORED}
#: What may be read: each must be answered, and never by a bug.
READ = (
    "/status",
    "/nodes",
    "/metrics",
    "/health/ready",
    "/node/drain",
    "/connectors?expand=status&expand=info",
    f"{AT_FLOW}/status",
    f"{AT_FLOW}/metrics",
    f"{AT_FLOW}/tasks",
    f"{AT_FLOW}/nodes",
    f"{AT_FLOW}/groups",
    f"{AT_FLOW}/topics",
    f"{AT_FLOW}/topics/orders/partitions",
    f"{AT_FLOW}/overrides",
    f"{AT_FLOW}/limit",
    f"{AT_FLOW}/config?all=true",
    f"{AT_FLOW}/connectors?expand=status&expand=info",
    f"{AT_FLOW}/connectors/{SOURCE}/offsets",
)


@attrs.frozen
class Request:
    """A request, and what is so once it was carried out: values by what they are of."""

    method: str
    path: str
    body: object = None
    brings: Mapping[str, object] = attrs.field(factory=dict)
    #: What was so stays as it is: a flow that is paused leaves those of its connectors alone that are stopped.
    spares: tuple[object, ...] = ()


@attrs.frozen
class Connectors:
    """A source connector, and that of checkpoints: how they are reached, and what is known of them is called."""

    is_worker: bool
    #: Which of the two there are.
    kinds: tuple[str, ...] = (_SOURCE, _CHECKPOINTS)
    #: Whether there is a second source connector, and whether it is that one: it has no checkpoints.
    has_aside: bool = False
    is_aside: bool = False
    #: Whether it is the checkpoint connector of a worker that has no other.
    is_apart: bool = False

    @classmethod
    def of(cls, options: Options) -> list[Connectors]:
        """Return those of a run."""
        kinds = (_SOURCE,) if options.checks_apart else (_SOURCE, _CHECKPOINTS)
        first = cls(options.is_worker, kinds, options.has_aside)
        aside = cls(options.is_worker, (_SOURCE,), has_aside=True, is_aside=True)
        apart = cls(options.is_worker, (_CHECKPOINTS,), is_apart=True)
        return [first, *([aside] if options.has_aside else []), *([apart] if options.checks_apart else [])]

    def name(self, which: str) -> str:
        """Return what the "source" connector or that of "checkpoints" is called in a worker."""
        return settings.ASIDE if self.is_aside else settings.NAMES[which]

    def at(self, which: str, more: str = "") -> str:
        """Return an address of the "source" connector or of "checkpoints"."""
        if self.is_worker:
            return f"/connectors/{self.name(which)}{more}"
        return f"{AT_FLOW}/connectors/{SOURCE if which == 'source' else CHECKPOINT}{more}"

    @property
    def flow(self) -> Flow:
        """The flow that the source connector is."""
        return Flow("A", "B", settings.ASIDE if self.is_aside else "")

    def at_flow(self, more: str) -> str:
        """Return an address of its flow."""
        return f"{AT_FLOW}{f';connector={settings.ASIDE}' if self.is_aside else ''}{more}"

    def known(self, **values: object) -> dict[str, object]:
        """Return *values* of what an operator changes by the names that they have for this connector."""
        return {f"{self.prefix}{what}": value for what, value in values.items()}

    @property
    def prefix(self) -> str:
        """What the names of what is known of it begin with."""
        return "aside " if self.is_aside else "apart " if self.is_apart else ""

    def one(self, draw: random.Random) -> str:
        """Draw one of the two."""
        return draw.choice((_SOURCE, _SOURCE, _CHECKPOINTS)) if len(self.kinds) > 1 else self.kinds[0]


Verb = Callable[[Connectors, random.Random], list[Request]]


def _held(verb: str, wanted: Wanted) -> Verb:
    """Return the verb that has one connector, or all of the flow, be in a state."""

    def ask(connectors: Connectors, draw: random.Random) -> list[Request]:
        if draw.random() < 0.4:
            both = dict.fromkeys(connectors.kinds, wanted)
            spares = (Wanted.DELETED, *([Wanted.STOPPED] if wanted is Wanted.PAUSED else []))
            return [Request("PUT", connectors.at_flow(f"/{verb}"), brings=connectors.known(**both), spares=spares)]
        which = connectors.one(draw)
        return [Request("PUT", connectors.at(which, f"/{verb}"), brings=connectors.known(**{which: wanted}))]

    return ask


def _delete(connectors: Connectors, draw: random.Random) -> list[Request]:
    # The second source connector would take the place of the first one, and what is known of it.
    which = _CHECKPOINTS if connectors.has_aside and not connectors.is_aside else connectors.one(draw)
    if which not in connectors.kinds:
        return []
    # A worker forgets what it was.
    brings: dict[str, object] = {which: Wanted.RUNNING if connectors.is_worker else Wanted.DELETED}
    if which == _SOURCE:
        brings["config"] = {}
    return [Request("DELETE", connectors.at(which), brings=connectors.known(**brings))]


def _config(connectors: Connectors, _draw: random.Random) -> list[Request]:
    change = {_REFRESH: "7"}
    brings = {} if connectors.is_worker else connectors.known(config=change)
    return [Request("PATCH", connectors.at("source", "/config"), change, brings)]


def _restart(connectors: Connectors, draw: random.Random) -> list[Request]:
    with_tasks = draw.choice(("true", "false"))
    return [Request("POST", connectors.at(connectors.one(draw), f"/restart?includeTasks={with_tasks}"))]


def _restart_task(connectors: Connectors, draw: random.Random) -> list[Request]:
    return [Request("POST", connectors.at("source", f"/tasks/{draw.choice((0, 1))}/restart"))]


def _read(connectors: Connectors, draw: random.Random) -> list[Request]:
    return [Request("GET", it.replace(AT_FLOW, connectors.at_flow(""))) for it in draw.sample(READ, 5)]


def _topic(connectors: Connectors, _draw: random.Random) -> list[Request]:
    topic = settings.TOPIC_ASIDE if connectors.is_aside else "orders"
    return [Request("PUT", connectors.at_flow(f"/topics/{topic}/pause"), brings=connectors.known(topics=[topic]))]


def _limit(connectors: Connectors, _draw: random.Random) -> list[Request]:
    return [Request("PUT", connectors.at_flow("/limit"), {"records_per_s": 1}, connectors.known(limit=1.0))]


def _refresh(connectors: Connectors, _draw: random.Random) -> list[Request]:
    return [Request("PUT", connectors.at_flow("/refresh"))]


def _drain(_connectors: Connectors, _draw: random.Random) -> list[Request]:
    return [Request("PUT", "/node/drain")]


VERBS: dict[str, Verb] = {
    "pause": _held("pause", Wanted.PAUSED),
    "stop": _held("stop", Wanted.STOPPED),
    "delete": _delete,
    "topic": _topic,
    "limit": _limit,
    "config": _config,
    "restart": _restart,
    "restart task": _restart_task,
    "drain": _drain,
    "refresh": _refresh,
    "read": _read,
}
#: Those that are not about what is copied.
VERBS_APART = ("pause", "stop", "delete", "restart", "drain", "refresh", "read")
