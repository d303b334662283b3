"""A properties file of a test: written, and read as settings or as everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from mm2py.config.settings import ConfigError, FlowSettings, MirrorSettings, Problem, load_settings


#: Two clusters and a flow between them; what a test adds begins at line 5.
BASE = "clusters = A, B\nA.bootstrap.servers = a:9092\nB.bootstrap.servers = b:9092\nA->B.enabled = true\n"


@attrs.frozen
class ConfigFile:
    """`mm2.properties` in a folder of its own; each call writes it again."""

    path: Path

    def load(self, *lines: str, base: str = BASE, encoding: str = "utf-8", **arguments: Any) -> MirrorSettings:
        """Return the settings of *base* and *lines*; *arguments* are those of `load_settings`."""
        self.path.write_text(base + "\n".join(lines), encoding=encoding)
        self.path.chmod(0o600)  # no note about passwords in it
        return load_settings(self.path, **arguments)

    def flow(self, *lines: str, **arguments: Any) -> FlowSettings:
        """Return the settings of A->B."""
        return next(flow for flow in self.load(*lines, **arguments).flows if str(flow.flow) == "A->B")

    def problems(self, *lines: str, **arguments: Any) -> tuple[Problem, ...]:
        """Return what is wrong with a file that is refused."""
        return problems_of(self.load, *lines, **arguments)

    def refusals(self, *lines: str, **arguments: Any) -> list[str]:
        """Return what is wrong with a file that is refused, as it is printed."""
        return refusals_of(self.load, *lines, **arguments)


def problems_of(load: Callable[..., object], *files: Any, **options: Any) -> tuple[Problem, ...]:
    """Return what is wrong with files that are refused when they are loaded."""
    with pytest.raises(ConfigError) as caught:
        load(*files, **options)
    return caught.value.problems


def refusals_of(load: Callable[..., object], *files: Any, **options: Any) -> list[str]:
    """Return what is wrong with files that are refused, as it is printed."""
    return [str(problem) for problem in problems_of(load, *files, **options)]


def only_flow(settings: MirrorSettings) -> FlowSettings:
    """Return the flow of a file that has one."""
    (flow,) = settings.flows
    return flow
