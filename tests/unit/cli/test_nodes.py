"""``mm2py nodes`` and ``mm2py node``: what is shown of a daemon's answers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from mm2py.cli import node, nodes, sheets
from mm2py.model.state import FlowState, NodeView
from mm2py.model.view_json import to_json
from tests.support.rest_node import some_nodes


def test_nodes_are_a_row_for_each_flow() -> None:
    """A node is shown with what it does, its tasks and when it was heard of."""
    here, there = some_nodes()
    there = attrs.evolve(there, tasks_for_ms=90_000, owner_for_ms=7_200_000)
    answer = {"A->B": [to_json(it) for it in (here, there)], "B->A": [to_json(some_nodes()[0])]}

    lines = list(sheets.plain_lines(nodes.nodes_page(answer)))

    assert [line.split()[:4] for line in lines] == [
        ["FLOW", "NODE", "STATE", "TASKS"],
        ["A->B", "here:8083", "running", "0"],
        ["A->B", "there:8083", "owner", "1"],
        ["B->A", "here:8083", "running", "0"],
    ]
    assert lines[2].split()[4:8] == ["1", "min", "30", "s"]
    assert lines[2].split()[-7:] == ["1.2", "s", "owner", "for", "2", "h", "0", "min"][1:]
    assert lines[1].endswith("this node")


@pytest.mark.parametrize(
    ("change", "state"),
    [
        ({"answers": False}, "silent"),
        ({"answers": False, "is_member": False}, "gone"),
        ({"is_drained": True}, "draining"),
        ({"is_drained": True, "assigned": ()}, "drained"),
        ({"is_owner": False}, "running"),
        ({"is_owner": False, "assigned": ()}, "standby"),
        ({"state": FlowState.UNREACHABLE}, "unreachable"),
        ({"state": FlowState.HAS_FAILURES}, "has failures"),
    ],
)
def test_what_a_node_does_is_a_word(change: dict[str, Any], state: str) -> None:
    there: NodeView = attrs.evolve(some_nodes()[1], **change)

    assert nodes.node_state(to_json(there)) == state


@pytest.mark.parametrize(
    ("tasks", "is_drained", "alone", "said"),
    [
        (2, True, [], ["node h:1 drains: it still has 2 copy tasks"]),
        (0, True, [], ["node h:1 is drained"]),
        (1, False, ["A->B"], ["node h:1 takes part; it has 1 copy task"]),
        (
            1,
            True,
            ["A->B"],
            [
                "node h:1 drains: it still has 1 copy task",
                "no other node can take tasks of A->B: start one, or undrain this one",
            ],
        ),
    ],
)
def test_a_drain_is_shown_in_words(tasks: int, is_drained: bool, alone: list[str], said: list[str]) -> None:
    answer = {"worker_id": "h:1", "is_drained": is_drained, "tasks": {"A->B": tasks}, "without_others": alone}

    assert node.drain_sentences(answer) == said
