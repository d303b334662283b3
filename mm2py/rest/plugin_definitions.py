"""
What a connector takes, as Connect's plugins define it: the keys of each class with type, default, importance and
place in a form. `plugin_definitions.tsv` has what Connect itself answers; what a key does is told in our own words.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from mm2py.config.explain import MASK
from mm2py.config.importers.distributed import is_secret
from mm2py.config.keys.row import Key, Kind, LineLevel
from mm2py.config.keys.table import find_key
from mm2py.config.step_kinds import PACKAGE, PREDICATES, STEPS, StepKind, short_name
from mm2py.model.patterns import split_list
from mm2py.rest.schemas import Json


_TABLE: Final = Path(__file__).with_name("plugin_definitions.tsv")
_TYPES: Final = {Kind.PATTERNS: "LIST"}
#: Packages of transforms and of predicates, and the kinds of each.
_NESTED: Final = {
    "transforms": ("Transforms", PACKAGE, STEPS),
    "predicates": ("Predicates", f"{PACKAGE}predicates.", PREDICATES),
}


@attrs.frozen
class Definition:
    """Connect's ConfigKeyInfo, but for what the key does."""

    name: str
    type: str = "STRING"
    required: bool = False
    default: str | None = None
    importance: str = "MEDIUM"
    group: str | None = None
    order: int = -1
    width: str = "NONE"
    display_name: str = ""
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
            "documentation": row.doc if row is not None else "",
            "group": self.group,
            "order": self.order,
            # The name in newer versions of Connect.
            "order_in_group": self.order,
            "width": self.width,
            "display_name": self.display_name or self.name,
            "dependents": [],
        }


def definitions(plugin: str) -> tuple[Definition, ...]:
    """Return what a connector's class takes; *plugin* is its name, with its package or without."""
    letter = "M" if "Mirus" in plugin else plugin.rpartition(".")[2].removeprefix("Mirror")[:1]
    return tuple(one for one, classes in _table() if letter in classes)


@functools.cache
def _table() -> tuple[tuple[Definition, str], ...]:
    found = []
    for line in _TABLE.read_text().splitlines():
        if not line.startswith("#"):
            name, kind, required, default, importance, group, order, width, display, classes = line.split("\t")
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
            )
            found.append((one, classes))
    return tuple(found)


def _row(name: str) -> Key | None:
    bare = name.removeprefix("source.cluster.").removeprefix("target.cluster.")
    rows = (find_key(level, key) for key in (name, bare) for level in LineLevel)
    return next((row for row in rows if row is not None), None)


# A config.


def config_infos(plugin: str, config: Mapping[str, str], problems: Mapping[str, list[str]]) -> Json:
    """Show a validated config as Connect's ConfigInfos: each key of the class and each one of its transforms, with its
    definition, value and errors; then further keys that mean something here, or are wrong.
    """
    known = {one.name: one for one in definitions(plugin)}
    known |= {one.name: one for list_key in _NESTED for one in _nested(list_key, config)}
    groups = [one.group for one in known.values() if one.group is not None]
    for name in dict.fromkeys((*config, *problems)):
        row = _row(name)
        if name not in known and (name in problems or (row is not None and row.acts)):
            known[name] = Definition(name) if row is None else _of_row(name, row)
    return {
        "name": plugin,
        "error_count": sum(len(errors) for errors in problems.values()),
        "groups": list(dict.fromkeys(groups)),
        "configs": [
            {"definition": one.shown(), "value": _value(one, config.get(name, one.default), problems.get(name, []))}
            for name, one in known.items()
        ],
    }


def _of_row(name: str, row: Key) -> Definition:
    return Definition(name, _TYPES.get(row.kind, row.kind.name), default=row.default if row.stem is None else None)


def _nested(list_key: str, config: Mapping[str, str]) -> Iterator[Definition]:
    """Return what the transforms, or predicates, that a config names take, under the names that it has for them."""
    title, package, kinds = _NESTED[list_key]
    for alias in dict.fromkeys(split_list(config.get(list_key, ""))):
        if not alias:
            continue
        stem, group = f"{list_key}.{alias}.", f"{title}: {alias}"
        classes = tuple(package + name for name in kinds)
        own = [Definition(f"{stem}type", "CLASS", required=True, importance="HIGH", width="LONG", recommended=classes)]
        kind = kinds.get(short_name(config.get(f"{stem}type", "")))
        own += [] if kind is None else _settings(stem, kind)
        if list_key == "transforms":
            own.append(Definition(f"{stem}negate", "BOOLEAN", default="false"))
            own.append(Definition(f"{stem}predicate"))
        for order, one in enumerate(own):
            yield attrs.evolve(one, group=group, order=order, display_name=one.name.removeprefix(stem))


def _settings(stem: str, kind: StepKind) -> list[Definition]:
    needed = [Definition(stem + key, required=True, importance="HIGH") for key in kind.required]
    return [*needed, *(Definition(stem + key, default=default) for key, default in kind.defaults.items())]


def _value(one: Definition, value: str | None, errors: list[str]) -> Json:
    shown = MASK if value and is_secret(one.name) and "${" not in value else value
    is_visible = not one.name.endswith(".plugin.version")
    return {
        "name": one.name,
        "value": shown,
        "recommended_values": list(one.recommended),
        "errors": errors,
        "visible": is_visible,
    }
