"""A node's bytes, which any member of the group may write."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from mm2py.model.herder.node import Node, decode_node, distinct_names, encode_node


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["host", "pid", "begun", "rest"]), inner),
    max_leaves=8,
)


def test_a_node_comes_back_as_it_was_and_a_newer_one_s_further_facts_are_passed_over() -> None:
    """What a version does not know yet does not keep it from the rest."""
    node = Node("høst", 7, "machine/pid:[1]", "12345", "host:8083", 1_700_000_000_000)
    newer = json.dumps(json.loads(encode_node(node)) | {"tasks": [1]}).encode()

    assert decode_node(encode_node(node)) == decode_node(newer) == node


@given(st.binary() | _JSON.map(lambda value: json.dumps(value).encode()))
def test_any_bytes_are_a_node_or_none(raw: bytes) -> None:
    """Whatever a member shows, it is read without harm, and can be written again."""
    node = decode_node(raw)

    assert node is None or decode_node(encode_node(node)) == node


def test_nodes_with_one_address_have_names_of_their_own() -> None:
    """Where the REST interface is, with the host if others say the same, as on localhost, or else the node's id."""
    local = [Node(host, 1, host, "1", "localhost:8080") for host in ("m1", "m2")]
    twins = [Node("mirror", 1, machine, "1", "mirror:8080") for machine in ("m3", "m4")]
    alone = Node("m5", 1, "m5", "1", "m5:8080")

    names = distinct_names([*local, *twins, alone, alone])

    assert [names[node.id] for node in local] == ["localhost:8080 on m1", "localhost:8080 on m2"]
    assert [names[node.id] for node in twins] == [node.id for node in twins]
    assert names[alone.id] == "m5:8080"
    assert distinct_names([local[0]]) == {local[0].id: "localhost:8080"}
