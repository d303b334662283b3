"""Which files were saved since they were read. A stamp is taken before its file is read: a save in between counts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mm2py.config.providers import Machine, Stamps


def stamps(paths: Iterable[Path]) -> Stamps:
    """Return the present stamps of files."""
    return {path: Machine().stamp(str(path)) for path in paths}
