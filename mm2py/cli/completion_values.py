"""
The values that a shell completes: of the properties file that the line names, else of the running node.

It is asked while a user types, so it loads little, waits for a node for a second at most, and prints nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shlex
import ssl
import urllib.parse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from mm2py.config.properties import parse_bytes
from mm2py.model.flow import Flow


_WITHIN_S: Final = 1.0
_MOST_BYTES: Final = 4_000_000
_MOST_TOPICS: Final = 500
_NODE: Final = "http://127.0.0.1:8083"


@attrs.frozen
class Line:
    """A line that is being typed: its words, and the last one as far as it is there."""

    words: tuple[str, ...]
    current: str

    @classmethod
    def of(cls, words: Sequence[str]) -> Line:
        plain = [_unquoted(word) for word in words]
        return cls(tuple(plain[:-1]), plain[-1] if plain else "")

    def option(self, name: str) -> str:
        """Return the value of an option, empty if it is not given."""
        for word, after in zip(self.words, (*self.words[1:], ""), strict=True):
            if word == name:
                return after
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
        return ""

    @property
    def flow(self) -> Flow | None:
        """The flow that the line names."""
        return next(filter(None, map(Flow.parse, self.words)), None)

    @property
    def file(self) -> Mapping[str, str] | None:
        """The lines of the properties file that it names."""
        for word in self.words[1:]:
            path = Path(word).expanduser()
            if not word.startswith("-") and path.is_file() and path.stat().st_size < _MOST_BYTES:
                document = parse_bytes(path.read_bytes(), name=path.name)
                return {key: entry.value for key, entry in document.latest().items()}
        return None


def values_of(kind: str, words: Sequence[str]) -> list[str]:
    """Return what may follow on a line of *words*, the last of which is being typed; empty if that is not known."""
    line = Line.of(words)
    with contextlib.suppress(Exception):  # whatever it is, nothing may get into the line that is typed
        return sorted(
            {value for value in _SOURCES[kind](line) if value.startswith(line.current) and value.isprintable()}
        )
    return []


def _unquoted(word: str) -> str:
    """Return a word as the shell would pass it on; the last one may lack its closing quote."""
    for closing in ("", "'", '"'):
        with contextlib.suppress(ValueError):
            return "".join(shlex.split(word + closing))
    return word


# Where they come from.


def _flows(line: Line) -> Iterable[str]:
    if (file := line.file) is None:
        return [flow["flow"] for flow in _ask(line, "status")["flows"]]
    aliases = _members(file.get("clusters", ""))
    return [
        f"{source}->{target}"
        for source in aliases
        for target in aliases
        if any(key.startswith(f"{source}->{target}.") for key in file)
    ]


def _clusters(line: Line) -> Iterable[str]:
    if (file := line.file) is not None:
        return _members(file.get("clusters", ""))
    return [alias for flow in map(Flow.parse, _flows(line)) if flow is not None for alias in flow.aliases]


def _topics(line: Line) -> Iterable[str]:
    if (file := line.file) is not None:
        names = (name for key, text in file.items() if key.rpartition(".")[2] == "topics" for name in _members(text))
        return [name for name in names if not set(name) & set("*+?[](){}|\\^$")]
    answer = _ask(line, _path(line, "topics"), search=line.current, limit=str(_MOST_TOPICS))
    return [topic["topic"] for topic in answer["topics"]]


def _groups(line: Line) -> Iterable[str]:
    return [group["group"] for group in _ask(line, _path(line, "groups"))]


def _settings(line: Line) -> Iterable[str]:
    """Return the settings that can be changed, or those that are, for ``unset``."""
    settings = _ask(line, _path(line, "config"), all="true")
    if "unset" in line.words:
        return [one["key"] for one in settings if one["origin"] == "override"]
    return [f"{one['key']}=" if "set" in line.words else one["key"] for one in settings if not one["why_not"]]


def _keys(_line: Line) -> Iterable[str]:
    from mm2py.config.keys.table import KEYS  # noqa: PLC0415 - the other kinds do not need it

    return [f"{key.name}=" for key in KEYS if key.stem is None and key.acts]


def _pages(_line: Line) -> Iterable[str]:
    from mm2py.rest.page.documents import documents  # noqa: PLC0415 - as above

    return [name.removesuffix(".md") for name in documents()]


_SOURCES: Final[Mapping[str, Callable[[Line], Iterable[str]]]] = {
    "flows": _flows,
    "clusters": _clusters,
    "topics": _topics,
    "groups": _groups,
    "settings": _settings,
    "keys": _keys,
    "pages": _pages,
}
#: Whose values these are, by the placeholder of an argument in help.
KINDS: Final = {
    "A->B": "flows",
    "[A->B] OFFSETS": "flows",
    "ALIAS": "clusters",
    "TOPIC": "topics",
    "NAMES": "topics",
    "GROUP|TOPIC:PARTITION:OFFSET": "groups",
    "KEY[=VALUE]": "settings",
    "KEY=VALUE": "keys",
    "PAGE[#SECTION]": "pages",
}


def _members(text: str) -> list[str]:
    return [name for name in (part.strip() for part in text.split(",")) if name]


def _path(line: Line, what: str) -> str:
    [flow] = filter(None, [line.flow] if line.flow is not None else map(Flow.parse, _flows(line)))
    return f"{flow.url_path().removeprefix('/')}/{what}"


def _ask(line: Line, path: str, **query: str) -> Any:
    """Return the node's answer, as the commands would ask, but without asking for a password."""
    url = urllib.parse.urlsplit(line.option("--url") or os.environ.get("MM2PY_URL", "") or _NODE)
    place = (url.hostname or "", url.port)
    if url.scheme == "https":
        context = ssl.create_default_context(cafile=line.option("--cacert") or os.environ.get("MM2PY_CACERT") or None)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(*place, timeout=_WITHIN_S, context=context)
    else:
        connection = http.client.HTTPConnection(*place, timeout=_WITHIN_S)
    with contextlib.closing(connection):
        connection.request(
            "GET", f"{url.path.rstrip('/')}/{path}?{urllib.parse.urlencode(query)}", headers=_headers(line)
        )
        return json.loads(connection.getresponse().read(_MOST_BYTES))


def _headers(line: Line) -> dict[str, str]:
    token = os.environ.get("MM2PY_TOKEN", "")
    if path := line.option("--token-file"):
        token = Path(path).expanduser().read_text(encoding="utf-8").splitlines()[0].strip()
    return {"Accept": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
