"""What happened in a run: a digest of all of it, and the lines if they are wanted."""

from __future__ import annotations

import collections
import hashlib
import re
from typing import Any

from mm2py.telemetry.events import Event
from tests.simulated.loop import SimLoop


#: There is one flow; each event names it.
_FLOW = re.compile(r"flow=Flow\([^)]*\),? ?")


class Journal:
    """Takes each event of a node, each append and each fault; of requests, the bytes."""

    def __init__(self, loop: SimLoop, *, keeps: bool) -> None:
        self._loop, self._keeps = loop, keeps
        self._hash = hashlib.sha256()
        self.count = 0
        #: Time, who, what, and the rest in words.
        self.lines: list[tuple[float, str, str, str]] = []
        self.events: collections.Counter[str] = collections.Counter()
        #: Events of nodes: time, node, event.
        self.said: list[tuple[float, str, Event]] = []

    def tell(self, who: str, what: str, *more: Any) -> None:
        """Note what *who* did, or what befell it."""
        now = self._loop.time()
        if what == "says":
            self.events[type(more[0]).__name__] += 1
            self.said.append((now, who, more[0]))
        rest = " ".join(map(str, more))
        self.count += 1
        self._hash.update(f"{now:.6f} {who} {what} {rest}".encode())
        if self._keeps:
            self.lines.append((now, who, what, rest))

    def trace(self, broker: str, client: str, key: int, frame: bytes) -> None:
        """Take a request into the digest, byte by byte."""
        self._hash.update(f"{self._loop.time():.6f} {broker} {client} {key}".encode() + frame)
        self.count += 1

    @property
    def digest(self) -> str:
        """A hash of all that happened."""
        return self._hash.hexdigest()

    def timeline(self) -> list[str]:
        """Return what happened as a person reads it: no appends, which are too many."""
        shown = [line for line in self.lines if line[2] != "append"]
        return [f"{at:10.3f}  {who:8} {what} {_FLOW.sub('', rest)}" for at, who, what, rest in shown]
