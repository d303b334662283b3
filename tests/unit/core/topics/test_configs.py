"""Whose a config of a remote topic is, and what is due; the names of some tests are those of MirrorMaker 2's own."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from mm2py.core.topics.configs import ConfigPlan, copied_configs, plan_configs
from mm2py.model.topic import ConfigEntry, ConfigSource
from mm2py.policy.filters import DefaultConfigPropertyFilter


EXCLUDE = ("min\\.insync\\.replicas", "log\\.message\\.timestamp\\.before\\.max\\.ms")
FILTER = DefaultConfigPropertyFilter.of(EXCLUDE, "target")
FROM_SOURCE = DefaultConfigPropertyFilter.of(EXCLUDE, "source")

Synced = Mapping[str, tuple[str, ...]]


def configs(default: str | None = "d", **own: str) -> dict[str, ConfigEntry]:
    """Describe a topic that has these configs of its own; `k` has a default where it is not among them."""
    entries = {} if default is None else {"k": ConfigEntry(default, ConfigSource.DEFAULT)}
    return entries | {key: ConfigEntry(value, ConfigSource.TOPIC) for key, value in own.items()}


SOURCE = {
    "own": ConfigEntry("1", ConfigSource.TOPIC),
    "dynamic": ConfigEntry("2", ConfigSource.DYNAMIC_BROKER),
    "dynamic.default": ConfigEntry("3", ConfigSource.DYNAMIC_DEFAULT_BROKER),
    "static": ConfigEntry("4", ConfigSource.STATIC_BROKER),
    "default": ConfigEntry("5", ConfigSource.DEFAULT),
    "read.only": ConfigEntry("6", ConfigSource.TOPIC, is_read_only=True),
    "sensitive": ConfigEntry("7", ConfigSource.TOPIC, is_sensitive=True),
    "untold": ConfigEntry(None, ConfigSource.TOPIC),
    "min.insync.replicas": ConfigEntry("2", ConfigSource.TOPIC),
    "message.timestamp.before.max.ms": ConfigEntry("8", ConfigSource.TOPIC),
    "leader.replication.throttled.replicas": ConfigEntry("*", ConfigSource.TOPIC),
    "follower.replication.throttled.replicas": ConfigEntry("*", ConfigSource.TOPIC),
}


def test_config_property_filtering() -> None:
    """What is set is copied, brokers' dynamic settings too; not what is default, in a broker's file, or excluded."""
    assert copied_configs(SOURCE, FILTER) == {"own": "1", "dynamic": "2", "dynamic.default": "3"}


def test_config_property_filtering_with_source_default() -> None:
    """With the source's defaults, they are copied too, excluded ones still not."""
    assert copied_configs(SOURCE, FROM_SOURCE) == {"own": "1", "dynamic": "2", "dynamic.default": "3", "default": "5"}


def test_config_property_filtering_with_alter_configs() -> None:
    """What is default at the source is deleted at the target where the mirror set it, and the rest is set."""
    plan = plan_configs(SOURCE, {"default": ConfigEntry("9", ConfigSource.TOPIC)}, {"default": ("9",)}, FILTER)

    assert plan.changes == {"own": "1", "dynamic": "2", "dynamic.default": "3", "default": None}


def test_config_property_filtering_with_alter_configs_and_source_default() -> None:
    """With the source's defaults, a default is set instead."""
    plan = plan_configs(SOURCE, {"default": ConfigEntry("9", ConfigSource.TOPIC)}, {"default": ("9",)}, FROM_SOURCE)

    assert plan.changes == {"own": "1", "dynamic": "2", "dynamic.default": "3", "default": "5"}


