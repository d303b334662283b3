"""Replication loops between flows. If names show a record's path, a topic in a cycle is detected and excluded. If they
do not, two flows that select the same topic send each record back and forth forever, and so do rings of flows; and if a
flow cannot parse the names of another one, topics get longer and longer names. Whether that happens depends on names,
on filters, and on flows of other nodes: all of it is known before anything starts. So is whether two flows write to one
remote topic.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from mm2py.model.flow import Flow
from mm2py.model.foreign import LONGEST_TOPIC
from mm2py.model.patterns import NamePatterns
from mm2py.policy.filters import DefaultTopicFilter, TopicFilter
from mm2py.policy.name_search import ALPHABET, Automaton, NotWalkableError, walk_together
from mm2py.policy.plugins import CustomClassError
from mm2py.policy.replication import HEARTBEATS, DefaultReplicationPolicy, ReplicationPolicy, is_built_in, keeps_names
from mm2py.policy.selection import is_cycle, judge_topic


_LETTERS = frozenset(ALPHABET)
#: A name that no topic has, to test how policies rename in general.
_PROBE = "mm2py-probe"
_MOST_NODES = 5_000
#: Most combinations of filters to examine, and most names to try on them; the result is uncertain beyond that.
_MOST_WORDS, _MOST_WALKED = 2_000, 50_000
_LONGEST_WAY = 8
#: How many lists are searched for names of what two flows write to, and how often a name is tried on a flow.
_MOST_SAMPLED, _MOST_TRIED = 20, 20_000
#: Never mirrored, or never under its own name.
_NEVER = NamePatterns.compile((r"__.*", r"\..*", r"mm2.*internal", r".*checkpoints.internal", r".*heartbeats"))


@attrs.frozen
class FlowNaming:
    """The naming and filtering of a flow."""

    flow: Flow
    policy: ReplicationPolicy
    topic_filter: TopicFilter
    heartbeats_replication_enabled: bool = True
    #: Its routers' renaming of the name that the policy gave; None if it has none.
    routed: Callable[[str], str] | None = attrs.field(default=None, eq=False)
    #: One alias for each cluster; aliases that are not in it name a cluster of their own.
    cluster_of: Mapping[str, str] = attrs.field(factory=dict, eq=False, repr=False)

    @property
    def source(self) -> str:
        """The cluster that it reads."""
        return self.cluster_of.get(self.flow.source, self.flow.source)

    @property
    def target(self) -> str:
        """The cluster that it writes to."""
        return self.cluster_of.get(self.flow.target, self.flow.target)

    def name_remote(self, topic: str) -> str:
        """Return the name of the remote topic of *topic*. Raise `CustomClassError` if a custom policy has none."""
        asked = self.flow.source, topic
        remote = self.policy.format_remote_topic(*asked)
        if not remote:
            call = f"format_remote_topic{asked}"
            raise CustomClassError(f"the policy of {self.flow}", call, f"it answers {remote!r}")
        return self.routed(remote) if self.routed else remote

    def takes(self, topic: str) -> bool:
        """Whether it mirrors *topic* of its source."""
        replicates = self.heartbeats_replication_enabled
        # Most flows take a few of thousands of names, so what is asked first is what costs least.
        if is_built_in(self.policy) and HEARTBEATS not in topic and not self.topic_filter.takes_topic(topic):
            return False
        return judge_topic(
            topic, self.flow, self.policy, self.topic_filter, heartbeats_replication_enabled=replicates
        ).is_replicated


@attrs.frozen
class Loop:
    """A cycle of flows, each of which feeds the next. `topic` is an example, by its name at the first flow's source;
    None if none was found, but none could be ruled out either. `grows` means that each round gives it a new, longer
    name. `is_sure` is False if a custom policy or filter is involved, or an expression was too complex.
    """

    flows: tuple[Flow, ...]
    topic: str | None
    grows: bool
    is_sure: bool


#: A topic on a cluster.
_Node = tuple[str, str]
#: Flows by the cluster that they read.
_BySource = Mapping[str, Sequence[FlowNaming]]


@attrs.frozen
class _Edge:
    """A mirror brings a topic of that name from its source to its target."""

    mirror: FlowNaming
    name: str
    there: _Node

    @property
    def here(self) -> _Node:
        return self.mirror.source, self.name


@attrs.frozen
class _Circle:
    """Steps that lead back to where the first one began, or, if it grows, to ever longer names."""

    edges: tuple[_Edge, ...]
    grows: bool
    #: Of one that grows: the steps from where the name was born, the first few of them.
    way: tuple[_Edge, ...] = ()

    @property
    def flows(self) -> tuple[Flow, ...]:
        return tuple(edge.mirror.flow for edge in self.edges)


def find_loop(mirrors: Sequence[FlowNaming]) -> Loop | None:
    """Find replication loops, certain ones first."""
    sure = [
        mirror
        for mirror in mirrors
        if is_built_in(mirror.policy) and isinstance(mirror.topic_filter, DefaultTopicFilter)
    ]
    found = _find(sure)
    return found if found is not None or len(sure) == len(mirrors) else _find(mirrors)


@attrs.frozen
class Meeting:
    """Two flows that write to one remote topic; `remote_topic` is an example."""

    flows: tuple[Flow, Flow]
    remote_topic: str


def find_meeting(mirrors: Sequence[FlowNaming]) -> Meeting | None:
    """Find flows of two pairs that write to one remote topic, by names that their lists suggest: not each one is found.
    Of several source connectors of one pair, one alone writes a topic.
    """
    alike: dict[_Node, list[FlowNaming]] = {}
    for mirror in mirrors:
        alike.setdefault((mirror.target, mirror.name_remote(_PROBE)), []).append(mirror)
    for group in (found for found in alike.values() if len(found) > 1):
        for topic in _samples(group):
            writers: dict[str, Flow] = {}
            for mirror in group:
                remote = mirror.name_remote(topic)
                flow = writers.setdefault(remote, mirror.flow) if mirror.takes(topic) else mirror.flow
                if flow.pair != mirror.flow.pair:
                    return Meeting((flow, mirror.flow), remote)
    return None


def _samples(mirrors: Sequence[FlowNaming]) -> Iterator[str]:
    """Return names from the lists of *mirrors*, then the shortest one that each of the first few lists selects: of
    those alone that have more than names in them, because a long list takes long to search.
    """
    yield from _likely(mirrors)[: _MOST_TRIED // len(mirrors)]
    search = _Search()
    filters = {mirror.topic_filter: mirror for mirror in mirrors if _has_expressions(mirror.topic_filter)}
    for mirror in list(filters.values())[:_MOST_SAMPLED]:
        if (word := search.word([_Edge(mirror, _PROBE, (mirror.target, _PROBE))])) is not None:
            yield word.text


def _find(mirrors: Sequence[FlowNaming]) -> Loop | None:
    if _names_show_all_ways(mirrors):
        return None
    by_source: dict[str, list[FlowNaming]] = {}
    for mirror in mirrors:
        by_source.setdefault(mirror.source, []).append(mirror)
    circles, edges = _possible(by_source)
    # A router may apply to certain names only.
    if not circles and not any(mirror.routed for mirror in mirrors):
        return None
    for word in _likely(mirrors):
        if found := _travel(by_source, word):
            return found
    doubtful: _Circle | None = None
    search = _Search()
    for circle, found_word in search.circles(circles, edges):
        if found := _travel(by_source, found_word.text):
            return found
        if found_word.is_open:
            doubtful = doubtful or circle
    return Loop(doubtful.flows, None, doubtful.grows, is_sure=False) if doubtful is not None else None


def _names_show_all_ways(mirrors: Sequence[FlowNaming]) -> bool:
    """Whether all flows use the same naming that shows each hop, as by default."""
    policies = {mirror.policy for mirror in mirrors if type(mirror.policy) is DefaultReplicationPolicy}
    if len(policies) != 1:
        return not mirrors
    (policy,) = policies
    if any(mirror.policy != policy or mirror.routed for mirror in mirrors):
        return False
    aliases = {alias for mirror in mirrors for alias in (mirror.flow.source, mirror.flow.target)}
    return not any(policy.separator in alias for alias in aliases)


def _possible(mirrors: _BySource) -> tuple[list[_Circle], list[_Edge]]:
    """Follow a name that every filter selects: a cycle from each cluster that has one, and all steps taken."""

    def takes(mirror: FlowNaming, name: str) -> bool:
        return not mirror.policy.is_internal_topic(name) and not is_cycle(name, mirror.flow, mirror.policy)

    circles: list[_Circle] = []
    edges: list[_Edge] = []
    seen: set[_Node] = set()
    for alias in sorted(mirrors):
        found, walked = _explore(mirrors, (alias, _PROBE), takes, seen)
        circles += [found] if found is not None else []
        edges += walked
    return circles, edges


def _travel(mirrors: _BySource, word: str) -> Loop | None:
    """Follow the topic *word* from each cluster through the flows."""
    seen: set[_Node] = set()
    for alias in sorted(alias for alias, ways in mirrors.items() if any(mirror.takes(word) for mirror in ways)):
        circle, _ = _explore(mirrors, (alias, word), FlowNaming.takes, seen)
        if circle is not None:
            is_sure = all(is_built_in(edge.mirror.policy) for edge in circle.edges)
            # A growing name is reported in its original form.
            return Loop(circle.flows, (circle.way or circle.edges)[0].name, circle.grows, is_sure)
    return None


def _explore(
    mirrors: _BySource, start: _Node, takes: Callable[[FlowNaming, str], bool], seen: set[_Node]
) -> tuple[_Circle | None, list[_Edge]]:
    """Follow every path from *start* to topics not *seen*, depth first; return the first cycle, and each step taken."""
    circle: _Circle | None = None
    edges: list[_Edge] = []
    if start in seen:
        return circle, edges
    most = len(seen) + _MOST_NODES
    seen.add(start)
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
        edges.append(step)
        if step.there in on_path:
            circle = circle or _Circle((*path[on_path[step.there] :], step), grows=False)
        elif len(step.there[1]) > LONGEST_TOPIC:
            circle = circle or _Circle(_last_round([*path, step]), grows=True, way=tuple(path[:_LONGEST_WAY]))
        elif step.there not in seen and len(seen) < most:
            seen.add(step.there)
            on_path[step.there] = len(on_path)
            path.append(step)
            open_ways.append(_ways(mirrors, step.there, takes))
    return circle, edges


def _ways(mirrors: _BySource, node: _Node, takes: Callable[[FlowNaming, str], bool]) -> Iterator[_Edge]:
    alias, name = node
    for mirror in mirrors.get(alias, ()):
        if takes(mirror, name):
            yield _Edge(mirror, name, (mirror.target, mirror.name_remote(name)))


def _last_round(path: Sequence[_Edge]) -> tuple[_Edge, ...]:
    """Return the end of *path* since it was where it is now."""
    here = path[-1].mirror.target
    return tuple(path[max((at for at, edge in enumerate(path) if edge.mirror.source == here), default=0) :])


# Names to try.


def _likely(mirrors: Sequence[FlowNaming]) -> list[str]:
    """Return literal names from the settings, and a generic one."""
    written = [
        name
        for mirror in mirrors
        if isinstance(mirror.topic_filter, DefaultTopicFilter)
        for member in mirror.topic_filter.included.members
        if (name := _literal(member))
    ]
    return list(dict.fromkeys([*written, "orders"]))


def _literal(member: str) -> str:
    """Return the name that a member of a list is, its dots escaped or not; an empty text if it is an expression."""
    name = member.replace(r"\.", ".")
    return name if _LETTERS.issuperset(name) else ""


def _has_expressions(topic_filter: TopicFilter) -> bool:
    return isinstance(topic_filter, DefaultTopicFilter) and not all(map(_literal, topic_filter.included.members))


@attrs.frozen
class _Word:
    """A name in a cycle, as far as filters can be evaluated; if it `is_open`, it is one of many candidates."""

    text: str
    is_open: bool


_GUESS = _Word("orders", is_open=True)


class _Search:
    """Searches for names that all filters of a cycle select."""

    def __init__(self) -> None:
        self._automata: dict[NamePatterns, Automaton | None] = {}
        self._known: dict[frozenset[tuple[TopicFilter, str]], _Word | None] = {}
        self._walked = 0

    def circles(self, grown: Sequence[_Circle], edges: Sequence[_Edge]) -> Iterator[tuple[_Circle, _Word]]:
        """Return cycles with a name that may loop."""
        for circle in grown:
            if circle.grows and (word := self.word(circle.way)) is not None:
                yield circle, word
        ways: dict[_Node, list[_Edge]] = {}
        for edge in _on_circles(edges):
            ways.setdefault(edge.here, []).append(edge)
        for start in sorted(ways):
            yield from self._circles_from(start, ways)
        if self._is_exhausted:
            yield from ((circle, _GUESS) for circle in grown)

    def _circles_from(self, start: _Node, ways: Mapping[_Node, Sequence[_Edge]]) -> Iterator[tuple[_Circle, _Word]]:
        """Return cycles through *start* and later nodes, each once; a path that no name can take is abandoned early."""
        paths: deque[tuple[_Edge, ...]] = deque((edge,) for edge in ways[start])
        while paths and not self._is_exhausted:
            path = paths.popleft()
            there = path[-1].there
            if there < start or any(edge.here == there for edge in path[1:]):
                continue
            word = self.word(path)
            if word is not None and there == start:
                yield _Circle(path, grows=False), word
            elif word is not None:
                paths += [(*path, edge) for edge in ways.get(there, ())]

    @property
    def _is_exhausted(self) -> bool:
        return len(self._known) >= _MOST_WORDS or self._walked >= _MOST_WALKED

    def word(self, path: Sequence[_Edge]) -> _Word | None:
        """Return the shortest name that takes all of *path*; None if there certainly is none."""
        asked = frozenset((edge.mirror.topic_filter, edge.name) for edge in path)
        if asked not in self._known:
            self._known[asked] = self._searched(asked)
        return self._known[asked]

    def _searched(self, asked: Iterable[tuple[TopicFilter, str]]) -> _Word | None:
        starts: dict[object, tuple[Automaton, str]] = {}
        wanted: list[tuple[object, Automaton, str, bool]] = []
        is_open = False
        for topic_filter, name in asked:
            before, probe, after = name.partition(_PROBE)
            # One derived from it may take what its lists do not.
            if not probe or type(topic_filter) is not DefaultTopicFilter:
                is_open = True
                continue
            if topic_filter.included.regex is None:
                return None
            for patterns, shall in ((topic_filter.included, True), (topic_filter.excluded, False), (_NEVER, False)):
                automaton = self._automaton(patterns)
                is_open |= automaton is None and patterns.regex is not None
                if automaton is not None:
                    starts[patterns, before] = automaton, before
                    wanted.append(((patterns, before), automaton, after, shall))
        try:
            for word, reached in walk_together(starts):
                self._walked += 1
                if all(auto.accepts(auto.walk(after, reached[key])) is shall for key, auto, after, shall in wanted):
                    return _Word(word, is_open)
        except NotWalkableError:
            return _GUESS
        return None

    def _automaton(self, patterns: NamePatterns) -> Automaton | None:
        if patterns not in self._automata:
            try:
                self._automata[patterns] = Automaton(patterns.regex) if patterns.regex is not None else None
            except NotWalkableError:
                self._automata[patterns] = None
        return self._automata[patterns]


def _on_circles(edges: Sequence[_Edge]) -> Sequence[_Edge]:
    """Leave out what certainly is in no cycle: steps to a topic that leads nowhere, or from one that none leads to."""
    begins, ends = {edge.here for edge in edges}, {edge.there for edge in edges}
    kept = [edge for edge in edges if edge.here in ends and edge.there in begins]
    return edges if len(kept) == len(edges) else _on_circles(kept)


def describe(mirrors: Mapping[Flow, FlowNaming], loop: Loop) -> str:
    """Describe *loop* in words."""
    each = "itself" if len(loop.flows) == 1 else "each other"
    ring = f"{', '.join(map(str, loop.flows))} would feed {each} without end"
    keeps = [str(flow) for flow in loop.flows if keeps_names(mirrors[flow].policy, flow.source)]
    shared = [f"{' and '.join(aliases)} are one cluster" for aliases in _shared_clusters(mirrors, loop)]
    routes = [str(flow) for flow in loop.flows if mirrors[flow].routed]
    topic = f"topic {loop.topic}" if loop.topic else "a topic that all of them take, if there is one,"
    if loop.grows:
        return f"{ring}: each round gives {topic} another, longer name"
    reasons = [f"{' and '.join(keeps)} keep{'s' if len(keeps) == 1 else ''} names"] if keeps else []
    if routes and not keeps:
        reasons = [f"routers of {' and '.join(routes)} hide where it came from"]
    why = f", because {' and '.join((*shared, *reasons))}" if shared or reasons else ""
    return f"{ring}: each record of {topic} goes round and round{why}"


def _shared_clusters(mirrors: Mapping[Flow, FlowNaming], loop: Loop) -> list[list[str]]:
    """Return the aliases of each of a loop's clusters that has several."""
    aliases: dict[str, set[str]] = {}
    for mirror in (mirrors[flow] for flow in loop.flows):
        aliases.setdefault(mirror.source, set()).add(mirror.flow.source)
        aliases.setdefault(mirror.target, set()).add(mirror.flow.target)
    return [sorted(found) for found in aliases.values() if len(found) > 1]
