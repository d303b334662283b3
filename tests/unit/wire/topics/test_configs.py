"""Configs of topics changed key by key: one bad key keeps no other from being set, what may pass is repeated."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from mm2py.wire.cluster import Cluster
from mm2py.wire.topics.configs import Refusals, alter_topic_configs
from tests.support.fake_brokers import ALTER_CONFIGS, OLD_VERSIONS, FakeBrokers, FakeConnection


INVALID_CONFIG, NOT_CONTROLLER, TOPIC_AUTHORIZATION_FAILED = 40, 41, 29


def answer(codes: dict[str, int], *, bad_key: str = "") -> Any:
    """Answer with a code for each topic; with *bad_key*, INVALID_CONFIG for topics where it is among the keys."""

    def answered(_node_id: int, request: Any) -> Any:
        rows = []
        for kind, topic, configs in request.resources:
            is_bad = bad_key in {key for key, *_ in configs}
            rows.append((INVALID_CONFIG if is_bad else codes.get(topic, 0), None, kind, topic))
        return request.RESPONSE_TYPE(0, rows)

    return answered


def names(refusals: Refusals) -> dict[str, dict[str, str]]:
    return {topic: {key: error.name for key, error in errors.items()} for topic, errors in refusals.items()}


async def test_keys_are_set_and_deleted(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Values to set and keys to delete reach the broker; a topic without changes is left out."""
    brokers.script(ALTER_CONFIGS, answer({}))
    refused = await alter_topic_configs(cluster, {"t": {"a": "1", "b": None}, "u": {}})
    [(_, request)] = brokers.requests_of(ALTER_CONFIGS)

    assert refused == {}
    assert request.resources == [(2, "t", [("a", 0, "1"), ("b", 1, None)])]


async def test_nothing_to_change_sends_no_request(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A topic without changes needs no AlterConfigs request."""
    assert await alter_topic_configs(cluster, {"t": {}}) == {}
    assert brokers.requests_of(ALTER_CONFIGS) == []


async def test_one_bad_key_keeps_no_other_from_being_set(brokers: FakeBrokers, cluster: Cluster) -> None:
    """A topic that is refused because of one key gets the others one by one; other topics are not touched again."""
    brokers.script(ALTER_CONFIGS, *[answer({}, bad_key="bad")] * 4)
    refused = await alter_topic_configs(cluster, {"t": {"a": "1", "bad": "2", "b": None}, "u": {"a": "1"}})
    asked = [
        {topic: [key for key, *_ in configs] for _, topic, configs in request.resources}
        for _, request in brokers.requests_of(ALTER_CONFIGS)
    ]

    assert names(refused) == {"t": {"bad": "INVALID_CONFIG"}}
    assert asked == [{"t": ["a", "bad", "b"], "u": ["a"]}, {"t": ["a"]}, {"t": ["bad"]}, {"t": ["b"]}]


async def test_a_missing_right_is_not_tried_key_by_key(brokers: FakeBrokers, cluster: Cluster) -> None:
    """What no key is to blame for is refused for all of them at once."""
    brokers.script(ALTER_CONFIGS, answer({"t": TOPIC_AUTHORIZATION_FAILED}))
    refused = await alter_topic_configs(cluster, {"t": {"a": "1", "b": "2"}})

    assert names(refused) == {"t": {"a": "TOPIC_AUTHORIZATION_FAILED", "b": "TOPIC_AUTHORIZATION_FAILED"}}


async def test_what_may_pass_is_repeated(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Only the topic whose answer says that it may succeed later is sent again."""
    brokers.script(ALTER_CONFIGS, answer({"t": NOT_CONTROLLER}), answer({}))
    refused = await alter_topic_configs(cluster, {"t": {"a": "1"}, "u": {"a": "1"}})
    asked = [[topic for _, topic, _ in request.resources] for _, request in brokers.requests_of(ALTER_CONFIGS)]

    assert (refused, asked) == ({}, [["t", "u"], ["t"]])


async def test_a_change_without_a_controller_does_not_make_the_cluster_unreachable(
    brokers: FakeBrokers, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers whose controllers have no majority answer everything but what they have to pass on to one."""
    send = FakeConnection.send

    async def pass_on(connection: FakeConnection, request: Any) -> Any:
        await asyncio.sleep(3_600 if type(request).__name__ == "IncrementalAlterConfigsRequest" else 0)
        return await send(connection, request)

    monkeypatch.setattr(FakeConnection, "send", pass_on)
    refused = await alter_topic_configs(cluster, {"t": {"a": "1"}})

    assert names(refused) == {"t": {"a": "NETWORK_EXCEPTION"}}
    assert "controller" in str(refused["t"]["a"])


async def test_brokers_that_are_too_old(brokers: FakeBrokers, cluster: Cluster) -> None:
    """Brokers before Kafka 2.3 cannot change single keys, and are told no others."""
    brokers.versions = OLD_VERSIONS
    brokers.break_connections()
    refused = await alter_topic_configs(cluster, {"t": {"a": "1"}})

    assert names(refused) == {"t": {"a": "UNSUPPORTED_VERSION"}}
