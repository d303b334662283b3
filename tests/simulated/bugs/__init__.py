"""Runs that once failed, a JSON file for each: options, and a sentence that says what was wrong."""

from __future__ import annotations

import json
from pathlib import Path

import attrs

from tests.simulated.options import Options


_FOLDER = Path(__file__).parent


@attrs.frozen
class Bug:
    """A run that once failed."""

    name: str
    sentence: str
    options: Options

    @classmethod
    def read(cls, file: Path) -> Bug:
        """Read one from its file."""
        said = json.loads(file.read_text())
        return cls(file.stem, said["sentence"], Options.from_json(said["options"]))


def bug_base() -> list[Bug]:
    """Return all of them."""
    return [Bug.read(file) for file in sorted(_FOLDER.glob("*.json"))]
