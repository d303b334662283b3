"""The daemon's private directory: made as it starts, gone as it ends. What a killed one left, the next one removes."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import attrs

from mm2py.errors import Mm2Error


_PREFIX = "mm2py-"
#: Tells it from other directories of that name, and is there only once the directory is locked.
_MARK = ".scratch"
#: What the daemon itself keeps there: the key of its plans, and the files by which it ends epochs.
_OURS = (_MARK, "secrets.key", "epoch-")


@attrs.define(eq=False)
class NoScratchError(Mm2Error):
    """There is no place for a private directory."""

    hint: ClassVar[str] = "make /tmp writable, and some of it free, or set TMPDIR to a folder that is"

    cause: str

    def __str__(self) -> str:
        return f"no private directory can be made for temporary files: {self.cause}"


class Scratch:
    """
    A private directory, at `path`. Raise `NoScratchError` if there can be none.

    Its owner keeps it locked. The kernel lets go of the lock when the owner ends, in whatever way.
    """

    def __init__(self) -> None:
        try:
            _sweep()
            self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
            self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            (self.path / _MARK).touch()
        except OSError as error:
            raise NoScratchError(str(error)) from error

    def clear(self) -> None:
        """Remove what an earlier life of Spark left there: a JVM that is killed, or crashes, removes nothing."""
        for entry in self.path.iterdir():
            if entry.name.startswith(_OURS):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)

    def remove(self) -> None:
        """Remove it with all that is in it; a second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _sweep() -> None:
    """Remove what daemons of this user left that were killed."""
    for mark in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_MARK}"):
        try:
            lock = os.open(mark.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if os.fstat(lock).st_uid == os.geteuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(mark.parent, ignore_errors=True)
        except OSError:
            continue  # its owner lives
        finally:
            os.close(lock)
