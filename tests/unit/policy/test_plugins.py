"""From a class name in the settings to an object."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from mm2py.policy.filters import DefaultConfigPropertyFilter, DefaultGroupFilter, DefaultTopicFilter
from mm2py.policy.plugins import (
    CustomClassError,
    PluginError,
    load_config_property_filter,
    load_group_filter,
    load_policy,
    load_topic_filter,
)
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy, PlainReplicationPolicy


_DEFAULT = DefaultReplicationPolicy("_", internal_separator_enabled=False)
_IDENTITY = IdentityReplicationPolicy("A", "_", internal_separator_enabled=False)
_PLAIN = PlainReplicationPolicy("A", "_", internal_separator_enabled=False)
_TOPICS = partial(load_topic_filter, topics=("a", "b"), topics_exclude=("b",))
_GROUPS = partial(load_group_filter, groups=["a"], groups_exclude=["b"])
_CONFIGS = partial(load_config_property_filter, config_properties_exclude=["a.*"], use_defaults_from="source")
not_a_class = 1


class ShopPolicy(DefaultReplicationPolicy):
    """A policy as a user might write one."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{topic}.from{self.separator}{source_alias}"


class TakesAll(DefaultReplicationPolicy):
    """Keeps what it is given."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings["separator"])
        self.__dict__["settings"] = settings


class Raising(DefaultReplicationPolicy):
    """Cannot be created."""

    def __init__(self) -> None:
        raise RuntimeError("no answer")


class Fussy(DefaultReplicationPolicy):
    """Does not know every topic."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return {"orders": f"{source_alias}.orders"}[topic]

    def checkpoints_topic(self, source_alias: str) -> str:
        raise RuntimeError(f"no checkpoints of {source_alias}")


class Bare:
    """Lacks every method."""


class Few:
    """A filter of topics and of groups that takes one of the two lists."""

    def __init__(self, topics: tuple[str, ...] = ("a",)) -> None:
        self.topics = topics

    def takes_topic(self, topic: str) -> bool:
        return topic in self.topics

    takes_group = takes_topic


class Half:
    """A filter of configs that does not know the source's defaults."""

    def __init__(self, use_defaults_from: str) -> None:
        self.use_defaults_from = use_defaults_from

    def takes_config(self, key: str) -> bool:
        return key == "retention.ms"


class Whole(Half):
    """One that does."""

    def takes_source_default(self, key: str) -> bool:
        return self.use_defaults_from == "source" and key == "retention.ms"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", _DEFAULT),
        ("DefaultReplicationPolicy", _DEFAULT),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", _DEFAULT),
        ("identity", _IDENTITY),
        ("org.apache.kafka.connect.mirror.IdentityReplicationPolicy", _IDENTITY),
        ("com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy", _PLAIN),
        ("io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy", _IDENTITY),
        ("ch.mawileo.kafka.mm2.PrefixlessReplicationPolicy", _IDENTITY),
        ("mm2py.policy.replication.IdentityReplicationPolicy", _IDENTITY),
    ],
)
def test_policies_are_known_by_short_java_and_python_names(name: str, expected: object) -> None:
    """All three ways to write a class give the same policy, with its settings."""
    assert expected == load_policy(name, source_alias="A", separator="_", internal_separator_enabled=False)


@pytest.mark.parametrize("path", ["{}.ShopPolicy", "{}:ShopPolicy"])
def test_a_policy_of_ones_own_gets_the_settings_it_takes(path: str) -> None:
    """A class by dotted path is made with the arguments its constructor names."""
    policy = load_policy(path.format(__name__), source_alias="A", separator="-")

    assert policy.format_remote_topic("A", "orders") == "orders.from-A"


def test_a_policy_that_takes_all_settings_gets_all() -> None:
    """A constructor with **settings is handed every one."""
    policy: Any = load_policy(f"{__name__}.TakesAll", source_alias="A", separator="-")

    assert policy.settings == {"source_alias": "A", "separator": "-", "internal_separator_enabled": True}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Fancy", "no class of that name"),
        ("com.example.FancyPolicy", "a Java class cannot be used here"),
        ("nowhere.at.all.Policy", "No module named"),
        (f"{__name__}.Missing", "has no class Missing"),
        (f"{__name__}.not_a_class", "has no class not_a_class"),
        (f"{__name__}.Bare", "lacks format_remote_topic()"),
        (f"{__name__}.Raising", "no answer"),
        ("shop_broken.Policy", "half finished"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_in_words(
    name: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the key, the class and what is the matter with it."""
    (tmp_path / "shop_broken.py").write_text("raise ValueError('half finished')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(PluginError) as caught:
        load_policy(name, source_alias="A")

    assert f"replication.policy.class = {name}: " in str(caught.value)
    assert reason in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".mirror"])
def test_a_method_that_raises_is_named_with_what_it_was_asked(suffix: str) -> None:
    """Whoever asks gets one kind of error, which is a line for the operator, and no traceback."""
    policy = load_policy(f"{__name__}.Fussy", source_alias="A", suffix=suffix)
    with pytest.raises(CustomClassError) as caught:
        policy.format_remote_topic("A", "payments")
    # By keyword, as a program may that asks the client for its policy.
    with pytest.raises(CustomClassError, match=r"Fussy: checkpoints_topic\((source_alias=)?'A'\) failed: RuntimeError"):
        policy.checkpoints_topic(source_alias="A")

    asked = f"payments{suffix}"
    assert str(caught.value) == f"{__name__}.Fussy: format_remote_topic('A', '{asked}') failed: KeyError('{asked}')"
    assert "correct the method" in caught.value.hint
    assert policy.is_internal_topic("__consumer_offsets")


@pytest.mark.parametrize(
    ("load", "java", "expected"),
    [
        (_TOPICS, "DefaultTopicFilter", DefaultTopicFilter.of(("a", "b"), ("b",))),
        (_GROUPS, "DefaultGroupFilter", DefaultGroupFilter.of(["a"], ["b"])),
        (_CONFIGS, "DefaultConfigPropertyFilter", DefaultConfigPropertyFilter.of(["a.*"], "source")),
    ],
    ids=["topics", "groups", "configs"],
)
def test_default_filters_are_found_by_either_name(load: Any, java: str, expected: object) -> None:
    """Java's class name and the short one mean the same filter, with what the settings say."""
    assert load("default") == load(f"org.apache.kafka.connect.mirror.{java}") == expected


def test_filters_of_ones_own() -> None:
    """A class by its dotted path gets what its constructor names, of lists and other settings."""
    topics, groups, configs = (
        load(f"{__name__}.{name}") for load, name in ((_TOPICS, "Few"), (_GROUPS, "Few"), (_CONFIGS, "Whole"))
    )

    assert [topics.takes_topic(name) for name in ("a", "b", "c")] == [True, True, False]
    assert [groups.takes_group(name) for name in ("a", "b")] == [True, False]
    assert (configs.takes_config("retention.ms"), configs.takes_source_default("segment.ms")) == (True, False)


@pytest.mark.parametrize(
    ("load", "name", "said"),
    [
        (_TOPICS, "Bare", "topic.filter.class = {}.Bare: the class lacks takes_topic()"),
        (_GROUPS, "Bare", "{}.Bare: the class lacks takes_group()"),
        (_CONFIGS, "Half", "{}.Half: the class lacks takes_source_default()"),
    ],
    ids=["topics", "groups", "configs"],
)
def test_a_class_that_is_no_filter_is_refused(load: Any, name: str, said: str) -> None:
    """The method that it lacks is named."""
    with pytest.raises(PluginError, match=re.escape(said.format(__name__))):
        load(f"{__name__}.{name}")
