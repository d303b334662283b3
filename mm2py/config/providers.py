"""
Value providers: the sources of ``${file:…}``, ``${dir:…}`` and ``${env:…}`` (KIP-297, KIP-421, KIP-887).

They behave as Kafka's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider do, parameters included.
Strimzi's of environment variables is the same; its others, which ask Kubernetes, are refused once they are asked.
They access the machine through a `Machine`, so that tests can put another object in its place.
"""

from __future__ import annotations

import importlib
import os
import posixpath
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Protocol, cast

import attrs

from mm2py.config.properties import parse_bytes
from mm2py.model.patterns import NamePatterns, PatternError, split_list


_JAVA_PACKAGE = "org.apache.kafka.common.config.provider."
_JAVA_ROOTS = ("com.", "io.", "net.", "org.")
#: What the names of Java's providers end with that ask Kubernetes: Strimzi's, and those made after them.
_KUBERNETES = (".KubernetesSecretConfigProvider", ".KubernetesConfigMapConfigProvider")


#: When a file was changed, its size, and which file it is; None if it is missing.
Stamp = tuple[int, int, int] | None
Stamps = Mapping[Path, Stamp]


class ProviderError(ValueError):
    """A provider cannot be created, or cannot provide values; the text says why and never contains a value."""


class Provider(Protocol):
    """A source of values. A custom class is called with its parameters: ``Vault({"url": …})``."""

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        """Return those of *keys* that exist under *path* (empty if the reference has none)."""
        ...


class Machine:
    """The machine this process runs on."""

    def read(self, path: str) -> bytes:
        """Read a file; raise OSError if that fails."""
        return Path(path).read_bytes()

    def files_in(self, directory: str) -> Iterable[str]:
        """Return the names of the regular files in a folder; raise OSError if that fails."""
        return [entry.name for entry in Path(directory).iterdir() if entry.is_file()]

    def environment(self) -> Mapping[str, str]:
        """Return the environment's variables."""
        return os.environ

    def exposed_mode(self, path: str) -> int | None:
        """Return the permissions of a file if other users may read it; None if not, or if they cannot be changed."""
        try:
            status = Path(path).stat()
            # Of mounted secrets, the mount decides who reads them.
            is_fixed = os.statvfs(path).f_flag & os.ST_RDONLY
        except (OSError, ValueError):
            return None
        # A file of another user is readable here because of its group.
        others = 0o044 if status.st_uid == os.geteuid() else 0o004
        is_exposed = stat.S_ISREG(status.st_mode) and status.st_mode & others and not is_fixed
        return stat.S_IMODE(status.st_mode) if is_exposed else None

    def stamp(self, path: str) -> Stamp:
        """Return what changes when a file is saved."""
        try:
            found = Path(path).stat()
        except (OSError, ValueError):
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


@attrs.frozen
class _AllowedPaths:
    """Folders and files that a provider may read; an empty list allows all."""

    paths: tuple[str, ...] = ()

    @classmethod
    def of(cls, parameters: Mapping[str, str]) -> _AllowedPaths:
        paths = tuple(filter(None, split_list(parameters.get("allowed.paths", ""))))
        if relative := [path for path in paths if not path.startswith("/")]:
            raise ProviderError(f"allowed.paths names {relative[0]!r}, which is not absolute")
        return cls(tuple(posixpath.normpath(path) for path in paths))

    def check(self, path: str) -> str:
        """Return *path* normalised. Raise ProviderError if it is outside of the allowed paths."""
        if not self.paths:
            return path
        plain = posixpath.normpath(path)
        if not any(plain == allowed or plain.startswith(allowed.rstrip("/") + "/") for allowed in self.paths):
            raise ProviderError(f"{path} is outside of allowed.paths")
        return plain


