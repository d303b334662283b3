"""What an operator may ask for, as requests of REST: at a flow's addresses, or at those of a worker's connectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import attrs

from mm2py.core.herder.overrides import CHECKPOINT, SOURCE
from mm2py.model.herder.overrides import Overrides, Wanted
from tests.simulated import settings


AT_FLOW = "/from:A/to:B"
_REFRESH = "refresh.topics.interval.seconds"
#: What an operator changes, and how a node shows it.
SHOWN: dict[str, Callable[[Overrides], object]] = {
    "source": lambda it: it.wanted(SOURCE),
    "checkpoints": lambda it: it.wanted(CHECKPOINT),
    "topics": lambda it: sorted(it.topics),
    "limit": lambda it: it.limit.records_per_s,
    "config": lambda it: dict(it.config.get(SOURCE, {})),
}
#: How all of it is at first.
USUAL: dict[str, object] = {
    "source": Wanted.RUNNING,
    "checkpoints": Wanted.RUNNING,
    "topics": [],
    "limit": None,
    "config": {},
}
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
    """How the two connectors are reached."""

    is_worker: bool

    def at(self, which: str, more: str = "") -> str:
        """Return an address of the "source" connector or of "checkpoints"."""
        if self.is_worker:
            return f"/connectors/{settings.NAMES[which]}{more}"
        return f"{AT_FLOW}/connectors/{SOURCE if which == 'source' else CHECKPOINT}{more}"


Verb = Callable[[Connectors, random.Random], list[Request]]


def _one(draw: random.Random) -> str:
    return draw.choice(("source", "source", "checkpoints"))


def _held(verb: str, wanted: Wanted) -> Verb:
    """Return the verb that has one connector, or all of the flow, be in a state."""

    def ask(connectors: Connectors, draw: random.Random) -> list[Request]:
        if draw.random() < 0.4:
            both = dict.fromkeys(("source", "checkpoints"), wanted)
            spares = (Wanted.DELETED, *([Wanted.STOPPED] if wanted is Wanted.PAUSED else []))
            return [Request("PUT", f"{AT_FLOW}/{verb}", brings=both, spares=spares)]
        which = _one(draw)
        return [Request("PUT", connectors.at(which, f"/{verb}"), brings={which: wanted})]

    return ask


def _delete(connectors: Connectors, draw: random.Random) -> list[Request]:
    which = _one(draw)
    # A worker forgets what it was.
    brings: dict[str, object] = {which: Wanted.RUNNING if connectors.is_worker else Wanted.DELETED}
    if which == "source":
        brings["config"] = {}
    return [Request("DELETE", connectors.at(which), brings=brings)]


def _config(connectors: Connectors, _draw: random.Random) -> list[Request]:
    change = {_REFRESH: "7"}
    brings: dict[str, object] = {} if connectors.is_worker else {"config": change}
    return [Request("PATCH", connectors.at("source", "/config"), change, brings)]


def _restart(connectors: Connectors, draw: random.Random) -> list[Request]:
    with_tasks = draw.choice(("true", "false"))
    return [Request("POST", connectors.at(_one(draw), f"/restart?includeTasks={with_tasks}"))]


def _restart_task(connectors: Connectors, draw: random.Random) -> list[Request]:
    return [Request("POST", connectors.at("source", f"/tasks/{draw.choice((0, 1))}/restart"))]


def _read(_connectors: Connectors, draw: random.Random) -> list[Request]:
    return [Request("GET", it) for it in draw.sample(READ, 5)]


def _always(*requests: Request) -> Verb:
    return lambda _connectors, _draw: list(requests)


VERBS: dict[str, Verb] = {
    "pause": _held("pause", Wanted.PAUSED),
    "stop": _held("stop", Wanted.STOPPED),
    "delete": _delete,
    "topic": _always(Request("PUT", f"{AT_FLOW}/topics/orders/pause", brings={"topics": ["orders"]})),
    "limit": _always(Request("PUT", f"{AT_FLOW}/limit", {"records_per_s": 1}, {"limit": 1.0})),
    "config": _config,
    "restart": _restart,
    "restart task": _restart_task,
    "drain": _always(Request("PUT", "/node/drain")),
    "refresh": _always(Request("PUT", f"{AT_FLOW}/refresh")),
    "read": _read,
}
