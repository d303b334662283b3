"""What the connectors of a pair of clusters know of each other, and of the pair in the other direction."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from mm2py.config.connector import MirrorSourceConfig
from mm2py.connectors.offsets.translations import Translations
from mm2py.model.flow import Flow


@attrs.frozen
class PairedSource:
    """A source connector of a pair, of this node or of another one in the same file."""

    config: MirrorSourceConfig
    #: Returns its translations in memory, None while they do not count, or if this node does not run it.
    live: Callable[[], Translations | None] = attrs.field(default=lambda: None, eq=False)

    @property
    def flow(self) -> Flow:
        return self.config.flow

    @property
    def name(self) -> str:
        """What it is called, by its class if the worker's files are all that names it."""
        return self.flow.connector or self.config.name

    @property
    def rank(self) -> tuple[int, str]:
        """Where it comes among those of its pair."""
        return self.config.order, self.config.name


class Pairs:
    """The source connectors of all pairs that this node knows."""

    def __init__(self) -> None:
        self._known: dict[Flow, tuple[PairedSource, ...]] = {}

    def know(self, sources: Iterable[PairedSource]) -> frozenset[Flow]:
        """Replace what is known; return the pairs whose source connectors are others now, or have another config."""
        before, found = self._known, dict[Flow, list[PairedSource]]()
        for source in sources:
            found.setdefault(source.flow.pair, []).append(source)
        self._known = {pair: tuple(sorted(its, key=lambda one: one.rank)) for pair, its in found.items()}
        pairs = before.keys() | self._known.keys()
        return frozenset(pair for pair in pairs if before.get(pair) != self._known.get(pair))

    def sources_of(self, flow: Flow) -> tuple[PairedSource, ...]:
        """Return the source connectors of a flow's pair, the first one in front."""
        return self._known.get(flow.pair, ())

    def beside(self, flow: Flow) -> tuple[PairedSource, ...]:
        """Return the other source connectors of a flow's pair that copy."""
        return tuple(one for one in self.sources_of(flow) if one.flow != flow and one.config.is_enabled)
