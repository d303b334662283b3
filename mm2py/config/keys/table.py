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
from mm2py.config.keys.row import FORMS, Key, LineLevel, Section


SECTIONS: tuple[Section, ...] = (
    *rows_cluster.FIRST_SECTIONS,
    rows_security.SECURITY,
    *rows_flow.SECTIONS,
    rows_transform.TRANSFORMS,
    *rows_cluster.LAST_SECTIONS,
)
KEYS: tuple[Key, ...] = tuple(key for section in SECTIONS for key in section.keys)

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
