"""Keys and values of connectors' offsets, as Java writes them."""

from __future__ import annotations

import pytest

from mm2py.model.connector_offset import CHECKPOINT, HEARTBEAT, SOURCE, is_of, offset_key, read_key, read_value
from mm2py.model.flow import Flow


@pytest.mark.parametrize(
    ("connector", "partition", "key"),
    [
        (
            SOURCE,
            {"topic": "foo", "partition": 0, "cluster": "A"},
            b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]',
        ),
        (
            CHECKPOINT,
            {"group": "g", "topic": "A.foo", "partition": 0},
            b'["MirrorCheckpointConnector",{"partition":0,"topic":"A.foo","group":"g"}]',
        ),
        (
            HEARTBEAT,
            {"targetClusterAlias": "B", "sourceClusterAlias": "A"},
            b'["MirrorHeartbeatConnector",{"sourceClusterAlias":"A","targetClusterAlias":"B"}]',
        ),
    ],
)
def test_keys_are_java_s_whatever_the_order(connector: str, partition: dict[str, object], key: bytes) -> None:
    """The members come in the order of Java's maps, however they were given; and they are read again."""
    assert offset_key(connector, partition) == key
    assert read_key(key) == (connector, partition)


@pytest.mark.parametrize("key", [None, b"", b"connector-x", b'["x"]', b"\xff"])
def test_what_is_no_offset_is_passed_over(key: bytes | None) -> None:
    """Keys of other forms belong to no connector."""
    assert read_key(key) is None


def test_a_removed_offset_is_none() -> None:
    """An offset is removed by a tombstone or by the text `null`."""
    assert (read_value(None), read_value(b"null"), read_value(b'{"offset":3}')) == (None, None, {"offset": 3})


def test_clusters_may_share_a_topic() -> None:
    """What names another source is another flow's."""
    flow = Flow("A", "B")

    assert is_of(flow, SOURCE, {"cluster": "A"})
    assert not is_of(flow, SOURCE, {"cluster": "C"})
    assert not is_of(flow, HEARTBEAT, {"sourceClusterAlias": "A", "targetClusterAlias": "C"})


def test_a_source_connector_may_have_the_name_of_another_class() -> None:
    """Its positions are under that name in the worker's topic; a reset of the checkpoint connector removes none."""
    assert is_of(Flow("A", "B"), CHECKPOINT, {"partition": 0, "topic": "t", "group": "g"})
    assert not is_of(Flow("A", "B"), CHECKPOINT, {"cluster": "A", "partition": 0, "topic": "t"})
