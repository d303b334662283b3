"""The key table: one row for every key, and lookups. Parsing, defaults, precedence, checks, the documentation and the
sample file are all based on these rows.
"""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable

from mm2py.config.keys import cluster as rows_cluster
from mm2py.config.keys import flow as rows_flow
from mm2py.config.keys import security as rows_security
from mm2py.config.keys import transform as rows_transform
from mm2py.config.keys.ignored import IGNORED
from mm2py.config.keys.row import FORMS, Key, LineLevel, Section


SECTIONS: tuple[Section, ...] = (
    *rows_cluster.FIRST_SECTIONS,
    rows_security.SECURITY,
    *rows_flow.SECTIONS,
    rows_transform.TRANSFORMS,
    *rows_cluster.LAST_SECTIONS,
)
#: Those with an effect, each in its section, and those without.
KEYS: tuple[Key, ...] = (
    *(key for section in SECTIONS for key in section.keys),
    *(key for group in IGNORED for key in group.keys),
)

_BY_FULL_NAME = {key.full_name: key for key in KEYS}
_EXACT: dict[tuple[LineLevel, str], Key] = {}
_STEMS: dict[LineLevel, list[tuple[str, Key]]] = {level: [] for level in LineLevel}


def _index() -> None:
    for key in KEYS:
        for level, forms in FORMS[key.place].items():
            for form in forms:
                if key.stem is not None:
                    _STEMS[level].append((form + key.stem, key))
                    continue
                for name in (key.name, *key.aliases):
                    _EXACT[level, form + name] = key
    for stems in _STEMS.values():
        stems.sort(key=lambda pair: len(pair[0]), reverse=True)


_index()


def key_named(full_name: str) -> Key:
    """Return the row of a key, by its name after an alias or a flow (``consumer.fetch.min.bytes``)."""
    return _BY_FULL_NAME[full_name]


def find_key(level: LineLevel, name: str) -> Key | None:
    """Find the row of a line written at *level* as *name*, preferring a row for exactly that name."""
    if (exact := _EXACT.get((level, name))) is not None:
        return exact
    return next((key for stem, key in _STEMS[level] if name.startswith(stem) and name != stem), None)


def levels_of(name: str) -> dict[LineLevel, Key]:
    """Return the levels at which *name* is known."""
    return {level: key for level in LineLevel if (key := _EXACT.get((level, name))) is not None}


def known_names(level: LineLevel) -> Iterable[str]:
    """Return all names that can be written at *level*."""
    return (name for known, name in _EXACT if known is level)


#: What a key is about in one of its words, and never about both: a hint leads from neither to the other.
_OPPOSITES = {"consumer": "producer", "producer": "consumer", "source": "target", "target": "source"}


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """Return the candidate most similar to *name*, or None if none is close."""
    found = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.8)
    return found[0] if found else None


# A comparison with all names costs milliseconds, and the settings of a node are read again and again.
@functools.lru_cache(maxsize=1024)
def nearest_name(level: LineLevel, name: str) -> str | None:
    """Return the key that can be written at *level* and is most similar to *name*, of the same client and cluster."""
    others = {_OPPOSITES[word] for word in name.split(".") if word in _OPPOSITES}
    return nearest(name, (known for known in known_names(level) if others.isdisjoint(known.split("."))))


@functools.lru_cache(maxsize=1024)
def misspelt_name(level: LineLevel, name: str) -> str | None:
    """
    Return the setting that takes effect at *level* and that *name* is but for a slip of the pen; None if there is none.

    That is one letter too many, too few, wrong or swapped, two in names of eight letters or more; ``-``, ``_`` and the
    case of letters count for nothing. Whatever any version of Java's mirrors knows is itself, and no slip.
    """
    if levels_of(name) or any(f"{name}.enabled" == known for known in known_names(level)):
        return None
    near = nearest_name(level, _plain(name))
    if near is None or not _EXACT[level, near].acts:
        return None
    slips = _distance(_plain(name), _plain(near))
    return near if slips <= (1 if len(near) < _LONG else 2) else None


#: Names from this length on may have two slips.
_LONG = 8


def _plain(name: str) -> str:
    return name.lower().replace("_", ".")


def _distance(one: str, other: str) -> int:
    """Count the letters to insert, remove, replace, or swap with the next one, until *one* is the *other*."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for at, char in enumerate(one, 1):
        row, before, last = [at], row, before
        for to, wanted in enumerate(other, 1):
            ways = [before[to] + 1, row[to - 1] + 1, before[to - 1] + (char != wanted)]
            if last and to > 1 and char == other[to - 2] and one[at - 2] == wanted:
                ways.append(last[to - 2] + 1)
            row.append(min(ways))
    return row[-1]
