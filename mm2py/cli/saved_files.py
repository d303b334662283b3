"""Which files were saved since they were read. A stamp is taken before its file is read: a save in between counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path


#: When a file was changed, its size, and which file it is; None if it is missing.
Stamps = Mapping[Path, tuple[int, int, int] | None]


def stamps(paths: Iterable[Path]) -> Stamps:
    """Return the present stamps of files."""
    return {path: _stamp(path) for path in paths}


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
