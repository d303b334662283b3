"""Notes about files with secrets that other users of the machine may read: the configuration files themselves, and
those that they name.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from mm2py.config.layers import Layers
from mm2py.config.lint import Line
from mm2py.config.problem import Problem
from mm2py.config.providers import Machine
from mm2py.config.references import files_provided


_SECRET_NAME: Final = re.compile(r"password|secret|token\Z|\.access\.key\Z|ssl\..*\bkey\Z", re.IGNORECASE)
_NO_SECRET_NAME: Final = re.compile(
    r"(?:certificates|certificate\.chain|location|file|path|url|class|provider|type|enabled|algorithm)\Z", re.IGNORECASE
)
_JAAS: Final = "sasl.jaas.config"
_JAAS_SECRET: Final = re.compile(r"(?:password|secret|token)\w*\s*=", re.IGNORECASE)
_KEY_TAB: Final = re.compile(r"""keyTab\s*=\s*["']?([^"';\s]+)""")
_NAMING: Final = ("rest.auth.users.file", "secrets.key.file")
_STORE: Final = "ssl.keystore.location"
_TOKEN: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a setting


def note_readable(
    files: Mapping[str, Path], lines: Sequence[Line], layers: Layers, machine: Machine
) -> Iterator[Problem]:
    """Return a note for each file with secrets that other users may read. *files* has the configuration files by the
    names that lines have for them.
    """
    contained: dict[str, list[str]] = {}
    named: dict[str, list[str]] = {}
    for line in lines:
        value = line.value
        file = files.get(value.where.rpartition(":")[0])
        if file is not None and not value.stands_in and _is_secret(line):
            contained.setdefault(str(file), []).append(value.key)
        for path in _files_named(line, layers):
            named.setdefault(path, []).append(value.key)
    for path in dict.fromkeys((*contained, *named)):
        mode = machine.exposed_mode(path)
        if mode is not None:
            holds = f"contains {', '.join(contained[path])}" if path in contained else ""
            serves = f"is named by {', '.join(named[path])}" if path in named else ""
            message = f"other users may read it (mode {mode:04o}), and it {' and '.join(filter(None, (holds, serves)))}"
            yield Problem(path, "", message, f"chmod 600 {shlex.quote(path)}")


def _is_secret(line: Line) -> bool:
    """Whether the value of a line is a secret. Rows for many keys have some that are not."""
    name, text = line.name, line.value.text.strip()
    if not text or _NO_SECRET_NAME.search(name):
        return False
    if name.endswith(_JAAS):
        return _JAAS_SECRET.search(text) is not None
    if line.row is not None and line.row.stem is None:
        return line.row.is_secret
    return _SECRET_NAME.search(name) is not None


def _files_named(line: Line, layers: Layers) -> Iterator[str]:
    """Return the files with secrets that a line names."""
    value, name = line.value, line.name
    if value.stands_in:
        yield from files_provided(value.stands_in, layers) if _is_secret(line) else ()
        return
    text = value.text.strip()
    if text and (name in _NAMING or name.endswith(_STORE)):
        yield text
    elif name.endswith(_TOKEN) and text.startswith("file:"):
        yield re.sub(r"\A(?://)?", "", text.removeprefix("file:"))
    elif name.endswith(_JAAS):
        yield from _KEY_TAB.findall(text)
