"""Views of a cluster's metadata: of thousands of partitions, most are alike and stay as they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from mm2py.wire.metadata import ClusterMetadata, merged, view_of


def _response(leader: int, *, topics: int = 2, leader_epoch: int = 3) -> Any:
    """Make an answer about topics of fifty partitions that are all led by one of two brokers."""
    partitions = [(0, number, leader, leader_epoch, [leader, 1 - leader], [leader], []) for number in range(50)]
    return SimpleNamespace(
        API_VERSION=12,
        brokers=[(0, "a", 9092, None), (1, "b", 9092, None)],
        controller_id=0,
        cluster_id="cluster",
        topics=[(0, f"t{number}", f"id-{number}", False, partitions) for number in range(topics)],
    )


def _view(*responses: Any) -> ClusterMetadata:
    view = ClusterMetadata()
    for response in responses:
        view = merged(view, view_of(response), is_complete=True)
    return view


def test_partitions_that_are_alike_share_their_metadata() -> None:
    view = _view(_response(0))

    assert len({id(it) for topic in view.topics.values() for it in topic.partitions.values()}) == 1
    assert view.topics["t0"].partitions[7].replicas == (0, 1)


def test_topics_of_which_nothing_is_new_stay_what_they_are() -> None:
    """So does the view itself: by that it is seen, without a look at them all, that there is no news."""
    first = _view(_response(0))
    second = merged(first, view_of(_response(0)), is_complete=True)
    moved = merged(second, view_of(_response(1, leader_epoch=4)), is_complete=True)
    fewer = merged(second, view_of(_response(0, topics=1)), is_complete=True)

    assert second is first
    assert merged(first, view_of(_response(0, topics=1)), is_complete=False) is first
    assert {it.leader for it in moved.topics["t1"].partitions.values()} == {1}
    assert fewer.topics.keys() == {"t0"}
