"""Which configurations of a topic its remote topic shall have."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mm2py.config.keys.table import key_named
from mm2py.model.patterns import split_patterns
from mm2py.policy.filters import DefaultConfigPropertyFilter
from mm2py.policy.plugins import PluginError, load_config_property_filter


JAVA_CLASS = "org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter"
JAVA_LIST = split_patterns(key_named("config.properties.exclude").default or "")
OWN_CLASS = """
class Some:
    def __init__(self, use_defaults_from):
        self.use_defaults_from = use_defaults_from

    def takes_config(self, key):
        return key == "retention.ms"

    def takes_source_default(self, key):
        return self.use_defaults_from == "source" and key == "retention.ms"

class Half:
    def takes_config(self, key):
        return True
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "shop_configs.py").write_text(OWN_CLASS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop_configs", raising=False)
    return "shop_configs"


@pytest.mark.parametrize("name", ["default", JAVA_CLASS])
def test_the_default_filter(name: str) -> None:
    """Java's class name and the short one both mean the filter that excludes by the list."""
    made = load_config_property_filter(name, config_properties_exclude=["a.*"], use_defaults_from="source")

    assert made == DefaultConfigPropertyFilter.of(["a.*"], "source")


@pytest.mark.parametrize(
    ("key", "is_taken"),
    [
        ("retention.ms", True),
        ("min.insync.replicas", False),
        ("message.timestamp.type", False),
        ("message.timestamp.before.max.ms", False),
        ("message.timestamp.after.max.ms", False),
        ("max.message.bytes", True),
    ],
)
def test_the_default_list(key: str, is_taken: bool) -> None:
    """MirrorMaker 2's list leaves out the limits on timestamps too, which it calls by the brokers' names."""
    assert DefaultConfigPropertyFilter.of(JAVA_LIST, "target").takes_config(key) is is_taken


def test_a_list_of_one_s_own_decides_about_timestamps() -> None:
    """A list without them lets the limits on timestamps through."""
    assert DefaultConfigPropertyFilter.of(["retention.ms"], "target").takes_config("message.timestamp.after.max.ms")


@pytest.mark.parametrize(("place", "is_taken"), [("source", True), ("target", False)])
def test_whose_defaults_hold(place: str, is_taken: bool) -> None:
    """The source's defaults are copied only when told so."""
    assert DefaultConfigPropertyFilter.of((), place).takes_source_default("retention.ms") is is_taken


def test_a_class_of_one_s_own(own_module: str) -> None:
    """A Python class is called with what it takes; one that lacks a method is refused with its name."""
    made = load_config_property_filter(f"{own_module}.Some", config_properties_exclude=(), use_defaults_from="source")

    assert (made.takes_config("retention.ms"), made.takes_source_default("segment.ms")) == (True, False)
    with pytest.raises(PluginError, match=r"lacks takes_source_default\(\)"):
        load_config_property_filter(f"{own_module}.Half", config_properties_exclude=(), use_defaults_from="source")
