"""From a class name in the settings to an object."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mm2py.policy.filters import DefaultTopicFilter
from mm2py.policy.plugins import PluginError, load_policy, load_topic_filter
from mm2py.policy.replication import DefaultReplicationPolicy, IdentityReplicationPolicy


OWN_CLASSES = """
from mm2py.policy.replication import DefaultReplicationPolicy

not_a_class = 1

class ShopPolicy(DefaultReplicationPolicy):
    def format_remote_topic(self, source_alias, topic):
        return f"{topic}.from{self.separator}{source_alias}"

class TakesAll(DefaultReplicationPolicy):
    def __init__(self, **settings):
        super().__init__(settings["separator"])
        self.__dict__["settings"] = settings

class Bare:
    pass

class Raising(DefaultReplicationPolicy):
    def __init__(self):
        raise RuntimeError("no answer")

class Few:
    def __init__(self, topics):
        self.topics = topics

    def takes_topic(self, topic):
        return topic in self.topics
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Put a module of a user's own on the path and return its name."""
    (tmp_path / "shop_naming.py").write_text(OWN_CLASSES)
    (tmp_path / "shop_broken.py").write_text("raise ValueError('half finished')")
    monkeypatch.syspath_prepend(tmp_path)
    yield "shop_naming"
    sys.modules.pop("shop_naming", None)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("default", DefaultReplicationPolicy("_", internal_separator_enabled=False)),
        ("DefaultReplicationPolicy", DefaultReplicationPolicy("_", internal_separator_enabled=False)),
        (
            "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
            DefaultReplicationPolicy("_", internal_separator_enabled=False),
        ),
        ("identity", IdentityReplicationPolicy("A", "_", internal_separator_enabled=False)),
        (
            "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
            IdentityReplicationPolicy("A", "_", internal_separator_enabled=False),
        ),
        (
            "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy",
            IdentityReplicationPolicy("A", "_", internal_separator_enabled=False),
        ),
        (
            "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
            IdentityReplicationPolicy("A", "_", internal_separator_enabled=False),
        ),
        (
            "ch.mawileo.kafka.mm2.PrefixlessReplicationPolicy",
            IdentityReplicationPolicy("A", "_", internal_separator_enabled=False),
        ),
        (
            "mm2py.policy.replication.IdentityReplicationPolicy",
            IdentityReplicationPolicy("A", "_", internal_separator_enabled=False),
        ),
    ],
)
def test_policies_are_known_by_short_java_and_python_names(name: str, expected: object) -> None:
    """All three ways to write a class give the same policy, with its settings."""
    assert expected == load_policy(name, source_alias="A", separator="_", internal_separator_enabled=False)


@pytest.mark.parametrize("path", ["{}.ShopPolicy", "{}:ShopPolicy"])
def test_a_policy_of_ones_own_gets_the_settings_it_takes(own_module: str, path: str) -> None:
    """A class by dotted path is made with the arguments its constructor names."""
    policy = load_policy(path.format(own_module), source_alias="A", separator="-")

    assert policy.format_remote_topic("A", "orders") == "orders.from-A"


def test_a_policy_that_takes_all_settings_gets_all(own_module: str) -> None:
    """A constructor with **settings is handed every one."""
    policy = load_policy(f"{own_module}.TakesAll", source_alias="A", separator="-")

    assert vars(policy)["settings"] == {"source_alias": "A", "separator": "-", "internal_separator_enabled": True}


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("Fancy", "no class of that name"),
        ("com.example.FancyPolicy", "a Java class cannot be used here"),
        ("nowhere.at.all.Policy", "No module named"),
        ("shop_naming.Missing", "has no class Missing"),
        ("shop_naming.not_a_class", "has no class not_a_class"),
        ("shop_naming.Bare", "lacks format_remote_topic()"),
        ("shop_naming.Raising", "no answer"),
        ("shop_broken.Policy", "half finished"),
    ],
)
@pytest.mark.usefixtures("own_module")
def test_a_policy_that_cannot_be_used_is_refused_in_words(name: str, reason: str) -> None:
    """The error names the key, the class and what is the matter with it."""
    with pytest.raises(PluginError) as caught:
        load_policy(name, source_alias="A")

    assert f"replication.policy.class = {name}: " in str(caught.value)
    assert reason in str(caught.value)


def test_an_empty_separator_is_refused() -> None:
    """Without a separator remote topics could not be told apart."""
    with pytest.raises(PluginError, match=r"replication\.policy\.separator is empty"):
        load_policy("default", source_alias="A", separator="")


@pytest.mark.parametrize("name", ["default", "org.apache.kafka.connect.mirror.DefaultTopicFilter"])
def test_the_default_topic_filter_gets_both_lists(name: str) -> None:
    """Short name and Java name give the filter over both lists."""
    topic_filter = load_topic_filter(name, topics=("a.*",), topics_exclude=("ab",))

    assert isinstance(topic_filter, DefaultTopicFilter)
    assert [topic_filter.takes_topic(topic) for topic in ("aa", "ab")] == [True, False]


def test_a_topic_filter_of_ones_own(own_module: str) -> None:
    """A filter by dotted path gets the lists that its constructor names."""
    topic_filter = load_topic_filter(f"{own_module}.Few", topics=("a", "b"), topics_exclude=("b",))

    assert [topic_filter.takes_topic(topic) for topic in ("a", "b", "c")] == [True, True, False]


def test_a_class_that_is_no_topic_filter_is_refused(own_module: str) -> None:
    """What lacks takes_topic() is no topic filter."""
    with pytest.raises(PluginError, match=r"topic\.filter\.class = shop_naming\.Bare: the class lacks takes_topic\(\)"):
        load_topic_filter(f"{own_module}.Bare", topics=(), topics_exclude=())
