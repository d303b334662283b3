"""
What connectors of Connect do beside each other, as Java's: each is configured by itself, whatever pair and worker it
shares with others.

What mm2py does not do yet is marked, with what it does instead. A story that is not told to its end is an error, not
that difference.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.simulated.connectors import COUNT


@pytest.fixture(scope="module")
def told() -> dict[str, Any]:
    """Return what each story comes to, by its name."""
    command = [sys.executable, "-m", "tests.simulated.connectors"]
    said = subprocess.run(command, cwd=Path(__file__).parents[2], check=True, stdout=subprocess.PIPE, text=True).stdout
    return dict(json.loads(line) for line in said.splitlines())


def test_routers_see_what_the_policy_named(told: dict[str, Any]) -> None:
    """The policy names A.orders, of which the router makes orders."""
    assert told["names_routed_after_the_policy"] == {"orders": COUNT, "A.orders": None}


def test_a_checkpoint_connector_has_topics_of_its_own(told: dict[str, Any]) -> None:
    """What it does not select stays where the target's consumers have committed it."""
    assert told["checkpoints_of_fewer_topics"] == 5


def test_a_pair_may_have_two_source_connectors(told: dict[str, Any]) -> None:
    """Both run, each with its own topics, tasks and start."""
    assert told["two_sources_of_a_pair"] == {"statuses": [201, 201], "A.orders": COUNT, "A.clicks": 7}


def test_the_second_source_connector_copies_nothing_that_the_first_one_does(told: dict[str, Any]) -> None:
    """It says so, and goes on where the first one stood once that is deleted; checkpoints follow both. Java writes such
    a topic twice.
    """
    [why] = filter(None, (topics := told["two_sources_that_meet"].pop("topics")).values())

    assert told["two_sources_that_meet"] == {
        "statuses": [201, 201, 201],
        "carried": [True, True],
        "flows": ["A->B", "A->B (all)"],
        "states": ["RUNNING", "RUNNING", "RUNNING"],
        "deleted": 204,
        "carried by the second": [True, True],
        "counts": [COUNT + 10, COUNT + 5],
    }
    assert set(topics) == {"clicks", "orders"}
    assert why == "topic orders would go to A.orders, which connector orders of the same clusters writes"


def test_a_topic_that_moves_to_another_connector_is_copied_on(told: dict[str, Any]) -> None:
    """Nothing is copied twice, nor lost, and a group is carried over that stands before all of that; in Java each
    connector begins again.
    """
    assert told["a_topic_that_moves"] == {
        "is copied once": True,
        "others": [COUNT, COUNT],
        "carried": [True, True],
    }


def test_the_second_one_of_a_standalone_worker_leaves_topics_to_the_first_one(told: dict[str, Any]) -> None:
    """After a restart, too, when both read the positions of all that was copied: they are stored under one name."""
    before, after = told["two_sources_of_a_standalone_worker"]
    why = "topic orders would go to A.orders, which connector MirrorSourceConnector of the same clusters writes"

    assert before == [{"clicks": "", "orders": why}, COUNT + 5, COUNT]
    assert after == [{"clicks": "", "orders": why}, COUNT + 10, COUNT]


def test_offsets_of_a_standalone_worker_are_each_connector_s_own(told: dict[str, Any]) -> None:
    """Those of one are reset, and only its topics are copied again; they are stored under one name."""
    assert told["offsets_of_a_standalone_worker"] == [["orders"], ["clicks"], 200, 2 * COUNT, COUNT]


def test_each_connector_has_a_target_of_its_own(told: dict[str, Any]) -> None:
    """The records of one go to the worker's cluster, those of the other where its producer's override leads."""
    assert told["two_targets_of_a_worker"] == {"statuses": [201, 201], "B": COUNT, "C": COUNT}


def test_checkpoints_need_offset_syncs_and_no_source_connector(told: dict[str, Any]) -> None:
    """Another worker has written the syncs."""
    assert told["checkpoints_in_another_worker"] == {"state": "RUNNING", "is_written": True}


def test_a_connector_with_another_name_goes_on_where_the_former_one_stood(told: dict[str, Any]) -> None:
    """Nothing is copied twice, nor when it gets its former name again; in Java each name begins anew."""
    found = told["a_connector_by_another_name"]

    assert found == {"statuses": [201] * 3, "state": "RUNNING", "counts": [3 * COUNT]}


def test_a_checkpoint_connector_goes_on_with_and_without_a_source_connector(told: dict[str, Any]) -> None:
    """One of its nodes runs it, and another one takes over; a source connector beside it is more exact while it is
    there. Groups of what has no sync say so, and no node is ill for that.
    """
    [why, *more] = told["checkpoints_with_and_without_a_source_connector"].pop("why not")

    assert told["checkpoints_with_and_without_a_source_connector"] == {
        "by syncs": True,
        "states": ["RUNNING", "RUNNING"],
        "health": [200, 200],
        "after a death": True,
        "ids": ["connect-cluster-other", "other-checks-0"],
        "status": 201,
        "exactly": True,
        "by syncs again": True,
    }
    assert "has written no offset sync" in why
    assert not more


def test_positions_are_stored_under_the_connector_s_name(told: dict[str, Any]) -> None:
    """Java's worker goes on there."""
    assert told["positions_by_connector"] == f'{{"offset":{COUNT - 1}}}'


def test_a_connector_ignores_settings_of_the_process(told: dict[str, Any]) -> None:
    """It runs, and the worker's REST answers without a client's certificate, at its own port."""
    assert told["settings_of_the_process"] == [201, COUNT, 200]


def test_a_cluster_may_be_named_by_any_of_its_hosts(told: dict[str, Any]) -> None:
    """By the worker and by a connector, and by two connectors of a pair."""
    assert told["clusters_by_other_hosts"] == [[201, 201], COUNT, 50]


def test_a_target_that_is_not_the_worker_s_gets_nothing(told: dict[str, Any]) -> None:
    """Java creates the topic there and sends the records to the worker's cluster; here the connector fails at once."""
    assert told["a_target_that_is_another_cluster"] == ["FAILED", [None, None]]


def test_what_was_put_is_what_is_read(told: dict[str, Any]) -> None:
    """A tool that compares the two has nothing to do."""
    story = told["a_config_put_and_read_again"]

    assert story["got"] == story["put"]


def test_a_topic_that_may_not_be_described_does_not_count_as_missing(told: dict[str, Any]) -> None:
    """Offsets that are altered meanwhile would begin at an empty remote topic, or lead nowhere."""
    (remote, source, offsets, altered), count = told["offsets_of_hidden_topics"]
    for (status, message), lacks in ((remote[0], "A.orders of cluster B"), (source[0], "orders of cluster A")):
        assert status == 400
        assert f"grant User:ANONYMOUS DESCRIBE on topic {lacks}" in message
    assert [status for status, _ in (remote[1], source[1], *offsets)] == [200, 200, 503, 503]
    assert (altered, count) == (200, COUNT + COUNT // 2)
