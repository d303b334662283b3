"""What is known of the pair in the other direction."""

from __future__ import annotations

from unittest.mock import Mock

import attrs

from mm2py.connectors.offsets.reverse import ReversePair
from mm2py.connectors.offsets.translations import Translations
from mm2py.connectors.pair import PairedSource, Pairs
from mm2py.model.flow import Flow, TopicPartition
from mm2py.model.positions import Position
from mm2py.policy.replication import DefaultReplicationPolicy
from mm2py.wire.cluster import Cluster
from tests.support.clocks import LoopClock
from tests.support.flow_rig import SETTINGS


def _known(topic: str) -> Translations:
    source, known = TopicPartition(topic, 0), Translations()
    known.adopt({source: Position(source, 5, 4)}, {source: f"A.{topic}"})
    return known


async def test_the_way_back_is_by_each_source_connector_of_the_other_pair() -> None:
    """Those of a standalone worker keep their positions in one topic, and under one name."""
    first, pairs = SETTINGS.source_connector, Pairs()
    further = attrs.evolve(first, flow=attrs.evolve(first.flow, connector="clicks"), order=1)
    of_orders, of_clicks = _known("orders"), _known("clicks")
    pairs.know([PairedSource(first, lambda: of_orders), PairedSource(further, lambda: of_clicks)])
    back = ReversePair(Flow("B", "A"), pairs, LoopClock())
    store = back.translations(Mock(Cluster), DefaultReplicationPolicy())
    await store.refresh()

    for topic in ("orders", "clicks"):
        assert store.source_of(TopicPartition(f"A.{topic}", 0)) == TopicPartition(topic, 0)
