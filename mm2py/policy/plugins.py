"""
From a class name in the settings to the object.

A class may be written as a short name (``default``), as Java's class (``org.apache.kafka.connect.mirror.…``), or as the
dotted path of a custom Python class (``shop.naming.ShopPolicy``, also ``shop.naming:ShopPolicy``).
"""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import attrs

from mm2py.errors import Mm2Error, Verdict, shortened
from mm2py.policy.filters import (
    ConfigPropertyFilter,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    GroupFilter,
    TopicFilter,
)
from mm2py.policy.replication import (
    DEFAULT_SEPARATOR,
    AffixedReplicationPolicy,
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    PlainReplicationPolicy,
    ReplicationPolicy,
)


_OTHER_JAVA = "a Java class cannot be used here; mm2py docs migration shows how to write it in Python"
#: Why a Java class cannot be used, with the Python that replaces it, by key.
_JAVA = {
    "replication.policy.class": (
        "a Java class cannot be used here; two lines of a Python module replace it, such as class Policy"
        "(mm2py.policy.replication.DefaultReplicationPolicy): and def format_remote_topic(self, source_alias, topic): "
        "return topic (mm2py docs migration)"
    )
}
_JAVA_PACKAGE = "org.apache.kafka.connect.mirror."
_OURS = "mm2py.policy."
_POLICIES: Mapping[str, type] = {
    "default": DefaultReplicationPolicy,
    "identity": IdentityReplicationPolicy,
    "DefaultReplicationPolicy": DefaultReplicationPolicy,
    "IdentityReplicationPolicy": IdentityReplicationPolicy,
    # Policies of others that keep names, as Kafka's own does since 3.0. Strimzi's has extended Kafka's since 1.2.0.
    "com.amazonaws.kafka.samples.CustomMM2ReplicationPolicy": PlainReplicationPolicy,
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": IdentityReplicationPolicy,
    "ch.mawileo.kafka.mm2.PrefixlessReplicationPolicy": IdentityReplicationPolicy,
}
_GROUP_FILTERS: Mapping[str, type] = {"default": DefaultGroupFilter, "DefaultGroupFilter": DefaultGroupFilter}
_TOPIC_FILTERS: Mapping[str, type] = {"default": DefaultTopicFilter, "DefaultTopicFilter": DefaultTopicFilter}
_CONFIG_PROPERTY_FILTERS: Mapping[str, type] = {
    "default": DefaultConfigPropertyFilter,
    "DefaultConfigPropertyFilter": DefaultConfigPropertyFilter,
}
#: Built-in filters, which are made of lists.
_OF_LISTS = (DefaultTopicFilter, DefaultGroupFilter, DefaultConfigPropertyFilter)


@attrs.define(eq=False)
class PluginError(Mm2Error):
    """A class named in the settings cannot be used."""

    verdict: ClassVar[Verdict] = Verdict.STOP_FLOW
    hint: ClassVar[str] = "write a short name, Java's class name, or the dotted path of a Python class on PYTHONPATH"

    key: str
    class_name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.key} = {self.class_name}: {self.reason}"


@attrs.define(eq=False)
class CustomClassError(Mm2Error):
    """A method of a custom class of the settings failed."""

    hint: ClassVar[str] = "correct the method, and restart the mirror; until then what is mirrored already goes on"

    class_name: str
    #: The method with what it was asked about: ``takes_topic('orders')``.
    call: str
    cause: str = attrs.field(converter=shortened)

    def __str__(self) -> str:
        return f"{self.class_name}: {self.call} failed: {self.cause}"


class _Guarded:
    """A custom object, whose methods raise `CustomClassError` and nothing else, so that what asks them can go on."""

    def __init__(self, class_name: str, inner: object) -> None:
        self._class_name = class_name
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        found = getattr(self._inner, name)
        return functools.partial(self._ask, name, found) if callable(found) else found

    def _ask(self, name: str, method: Callable[..., Any], /, *asked: Any, **named: Any) -> Any:
        try:
            return method(*asked, **named)
        except Exception as error:
            words = (*map(repr, asked), *(f"{word}={value!r}" for word, value in named.items()))
            raise CustomClassError(self._class_name, f"{name}({', '.join(words)})", repr(error)) from error


