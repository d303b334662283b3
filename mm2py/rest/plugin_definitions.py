"""
What Connect's plugins take: the keys of each class with type, default, importance and place in a form.
`plugin_definitions.tsv` has what Connect itself answers; what a key does is told in our own words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.explain import MASK, is_secret
from mm2py.config.importers.connect import BYTES
from mm2py.config.importers.mirus import SOURCE_CLASS
from mm2py.config.keys.row import Key, Kind, LineLevel
from mm2py.config.keys.table import find_key
from mm2py.config.step_kinds import PACKAGE, PREDICATES, STEPS
from mm2py.core.herder.overrides import CONNECTORS
from mm2py.model.patterns import split_list
from mm2py.rest.schemas import Json


#: The version of Connect whose classes and API these are. Configs name it (`transforms.a.plugin.version`, KIP-891), and
#: tools disable features of newer versions: with our own version, kcctl would neither stop a connector nor show its
#: offsets.
VERSION: Final = "4.3.1"
MIRROR_PACKAGE: Final = "org.apache.kafka.connect.mirror."
_TABLE: Final = Path(__file__).with_name("plugin_definitions.tsv")
_OF_PREDICATES: Final = f"{PACKAGE}predicates."
#: Each plugin that can be named, by its class, with its type. Converters are of two types.
PLUGINS: Final[tuple[tuple[str, str], ...]] = (
    *((MIRROR_PACKAGE + name, "source") for name in CONNECTORS),
    (SOURCE_CLASS, "source"),
    *((PACKAGE + name, "transformation") for name in STEPS),
    *((_OF_PREDICATES + name, "predicate") for name in PREDICATES),
    (BYTES, "converter"),
    (BYTES, "header_converter"),
)
#: What lists transforms and predicates in a config: the title of their groups, what each is called, and their package.
_NESTED: Final = {
    "transforms": ("Transforms", "Transformation", PACKAGE),
    "predicates": ("Predicates", "Predicate", _OF_PREDICATES),
}
_TYPES: Final = {Kind.PATTERNS: "LIST"}
_CONVERTERS: Final = ("header.converter", "key.converter", "value.converter")
_IMPORTANCE: Final = ("HIGH", "MEDIUM", "LOW")


@attrs.frozen
class Definition:
    """Connect's ConfigKeyInfo."""

    name: str
    type: str = "STRING"
    required: bool = False
    default: str | None = None
    importance: str = "MEDIUM"
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
    #: What it does, of what is explained nowhere else.
    doc: str = ""
    recommended: tuple[str, ...] = ()

    def shown(self) -> Json:
        """Show it as Connect's ConfigKeyInfo."""
        row = _row(self.name)
        return {
            "name": self.name,
            "type": self.type,
            "required": self.required,
            "default_value": self.default,
            "importance": self.importance,
            "documentation": self.doc or (row.doc if row is not None else ""),
            "group": self.group,
            "order": self.order,
            # The name in newer versions of Connect.
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display_name or self.name,
            "dependents": [],
        }


#: What Connect adds to what each transform and predicate takes, and, after it, to what each transform does.
_TYPE: Final = Definition("type", "CLASS", required=True, importance="HIGH", width="LONG", doc="Its class.")
_VERSION: Final = Definition(
    "plugin.version", importance="HIGH", width="LONG", doc="Version of its class, which is ignored."
)
_VERSION_OF_ONE: Final = attrs.evolve(_VERSION, default=VERSION, recommended=(VERSION,))
_OF_TRANSFORMS: Final = (
    Definition(
        "negate", "BOOLEAN", default="false", doc="Whether it takes the records that the predicate is false for."
    ),
    Definition("predicate", doc="Name of the predicate that chooses the records for it; all of them if unset."),
)


def find_plugin(name: str) -> str | None:
    """Return the class that Connect takes for a plugin's *name*, which may lack the package, and the last word, too."""
    for plugin, kind in PLUGINS:
        short = _short(plugin)
        word = {"source": "Connector", "predicate": "Predicate"}.get(kind, "Converter")
        if name in {plugin, short, short.removesuffix(word)}:
            return plugin
    return None


def is_connector(plugin: str) -> bool:
    return (plugin, "source") in PLUGINS


def definitions(plugin: str) -> tuple[Definition, ...]:
    """Return what a class takes, in Connect's order."""
    connectors, sources, own = _parts(plugin)
    return (*connectors, *own, *sources)


def _short(plugin: str) -> str:
    return plugin.rpartition(".")[2]


def _parts(plugin: str) -> tuple[tuple[Definition, ...], ...]:
    """Return what each connector takes, each source connector, and the class itself; others have the last alone."""
    kinds = ("connectors", "sources") if is_connector(plugin) else ("", "")
    family = "mirrors" if plugin.startswith(MIRROR_PACKAGE) else ""
    return tuple(
        tuple(one for one, classes in _table() if not classes.isdisjoint(names))
        for names in ({kinds[0]}, {kinds[1]}, {family, _short(plugin)})
    )


