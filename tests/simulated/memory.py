"""
How much a node keeps: the sizes of all collections that it can reach, by the attribute or the variable that has them.

Two moments of peace, with hundreds of records and dozens of faults between them, are compared: what is bounded by
topics, partitions, groups and brokers is no larger the second time. Rings (`deque` with a length), slots and columns
are bounded by themselves. Of several nodes each has another part each time, so only a single one is looked at.
"""

from __future__ import annotations

import asyncio
import collections
import functools
import gc
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

from tests.simulated.node import SimNode


#: By so much for each partition a collection may be larger the second time: what is under way differs, and a node that
#: has just started knows little of what moves.
_MORE = 16
#: Of a length that never changes; and an answer with metrics that is under way.
_UNCOUNTED = ("SyncSlots._slots", "Family.labels", "Family.values")
_GROWING = (dict, list, set, collections.deque)
#: What is looked into; a topic-partition is a tuple of a kind of its own.
_COLLECTIONS = (*_GROWING, tuple, frozenset, collections.OrderedDict, collections.defaultdict, collections.Counter)
_OURS = "mm2py."


def sizes(node: SimNode) -> collections.Counter[str]:
    """Return how many entries the collections of a node have."""
    gc.collect()
    found: collections.Counter[str] = collections.Counter()
    epochs = node.epochs
    roots = [node.node, node.rest, *([] if epochs is None else [state for _, state in epochs.workers.values()])]
    seen: dict[int, object] = {}
    left: list[tuple[object, str]] = [(root, "") for root in roots]
    left += [local for host in node.hosts for task in host.tasks() for local in _locals(task)]
    while left:
        it, place = left.pop()
        if id(it) in seen:
            continue
        seen[id(it)] = it
        if isinstance(it, collections.deque) and it.maxlen is not None:
            continue
        if isinstance(it, _GROWING) and place not in _UNCOUNTED:
            found[place] += len(it)
        if type(it) in _COLLECTIONS:
            left += [(inner, f"{place}[]") for inner in _within(it)]
        elif isinstance(it, MethodType):
            left.append((it.__self__, place))
        elif isinstance(it, functools.partial):
            left += [(inner, place) for inner in (it.func, it.args, it.keywords)]
        elif type(it).__module__.startswith(_OURS):
            name = type(it).__name__
            left += [(inner, f"{name}.{attribute}") for attribute, inner in _attributes(it)]
    return found


def _locals(task: asyncio.Task[Any]) -> Iterator[tuple[object, str]]:
    """Return what the coroutines of a task have in their variables."""
    running: Any = task.get_coro()
    while running is not None:
        frame = getattr(running, "cr_frame", None) or getattr(running, "ag_frame", None)
        for name, value in frame.f_locals.items() if frame is not None else ():
            yield value, f"{running.__qualname__} {name}"
        running = getattr(running, "cr_await", None) or getattr(running, "ag_await", None)


def _within(it: Any) -> Iterator[object]:
    if isinstance(it, dict):
        yield from it
        yield from it.values()
    else:
        yield from it


def _attributes(it: object) -> Iterator[tuple[str, object]]:
    yield from vars(it).items() if hasattr(it, "__dict__") else ()
    for kind in type(it).__mro__:
        for name in getattr(kind, "__slots__", ()):
            if hasattr(it, name):
                yield name, getattr(it, name)


class Memory:
    """Compares the moments of peace of a run."""

    def __init__(
        self, nodes: dict[str, SimNode], fail: Callable[[str], None], *, partitions: Callable[[], int]
    ) -> None:
        """Create it; *partitions* says how many are mirrored."""
        self._nodes, self._fail, self._partitions = nodes, fail, partitions
        self._before: dict[str, collections.Counter[str]] = {}

    def look(self) -> None:
        """Note what the node has; one that has far more of something than the last time has a leak."""
        for node in self._nodes.values() if len(self._nodes) == 1 else ():
            now, before, more = sizes(node), self._before.get(node.name), _MORE * self._partitions()
            for place, count in now.items():
                if before is not None and count > (was := before[place]) * 1.5 + more:
                    self._fail(f"{node.name} keeps {count} of {place}; the last time all was well it was {was}")
            self._before[node.name] = now
