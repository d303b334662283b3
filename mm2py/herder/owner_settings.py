"""
The settings that a node takes from the owners of its flows, where its file has others.

As in Java MirrorMaker, one node's file counts: a flow whose nodes copied different topics would copy each of these in
part. A node whose file differs in what it cannot take from another one gets no share of the flow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import attrs

from mm2py.config.explain import is_taken_from_owner
from mm2py.config.keys.table import key_named
from mm2py.config.layers import spellings
from mm2py.config.settings import ConfigError, MirrorSettings
from mm2py.errors import Mm2Error
from mm2py.herder.replication_loops import judged
from mm2py.model.flow import Flow


@attrs.define(eq=False)
class OwnerSettingsRefusedError(Mm2Error):
    """The settings of a flow's owner cannot be used on this node."""

    hint: ClassVar[str] = "give all nodes of the flow the same file and the same version"

    flow: Flow
    problems: tuple[str, ...]

    def __str__(self) -> str:
        return f"the settings of {self.flow}'s owner cannot be used here: {'; '.join(self.problems)}"


class OwnerSettings:
    """A node's file, and what the owners of its flows have otherwise."""

    def __init__(self, file: MirrorSettings) -> None:
        #: What this node compares with the other nodes.
        self.file = file
        self._lines: dict[Flow, Mapping[str, str]] = {}

    async def follow(self, flow: Flow, values: Mapping[str, str | None]) -> MirrorSettings | None:
        """
        Take *values* of the owner of *flow*, and return this node's settings with them; None if nothing has changed.

        Raise OwnerSettingsRefusedError if they cannot be used; the former ones apply.
        """
        lines = _lines_of(flow, values)
        if lines == self._lines.get(flow, {}) or self.file.with_owners is None:
            return None
        try:
            settings = await asyncio.to_thread(self._with, self.file, {**self._lines, flow: lines})
        except ConfigError as error:
            raise OwnerSettingsRefusedError(flow, tuple(map(str, error.problems))) from error
        self._lines[flow] = lines
        return settings

    async def reread(self, file: MirrorSettings) -> MirrorSettings:
        """Return the settings of *file*, which was read again, with what owners have otherwise, as far as it fits."""
        self.file, there = file, {settings.flow for settings in file.flows}
        self._lines = {flow: lines for flow, lines in self._lines.items() if flow in there}
        try:
            return await asyncio.to_thread(self._with, file, self._lines)
        except ConfigError:
            self._lines = {}  # the flow's nodes compare their settings again
            return file

    @staticmethod
    def _with(file: MirrorSettings, lines: Mapping[Flow, Mapping[str, str]]) -> MirrorSettings:
        together = {key: value for some in lines.values() for key, value in some.items()}
        return file if not together or file.with_owners is None else judged(file.with_owners(together))


def _lines_of(flow: Flow, values: Mapping[str, str | None]) -> dict[str, str]:
    """Return settings as lines of a properties file, in the form with the highest precedence."""
    lines = {}
    for name, text in values.items():
        if is_taken_from_owner(name, text or ""):
            key = key_named(name)
            lines[spellings(key, flow)[0]] = (key.default or "") if text is None else text
    return lines