@attrs.frozen
class FileProvider:
    """``${file:/path/of.properties:key}``: a key of a properties file."""

    machine: Machine
    allowed: _AllowedPaths

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        try:
            document = parse_bytes(self.machine.read(self.allowed.check(path)), name=path)
        except OSError as error:
            raise ProviderError(f"{path} cannot be read: {error.strerror or error}") from error
        if document.malformed:
            raise ProviderError(f"{path}:{document.malformed[0].line} cannot be read: a malformed \\uXXXX escape")
        return {key: entry.value for key, entry in document.latest().items() if key in keys}


@attrs.frozen
class DirectoryProvider:
    """``${dir:/folder:file}``: the whole content of a file in a folder, like mounted Kubernetes secrets."""

    machine: Machine
    allowed: _AllowedPaths

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if not path:
            return {}
        folder = self.allowed.check(path)
        try:
            names = [name for name in self.machine.files_in(folder) if name in keys]
            return {name: self.machine.read(posixpath.join(folder, name)).decode("utf-8") for name in names}
        except OSError as error:
            raise ProviderError(f"{path} cannot be read: {error.strerror or error}") from error
        except UnicodeDecodeError as error:
            raise ProviderError(f"a file in {path} is not UTF-8") from error


@attrs.frozen
class EnvironmentProvider:
    """``${env:NAME}``: an environment variable."""

    machine: Machine
    allowed: NamePatterns

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        if path:
            raise ProviderError("environment variables have no path; write ${env:NAME}")
        found = self.machine.environment()
        return {key: found[key] for key in keys if key in found and self.allowed.matches(key)}


@attrs.frozen
class KubernetesProvider:
    """Strimzi's ``${secrets:namespace/name:key}`` and ``${configmaps:…}``: what it stands for is not known here."""

    def get(self, path: str, keys: Collection[str]) -> Mapping[str, str]:
        name, key = path.rpartition("/")[2] or "NAME", next(iter(keys), "KEY")
        raise ProviderError(
            f"Kubernetes is not asked for values; mount {name} as a volume, add config.providers = dir, and write "
            f"${{dir:/path/of/the/volume:{key}}}"
        )


def file_kind(class_name: str) -> str | None:
    """Return ``file`` or ``dir`` for a provider that reads files, by its short name or Kafka's class; else None."""
    short = class_name.removeprefix(_JAVA_PACKAGE)
    kinds = {"file": ("file", "FileConfigProvider"), "dir": ("dir", "directory", "DirectoryConfigProvider")}
    return next((kind for kind, names in kinds.items() if short in names), None)


def make_provider(class_name: str, parameters: Mapping[str, str], machine: Machine) -> Provider:
    """Return the provider for *class_name*: ``file``, ``dir``, ``env``, Kafka's class names, or a Python class. Raise
    ProviderError if there is none, or if it rejects its parameters.
    """
    short = class_name.removeprefix(_JAVA_PACKAGE)
    if (kind := file_kind(class_name)) == "file":
        return FileProvider(machine, _AllowedPaths.of(parameters))
    if kind == "dir":
        return DirectoryProvider(machine, _AllowedPaths.of(parameters))
    if class_name.endswith(_KUBERNETES):
        return KubernetesProvider()
    if short in {"env", "EnvVarConfigProvider", "io.strimzi.kafka.EnvVarConfigProvider"}:
        try:
            return EnvironmentProvider(machine, NamePatterns.compile([parameters.get("allowlist.pattern", ".*")]))
        except PatternError as error:
            raise ProviderError(f"allowlist.pattern: {error}") from error
    return _make_own(class_name, parameters)


def _make_own(class_name: str, parameters: Mapping[str, str]) -> Provider:
    module_name, _, attribute = class_name.replace(":", ".").rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
        made = found(dict(parameters))
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and class_name.startswith(_JAVA_ROOTS):
            message = f"{class_name}: a Java class cannot be used here; name a Python class, see mm2py docs config"
            raise ProviderError(message) from error
        # The text of a foreign error may contain a parameter, and parameters may be secrets.
        raise ProviderError(f"{class_name} cannot be created: {type(error).__name__}") from error
    if not callable(getattr(made, "get", None)):
        raise ProviderError(f"{class_name} has no get()")
    return cast("Provider", made)
