"""
Which flows feed each other without end.

Where names show a record's way, a topic that would go round in a circle is seen and left out. Where they do not, two
flows that take the same topic send each record back and forth for ever, and so do rings of flows; and where a flow
cannot read the names that another one gives, topics get longer and longer names. Whether that happens depends on
names, on filters, and on flows that other nodes run: all of it is known before anything starts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from mm2py.model.flow import Flow
from mm2py.model.patterns import NamePatterns
from mm2py.policy.filters import DefaultTopicFilter, TopicFilter
from mm2py.policy.name_search import ALPHABET, Automaton, NotWalkableError, Reached, walk_together
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy, ReplicationPolicy
from mm2py.policy.selection import is_cycle, judge_topic


#: The longest name that Kafka gives a topic.
LONGEST_NAME = 249
#: A name that nobody has, to see what policies make of names in general.
_PROBE = "mm2py-probe"
_MOST_NODES = 5_000
_MOST_EDGES = 60


@attrs.frozen
class Mirror:
    """A flow as far as it decides what goes where."""

    flow: Flow
    policy: ReplicationPolicy
    topic_filter: TopicFilter
    heartbeats_replication_enabled: bool = True


@attrs.frozen
class Loop:
    """
    Flows in a circle, each of which feeds the next.

    `topic` is one that goes round, as the first flow's source calls it; None where none was found, but none could be
    ruled out either. `grows` means that each round gives it a new, longer name. `is_sure` is False where a policy or a
    filter of somebody's own has a part in it, or an expression was too hard to follow.
    """

    flows: tuple[Flow, ...]
    topic: str | None
    grows: bool
    is_sure: bool


#: A topic on a cluster.
_Node = tuple[str, str]


@attrs.frozen
class _Edge:
    """A mirror brings a topic of that name from its source to its target."""

    mirror: Mirror
    name: str


@attrs.frozen
class _Circle:
    mirrors: tuple[Mirror, ...]
    name: str
    grows: bool


def find_loop(mirrors: Sequence[Mirror]) -> Loop | None:
    """Find flows that feed each other without end, those first that surely do."""
    sure = [mirror for mirror in mirrors if _is_built_in(mirror.policy) and not _is_opaque(mirror.topic_filter)]
    found = _find(sure)
    return found if found is not None or len(sure) == len(mirrors) else _find(mirrors)


def _find(mirrors: Sequence[Mirror]) -> Loop | None:
    if _names_show_all_ways(mirrors):
        return None
    circle, edges = _possible(mirrors)
    if circle is None:
        return None
    for word in _likely(mirrors):
        if found := _travel(mirrors, word):
            return found
    is_open = False
    try:
        for word in _taken_together(edges):
            if found := _travel(mirrors, word):
                return found
    except NotWalkableError:
        is_open = True
    if is_open or any(_is_opaque(edge.mirror.topic_filter) for edge in edges):
        return Loop(tuple(mirror.flow for mirror in circle.mirrors), None, circle.grows, is_sure=False)
    return None


def _names_show_all_ways(mirrors: Sequence[Mirror]) -> bool:
    """Say whether all flows name topics in one way that shows each hop, as they do by default."""
    policies = {mirror.policy for mirror in mirrors if type(mirror.policy) is DefaultReplicationPolicy}
    if len(policies) != 1:
        return not mirrors
    (policy,) = policies
    if any(mirror.policy != policy for mirror in mirrors):
        return False
    aliases = {alias for mirror in mirrors for alias in (mirror.flow.source, mirror.flow.target)}
    return not any(policy.separator in alias for alias in aliases)


def _possible(mirrors: Sequence[Mirror]) -> tuple[_Circle | None, list[_Edge]]:
    """Let a name travel that every filter takes: a circle, and all ways that it takes."""

    def takes(mirror: Mirror, name: str) -> bool:
        return not mirror.policy.is_internal_topic(name) and not is_cycle(name, mirror.flow, mirror.policy)

    circle: _Circle | None = None
    edges: dict[_Edge, None] = {}
    for alias in sorted({mirror.flow.source for mirror in mirrors}):
        found, walked = _explore(mirrors, (alias, _PROBE), takes)
        circle = circle or found
        edges |= dict.fromkeys(walked)
    return circle, list(edges)


def _travel(mirrors: Sequence[Mirror], word: str) -> Loop | None:
    """Let the topic *word* be born on each cluster and travel as the flows take it."""

    def takes(mirror: Mirror, name: str) -> bool:
        judged = judge_topic(
            name,
            mirror.flow,
            mirror.policy,
            mirror.topic_filter,
            heartbeats_replication_enabled=mirror.heartbeats_replication_enabled,
        )
        return judged.is_replicated

    for alias in sorted({mirror.flow.source for mirror in mirrors}):
        circle, _ = _explore(mirrors, (alias, word), takes)
        if circle is not None:
            flows = tuple(mirror.flow for mirror in circle.mirrors)
            is_sure = all(_is_built_in(mirror.policy) for mirror in circle.mirrors)
            return Loop(flows, circle.name, circle.grows, is_sure)
    return None


def _explore(
    mirrors: Sequence[Mirror], start: _Node, takes: Callable[[Mirror, str], bool]
) -> tuple[_Circle | None, list[_Edge]]:
    """Follow every way from *start*, depth first; give the first circle, and each step that was taken."""
    circle: _Circle | None = None
    edges: list[_Edge] = []
    seen = {start}
    on_path: dict[_Node, int] = {start: 0}
    path: list[_Edge] = []
    open_ways = [_ways(mirrors, start, takes)]
    while open_ways:
        step = next(open_ways[-1], None)
        if step is None:
            open_ways.pop()
            on_path.popitem()
            if path:
                path.pop()
            continue
        edge, there = step
        edges.append(edge)
        if there in on_path:
            circle = circle or _circle([*path[on_path[there] :], edge], grows=False)
        elif len(there[1]) > LONGEST_NAME:
            circle = circle or _circle(_last_round([*path, edge]), grows=True)
        elif there not in seen and len(seen) < _MOST_NODES:
            seen.add(there)
            on_path[there] = len(on_path)
            path.append(edge)
            open_ways.append(_ways(mirrors, there, takes))
    return circle, edges


def _ways(
    mirrors: Sequence[Mirror], node: _Node, takes: Callable[[Mirror, str], bool]
) -> Iterator[tuple[_Edge, _Node]]:
    alias, name = node
    for mirror in mirrors:
        if mirror.flow.source == alias and takes(mirror, name):
            yield _Edge(mirror, name), (mirror.flow.target, mirror.policy.format_remote_topic(alias, name))


def _circle(edges: Sequence[_Edge], *, grows: bool) -> _Circle:
    return _Circle(tuple(edge.mirror for edge in edges), edges[0].name, grows)


def _last_round(path: Sequence[_Edge]) -> Sequence[_Edge]:
    """Give the end of *path* since it was where it is now; the name that it begins with is one of many."""
    here = path[-1].mirror.flow.target
    begin = max((at for at, edge in enumerate(path) if edge.mirror.flow.source == here), default=0)
    return [attrs.evolve(edge, name=path[0].name) for edge in path[begin:]]


# Names to try.


def _likely(mirrors: Sequence[Mirror]) -> list[str]:
    """Give names that somebody wrote down, and one that everybody knows."""
    written = [
        member
        for mirror in mirrors
        if isinstance(mirror.topic_filter, DefaultTopicFilter)
        for member in mirror.topic_filter.included.members
        if member and set(member) <= set(ALPHABET)
    ]
    return list(dict.fromkeys([*written, "orders"]))


def _taken_together(edges: Sequence[_Edge]) -> Iterator[str]:
    """Give a name for each set of *edges* whose filters take it together; raise `NotWalkableError` if that is hard."""
    automata: dict[NamePatterns, Automaton] = {}
    starts: dict[object, tuple[Automaton, str]] = {}
    asked: list[_Asked] = []
    for edge in edges[:_MOST_EDGES]:
        before, probe, after = edge.name.partition(_PROBE)
        topic_filter = edge.mirror.topic_filter
        if not probe or not isinstance(topic_filter, DefaultTopicFilter):
            continue
        lists = (topic_filter.included, topic_filter.excluded)
        for patterns in lists:
            if patterns.regex is not None:
                automaton = automata.get(patterns) or Automaton(patterns.regex)
                automata[patterns] = automaton
                starts[patterns, before] = automaton, before
        asked.append(_Asked(*lists, before, after))
    seen: set[frozenset[int]] = set()
    for word, reached in walk_together(starts):
        takers = frozenset(number for number, one in enumerate(asked) if one.is_taken(automata, reached))
        if takers and takers not in seen:
            seen.add(takers)
            yield word


@attrs.frozen
class _Asked:
    """A filter that is asked about a word between two texts."""

    included: NamePatterns
    excluded: NamePatterns
    before: str
    after: str

    def is_taken(self, automata: Mapping[NamePatterns, Automaton], reached: Reached) -> bool:
        return self._ends(self.included, automata, reached) and not self._ends(self.excluded, automata, reached)

    def _ends(self, patterns: NamePatterns, automata: Mapping[NamePatterns, Automaton], reached: Reached) -> bool:
        automaton = automata.get(patterns)
        if automaton is None:
            return False
        return automaton.accepts(automaton.walk(self.after, reached[patterns, self.before]))


def _is_built_in(policy: ReplicationPolicy) -> bool:
    return type(policy) in {DefaultReplicationPolicy, IdentityReplicationPolicy}


def _is_opaque(topic_filter: TopicFilter) -> bool:
    return not isinstance(topic_filter, DefaultTopicFilter)


def describe(mirrors: Mapping[Flow, Mirror], loop: Loop) -> str:
    """Say in words what *loop* does."""
    ring = ", ".join(map(str, loop.flows))
    keeps = [str(flow) for flow in loop.flows if isinstance(mirrors[flow].policy, IdentityReplicationPolicy)]
    topic = f"topic {loop.topic}" if loop.topic else "a topic that all of them take, if there is one,"
    if loop.grows:
        return f"{ring} would feed each other without end: each round gives {topic} another, longer name"
    why = f", because {' and '.join(keeps)} keep{'s' if len(keeps) == 1 else ''} names" if keeps else ""
    return f"{ring} would feed each other without end: each record of {topic} goes round and round{why}"