def load_policy(
    class_name: str,
    *,
    source_alias: str,
    separator: str = DEFAULT_SEPARATOR,
    internal_separator_enabled: bool = True,
    prefix: str = "",
    suffix: str = "",
) -> ReplicationPolicy:
    """Return the replication policy that ``replication.policy.class`` names, with ``remote.topic.prefix`` and
    ``remote.topic.suffix`` around topics' names. A custom class is called with those of the keyword arguments
    `source_alias`, `separator` and `internal_separator_enabled` that it takes.
    """
    settings = {
        "source_alias": source_alias,
        "separator": separator,
        "internal_separator_enabled": internal_separator_enabled,
    }
    policy: ReplicationPolicy = _load("replication.policy.class", class_name, _POLICIES, settings, ReplicationPolicy)
    return AffixedReplicationPolicy(policy, prefix, suffix) if prefix or suffix else policy


def load_topic_filter(class_name: str, *, topics: Sequence[str], topics_exclude: Sequence[str]) -> TopicFilter:
    """Return the topic filter that ``topic.filter.class`` names. A custom class is called with those of the keyword
    arguments `topics` and `topics_exclude` that it takes.
    """
    settings = {"topics": tuple(topics), "topics_exclude": tuple(topics_exclude)}
    loaded: TopicFilter = _load("topic.filter.class", class_name, _TOPIC_FILTERS, settings, TopicFilter)
    return loaded


def load_config_property_filter(
    class_name: str, *, config_properties_exclude: Sequence[str], use_defaults_from: str
) -> ConfigPropertyFilter:
    """Return the filter that ``config.property.filter.class`` names. A custom class is called with those of the
    keyword arguments `config_properties_exclude` and `use_defaults_from` that it takes.
    """
    key = "config.property.filter.class"
    settings = {"config_properties_exclude": tuple(config_properties_exclude), "use_defaults_from": use_defaults_from}
    loaded: ConfigPropertyFilter = _load(key, class_name, _CONFIG_PROPERTY_FILTERS, settings, ConfigPropertyFilter)
    return loaded


def load_group_filter(class_name: str, *, groups: Sequence[str], groups_exclude: Sequence[str]) -> GroupFilter:
    """Return the group filter that ``group.filter.class`` names. A custom class is called with those of the keyword
    arguments `groups` and `groups_exclude` that it takes.
    """
    settings = {"groups": tuple(groups), "groups_exclude": tuple(groups_exclude)}
    loaded: GroupFilter = _load("group.filter.class", class_name, _GROUP_FILTERS, settings, GroupFilter)
    return loaded


def _load(
    key: str, class_name: str, built_in: Mapping[str, type], settings: Mapping[str, object], protocol: type
) -> Any:
    """Return the object of a class, which has all methods of *protocol*."""
    found: Any = _find(key, class_name, built_in)
    return found.of(**settings) if found in _OF_LISTS else _make(key, found, class_name, settings, protocol)


def _find(key: str, class_name: str, known: Mapping[str, type]) -> type:
    short = class_name.removeprefix(_JAVA_PACKAGE)
    if short in known:
        return known[short]
    module_name, _, attribute = class_name.replace(":", ".").rpartition(".")
    if not module_name:
        raise PluginError(key, class_name, f"no class of that name; built in are {', '.join(sorted(known))}")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        what = _JAVA.get(key, _OTHER_JAVA) if _looks_like_java(class_name) else str(error)
        raise PluginError(key, class_name, what) from error
    except Exception as error:
        raise PluginError(key, class_name, f"importing {module_name} failed: {error!r}") from error
    found = getattr(module, attribute, None)
    if not isinstance(found, type):
        raise PluginError(key, class_name, f"module {module_name} has no class {attribute}")
    return found


def _looks_like_java(class_name: str) -> bool:
    return class_name.startswith(("org.", "com.", "io."))


def _make(key: str, found: type, class_name: str, settings: Mapping[str, object], protocol: type) -> Any:
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        parameters = {}.values()
    takes_all = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters)
    named = {parameter.name for parameter in parameters}
    taken: dict[str, Any] = {name: value for name, value in settings.items() if takes_all or name in named}
    try:
        made = found(**taken)
    except Exception as error:
        raise PluginError(key, class_name, f"making it failed: {error!r}") from error
    wanted = [name for name in vars(protocol) if not name.startswith("_")]
    missing = [name for name in wanted if not callable(getattr(made, name, None))]
    if missing:
        raise PluginError(key, class_name, f"the class lacks {', '.join(f'{name}()' for name in missing)}")
    return made if found.__module__.startswith(_OURS) else _Guarded(class_name, made)