@pytest.mark.parametrize(
    ("source", "target", "synced", "plan"),
    [
        pytest.param({}, {}, {}, ConfigPlan(), id="set nowhere"),
        pytest.param({"k": "a"}, {}, {}, ConfigPlan({"k": "a"}, {"k": ("a",)}), id="new at the source"),
        pytest.param(
            {"k": "a"}, {"k": "a"}, {}, ConfigPlan({}, {"k": ("a",)}), id="equal, so the mirror's from now on"
        ),
        pytest.param({"k": "a"}, {"k": "a"}, {"k": ("a",)}, ConfigPlan(), id="nothing to do"),
        pytest.param(
            {"k": "b"}, {"k": "a"}, {"k": ("a",)}, ConfigPlan({"k": "b"}, {"k": ("a", "b")}), id="changed at the source"
        ),
        pytest.param({}, {"k": "a"}, {"k": ("a",)}, ConfigPlan({"k": None}), id="gone at the source"),
        pytest.param({}, {}, {"k": ("a",)}, ConfigPlan(forget=frozenset("k")), id="gone on both sides"),
        pytest.param(
            {"k": "b"}, {"k": "b"}, {"k": ("a", "b")}, ConfigPlan({}, {"k": ("b",)}), id="seen to be in force"
        ),
        pytest.param(
            {"k": "b"}, {"k": "a"}, {"k": ("a", "b")}, ConfigPlan({"k": "b"}), id="sent, but not in force yet"
        ),
        pytest.param({"k": "a"}, {"k": "x"}, {}, ConfigPlan(kept={"k": "x"}), id="set by hand before the mirror came"),
        pytest.param({}, {"k": "x"}, {}, ConfigPlan(kept={"k": "x"}), id="set by hand, at the source nothing"),
        pytest.param(
            {"k": "a"},
            {"k": "x"},
            {"k": ("a",)},
            ConfigPlan(forget=frozenset("k"), kept={"k": "x"}),
            id="set by hand over the mirror's",
        ),
        pytest.param({"k": "a"}, {}, {"k": ("a",)}, ConfigPlan({"k": "a"}), id="deleted at the target, so given back"),
    ],
)
def test_whose_a_config_is(
    source: Mapping[str, str], target: Mapping[str, str], synced: Synced, plan: ConfigPlan
) -> None:
    """A key follows its source until an operator sets it to something else, and again once he deletes it."""
    assert plan == plan_configs(configs(**source), configs(**target), synced, FILTER)


@pytest.mark.parametrize(
    ("source", "target", "changes"),
    [
        ({"k": "a"}, {"k": "x"}, {"k": "a"}),
        ({}, {"k": "x"}, {"k": None}),
        ({"k": "a"}, {"k": "a"}, {}),
        ({}, {"unknown.to.the.source": "x"}, {}),
    ],
)
def test_overwriting(source: Mapping[str, str], target: Mapping[str, str], changes: Mapping[str, str | None]) -> None:
    """Told to overwrite, the mirror sets and deletes as MirrorMaker 2 does, but sends only what differs."""
    plan = plan_configs(configs(**source), configs(**target), {}, FILTER, overwrites=True)

    assert (plan.changes, plan.kept) == (changes, {} if changes else plan.kept)


def test_what_stands_in_a_broker_s_file_is_left_alone() -> None:
    """A value from a broker's file at the source is neither set nor, in MirrorMaker 2's way, deleted."""
    source = {"k": ConfigEntry("4", ConfigSource.STATIC_BROKER)}

    assert plan_configs(source, configs(k="x"), {}, FILTER, overwrites=True).changes == {}
    assert plan_configs(source, configs(k="x"), {"k": ("x",)}, FILTER).changes == {"k": None}


def test_the_mirror_gives_up_an_excluded_key() -> None:
    """A key that is excluded later stays as it is, and is the operator's when the exclusion ends."""
    key = "min.insync.replicas"
    own = {key: ConfigEntry("2", ConfigSource.TOPIC)}
    plan = plan_configs({}, own, {key: ("2",)}, FILTER)

    assert plan == ConfigPlan(forget=frozenset({key}))


def test_throttled_replicas_are_never_copied() -> None:
    """Names of replicas mean nothing on another cluster, so no list of exclusions lets them through."""
    takes_all = DefaultConfigPropertyFilter.of((), "source")

    assert not {key for key in copied_configs(SOURCE, takes_all) if "throttled" in key}


@pytest.mark.parametrize("steps", [*itertools.product(range(3), repeat=2)], ids=str)
def test_a_crash_at_any_step_is_made_good(steps: tuple[int, int]) -> None:
    """However far a round comes (nothing, remembered, sent), a later one ends at the source's value, nothing kept."""
    source, target, synced = configs(k="a"), configs(), dict[str, tuple[str, ...]]()
    for value, done in zip(("b", "c"), steps, strict=True):
        plan = plan_configs(source, target, synced, FILTER)
        assert not plan.kept
        if done >= 1:
            synced = {key: values for key, values in {**synced, **plan.remember}.items() if key not in plan.forget}
        if done >= 2:
            target = configs(**{key: new for key, new in plan.changes.items() if new is not None})
        source = configs(k=value)

    last = plan_configs(source, target, synced, FILTER)

    assert (last.changes, last.kept) == ({"k": "c"}, {})


def test_overwriting_never_leaves_a_limit_too_narrow() -> None:
    """A limit that was set by hand, wide enough, is replaced by the one that is needed, not first by the brokers' own:
    between the two rounds records that the source accepts would have stopped the copy.
    """
    source = {"max.message.bytes": ConfigEntry("2000000", ConfigSource.DEFAULT)}
    target = {"max.message.bytes": ConfigEntry("3000000", ConfigSource.TOPIC, beneath="1048588")}

    assert plan_configs(source, target, {}, FILTER, overwrites=True).changes == {"max.message.bytes": "2000000"}
    assert plan_configs(source, target, {}, FILTER).changes == {}
