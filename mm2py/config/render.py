"""
The key table as documentation, and a configuration as it counts.

``python -m mm2py.config.render`` prints ``docs/config.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from mm2py.config.explain import Effective
from mm2py.config.keys.row import Key, Kind, Section
from mm2py.config.keys.table import SECTIONS
from mm2py.config.settings import MirrorSettings
from mm2py.model.flow import Flow


_INTRODUCTION = r"""# Configuration

This page is made from the key table in `mm2py/config` by `python -m mm2py.config.render > docs/config.md`.

## The file

mm2py reads the `mm2.properties` that Java MirrorMaker 2 reads, in the grammar of `java.util.Properties`:

- `key = value`, `key: value` or `key value`; blanks around the key and before the value are dropped.
- `#` and `!` begin a comment only at the start of a line. Behind a value they are part of the value; mm2py says so.
- `\` at the end of a line continues it. `\uXXXX`, `\t`, `\n`, `\r` and `\f` are escapes; any other backslash
  vanishes, so a regular expression needs two: `topics.exclude = mm2.*\\.internal`.
- The last of several lines with one key counts.
- The file may be UTF-8 or ISO-8859-1.
- `--override KEY=VALUE`, as often as you like, stands for lines behind the last one.

Lists are separated by commas. Lists of regular expressions are in Java's dialect, and a member must match the whole
name; a comma inside `{1,3}` does not end a member.

## Which line counts

A key is written at the top level (`tasks.max`), for a cluster (`A.bootstrap.servers`) or for a flow
(`A->B.topics`). The column *where* says which of them exist for a key; of those, the later one named beats the
earlier, with the exceptions that the sections name.

`--explain` prints what each key counts as and which line that comes from, `--explain "A->B"` for one flow. Nothing is
started, and secrets are masked.

## Values from elsewhere

`${provider:path:key}` and `${provider:key}` stand for what a provider gives, as in Kafka; several may stand in a
value, and what they give is not looked at again. `config.providers` names the providers that there are:

| provider | class in Kafka | example | parameters |
|---|---|---|---|
| `file` | `FileConfigProvider` | `${file:/etc/secrets.properties:b.password}`, a key of a file | `allowed.paths` |
| `dir` | `DirectoryConfigProvider` | `${dir:/run/secrets:b-password}`, the whole content of a file | `allowed.paths` |
| `env` | `EnvVarConfigProvider` | `${env:B_PASSWORD}`, an environment variable | `allowlist.pattern` |

```properties
config.providers = env, vault
config.providers.vault.class = my_company.secrets.Vault
config.providers.vault.param.url = https://vault.example.com
B.ssl.truststore.password = ${env:STORE_PASSWORD}
B.sasl.jaas.config = ${vault:kafka/b:jaas}
```

The three names need no `class`; any other takes `config.providers.NAME.class`: Kafka's full class names, or the
dotted path of a Python class. That class is called with a dict of its parameters, and its `get(path, keys)` gives a
dict of those of `keys` that there are. A value that cannot be had is a problem. What came from a provider is shown as
the reference, never as the value; so it is in problems, in notes and in `--explain`.

## Problems and notes

Every problem of a file is reported at once, with its line. A line that has no effect (an unknown key, a key at the
wrong level, a key of Java's that this version does not act on yet) is named in a note at the start, and the mirror
runs. In the tables below, *not yet* marks keys that are accepted without effect in this version.
"""


def explain(settings: MirrorSettings, flow: Flow | None = None) -> tuple[Effective, ...]:
    """Return the keys that count for *flow*, or for the whole process, with their values and origins."""
    owner = "" if flow is None else str(flow)
    return tuple(row for row in settings.effective if row.owner == owner)


def render_reference() -> str:
    """Write the reference of all keys as Markdown."""
    return "\n".join((_INTRODUCTION, *(line for section in SECTIONS for line in _render_section(section))))


def _render_section(section: Section) -> Iterator[str]:
    yield f"## {section.title}\n"
    if section.text:
        yield f"{section.text}\n"
    yield "| key | type | default | where | what it does |"
    yield "|---|---|---|---|---|"
    yield from (_render_row(key) for key in section.keys)
    yield ""


def _render_row(key: Key) -> str:
    was = f" Formerly {', '.join(f'`{alias}`' for alias in key.aliases)}." if key.aliases else ""
    text = key.doc + was if key.acts else f"*Not yet.* {key.doc}{was}"
    kind = "any" if key.stem is not None and key.kind is Kind.STRING else key.kind.value
    cells = (f"`{key.full_name}`", kind, _render_default(key), key.place.value, text)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _render_default(key: Key) -> str:
    if key.default is None:
        return ""
    return f"`{key.default}`" if key.default else "empty"


if __name__ == "__main__":
    sys.stdout.write(render_reference())
