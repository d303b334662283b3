"""References in values: ``${provider:path:key}`` and ``${provider:key}``, replaced by the provider's value. The
grammar is that of Kafka's ConfigTransformer: a value may have several references, and provided values are not resolved
again. A reference to a provider that ``config.providers`` does not name stays as it is, unless the name is that of a
built-in one, which is a mistake. What nothing refers to is not looked at. A value that came from a provider is a secret
from then on.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from mm2py.config.layers import Layers, Value
from mm2py.config.problem import Problem
from mm2py.config.providers import Machine, Provider, ProviderError, Stamps, file_kind, make_provider
from mm2py.model.patterns import split_list


REFERENCE = re.compile(r"\$\{([^}]*?):(([^}]*?):)?([^}]*?)\}")
#: The key that names providers, and begins the keys that configure them.
PROVIDERS = "config.providers"
#: Names of built-in providers, which need no class in the file.
_BUILT_IN = ("file", "dir", "directory", "env")


@attrs.frozen
class Resolved:
    """The lines with all references replaced, with problems and notes; and the files that were read, as they were
    before.
    """

    layers: Layers
    problems: tuple[Problem, ...]
    notes: tuple[Problem, ...]
    files: Stamps
    #: The lines whose values are not known, because of a problem with a provider: where they are, and their keys.
    unknown: frozenset[tuple[str, str]] = frozenset()

    def without_effects(self, problems: Iterable[Problem]) -> list[Problem]:
        """Return *problems* without those of the text of a reference whose provider is the problem."""
        mine = self.problems
        return [problem for problem in problems if (problem.where, problem.key) not in self.unknown or problem in mine]


def resolve_references(layers: Layers, machine: Machine) -> Resolved:
    """Replace all references in *layers* by the values of its providers."""
    referring = [line for line in layers.lines() if "${" in line.text and not _is_of_providers(line.counts_as)]
    used = {found.group(1) for line in referring for found in REFERENCE.finditer(line.text)}
    providers, problems = _make_providers(layers, machine, used)
    paths = {path for line in layers.lines() for path in files_provided(line.text, layers)}
    # Before they are read: a save in between counts.
    files = {Path(path): machine.stamp(path) for path in paths}
    notes: list[Problem] = []
    replaced: list[Value] = []
    for line in referring:
        try:
            text = _replace(line.text, providers)
        except ProviderError as error:
            problems.append(Problem(line.where, line.key, str(error)))
            continue
        if text != line.text:
            replaced.append(attrs.evolve(line, text=text, stands_in=line.text))
        for name, stranger in _strangers(line, layers):
            (problems if name in _BUILT_IN else notes).append(stranger)
    broken = {name for name in _named(layers) if name not in providers}
    unknown = frozenset(
        (line.where, line.key)
        for line in referring
        if any(found.group(1) in broken for found in REFERENCE.finditer(line.text))
    )
    return Resolved(layers.replaced(replaced), tuple(problems), tuple(notes), files, unknown)


def _is_of_providers(key: str) -> bool:
    return key == PROVIDERS or key.startswith(f"{PROVIDERS}.")


def _named(layers: Layers) -> tuple[str, ...]:
    line = layers.get(PROVIDERS)
    return tuple(filter(None, split_list(line.text))) if line else ()


def _make_providers(
    layers: Layers, machine: Machine, used: Collection[str]
) -> tuple[dict[str, Provider], list[Problem]]:
    """Return the providers that are *used*, and the problems of those that cannot be."""
    named = layers.get(PROVIDERS)
    providers: dict[str, Provider] = {}
    problems: list[Problem] = []
    for name in (name for name in _named(layers) if name in used):
        line = layers.get(f"{PROVIDERS}.{name}.class")
        if line is None and name not in _BUILT_IN:
            problem = Problem(named.where if named else "", PROVIDERS, f"provider {name} has no class")
            problems.append(attrs.evolve(problem, hint=f"add {PROVIDERS}.{name}.class"))
            continue
        try:
            providers[name] = make_provider(line.text.strip() if line else name, _parameters(layers, name), machine)
        except ProviderError as error:
            where, key = (line.where, line.key) if line else (named.where if named else "", PROVIDERS)
            problems.append(Problem(where, key, str(error)))
    return providers, problems


def files_provided(text: str, layers: Layers) -> Iterator[str]:
    """Return the files that the references in *text* read."""
    for found in REFERENCE.finditer(text):
        name, path = found.group(1), found.group(3) or ""
        line = layers.get(f"{PROVIDERS}.{name}.class")
        kind = file_kind(line.text.strip() if line else name)
        if path and kind is not None:
            yield posixpath.join(path, found.group(4)) if kind == "dir" else path


def _parameters(layers: Layers, name: str) -> dict[str, str]:
    stem = f"{PROVIDERS}.{name}.param."
    return {line.counts_as.removeprefix(stem): line.text for line in layers.lines() if line.counts_as.startswith(stem)}


def _replace(text: str, providers: Mapping[str, Provider]) -> str:
    """Replace the references in *text*. Raise ProviderError if a provider has no such value."""

    def value_of(found: re.Match[str]) -> str:
        provider = providers.get(found.group(1))
        if provider is None:
            return found.group()
        path, key = found.group(3) or "", found.group(4)
        try:
            values = provider.get(path, frozenset((key,)))
        except ProviderError as error:
            raise ProviderError(f"{found.group()}: {error}") from error
        except Exception as error:
            # A custom provider; its message may contain a secret.
            raise ProviderError(f"{found.group()}: {type(error).__name__}") from error
        if key not in values:
            raise ProviderError(f"{found.group()}: there is no such value")
        return values[key]

    return REFERENCE.sub(value_of, text)


def _strangers(line: Value, layers: Layers) -> Iterator[tuple[str, Problem]]:
    """Return references to providers that the file does not name, by the provider. Spark replaces some itself."""
    for found in REFERENCE.finditer("" if line.counts_as.startswith("spark.") else line.text):
        name = found.group(1)
        if name not in _named(layers):
            message = f"{found.group()} stays as it is: {PROVIDERS} does not name {name or 'a provider without a name'}"
            more = ", ".join((*_named(layers), name))
            yield name, Problem(line.where, line.key, message, f"add {PROVIDERS} = {more}" if name in _BUILT_IN else "")
