"""What Kafka's own MirrorMaker makes of properties files: configs of workers, connectors and clients as whole maps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import attrs

from tests.support.java_programs import java_program


@attrs.frozen
class JavaMaps:
    """What MirrorMaker makes of one file, by flow and by what it is for; `refusal` is why it does not take it."""

    maps: Mapping[tuple[str, str], Mapping[str, str]]
    refusal: str = ""

    @property
    def flows(self) -> set[str]:
        return {flow for flow, _ in self.maps}

    @property
    def configs(self) -> dict[str, dict[str, Mapping[str, str]]]:
        """Return the configs of each flow's worker, and of its source, checkpoint and heartbeat connectors."""
        whats = ("worker", "source", "checkpoint", "heartbeat")
        return {flow: {what: self.maps[flow, what] for what in whats} for flow in sorted(self.flows)}


def java_maps(folder: Path) -> dict[str, JavaMaps]:
    """Ask one Java process about all files of a folder, which have no tab and no line break in a value."""
    maps: dict[str, dict[tuple[str, str], dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    refusals: dict[str, str] = {}
    for line in java_program("MirrorSettings").run(str(folder)):
        name, flow, what, *pair = line.split("\t")
        if flow == "refused":
            refusals[name] = what
        else:
            key, value = pair
            maps[name][flow, what][key] = value
    return {path.name: JavaMaps(maps[path.name], refusals.get(path.name, "")) for path in folder.iterdir()}


def inherited_keys() -> dict[str, set[str]]:
    """Return the keys that each "client" inherits, and each "connector"."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in java_program("MirrorSettings").run():
        who, key = line.split("\t")
        found[who].add(key)
    return found