@functools.cache
def _table() -> tuple[tuple[Definition, frozenset[str]], ...]:
    found = []
    for line in _TABLE.read_text().splitlines():
        if not line.startswith("#"):
            name, kind, required, default, importance, group, order, width, display, classes, *doc = line.split("\t")
            one = Definition(
                name,
                kind,
                required != "-",
                {"-": None, "''": ""}.get(default, default),
                importance,
                None if group == "-" else group,
                int(order),
                width,
                "" if display == "-" else display,
                "".join(doc),
            )
            found.append((one, frozenset(classes.split(","))))
    return tuple(found)


def _row(name: str) -> Key | None:
    bare = name.removeprefix("source.cluster.").removeprefix("target.cluster.")
    rows = (find_key(level, key) for key in (name, bare) for level in LineLevel)
    return next((row for row in rows if row is not None), None)


# A config.


def config_infos(plugin: str, config: Mapping[str, str], problems: Mapping[str, list[str]]) -> Json:
    """Show a validated config as Connect's ConfigInfos: what the class takes, and the transforms, predicates and
    converters that the config names: each key with its definition, value and errors. Then what else is wrong.
    """
    connectors, sources, own = _parts(plugin)
    nested = (one for list_key in _NESTED for one in _nested(list_key, config))
    all_of_them = (*connectors, *sources, *nested, *own, *_of_converters(config))
    known = {one.name: one for one in all_of_them}
    known |= {name: _of_row(name) for name in problems if name not in known}
    given = {**{f"{key}.converter.type": key.partition(".")[0] for key in _CONVERTERS}, **config}
    return {
        "name": plugin,
        "error_count": sum(len(errors) for errors in problems.values()),
        "groups": list(dict.fromkeys(one.group for one in known.values() if one.group is not None)),
        "configs": [
            {"definition": one.shown(), "value": _value(one, given, problems.get(name, []))}
            for name, one in known.items()
        ],
    }


def _of_row(name: str) -> Definition:
    row = _row(name)
    if row is None:
        return Definition(name)
    return Definition(name, _TYPES.get(row.kind, row.kind.name), default=row.default if row.stem is None else None)


def _nested(list_key: str, config: Mapping[str, str]) -> Iterator[Definition]:
    """Return what the transforms, or predicates, that a config names take, under the names that it has for them."""
    title, word, package = _NESTED[list_key]
    classes = tuple(sorted(name for name, _ in PLUGINS if name == package + _short(name)))
    for alias in filter(None, dict.fromkeys(split_list(config.get(list_key, "")))):
        stem = f"{list_key}.{alias}."
        plugin = find_plugin(config.get(f"{stem}type", "").strip())
        known = plugin if plugin in classes else None
        first = attrs.evolve(_TYPE, display_name=f"{word} type for {alias}", recommended=classes)
        second = attrs.evolve(_VERSION_OF_ONE if known else _VERSION, display_name=f"{word} version for {alias}")
        taken = [*definitions(known), *(_OF_TRANSFORMS if list_key == "transforms" else ())] if known else []
        # So does Connect embed them.
        taken.sort(key=lambda one: (not one.required, _IMPORTANCE.index(one.importance), one.name))
        for order, one in enumerate((first, second, *taken)):
            display = one.display_name or one.name
            yield attrs.evolve(one, name=stem + one.name, group=f"{title}: {alias}", order=order, display_name=display)


def _of_converters(config: Mapping[str, str]) -> Iterator[Definition]:
    for key in _CONVERTERS:
        if find_plugin(config.get(key, "").strip()) == BYTES:
            yield from (attrs.evolve(it, name=f"{key}.{it.name}", display_name=it.name) for it in definitions(BYTES))


def _value(one: Definition, config: Mapping[str, str], errors: list[str]) -> Json:
    given = config.get(one.name)
    value = one.default
    if given is not None:
        value = MASK if given and is_secret(one.name) and "${" not in given else _parsed(one, given)
    converter = one.name.removesuffix(".plugin.version")
    is_idle = converter != one.name and converter in _CONVERTERS and not config.get(converter)
    return {
        "name": one.name,
        "value": value,
        "recommended_values": list(one.recommended),
        "errors": errors,
        "visible": not is_idle,
    }


def _parsed(one: Definition, text: str) -> str:
    """Write a value as Connect does once it has read it."""
    match one.type:
        case "LIST":
            return ",".join(split_list(text))
        case "BOOLEAN":
            return text.strip().lower()
        case "CLASS":
            return find_plugin(text.strip()) or text.strip()
        case _:
            return text.strip()
