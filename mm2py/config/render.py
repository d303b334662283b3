"""
The key table as documentation, and the effective configuration.

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

This page is generated from the key table in `mm2py/config` by `python -m mm2py.config.render > docs/config.md`.

## The file

mm2py reads the `mm2.properties` that Java MirrorMaker 2 reads, in the grammar of `java.util.Properties`:

- `key = value`, `key: value` or `key value`; spaces around the key and before the value are dropped.
- `#` and `!` begin a comment only at the start of a line. After a value they are part of the value; mm2py notes it.
- `\` at the end of a line continues it. `\uXXXX`, `\t`, `\n`, `\r` and `\f` are escapes; any other backslash is
  dropped, so a regular expression needs two: `topics.exclude = mm2.*\\.internal`.
- Of several lines with one key, the last applies.
- The file may be UTF-8 or ISO-8859-1.
- `--override KEY=VALUE`, which may be repeated, is treated as a line after the last one.
- Unknown keys are ignored with a note, as Java ignores them; `--strict` refuses them. A misspelt key of security
  (`rest.auth.user.file`, `A.ssl.truststore.locaton`) is refused in any case.

Lists are separated by commas. Lists of regular expressions are in Java's dialect, and a member must match the whole
name; a comma inside `{1,3}` does not end a member.

## Precedence

A key is written at the top level (`tasks.max`), for a cluster (`A.bootstrap.servers`) or for a flow
(`A->B.topics`). The column *where* lists the possible levels of a key; of those, the later one takes precedence, with
the exceptions noted in the sections.

`--explain` prints the effective value of each key and the line it comes from, `--explain "A->B"` for one flow. With
`--changed`, only values that differ from the default. Nothing is started, and secrets are masked.

## Value providers

`${provider:path:key}` and `${provider:key}` stand for a provider's value, as in Kafka; a value may have several, and
provided values are not resolved again. `config.providers` names the providers:

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
dotted path of a Python class. That class is called with a dict of its parameters, and its `get(path, keys)` returns a
dict of those of `keys` that exist. A missing value is a problem. Provided values are shown as their reference, never
as the value, in problems, notes and `--explain`.

## Problems and notes

Every problem of a file is reported at once, with its line. A line that has no effect (an unknown key, a key at the
wrong level, a key of Java's that this version does not act on yet) is named in a note at startup, and the mirror runs.
In the tables below, *not yet* marks keys that are accepted without effect in this version.
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
    was = f" Also {', '.join(f'`{alias}`' for alias in key.aliases)}." if key.aliases else ""
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
