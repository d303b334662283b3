"""A daemon that answers from a table, for commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from mm2py.cli.rest_client import ServerEvent


class Answers:
    """A daemon that answers from a table and remembers what it was asked."""

    def __init__(self, table: Mapping[str, Any], events: list[ServerEvent] | None = None) -> None:
        self.asked: list[tuple[str, str]] = []
        self.queries: list[Mapping[str, str]] = []
        self._table = table
        self._events = events or []

    async def ask(self, method: str, path: str, **_more: object) -> Any:
        self.asked.append((method, path))
        return self._table.get(path)

    async def follow(self, path: str, *, query: Mapping[str, str]) -> AsyncIterator[ServerEvent]:
        self.asked.append(("GET", path))
        self.queries.append(query)
        for event in self._events:
            yield event
        raise KeyboardInterrupt
